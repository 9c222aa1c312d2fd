// Where an `isogate-runner attach` comes in: an abstract Unix socket, which every process of the network
// namespace can connect to. Let in is whoever has this process's uid and its parent: what was started from
// outside, as this process was, and nothing that a tenant started, which all descends from this process.
//
// That it is alive and the one that speaks is proven: its directory of /proc is opened first, then it is
// asked to say a number back, which comes with its pid by the kernel, then its parent is read in that
// directory. So a pid that was given to somebody else meanwhile is noticed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "isogate/runner_resume.h"
#include "runner/resident/line.h"
#include "runner/resident/poller.h"

struct sockaddr_un;

namespace isogate::resident {

struct Visitor {
  Stream stream;
  isogate_runner_resume said{};
};

// The address of the socket `name`, for both sides. The number of its bytes.
unsigned address_of(const std::string& name, sockaddr_un& address);

class Door {  // the main thread's
 public:
  // Its descriptors are watched under `key`.
  Result<void> open(const std::string& name, Poller& poller, uint64_t key);
  // Who has come in since. To be called when the key is ready, and now and then while is_busy().
  std::vector<Visitor> look();
  [[nodiscard]] bool is_busy() const { return !knocks_.empty() || is_shut_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Step { kWait, kGone, kIn };
  struct Knock {
    Fd process;  // its directory of /proc
    int pid = 0;
    uint64_t number = 0;
    Stream stream;  // without in and out until it has answered
    std::string said;
    Clock::time_point until;
  };

  void accept();
  void shut_if(bool none_left);
  bool ask(Knock& knock);
  Step advance(Knock& knock);
  Step take_answer(Knock& knock);
  Step take_words(Knock& knock);
  void forget(const Knock& knock);

  Poller* poller_ = nullptr;
  uint64_t key_ = 0;
  Fd listener_;
  std::vector<Knock> knocks_;
  bool is_shut_ = false;  // no descriptor is left for who comes in: nobody is looked for until the next time
};

}  // namespace isogate::resident
