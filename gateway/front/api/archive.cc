// /workspace/archive: a tree as a tar, streamed both ways. It is made of the contract's own calls, one for
// each member, so that every rule of theirs holds and every backend has it.
#include <algorithm>
#include <array>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <deque>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "gateway/front/api/files.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/alarm.h"
#include "gateway/front/base/own_fd.h"
#include "gateway/front/base/steps.h"
#include "gateway/front/http/json_answer.h"
#include "lib/log.h"
#include "lib/tar/tar_reader.h"
#include "lib/tar/tar_writer.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

namespace asio = boost::asio;
using ipc::FileVerb;

constexpr size_t kArchivePiece = 128 * 1024;
constexpr size_t kCopied = 16 * 1024;  // smaller pieces are gathered
constexpr size_t kWindow = 4;          // members whose calls are under way, beside the one that moves
constexpr uint64_t kMostListed = 1'000'000;
constexpr size_t kMostSkippedBytes = 48 * 1024;
constexpr int kMostAttempts = 8;  // at a file that is changed meanwhile
constexpr std::chrono::milliseconds kPause{20};

FileRequest archive_request(const Config& config, const Exchange& exchange) {
  FileTarget target = target_from_query(query_parameter(exchange.query, "path").value_or(""), exchange.query);
  if (target.scope == ISOGATE_SCOPE_SANDBOX) {
    if (target.path.empty()) target.path = "/";
    if (!target.path.starts_with('/')) throw invalid_request("with scope=sandbox `path` is absolute: `/etc`");
  }
  return request_for(config, exchange, std::move(target), query_parameter(exchange.query, "agent_id"));
}

std::string joined(const std::string& directory, std::string_view name) {
  std::string path = directory;
  if (!path.empty() && !path.ends_with('/')) path += '/';
  return path.append(name);
}

// What an archive leaves out, as JSON: the first 48 KiB of it, and how many there are.
class Skipped {
 public:
  void add(std::string_view path, std::string_view reason) {
    ++total_;
    if (list_.size() + path.size() > kMostSkippedBytes) return;
    list_ += list_.empty() ? "{" : ",{";
    append_name(list_, "path", path, is_utf8(path));
    list_.append(",\"reason\":\"").append(reason).append("\"}");
  }
  [[nodiscard]] uint64_t total() const { return total_; }
  [[nodiscard]] std::string list() const { return "[" + list_ + "]"; }

 private:
  std::string list_;
  uint64_t total_ = 0;
};

// An archive is many calls. When its sandbox is ended between two of them, what is left must not go to the
// next sandbox of that agent.
class SandboxWatch {
 public:
  explicit SandboxWatch(const Lease& lease)
      : on_end_(*lease.sandbox, [this] {
          on_end_.leave();
          ended_.kill();
        }) {}

  [[nodiscard]] Killer& ended() { return ended_; }
  void check() const {
    if (!ended_.killed()) return;
    throw ApiError{.code = Code::kBackendUnavailable,
                   .message = "the sandbox was ended before the archive was complete"};
  }

 private:
  Killer ended_;
  OnSandboxEnd on_end_;
};

// With what is refused for a moment: too many calls are under way. An archive that has begun tries again for
// as long as a backend may be silent.
class Patience {
 public:
  explicit Patience(const App& app)
      : executor_(app.executor),
        until_(std::chrono::steady_clock::now() +
               std::chrono::seconds(app.config.limits.body_idle_timeout_sec)) {}

  // Throws ClientGone once `client` is.
  Task<void> after(ApiError refusal, const Killer* client = nullptr) {
    if (refusal.code != Code::kRateLimited || std::chrono::steady_clock::now() > until_) throw refusal;
    co_await sleep_for(executor_, kPause);
    if (client != nullptr && client->killed()) throw ClientGone{};
  }

 private:
  asio::any_io_executor executor_;
  std::chrono::steady_clock::time_point until_;
};

// ---- GET

class ArchiveDownload {
 public:
  ArchiveDownload(App& app, Exchange& exchange, Lease& lease, FileTarget target)
      : app_(app), exchange_(exchange), lease_(lease), watch_(lease), target_(std::move(target)) {}

