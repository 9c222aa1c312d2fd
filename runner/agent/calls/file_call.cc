#include "isogate/backend.hpp"
#include "isogate/disk.h"
#include "runner/agent/calls/call.h"

namespace isogate::agent {
namespace {

constexpr size_t kBatch = 32 << 10;  // of ENTRIES

Answer answer_of(const isogate_entry& entry) {
  Answer answer;
  answer.result.entry_type = entry.type;
  answer.result.entry_mode = entry.mode;
  answer.result.entry_size = entry.size;
  answer.result.entry_mtime_ns = entry.mtime_ns;
  return answer;
}

Answer answer_of(const Result<isogate_entry>& entry) {
  return entry ? answer_of(*entry) : Answer(entry.error());
}

Answer answer_of(const std::shared_ptr<DiskQuota>& disk) {
  if (disk == nullptr) return Answer(unsupported("the disk of this sandbox is neither limited nor counted"));
  const auto found = disk->use();
  if (!found) return Answer(found.error());
  const isogate_runner_disk use{
      (found->enforced ? ISOGATE_DISK_ENFORCED : 0) | (found->exact ? ISOGATE_DISK_EXACT : 0),
      0,
      found->used_bytes,
      found->limit_bytes,
      found->used_files,
      found->limit_files};
  Answer answer;
  answer.message.assign(reinterpret_cast<const char*>(&use), sizeof use);
  return answer;
}

Answer answer_of(const Result<void>& done) { return done ? Answer() : Answer(done.error()); }

class FileCall final : public Call {
 public:
  FileCall(Place& place, Wire wire, const link::Frame& frame, link::FileOrder order)
      : Call(place, wire, frame), order_(std::move(order)) {}

  [[nodiscard]] size_t descriptors() const override { return moves_bytes() ? 1 : 0; }
  Result<void> open(std::vector<Fd> batch) override;
  Answer run() override;
  bool credit(uint32_t channel, uint32_t bytes) override;
  void cancel(bool) override;

 private:
  [[nodiscard]] uint32_t verb() const { return order_.head.verb; }
  [[nodiscard]] bool moves_bytes() const { return sends_bytes() || verb() == ISOGATE_RUNNER_WRITE; }
  [[nodiscard]] bool sends_bytes() const {
    return verb() == ISOGATE_RUNNER_READ || verb() == ISOGATE_RUNNER_WATCH;
  }
  [[nodiscard]] isogate_file_request request() const;
  Answer perform();
  Answer write();
  Answer list();
  isogate_status add(const isogate_entry& entry);
  isogate_status flush();

  link::FileOrder order_;
  Fd body_;  // READ, WATCH: written to, WRITE: read from
  int complete_fd_ = -1;
  Credit entries_credit_;
  std::string entries_;
};

Result<void> FileCall::open(std::vector<Fd> batch) {
  if (auto made = make_cancel(); !made) return made;
  if (!moves_bytes()) return {};
  if (verb() == ISOGATE_RUNNER_WRITE) {
    auto event = inlet_.completion();
    if (!event) return event.error();
    complete_fd_ = *event;
  }
  if (given_) {
    body_ = std::move(batch.front());
    return {};
  }
  auto end = sends_bytes() ? outlet_.open() : inlet_.open();
  if (!end) return end.error();
  body_ = std::move(*end);
  return {};
}

isogate_file_request FileCall::request() const {
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.scope = order_.head.scope;
  request.flags = order_.head.flags;
  request.mode = order_.head.mode;
  request.path = sdk::str(order_.path);
  request.path_to = sdk::str(order_.path_to);
  request.offset = order_.head.offset;
  request.limit = order_.head.limit;
  request.fd = body_.get();
  request.complete_fd = complete_fd_;
  return request;
}

Answer FileCall::write() {
  const auto written = place_.workspace().write(request(), cancel_fd());
  if (!written) return Answer(written.error());
  Answer answer;
  answer.result.written = *written;
  return answer;
}

isogate_status FileCall::flush() {
  const size_t size = entries_.size();
  if (size == 0) return ISOGATE_OK;
  if (entries_credit_.wait(size, size) == 0) return ISOGATE_CANCELLED;
  const bool sent = wire_.connection.send(ISOGATE_RUNNER_ENTRIES, stream(), entries_);
  entries_.clear();
  return sent ? ISOGATE_OK : ISOGATE_CANCELLED;
}

// A longer path cannot be requested.
isogate_status FileCall::add(const isogate_entry& entry) {
  if (entry.name.len > link::kMaxName) return ISOGATE_OK;
  link::append_entry(entries_, {entry.type, entry.mode, entry.size, entry.mtime_ns, 0, 0},
                     sdk::view(entry.name));
  return entries_.size() < kBatch ? ISOGATE_OK : flush();
}

Answer FileCall::list() {
  const isogate_entry_sink sink = {
      this, [](void* self, const isogate_entry* entry) { return static_cast<FileCall*>(self)->add(*entry); }};
  if (auto listed = place_.workspace().list(request(), sink, cancel_fd()); !listed)
    return Answer(listed.error());
  if (flush() != ISOGATE_OK) return Answer(Error{ISOGATE_CANCELLED, 0, "cancelled"});
  return Answer();
}

Answer FileCall::perform() {
  if (auto checked = place_.check_user(order_.user); !checked) return Answer(checked.error());
  Workspace& files = place_.workspace();
  switch (verb()) {
    case ISOGATE_RUNNER_READ:
      return answer_of(files.read(request(), cancel_fd()));
    case ISOGATE_RUNNER_WRITE:
      return write();
    case ISOGATE_RUNNER_LIST:
      return list();
    case ISOGATE_RUNNER_STAT:
      return answer_of(files.stat(request()));
    case ISOGATE_RUNNER_MKDIR:
      return answer_of(files.mkdir(request()));
    case ISOGATE_RUNNER_MOVE:
      return answer_of(files.move(request(), cancel_fd()));
    case ISOGATE_RUNNER_DISK_USE:
      return answer_of(place_.disk());
    case ISOGATE_RUNNER_REMOVE:
      return answer_of(files.remove(request(), cancel_fd()));
    case ISOGATE_RUNNER_WATCH:
      return answer_of(files.watch(request(), cancel_fd()));
    default:
      return Answer(Error{ISOGATE_UNSUPPORTED, 0, "this runner has no such file call"});
  }
}

Answer FileCall::run() {
  Answer answer = perform();
  body_.reset();
  outlet_.drain();
  inlet_.close();
  return answer;
}

bool FileCall::credit(uint32_t channel, uint32_t bytes) {
  if (channel == ISOGATE_RUNNER_STDOUT && verb() == ISOGATE_RUNNER_LIST) return entries_credit_.add(bytes);
  return Call::credit(channel, bytes);
}

// Half a file is useless: it does not wait for room.
void FileCall::cancel(bool) {
  Call::cancel(true);
  give_up(entries_credit_, true);
}

}  // namespace

std::unique_ptr<Call> make_file(Place& place, Wire wire, const link::Frame& frame) {
  link::FileOrder order;
  if (!link::parse(frame.payload, order)) return nullptr;
  return std::make_unique<FileCall>(place, wire, frame, std::move(order));
}

}  // namespace isogate::agent
