// Accepts the streams that `isogate-runner attach` brings, over an abstract Unix socket, which every process
// of the network namespace can connect to. Accepted is a peer with this process's uid and this process's
// parent: it was started from outside, as this process was. What a tenant starts descends from this process.
//
// The handshake proves that the peer is alive and is the sender: its directory of /proc is opened first, then
// it has to return a number, with its pid as the kernel attests it, then its parent is read in that
// directory. So the reuse of a pid meanwhile is noticed.
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
  // Peers that have completed their handshake since. Call it when the key is ready, and now and then while
  // is_busy().
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

// The other end, `isogate-runner attach`: gives its own input and output to the listener and lasts as long as
// they are used. No byte of a session passes through it.
Result<void> attach(const Options& options);

}  // namespace isogate::agent