  Task<void> run() {
    const ipc::Entry top = co_await look_at_top();
    if (top.type == ISOGATE_ENTRY_DIRECTORY) {
      co_await list();
      co_await find_parents();
    } else {
      co_await check_readable();
    }
    const Headers headers = {{"Content-Disposition", "attachment"}, {"Content-Security-Policy", "sandbox"}};
    co_await exchange_.begin(200, "application/x-tar", std::nullopt, headers);
    try {
      if (top.type == ISOGATE_ENTRY_DIRECTORY) {
        co_await send_tree(top);
      } else {
        co_await send_file();
      }
      writer_.finish();
      co_await exchange_.write(out_);
      co_await exchange_.finish();
    } catch (const ApiError& error) {
      exchange_.note(error);
      cut(error.fault());
    }
  }

  // Frees what run() has left, however it has ended.
  Task<void> release() {
    co_await clear_in_steps(parents_);
    co_await clear_in_steps(entries_);
  }

 private:
  using Entry = ipc::Entry;
  using Read = std::unique_ptr<Transfer>;
  using Reason = std::string_view;  // why a member is left out; empty: it is not

  // The connection closes without the last chunk: no client takes that for a whole archive.
  [[noreturn]] void cut(const std::string& why) {
    log::warn("archive_cut", {{"request_id", exchange_.request_id}, {"reason", why}});
    throw ClientGone{};
  }

  // A symlink to a directory is followed, as a read follows one to a file.
  Task<Entry> look_at_top() {
    ipc::Reply reply = co_await plain_file_call(lease_, FileVerb::kStat, target_, client_);
    throw_unless_ok(app_, lease_, reply, client_.killed());
    Entry top = std::get<Entry>(reply.value);
    if (top.type != ISOGATE_ENTRY_SYMLINK) co_return top;
    FileTarget behind = target_;
    behind.path += '/';
    reply = co_await plain_file_call(lease_, FileVerb::kStat, behind, client_);
    if (reply.status != ISOGATE_OK) co_return top;
    target_.path += '/';
    co_return std::get<Entry>(reply.value);
  }

  // Fails as a read would, while that can still be said.
  Task<void> check_readable() {
    const Read read = start_read(target_.path, 0);
    const ipc::Reply reply = co_await read->reply();
    throw_unless_ok(app_, lease_, reply, client_.killed());
  }

  Task<void> list() {
    ListRequest request{.target = target_, .recursive = true, .limit = kMostListed};
    Listing listing = co_await list_files(lease_, std::move(request), exchange_.memory, client_);
    entries_ = std::move(listing.entries);
    if (client_.killed()) throw ClientGone{};
    if (listing.truncated) {
      throw ApiError{.code = Code::kFileTooLarge,
                     .message =
                         "the directory holds over 1,000,000 entries, over 16 MiB of names, or "
                         "directories deeper than a path of 4,095 bytes; archive parts of it"};
    }
    throw_unless_ok(app_, lease_, listing.reply);
  }

  // Throws ApiError.
  Read start_read(const std::string& path, uint64_t limit) {
    watch_.check();
    FileTarget target = target_;
    target.path = path;
    target.limit = limit;
    return std::make_unique<Transfer>(lease_, FileVerb::kRead, std::move(target), &client_);
  }

  Task<Read> patient_read(const std::string& path, uint64_t limit) {
    Patience patience(app_);
    for (;;) {
      ApiError refusal;
      try {
        co_return start_read(path, limit);
      } catch (const ApiError& error) {
        refusal = error;
      }
      co_await patience.after(std::move(refusal), &client_);
    }
  }

  // Of one that has failed in a way that concerns this member alone. Throws ApiError for every other failure.
  Reason reason_of(const ipc::Reply& reply) {
    if (client_.killed()) throw ClientGone{};
    switch (reply.status) {
      case ISOGATE_NOT_FOUND:
        return "vanished";
      case ISOGATE_PERMISSION_DENIED:
        return "permission_denied";
      case ISOGATE_IS_DIRECTORY:
      case ISOGATE_NOT_REGULAR:
        return "changed";
      case ISOGATE_INVALID_ARGUMENT:
        return "unreadable";
      default:
        break;
    }
    if (reply.status == ISOGATE_RESOURCE_EXHAUSTED && reply.os_errno == EBUSY) return "busy";
    throw_unless_ok(app_, lease_, reply);
    return {};
  }

