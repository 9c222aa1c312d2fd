// A hijacked connection of an Engine: stdin and stdout of a program in a container, without a terminal.
// stderr is dropped. Thread rules are RunnerStream's.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "isogate/runner_link.hpp"
#include "lib/net/transport.h"

namespace isogate::docker {

// Parses the frames of a stream without terminal: 1 byte stream (0 and 1 stdout, 2 stderr, 3 the
// Engine's own complaints), 3 zero bytes, 4 bytes length, big-endian; then that many bytes. Nothing is
// allocated by length.
class Demultiplexer {
 public:
  struct Step {
    size_t taken = 0;  // of `in`
    size_t given = 0;  // to `out`
  };
  // As much as fits. When `given` is 0 and everything is taken, more input is needed.
  Step feed(const char* in, size_t in_size, char* out, size_t out_size);
  [[nodiscard]] bool broken() const { return broken_; }                                // not such a stream
  [[nodiscard]] bool between_frames() const { return head_size_ == 0 && left_ == 0; }  // an end is whole here

 private:
  void begin_frame();
  std::array<unsigned char, 8> head_{};
  size_t head_size_ = 0;
  uint64_t left_ = 0;
  bool is_stdout_ = false;
  bool broken_ = false;
};

class EngineStream : public sdk::RunnerStream {
 public:
  // `early`: bytes that came right behind the head of the answer.
  EngineStream(std::unique_ptr<net::Transport> transport, std::string early);

  [[nodiscard]] int fd() const override;
  // An end in the middle of a frame is -1 with ECONNRESET, invalid frames are EPROTO.
  ssize_t read_some(char* to, size_t size) override;
  ssize_t write_some(const char* from, size_t size) override;
  [[nodiscard]] bool must_repeat() const override { return transport_->must_repeat(); }
  [[nodiscard]] bool has_buffered() const override;
  void shutdown() override;

 private:
  ssize_t fill();  // of in_, as read_some
  std::unique_ptr<net::Transport> transport_;
  std::vector<char> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  Demultiplexer demultiplexer_;
};

}  // namespace isogate::docker
