#include "plugins/docker/client/engine_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace isogate::docker {

void Demultiplexer::begin_frame() {
  constexpr unsigned char kStreams = 4;
  broken_ = head_[0] >= kStreams || head_[1] != 0 || head_[2] != 0 || head_[3] != 0;
  is_stdout_ = head_[0] < 2;
  left_ = uint64_t{head_[4]} << 24 | uint64_t{head_[5]} << 16 | uint64_t{head_[6]} << 8 | head_[7];
  head_size_ = 0;
}

Demultiplexer::Step Demultiplexer::feed(const char* in, size_t in_size, char* out, size_t out_size) {
  Step step;
  while (!broken_ && step.taken < in_size) {
    const char* at = in + step.taken;
    const size_t there = in_size - step.taken;
    if (left_ == 0) {
      head_[head_size_++] = static_cast<unsigned char>(*at);
      ++step.taken;
      if (head_size_ == head_.size()) begin_frame();
      continue;
    }
    size_t size = std::min<uint64_t>(left_, there);
    if (is_stdout_) {
      size = std::min(size, out_size - step.given);
      if (size == 0) break;
      std::memcpy(out + step.given, at, size);
      step.given += size;
    }
    left_ -= size;
    step.taken += size;
  }
  return step;
}

EngineStream::EngineStream(std::unique_ptr<net::Transport> transport, std::string early)
    : transport_(std::move(transport)), in_(std::max<size_t>(65536, early.size())) {
  std::copy(early.begin(), early.end(), in_.begin());
  in_end_ = early.size();
}

int EngineStream::fd() const { return transport_->fd(); }

ssize_t EngineStream::fill() {
  in_begin_ = in_end_ = 0;
  const ssize_t n = transport_->read_some(in_.data(), in_.size());
  if (n > 0) in_end_ = static_cast<size_t>(n);
  return n;
}

ssize_t EngineStream::read_some(char* to, size_t size) {
  if (size == 0) return 0;
  for (;;) {
    if (in_begin_ == in_end_) {
      const ssize_t n = fill();
      if (n < 0) return n;
      if (n == 0 && demultiplexer_.between_frames()) return 0;
      if (n == 0) return errno = ECONNRESET, -1;
    }
    const auto step = demultiplexer_.feed(in_.data() + in_begin_, in_end_ - in_begin_, to, size);
    in_begin_ += step.taken;
    if (step.given > 0) return static_cast<ssize_t>(step.given);
    if (demultiplexer_.broken()) return errno = EPROTO, -1;
  }
}

ssize_t EngineStream::write_some(const char* from, size_t size) { return transport_->write_some(from, size); }

// Bytes that are kept here did not fit into the last read_some(): so either some of them are stdout's, or
// nothing was read yet.
bool EngineStream::has_buffered() const { return in_begin_ != in_end_ || transport_->has_buffered(); }

void EngineStream::shutdown() { transport_->shutdown(); }

}  // namespace isogate::docker
