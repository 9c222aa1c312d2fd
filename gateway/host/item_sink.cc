#include "gateway/host/item_sink.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "gateway/host/abi_call.h"
#include "gateway/host/plugin/descriptor.h"
#include "gateway/host/text.h"
#include "gateway/ipc/codec.h"
#include "lib/fd.h"
#include "lib/text.h"

namespace isogate {
namespace {

constexpr size_t kBufferBytes = 32u << 10;
constexpr uint64_t kMaxNameBytes = 60u << 10;

Result<std::string> copy_str(const isogate_str& text, uint64_t limit) {
  if (text.len == 0) return std::string();
  if (text.ptr == nullptr || text.len > limit)
    return plugin_defect("a string that is no string, or too long");
  return std::string(text.ptr, text.len);
}

Result<std::string> encode_entry(const isogate_entry* given, bool recursive) {
  if (given == nullptr) return plugin_defect("list() added no entry");
  isogate_entry entry = import_struct(given);
  auto name = copy_str(entry.name, kMaxNameBytes);
  if (!name) return name.error();
  if (!is_path_below(*name)) return plugin_defect("list() added a name that is not inside the directory");
  if (!recursive && name->find('/') != std::string::npos)
    return plugin_defect("list() added what is not in the directory itself, and was not asked for it");
  const auto taken = entry_of(entry, "list", std::move(*name));
  if (!taken) return taken.error();
  return ipc::encode_item(*taken);
}

Result<std::string> encode_record(const isogate_record* given) {
  if (given == nullptr) return plugin_defect("it listed no record");
  isogate_record record = import_struct(given);
  auto id = copy_str(record.sandbox_id, 64);
  auto handle = copy_str(record.handle, sizeof(isogate_sandbox_info::handle) - 1);
  if (!id) return id.error();
  if (!handle) return handle.error();
  if (id->size() != 30 || !id->starts_with("isg-"))
    return plugin_defect("it listed something that is not one of this gateway's sandboxes");
  return ipc::encode_item(
      ipc::Found{std::move(*id), clean_text(*handle, handle->size()), record.flags & ISOGATE_SANDBOX_RUNS});
}

}  // namespace

Result<ipc::Entry> entry_of(const isogate_entry& entry, std::string_view function, std::string name) {
  const bool known = entry.type >= ISOGATE_ENTRY_REGULAR && entry.type <= ISOGATE_ENTRY_OTHER;
  const bool unknown_size = entry.size == ISOGATE_SIZE_UNKNOWN && function == "read";
  if (entry.type == ISOGATE_ENTRY_REGULAR && entry.size > INT64_MAX && !unknown_size)
    return plugin_defect(std::string(function) + "() answered with a file of " + std::to_string(entry.size) +
                         " bytes, which none has");
  return ipc::Entry{known ? entry.type : ISOGATE_ENTRY_OTHER, entry.mode & 07777, entry.size, entry.mtime_ns,
                    std::move(name)};
}

ItemSink::ItemSink(int out, int cancel_fd) : out_(out), cancel_(cancel_fd) { make_non_blocking(out_); }

isogate_entry_sink ItemSink::entries(bool recursive) {
  recursive_ = recursive;
  return {this, &add_entry};
}
isogate_record_sink ItemSink::records() { return {this, &add_record}; }

isogate_status ItemSink::add_entry(void* ctx, const isogate_entry* entry) noexcept {
  auto* const sink = static_cast<ItemSink*>(ctx);
  return sink->add(encode_entry(entry, sink->recursive_));
}

isogate_status ItemSink::add_record(void* ctx, const isogate_record* record) noexcept {
  return static_cast<ItemSink*>(ctx)->add(encode_record(record));
}

isogate_status ItemSink::add(Result<std::string> item) {
  if (failure_) return failure_->status;
  if (!item) {
    failure_ = std::move(item.error());
    return failure_->status;
  }
  buffer_ += *item;
  if (buffer_.size() < kBufferBytes) return ISOGATE_OK;
  if (auto flushed = flush(); !flushed) failure_ = std::move(flushed.error());
  return failure_ ? failure_->status : ISOGATE_OK;
}

Result<void> ItemSink::finish(Result<void> called) {
  if (failure_) return *failure_;
  const auto truncated = [](const Error& error) {
    return error.status == ISOGATE_RESOURCE_EXHAUSTED && error.os_errno == ENAMETOOLONG;
  };
  if (!called && !truncated(called.error())) return called;
  if (auto flushed = flush(); !flushed) return flushed;
  return called;
}

Result<void> ItemSink::flush() {
  std::string_view rest(buffer_);
  while (!rest.empty()) {
    pollfd watch[2] = {{out_, POLLOUT, 0}, {cancel_, POLLIN, 0}};
    if (::poll(watch, 2, -1) < 0 && errno != EINTR)
      return os_error("cannot wait for the listing's reader", errno);
    if (cancel_ >= 0 && watch[1].revents != 0) return Error{ISOGATE_CANCELLED, 0, "cancelled while listing"};
    ssize_t n = ::write(out_, rest.data(), rest.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return os_error("cannot write the listing", errno);
    rest.remove_prefix(static_cast<size_t>(n));
  }
  buffer_.clear();
  return {};
}

}  // namespace isogate