  Task<void> send_file() {
    const std::string& path = target_.path;
    const Reason reason = co_await send_checked(path.substr(path.find_last_of('/') + 1), path);
    if (!reason.empty()) cut("the file: " + std::string(reason));
  }

  Task<void> send_tree(const Entry& top) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      watch_.check();
      exchange_.check_admitted();
      const Entry& entry = entries_[i];
      read_ahead(i);
      Reason reason;
      if (entry.type == ISOGATE_ENTRY_DIRECTORY) {
        reason = co_await send_directory(entry);
      } else if (entry.type == ISOGATE_ENTRY_REGULAR) {
        Read early;
        if (!ahead_.empty() && ahead_.front().first == i) {
          early = std::move(ahead_.front().second);
          ahead_.pop_front();
        }
        reason = co_await send_early(entry, std::move(early));
      } else {
        reason = entry.type == ISOGATE_ENTRY_SYMLINK ? "symlink" : "special_file";
      }
      if (!reason.empty()) skipped_.add(entry.name, reason);
      co_await write_if_much();
    }
    TarEntry last = tar_entry("./", top);
    if (skipped_.total() > 0) {
      last.pax = pax_record("ISOGATE.skipped", "{\"skipped\":" + skipped_.list() + ",\"skipped_total\":" +
                                                   std::to_string(skipped_.total()) + "}");
    }
    writer_.directory(last);
  }

  // In a tree, not by hashes: a tenant chooses the names.
  Task<void> find_parents() {
    constexpr size_t kBytesOfOne = sizeof(std::string_view) + 4 * sizeof(void*);
    std::string_view last;
    Steps steps(1000);
    for (const Entry& entry : entries_) {
      if (steps.over()) co_await let_others();
      const std::string_view name = entry.name;
      const size_t slash = name.rfind('/');
      if (slash == std::string_view::npos || name.substr(0, slash) == last) continue;
      last = name.substr(0, slash);
      if (parents_.insert(last).second) exchange_.memory.add(kBytesOfOne);
    }
  }

  // Small files are asked for before it is their turn, as far as calls are free.
  void read_ahead(size_t turn) {
    for (next_ = std::max(next_, turn); next_ < entries_.size() && ahead_.size() < kWindow; ++next_) {
      const Entry& entry = entries_[next_];
      if (entry.type != ISOGATE_ENTRY_REGULAR || entry.size >= kArchivePiece) continue;
      try {
        Read read = start_read(joined(target_.path, entry.name), entry.size + 1);
        if (entry.size < read->room()) ahead_.emplace_back(next_, std::move(read));
      } catch (const ApiError&) {  // its turn will show why
        return;
      }
    }
  }

  // A listing leaves out what it cannot open: a directory that seems empty is looked into.
  Task<Reason> send_directory(const Entry& entry) {
    Reason reason;
    if (!parents_.contains(entry.name)) reason = co_await look_into(joined(target_.path, entry.name));
    if (reason != "vanished") writer_.directory(tar_entry(entry.name, entry));
    co_return reason;
  }

  Task<Reason> look_into(std::string path) {
    Patience patience(app_);
    ListRequest request{.target = target_, .limit = 1};
    request.target.path = std::move(path);
    for (;;) {
      ApiError refusal;
      try {
        ByteShare memory;
        const Listing listing = co_await list_files(lease_, request, memory, client_);
        const bool listed = listing.truncated || listing.reply.status == ISOGATE_OK;
        co_return listed ? Reason() : reason_of(listing.reply);
      } catch (const ApiError& error) {
        refusal = error;
      }
      co_await patience.after(std::move(refusal), &client_);
    }
  }

  // `early` has asked for one byte more than the file had when it was listed, so that its answer shows
  // whether all of it is in the pipe.
  Task<Reason> send_early(const Entry& listed, Read early) {
    if (early) {
      const ipc::Reply reply = co_await early->reply();
      if (reply.status == ISOGATE_OK) {
        const Entry& entry = std::get<Entry>(reply.value);
        if (entry.size <= listed.size && bytes_in(early->pipe.native_handle()) == entry.size) {
          co_await send_content(listed.name, entry, *early, entry.size);
          writer_.end_file();
          co_return Reason();
        }
      }
      early.reset();
    }
    co_return co_await send_checked(listed.name, joined(target_.path, listed.name));
  }

  // As a download does it: an empty read for what the file is, then its bytes, of which the last waits until
  // it is known that they are of the same file.
  Task<Reason> send_checked(const std::string& name, std::string path) {
    Reason reason = "changed";
    for (int i = 0; i < kMostAttempts; ++i) {
      const Read peek = co_await patient_read(path, 0);
      ipc::Reply reply = co_await peek->reply();
      if (reply.status != ISOGATE_OK) co_return reason_of(reply);
      const Entry entry = std::get<Entry>(reply.value);
      if (entry.size == ISOGATE_SIZE_UNKNOWN) {  // perhaps because it was just being written
        reason = "no_length";
        continue;
      }
      reason = "changed";
      if (entry.size == 0) {
        writer_.file(tar_entry(name, entry), "");
        co_return Reason();
      }
      const Read read = co_await patient_read(path, entry.size);
      if (entry.size > read->room()) co_await read->ready();
      const bool proven = entry.size <= read->room() || read->answered();
      if (proven) {
        reply = co_await read->reply();
        if (reply.status != ISOGATE_OK) co_return reason_of(reply);
        if (!are_same(std::get<Entry>(reply.value), entry) ||
            bytes_in(read->pipe.native_handle()) != entry.size)
          continue;
      }
      co_await send_content(name, entry, *read, proven ? entry.size : entry.size - 1);
      if (!proven) {
        reply = co_await read->reply();
        throw_unless_ok(app_, lease_, reply, client_.killed());
        if (!are_same(std::get<Entry>(reply.value), entry)) cut("a file was changed while it was read");
        co_await send_bytes(*read, 1);
      }
      writer_.end_file();
      co_return Reason();
    }
    co_return reason;
  }

  Task<void> send_content(const std::string& name, const Entry& entry, Transfer& read, uint64_t bytes) {
    writer_.begin_file(tar_entry(name, entry), entry.size);
    co_await send_bytes(read, bytes);
  }

  Task<void> send_bytes(Transfer& read, uint64_t bytes) {
    while (bytes > 0) {
      boost::system::error_code error;
      const size_t n = co_await read.pipe.async_read_some(
          asio::buffer(piece_.data(), std::min<uint64_t>(bytes, piece_.size())),
          asio::redirect_error(asio::use_awaitable, error));
      if (error || n == 0) cut("a file ended before its size");
      read.moved(n);
      bytes -= n;
      if (n < kCopied) {
        writer_.bytes({piece_.data(), n});
        co_await write_if_much();
      } else {
        writer_.passed(n);
        co_await exchange_.write(out_);
        out_.clear();
        co_await exchange_.write({piece_.data(), n});
      }
    }
  }

  Task<void> write_if_much() {
    if (out_.size() < kArchivePiece) co_return;
    co_await exchange_.write(out_);
    out_.clear();
  }

  static TarEntry tar_entry(const std::string& name, const Entry& entry) {
    const int64_t seconds = entry.mtime_ns / 1'000'000'000 - (entry.mtime_ns % 1'000'000'000 < 0 ? 1 : 0);
    return {.name = name, .mode = entry.mode & 0777, .mtime = seconds};
  }

  App& app_;
  Exchange& exchange_;
  Lease& lease_;
  Killer& client_ = exchange_.watch_client();
  SandboxWatch watch_;
  FileTarget target_;
  std::vector<Entry> entries_;
  std::set<std::string_view> parents_;  // the directories that have entries
  size_t next_ = 0;                     // to be read ahead
  Skipped skipped_;
  std::string out_;
  std::string piece_ = std::string(kArchivePiece, '\0');
  TarWriter writer_{[this](std::string_view bytes) { out_ += bytes; }};
  std::deque<std::pair<size_t, Read>> ahead_;  // by index of the entry
};

