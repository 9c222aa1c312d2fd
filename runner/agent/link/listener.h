// Accepts the streams of `isogate-runner attach` over an abstract Unix socket, to which every process of the
// network namespace can connect. It accepts a peer with this process's uid and this process's parent: like
// this process, it was started from outside. A tenant's processes descend from this process.
//
// The handshake proves that the peer is alive and is the sender. First its directory of /proc is opened. Then
// the peer must return a number, with its pid attested by the kernel. Then its parent is read in that
// directory. So the reuse of a pid meanwhile is detected.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "isogate/runner_resume.h"
#include "runner/agent/link/resumable_connection.h"
#include "runner/agent/options.h"
#include "runner/agent/poller.h"

struct sockaddr_un;

namespace isogate::agent {

struct Peer {
  Stream stream;
  isogate_runner_resume request{};
};

// The address of the socket `name`, for both sides. The number of its bytes.
unsigned address_of(const std::string& name, sockaddr_un& address);

class Listener {  // the main thread's
 public:
  // Its descriptors are watched under `key`.
  Result<void> open(const std::string& name, Poller& poller, uint64_t key);
  // Peers that have completed their handshake since the last call. Call it when the key is ready, and
  // regularly while is_busy().
  std::vector<Peer> take_peers();
  [[nodiscard]] bool is_busy() const { return !handshakes_.empty() || is_paused_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Step { kWait, kFailed, kDone };
  struct Handshake {
    Fd process;  // its directory of /proc
    int pid = 0;
    uint64_t number = 0;
    Stream stream;  // without in and out until it has returned the number
    std::string request;
    Clock::time_point until;
  };

  void accept();
  void pause_if(bool no_descriptors);
  bool challenge(Handshake& handshake);
  Step advance(Handshake& handshake);
  Step read_answer(Handshake& handshake);
  Step read_request(Handshake& handshake);
  void forget(const Handshake& handshake);

  Poller* poller_ = nullptr;
  uint64_t key_ = 0;
  Fd listener_;
  std::vector<Handshake> handshakes_;
  bool is_paused_ = false;  // no descriptor is left for another: new ones wait until the next call
};

// The other end, `isogate-runner attach`: passes its own stdin and stdout to the listener and runs while they
// are used. No byte of a session passes through it.
Result<void> attach(const Options& options);

}  // namespace isogate::agent
