// One exec into a container: the API server's WebSocket as a byte stream, for RunnerLink or a single command.
//
// Frames are ours over the TLS connection that Poco's HTTP client upgraded. Poco's WebSocket (1.11) blocks in
// each receive without cancellation, allocates by the length that a frame claims, masks byte by byte, and
// cannot answer or notice pings while it sends. Here payloads stream through fixed buffers: a frame's length
// is checked and allocates nothing.
//
// Its own thread, which begins with open() and ends with the object, moves bytes between the WebSocket and
// a socket pair, whose other end is fd(). So pings are sent and half-open connections are noticed even
// without a reader, and a full pair slows the program, or the writer. The bytes of stdout are not
// interpreted.
//
// Thread rules are RunnerStream's. wait() and ended(): any thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/client/api.h"

namespace isogate::k8s {

struct ExecRequest {
  std::string name_space, pod, container;  // container empty: the pod's first
  std::vector<std::string> command;
  bool stdin_open = true;
  bool tty = false;
  bool separate_stderr = false;  // false: its first 4 KiB are kept for stderr_text(), the rest dropped
  std::chrono::milliseconds ping_every{20'000};  // but not while its bytes are not taken here
  // For anything from the server after a ping. Zero: no limit, for a
  // program that may leave its stdin unread: a server that waits for it answers no ping. Then TCP alone
  // notices, within half a minute, that the other machine is gone.
  std::chrono::milliseconds pong_patience{15'000};
};

struct ExecEnd {
  enum class How {
    kExited,  // the server's Status says with which code
    kFailed,  // its Status says that the program did not run, or that its end is not known
    kLost,    // no complete Status came: the program may still run. Never success.
  };
  How how = How::kLost;
  int exit_code = -1;  // only for kExited; for a signal 128 + n
  std::string why;     // otherwise
};

class ExecChannel : public sdk::RunnerStream {
 public:
  // Offers v5.channel.k8s.io and v4.channel.k8s.io. Throws ApiError: ISOGATE_NOT_FOUND where there is no such
  // pod, ISOGATE_UNAVAILABLE, ISOGATE_CANCELLED. wait() reports that the program itself cannot start.
  static std::unique_ptr<ExecChannel> open(Api& api, const ExecRequest& request, const Budget& budget);

  // RunnerStream, of stdin and stdout. read_some() returns 0, the end, only after a Status: any other
  // end is -1 with ECONNRESET.

  // Ends the program's input; by the thread that writes. ISOGATE_UNSUPPORTED with v4.
  virtual void end_input() = 0;
  [[nodiscard]] virtual bool can_end_input() const = 0;  // v5 was agreed on
  // The bytes of stderr, -1 unless separate_stderr; borrowed; read it to its end, as RunnerStream says. While
  // one of the two streams is full and not read, the other one waits, too.
  [[nodiscard]] virtual int stderr_fd() const = 0;
  [[nodiscard]] virtual std::string stderr_text() const = 0;  // one printable line

  // How it ended, once it has and all its output is in fd() (and stderr_fd()): so the caller must read them.
  // Throws ApiError when the budget ends first.
  virtual ExecEnd wait(const Budget& budget) = 0;
  [[nodiscard]] virtual std::optional<ExecEnd> ended() const = 0;
};

}  // namespace isogate::k8s
