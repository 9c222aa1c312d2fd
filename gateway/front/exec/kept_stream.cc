#include "gateway/front/exec/kept_stream.h"

#include <algorithm>
#include <utility>

#include "gateway/front/base/api_error.h"
#include "gateway/front/base/killer.h"
#include "gateway/front/base/own_fd.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;

KeptStream::KeptStream(SpoolDisk& disk, std::string tenant, size_t most)
    : disk_(disk), tenant_(std::move(tenant)), memory_(most), share_(disk.quota, tenant_) {}

KeptStream::~KeptStream() { drop_file(); }

bool KeptStream::has_disk() const {
  return !failed_ && memory_.most() > 0 && disk_.directory && disk_.most_of_stream > memory_.most();
}

size_t KeptStream::room(uint64_t offset) const {
  const uint64_t disk = has_disk() ? std::min(disk_.most_of_stream, share_.bytes() + share_.left()) : 0;
  const uint64_t most = std::max<uint64_t>(disk, memory_.most());
  return static_cast<size_t>(most - std::min(most, next() - std::clamp(offset, first(), next())));
}

bool KeptStream::waits(size_t bytes) const {
  return has_disk() && next() + bytes > (file_ ? written_ : memory_.first()) + memory_.most();
}

// What it has then: as many as it asked for, or what there is.
uint64_t KeptStream::claim(uint64_t bytes) {
  if (bytes > share_.bytes()) {
    try {
      share_.hold(bytes);
    } catch (const ApiError&) {
      share_.add(std::min(bytes - share_.bytes(), share_.left()));
    }
  }
  return share_.bytes();
}

// All is claimed before it waits for the first time: what room() said is true.
asio::awaitable<void> KeptStream::append(std::string_view data) {
  if (!waits(data.size())) co_return memory_.append(data);
  if (!file_) first_ = written_ = memory_.first();
  const uint64_t end = next() + data.size();
  const uint64_t most = claim(std::min(end - first_, disk_.most_of_stream));
  if (most <= memory_.most()) {
    drop_file();
    co_return memory_.append(data);
  }
  first_ = std::max(first_, end - std::min(end, most));
  written_ = std::max(written_, first_);
  if (!file_) file_ = std::make_shared<SpoolFile>();
  const auto file = file_;
  while (file_ && written_ + memory_.most() < end) {
    std::string piece = unwritten(data);
    const uint64_t from = written_, size = piece.size();
    std::function<void()> write = [file, directory = disk_.directory.get(), from, piece = std::move(piece),
                                   first = first_] {
      or_throw(file->write(directory, from, piece));
      or_throw(file->drop_before(first));
    };
    if (!co_await on_disk_thread(std::move(write))) break;
    written_ = from + size;
  }
  memory_.append(data);
}

std::string KeptStream::unwritten(std::string_view coming) const {
  std::string piece;
  while (piece.size() < kAtATime && written_ + piece.size() < next())
    piece += memory_.from(written_ + piece.size()).substr(0, kAtATime - piece.size());
  if (piece.size() < kAtATime)
    piece += coming.substr(written_ + piece.size() - next(), kAtATime - piece.size());
  return piece;
}

// False: it failed, and the file is dropped.
asio::awaitable<bool> KeptStream::on_disk_thread(std::function<void()> work) {
  std::string reason;
  Killer never;
  try {
    co_await disk_.thread.run(tenant_, never, std::move(work));
    co_return true;
  } catch (const ApiError& error) {
    reason = error.message;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!std::exchange(failed_, true))
    log::error("output_spool_failed", {{"tenant", tenant_}, {"reason", reason}});
  drop_file();
  co_return false;
}

asio::awaitable<std::string_view> KeptStream::read(uint64_t offset, std::string& buffer) {
  if (!file_ || offset >= memory_.first()) co_return memory_.from(offset);
  const auto piece = std::make_shared<std::string>();
  const size_t size = std::min<uint64_t>(written_ - offset, kAtATime);
  std::function<void()> work = [file = file_, piece, offset, size] {
    *piece = or_throw(file->read(offset, size));
  };
  if (!co_await on_disk_thread(std::move(work)) || offset < first()) co_return std::string_view();
  buffer = std::move(*piece);
  co_return buffer;
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
  share_.hold(0);
}

}  // namespace isogate::front