Task<void> handle_archive_download(App& app, Exchange& exchange) {
  FileRequest request = archive_request(app.config, exchange);
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  ArchiveDownload download(app, exchange, lease, std::move(request.target));
  std::exception_ptr failure;
  try {
    co_await download.run();
  } catch (...) {
    failure = std::current_exception();
  }
  co_await download.release();
  if (failure) std::rethrow_exception(failure);
}

// ---- PUT

class ArchiveUpload {
 public:
  ArchiveUpload(App& app, Exchange& exchange, Lease& lease, FileTarget target)
      : app_(app), exchange_(exchange), lease_(lease), watch_(lease), target_(std::move(target)) {}

  Task<void> run() {
    std::optional<ApiError> failure;
    try {
      co_await take_all();
    } catch (const ApiError& error) {
      failure = error;
    }
    if (!failure) co_return co_await send_json(exchange_, figures());
    writing_.reset();
    // What is under way came before, unless it is one of them that has failed: the first failure counts.
    std::string entry = entry_;
    for (bool first = settling_; !under_way_.empty();) {
      try {
        co_await settle_first();
      } catch (const ApiError& error) {
        if (!first) failure = error;
        if (!first) entry = entry_;
        first = true;
      }
    }
    nlohmann::ordered_json details = figures();
    if (!failure->details_json.empty()) details.update(nlohmann::ordered_json::parse(failure->details_json));
    if (!entry.empty()) details["entry"] = printable(entry, kMaxPath);
    failure->details_json = json_text(details);
    throw std::move(*failure);
  }

