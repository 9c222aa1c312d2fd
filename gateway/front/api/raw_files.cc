#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gateway/front/api/byte_range.h"
#include "gateway/front/api/files.h"
#include "gateway/front/api/router.h"
#include "gateway/front/http/json_answer.h"

namespace isogate::front {
namespace {

using ipc::FileVerb;

constexpr size_t kSpliceStep = 1 << 20;
constexpr int kMostTries = 8;  // of a download whose file is changed meanwhile

FileTarget parse_raw_target(const std::string& path, std::string_view query) {
  FileTarget target = target_from_query(path, query);
  if (target.scope == ISOGATE_SCOPE_SANDBOX && !target.path.starts_with('/'))
    throw invalid_request(
        "with scope=sandbox the path is absolute, after a slash of its own: "
        "/workspace/files/AGENT/%2Fetc/hosts");
  if (const auto mode = query_parameter(query, "mode")) {
    target.mode = parse_mode(*mode);
    target.flags |= ISOGATE_FILE_MODE_GIVEN;
  }
  if (query_flag(query, "append")) target.flags |= ISOGATE_FILE_APPEND;
  if (query_flag(query, "durable")) target.flags |= ISOGATE_FILE_DURABLE;
  if (query_flag(query, "exclusive")) target.flags |= ISOGATE_FILE_EXCLUSIVE;
  if (query_flag(query, "replace")) target.flags |= ISOGATE_FILE_REPLACE;
  if (query_flag(query, "recursive")) target.flags |= ISOGATE_FILE_RECURSIVE;
  if (query_flag(query, "parents", true)) target.flags |= ISOGATE_FILE_PARENTS;
  return target;
}

FileRequest raw_request(const Config& config, const Exchange& exchange) {
  return request_for(config, exchange, parse_raw_target(exchange.path_param, exchange.query));
}

constexpr std::string_view kType = "application/octet-stream";

Headers download_headers(const ipc::Entry& entry) {
  Headers headers = {{"Content-Disposition", "attachment"}, {"Content-Security-Policy", "sandbox"}};
  if (entry.size == ISOGATE_SIZE_UNKNOWN) return headers;
  headers.emplace_back("Accept-Ranges", "bytes");
  headers.emplace_back("ETag",
                       "\"" + std::to_string(entry.mtime_ns) + "-" + std::to_string(entry.size) + "\"");
  return headers;
}

// One file on its way to the client. Its length and ETag come from an empty read, its bytes from another one:
// they are sent as long as both answers are of the same file.
class Download {
 public:
  Download(App& app, Exchange& exchange, Lease& lease, FileTarget target)
      : app_(app), exchange_(exchange), lease_(lease), target_(std::move(target)) {}

  // False: the file was changed before a byte of it was sent.
  Task<bool> run() {
    const ipc::Entry entry = co_await look();
    if (entry.size == ISOGATE_SIZE_UNKNOWN) {
      co_await send_to_its_end(entry);
      co_return true;
    }
    co_return co_await send(entry);
  }

 private:
  // An empty read fails as a read would: at a symlink out of the workspace, a FIFO, a directory.
  Task<ipc::Entry> look() {
    FileTarget peek = target_;
    peek.limit = 0;
    Transfer transfer(lease_, FileVerb::kRead, std::move(peek), &killer_);
    co_return co_await entry_of(transfer);
  }

  Task<ipc::Entry> entry_of(Transfer& transfer) {
    const ipc::Reply reply = co_await transfer.reply();
    throw_unless_ok(app_, lease_, reply, killer_.killed());
    co_return std::get<ipc::Entry>(reply.value);
  }

  [[nodiscard]] bool head_only() const { return exchange_.route->method == "HEAD"; }

  // RFC 9110: only a GET has a range (14.2), and a part of another version is not wanted (13.1.5). A date, or
  // a weak tag, is none that fits.
  [[nodiscard]] std::string_view wanted_range(const Headers& headers) const {
    if (head_only()) return {};
    const auto tag = std::ranges::find(headers, std::string_view("ETag"), &Headers::value_type::first);
    const bool fits = tag != headers.end() && tag->second == exchange_.header("If-Range");
    return !exchange_.has_header("If-Range") || fits ? exchange_.header("Range") : std::string_view();
  }

