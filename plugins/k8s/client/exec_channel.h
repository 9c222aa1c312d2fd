// One exec into a container: the API server's WebSocket as a byte stream, for RunnerLink.
//
// Frames are ours over the TLS connection that Poco's HTTP client upgraded. Poco's WebSocket (1.11) blocks in
// each receive without cancellation, allocates by the length that a frame claims, masks byte by byte, and
// cannot answer or notice pings while it sends. Here payloads stream through fixed buffers: a frame's length
// is checked and allocates nothing.
//
// Its own thread, which begins with open() and ends with the object, moves bytes between the WebSocket and
// a socket pair, whose other end is fd(). So pings are sent and half-open connections are noticed even
// without a reader, and a full pair slows the program, or the writer. The bytes of stdout are not
// interpreted, those of stderr are dropped.
//
// Thread rules are RunnerStream's. ended(): any thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/client/api.h"

namespace isogate::k8s {

struct ExecRequest {
  std::string name_space, pod, container;
  std::vector<std::string> command;
  std::chrono::milliseconds ping_every{20'000};     // but not while its bytes are not taken here
  std::chrono::milliseconds pong_patience{15'000};  // for anything from the server after a ping
};

struct ExecEnd {
  // The server's Status came: the program has ended, or did not run. Without it, it may still run.
  bool has_status = false;
  std::string why;  // it did not
};

// Whether that is a whole Status, channel 3 of the WebSocket.
bool is_exec_status(std::string_view text);

class ExecChannel : public sdk::RunnerStream {
 public:
  // Offers v5.channel.k8s.io and v4.channel.k8s.io. Throws NetError: ISOGATE_NOT_FOUND where there is no such
  // pod, ISOGATE_UNAVAILABLE, ISOGATE_CANCELLED. A program that cannot start ends it later.
  static std::unique_ptr<ExecChannel> open(Api& api, const ExecRequest& request, const Budget& budget);

  // RunnerStream, of stdin and stdout. read_some() returns 0, the end, only after a Status: any other
  // end is -1 with ECONNRESET. shutdown() ends the program's input, too, where v5 was agreed on.

  // Once it has ended and all its output is in fd().
  [[nodiscard]] virtual std::optional<ExecEnd> ended() const = 0;
};

}  // namespace isogate::k8s