 private:
  struct Writing {
    std::string name, path;
    std::unique_ptr<Transfer> transfer;
    uint64_t bytes = 0;
  };

  nlohmann::ordered_json figures() const {
    return {{"files", files_},
            {"directories", directories_},
            {"bytes", bytes_},
            {"skipped", nlohmann::ordered_json::parse(skipped_.list())},
            {"skipped_total", skipped_.total()}};
  }

  Task<void> take_all() {
    std::string piece(kArchivePiece, '\0');
    for (;;) {
      const size_t n = co_await exchange_.read_body_some(piece.data(), piece.size());
      if (n == 0) break;
      co_await take(std::string_view(piece).substr(0, n));
    }
    if (auto whole = reader_.finish(); !whole) throw invalid_request(whole.error().message);
    while (!under_way_.empty()) co_await settle_first();
    if (files_ + directories_ == 0) co_await make_directory(target_.path, 0755);
  }

  Task<void> take(std::string_view bytes) {
    using Step = TarReader::Step;
    for (;;) {
      watch_.check();
      const auto step = reader_.next(bytes);
      if (!step) throw invalid_request(step.error().message);
      if (*step == Step::kMore) co_return;
      if (*step == Step::kMember) co_await begin_member(reader_.member());
      if (*step == Step::kContent) co_await take_content(reader_.content());
    }
  }

  Task<void> begin_member(const TarMember& member) {
    using Kind = TarMember::Kind;
    exchange_.check_admitted();
    entry_ = member.name;
    const std::string path = place_of(member.name);
    switch (member.kind) {
      case Kind::kFile:
        co_await begin_file(member, path);
        break;
      case Kind::kDirectory:
        while (!under_way_.empty()) co_await settle_first();
        entry_ = member.name;
        co_await make_directory(path, (member.mode & 0777) | 0700);
        ++directories_;
        break;
      case Kind::kSymlink:
        skipped_.add(member.name, "symlink");
        break;
      default:
        refuse(member.name,
               "it is " + member.kind_text() +
                   (member.kind == Kind::kHardLink ? "; archive its content with tar --hard-dereference"
                                                   : "; only files, directories and symlinks are taken"));
    }
    entry_.clear();
  }

  [[noreturn]] static void refuse(std::string_view name, const std::string& why) {
    throw invalid_request("cannot take `" + printable(name, 200) + "` from the archive: " + why);
  }

  std::string place_of(const std::string& name) const {
    if (name.empty()) refuse(name, "it has no name");
    if (name.front() == '/') refuse(name, "its name is absolute");
    std::string path = target_.path;
    for (std::string_view rest = name; !rest.empty();) {
      const std::string_view part = next_part(rest, '/');
      if (part == "..") refuse(name, "its name has a `..`");
      if (!part.empty() && part != ".") path = joined(path, part);
    }
    if (path.size() > kMaxPath)
      refuse(name, "its path is longer than " + std::to_string(kMaxPath) + " bytes");
    return path;
  }

  FileTarget at(const std::string& path) const {
    FileTarget target = target_;
    target.path = path;
    target.flags |= ISOGATE_FILE_PARENTS;
    return target;
  }

