// The thread of an ExecChannel: between the WebSocket and one end of a socket pair. For exec_channel.cc
// only.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lib/fd.h"
#include "lib/net/transport.h"
#include "lib/net/websocket.h"
#include "plugins/k8s/client/exec_channel.h"

namespace isogate::k8s {

using net::FrameReader;
using net::Opcode;
using net::Transport;

class ExecPump {
 public:
  // `early`: bytes that came right after the head of the 101. `pair` and `stderr_fd` (may be empty) are its
  // ends, non-blocking. Begins at once.
  ExecPump(std::unique_ptr<Transport> transport, std::string early, bool v5, const ExecRequest& request,
           Fd pair, Fd stderr_fd);
  ExecPump(const ExecPump&) = delete;
  ExecPump& operator=(const ExecPump&) = delete;
  ~ExecPump();

  // Any thread.
  void stop();
  [[nodiscard]] int done_fd() const { return done_.get(); }  // readable once it has ended
  [[nodiscard]] std::optional<ExecEnd> ended() const;
  [[nodiscard]] std::string stderr_bytes() const;
  [[nodiscard]] std::chrono::steady_clock::time_point heard() const { return heard_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kBuffer = 64 << 10, kStderrKept = 4096, kStatusMost = 64 << 10,
                          kControlsMost = 1024;  // a flood of pings is answered as far as answers leave
  static constexpr int kNoChannel = -1, kStdout = 1, kStderr = 2, kError = 3, kClose = 255;
  static constexpr std::chrono::milliseconds kLinger{5'000};  // for a server that does not hang up

  void run();
  void wait();
  [[nodiscard]] std::optional<Clock::time_point> next_time() const;
  void tell_time();

  bool receive();  // false: nothing more can be done now
  void decode();
  void hear(const FrameReader::Step& step);
  size_t deliver(std::string_view bytes);
  size_t give(const Fd& to, std::string_view bytes);
  void keep_stderr(std::string_view bytes);
  void keep_status(std::string_view bytes);
  void lose(const std::string& why);
  void break_off(const std::string& why, uint16_t code);

  bool send();  // the same
  bool fill_frame();
  void take_stdin();
  void control(Opcode opcode, std::string_view payload) {
    if (controls_.size() < kControlsMost) net::append_control(controls_, opcode, payload);
  }

  const std::unique_ptr<Transport> transport_;
  const bool v5_;
  const std::chrono::milliseconds ping_every_, pong_patience_;
  const Fd pair_, stderr_fd_, stop_, done_;

  std::string early_;
  std::unique_ptr<char[]> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  FrameReader reader_;
  int channel_ = kNoChannel;
  const Fd* blocked_ = nullptr;  // a full descriptor that everything waits for
  std::string status_;
  std::optional<ExecEnd> result_;

  std::unique_ptr<char[]> out_;
  size_t out_begin_ = 0, out_end_ = 0;
  std::string controls_;  // pings, pongs and the end, between two frames
  bool room_ = true, stdin_open_;

  Clock::time_point ping_next_, linger_;
  std::optional<Clock::time_point> pinged_;  // and nothing came since

  bool over_ = false, closed_here_ = false;
  std::atomic<Clock::time_point> heard_{Clock::now()};
  mutable std::mutex mutex_;  // of the two below
  std::optional<ExecEnd> end_;
  std::string stderr_;
  std::thread thread_;
};

}  // namespace isogate::k8s