  Task<bool> send(const ipc::Entry& entry) {
    Headers headers = download_headers(entry);
    const auto range = parse_range(wanted_range(headers), entry.size);
    if (!range) {
      throw ApiError{
          .code = Code::kRangeNotSatisfiable,
          .message = "the file has " + std::to_string(entry.size) + " bytes; the Range lies outside"};
    }
    if (range->partial) {
      headers.emplace_back("Content-Range", "bytes " + std::to_string(range->offset) + "-" +
                                                std::to_string(range->offset + range->length - 1) + "/" +
                                                std::to_string(entry.size));
    }
    const unsigned status = range->partial ? 206 : 200;
    if (head_only() || range->length == 0) {
      co_await exchange_.begin(status, kType, range->length, headers);
      co_await exchange_.finish();
      co_return true;
    }
    FileTarget target = target_;
    target.offset = range->offset;
    target.limit = range->length;
    Transfer transfer(lease_, FileVerb::kRead, std::move(target), &killer_);
    if (range->length > transfer.room()) co_await transfer.ready();
    bool proven = range->length <= transfer.room() || transfer.answered();
    if (proven) {
      const ipc::Entry read = co_await entry_of(transfer);
      if (!are_same(read, entry)) co_return false;
    }
    co_await exchange_.begin(status, kType, range->length, headers);
    // The last byte of what does not fit into the pipe waits for the answer.
    for (uint64_t left = range->length; left > 0;) {
      if (left == 1 && !proven) {
        const ipc::Entry read = co_await entry_of(transfer);
        if (!are_same(read, entry)) throw ClientGone{};
        proven = true;
      }
      const uint64_t most = std::min<uint64_t>(proven ? left : left - 1, kSpliceStep);
      const size_t n = co_await exchange_.write_from_pipe(transfer.pipe, most);
      if (n == 0) break;
      transfer.moved(n);
      left -= n;
    }
    co_await exchange_.finish();
    co_return true;
  }

  // A file that the kernel makes as it is read: its length is not known before.
  Task<void> send_to_its_end(const ipc::Entry& entry) {
    FileTarget target = target_;
    target.limit = UINT64_MAX;
    Transfer transfer(lease_, FileVerb::kRead, std::move(target), &killer_);
    co_await transfer.ready();
    if (transfer.answered()) co_await entry_of(transfer);
    co_await exchange_.begin(200, kType, std::nullopt, download_headers(entry));
    std::string chunk(head_only() ? 0 : 65536, '\0');
    boost::system::error_code error;
    while (!head_only()) {
      const size_t n = co_await transfer.pipe.async_read_some(
          boost::asio::buffer(chunk), boost::asio::redirect_error(boost::asio::use_awaitable, error));
      if (error || n == 0) break;
      transfer.moved(n);
      co_await exchange_.write(std::string_view(chunk).substr(0, n));
    }
    if (!head_only()) co_await entry_of(transfer);
    co_await exchange_.finish();
  }

  App& app_;
  Exchange& exchange_;
  Lease& lease_;
  const FileTarget target_;
  Killer& killer_ = exchange_.watch_client();
};

}  // namespace

Task<void> download(App& app, Exchange& exchange, FileRequest request) {
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  Download download(app, exchange, lease, std::move(request.target));
  for (int i = 0; i < kMostTries; ++i)
    if (co_await download.run()) co_return;
  throw ApiError{.code = Code::kFileBusy,
                 .message = "the file is changed all the time; copy it with an exec and read the copy",
                 .retry_after_sec = 1};
}

namespace {

// GET and HEAD.
Task<void> handle_download(App& app, Exchange& exchange) {
  co_await download(app, exchange, raw_request(app.config, exchange));
}

Task<void> handle_upload(App& app, Exchange& exchange) {
  check_unconditional(exchange);
  FileRequest request = raw_request(app.config, exchange);
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  Transfer transfer(lease, FileVerb::kWrite, std::move(request.target));
  uint64_t bytes = 0;
  try {
    for (;;) {
      const size_t n = co_await exchange.read_body_to_pipe(transfer.pipe);
      if (n == 0) break;
      transfer.moved(n);
      bytes += n;
    }
    transfer.complete();
  } catch (const PipeClosed&) {  // the backend refused early, and its reply has the reason
    transfer.cancel();
  }
  const ipc::Reply reply = co_await transfer.reply();
  co_await throw_unless_written(app, lease, reply, bytes);
  nlohmann::ordered_json answer{{"bytes_written", std::get<ipc::Written>(reply.value).bytes}};
  co_await send_json(exchange, std::move(answer));
}

Task<void> handle_delete(App& app, Exchange& exchange) {
  check_unconditional(exchange);
  FileRequest request = raw_request(app.config, exchange);
  co_await plain_call(app, exchange, FileVerb::kRemove, std::move(request));
  co_await send_json(exchange);
}

constexpr std::string_view kRawPath = "/workspace/files/{agent_id}/{path}";
constexpr std::string_view kDownloadParameters[] = {"scope", "user"};
constexpr std::string_view kUploadParameters[] = {"append",  "durable", "exclusive", "mode",
                                                  "parents", "replace", "scope",     "user"};
constexpr std::string_view kDeleteParameters[] = {"recursive", "scope", "user"};

constexpr Route kRawFileRoutes[] = {
    {"GET", kRawPath, "downloadFile", handle_download, {}, kDownloadParameters},
    {"HEAD", kRawPath, "headFile", handle_download, {}, kDownloadParameters},
    {"PUT", kRawPath, "uploadFile", handle_upload, {}, kUploadParameters},
    {"DELETE", kRawPath, "deleteFile", handle_delete, {}, kDeleteParameters},
};

}  // namespace

std::span<const Route> raw_file_routes() { return kRawFileRoutes; }

}  // namespace isogate::front