  Task<void> make_directory(const std::string& path, uint32_t mode) {
    if (path.empty()) co_return;
    FileTarget target = at(path);
    target.mode = mode;
    Patience patience(app_);
    for (;;) {
      watch_.check();
      ApiError refusal;
      try {
        const ipc::Reply reply = co_await plain_file_call(lease_, FileVerb::kMkdir, target, watch_.ended());
        co_return co_await throw_unless_written(app_, lease_, reply, std::nullopt);
      } catch (const ApiError& error) {
        refusal = error;
      }
      co_await patience.after(std::move(refusal));
    }
  }

  Task<void> begin_file(const TarMember& member, const std::string& path) {
    if (path == target_.path) refuse(member.name, "it has no name");
    const auto is_same = [&path](const Writing& other) { return other.path == path; };
    while (under_way_.size() >= kWindow || std::any_of(under_way_.begin(), under_way_.end(), is_same))
      co_await settle_first();
    FileTarget target = at(path);
    target.flags |= ISOGATE_FILE_MODE_GIVEN;
    target.mode = member.mode & 0777;
    Patience patience(app_);
    while (!writing_) {
      ApiError refusal;
      try {
        watch_.check();
        writing_ = Writing{member.name, path, std::make_unique<Transfer>(lease_, FileVerb::kWrite, target)};
        break;
      } catch (const ApiError& error) {
        refusal = error;
      }
      if (!under_way_.empty())
        co_await settle_first();
      else
        co_await patience.after(std::move(refusal));
    }
    if (member.size == 0) end_file();
  }

  Task<void> take_content(std::string_view bytes) {
    boost::system::error_code error;
    const size_t n = co_await asio::async_write(writing_->transfer->pipe, asio::buffer(bytes),
                                                asio::redirect_error(asio::use_awaitable, error));
    writing_->transfer->moved(n);
    writing_->bytes += n;
    if (error) co_await end_refused();
    if (reader_.content_left() == 0) end_file();
  }

  // The backend took not all of it, and its reply has the reason.
  Task<void> end_refused() {
    writing_->transfer->cancel();
    const ipc::Reply reply = co_await writing_->transfer->reply();
    entry_ = writing_->name;
    co_await throw_unless_written(app_, lease_, reply, writing_->bytes);
    throw ApiError{.code = Code::kInternal, .message = "the backend took a part of a file for all of it"};
  }

  void end_file() {
    writing_->transfer->complete();
    under_way_.push_back(std::move(*writing_));
    writing_.reset();
  }

  Task<void> settle_first() {
    const Writing first = std::move(under_way_.front());
    under_way_.pop_front();
    const ipc::Reply reply = co_await first.transfer->reply();
    const std::string current = std::exchange(entry_, first.name);
    settling_ = true;
    co_await throw_unless_written(app_, lease_, reply, first.bytes);
    settling_ = false;
    entry_ = current;
    ++files_;
    bytes_ += first.bytes;
  }

  App& app_;
  Exchange& exchange_;
  Lease& lease_;
  SandboxWatch watch_;
  const FileTarget target_;
  TarReader reader_;
  Skipped skipped_;
  uint64_t files_ = 0, directories_ = 0, bytes_ = 0;
  std::string entry_;               // what a failure is about
  bool settling_ = false;           // it is about one that was complete
  std::optional<Writing> writing_;  // whose content comes
  std::deque<Writing> under_way_;   // complete, and not answered yet
};

Task<void> handle_archive_upload(App& app, Exchange& exchange) {
  check_unconditional(exchange);
  FileRequest request = archive_request(app.config, exchange);
  if (query_flag(exchange.query, "replace")) request.target.flags |= ISOGATE_FILE_REPLACE;
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  ArchiveUpload upload(app, exchange, lease, std::move(request.target));
  co_await upload.run();
}

constexpr std::array<std::string_view, 5> kArchiveParameters = {"agent_id", "path", "scope", "user",
                                                                "replace"};

constexpr Route kArchiveRoutes[] = {
    {"GET",
     "/workspace/archive",
     "downloadArchive",
     handle_archive_download,
     {},
     std::span(kArchiveParameters).first(4)},
    {"PUT", "/workspace/archive", "uploadArchive", handle_archive_upload, {}, kArchiveParameters},
};

}  // namespace

std::span<const Route> archive_routes() { return kArchiveRoutes; }

}  // namespace isogate::front
