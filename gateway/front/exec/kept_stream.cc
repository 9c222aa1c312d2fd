#include "gateway/front/exec/kept_stream.h"

#include <algorithm>
#include <utility>

#include "gateway/front/base/api_error.h"
#include "gateway/front/base/own_fd.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;

namespace {

constexpr uint64_t kAskAgainAfter = 1 << 20;

}  // namespace

KeptStream::KeptStream(SpoolDisk& disk, std::string tenant, size_t most, uint64_t in_all)
    : disk_(disk),
      tenant_(std::move(tenant)),
      memory_(most),
      in_all_(in_all),
      uses_disk_(most > 0 && in_all > most && disk.directory),
      share_(disk.quota, tenant_),
      place_(disk.files, tenant_) {}

KeptStream::~KeptStream() { drop_file(); }

// Its beginning would be neither in memory nor in the file.
bool KeptStream::is_beyond(size_t bytes) const {
  return next() + bytes > (file_ ? written_ : memory_.first()) + memory_.most();
}

size_t KeptStream::room(uint64_t offset) const {
  offset = std::clamp(offset, first(), next());
  const auto left_of = [&](uint64_t most) { return most - std::min(most, next() - offset); };
  uint64_t room = offset < memory_.first() ? 0 : left_of(memory_.most());
  if (uses_disk_ && (file_ || place_.left() > 0)) {
    room = std::max(room, left_of(std::min(in_all_, share_.bytes() + share_.left())));
  } else if (file_ && offset < written_) {
    room = std::max(room, written_ + memory_.most() - next());
  }
  return static_cast<size_t>(room);
}

// What it has then: as many as it asked for, or what there is; none without a place for the file.
uint64_t KeptStream::claim(uint64_t bytes) {
  if (bytes <= share_.bytes()) return share_.bytes();
  try {
    if (next() >= asks_again_) {
      place_.hold(1);
      share_.hold(bytes);
    }
  } catch (const ApiError&) {
    asks_again_ = next() + kAskAgainAfter;
  }
  if (place_.left() > 0) place_.hold(1);
  if (place_.bytes() == 0) return 0;
  if (bytes > share_.bytes()) share_.add(std::min(bytes - share_.bytes(), share_.left()));
  return share_.bytes();
}

void KeptStream::release() {
  share_.hold(0);
  place_.hold(0);
}

void KeptStream::append_to_memory(std::string_view data) {
  memory_.append(data);
  if (file_ && written_ < memory_.first()) drop_file();
}

// All is claimed before it waits for the first time: what room() said is true.
asio::awaitable<bool> KeptStream::append(std::string_view data) {
  const uint64_t end = next() + data.size();
  if (waits(data.size())) {
    if (!file_) first_ = written_ = memory_.first();
    const uint64_t most = claim(std::min(end - first_, in_all_));
    if (!file_ && most <= memory_.most()) {
      release();
      append_to_memory(data);
      co_return true;
    }
    first_ = std::max(first_, end - std::min(end, most));
    written_ = std::max(written_, first_);
    if (!file_) file_ = std::make_shared<SpoolFile>(in_all_ - memory_.most() + kAtATime);
  }
  const auto file = file_;
  while (file_ && uses_disk_ && written_ + memory_.most() < end) {
    std::string piece = unwritten(data);
    const uint64_t from = written_, size = piece.size();
    std::function<void()> write = [file, directory = disk_.directory.get(), from, piece = std::move(piece),
                                   first = first_] {
      or_throw(file->write(directory, from, piece));
      or_throw(file->drop_before(first, kAtATime));
    };
    if (!co_await on_disk_thread(leaves_, std::move(write))) {
      if (written_ == first_) drop_file();
      co_return false;
    }
    written_ = from + size;
  }
  append_to_memory(data);
  co_return true;
}

std::string KeptStream::unwritten(std::string_view coming) const {
  std::string piece;
  while (piece.size() < kAtATime && written_ + piece.size() < next())
    piece += memory_.from(written_ + piece.size()).substr(0, kAtATime - piece.size());
  if (piece.size() < kAtATime)
    piece += coming.substr(written_ + piece.size() - next(), kAtATime - piece.size());
  return piece;
}

// False: it failed.
asio::awaitable<bool> KeptStream::on_disk_thread(Killer& killer, std::function<void()> work) {
  std::string reason;
  try {
    co_await disk_.thread.run(tenant_, killer, std::move(work));
    co_return true;
  } catch (const ClientGone&) {
    uses_disk_ = false;
    co_return false;
  } catch (const ApiError& error) {
    reason = error.message;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (std::exchange(uses_disk_, false))
    log::error("output_spool_failed", {{"tenant", tenant_}, {"reason", reason}});
  co_return false;
}

asio::awaitable<std::string_view> KeptStream::read(uint64_t offset, Piece& piece) {
  if (!file_ || offset >= memory_.first()) co_return memory_.from(offset);
  if (offset < piece.from || offset - piece.from >= piece.bytes.size()) {
    const auto bytes = std::make_shared<std::string>();
    const size_t size = std::min<uint64_t>(written_ - offset, kAtATime);
    std::function<void()> work = [file = file_, bytes, offset, size] {
      *bytes = or_throw(file->read(offset, size));
    };
    Killer never;
    const bool is_read = co_await on_disk_thread(never, std::move(work));
    if (!is_read) drop_file();
    if (!is_read || offset < first()) co_return std::string_view();
    piece = {std::move(*bytes), offset};
  }
  co_return std::string_view(piece.bytes).substr(offset - piece.from);
}

void KeptStream::skip_to(uint64_t offset) {
  drop_file();
  memory_.skip_to(offset);
}

void KeptStream::narrow(size_t most) {
  if (!file_) memory_.narrow(most);
}

// A large file takes its time to go.
void KeptStream::drop_file() {
  if (file_) disk_.thread.post(tenant_, [file = std::move(file_)]() mutable { file.reset(); });
  file_ = nullptr;
  release();
}

}  // namespace isogate::front
