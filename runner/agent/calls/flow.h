// The bytes of one channel that travel in frames: from a pipe of the program to the client, and back.
//
// Three threads use it. The main thread moves bytes when the poller says that a pipe is ready, the thread
// that reads the connection brings DATA and CREDIT, and the call's own thread takes what is left once the
// program has ended. None of them waits for a program: without credit a pipe is not read, and the program
// blocks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "runner/agent/link/connection.h"
#include "runner/agent/poller.h"
#include "sdk/runner_link/credit.h"

namespace isogate::agent {

namespace link = sdk::link;

struct Wire {  // borrowed
  Connection& connection;
  Poller& poller;
};

uint64_t key_of(uint32_t stream, uint32_t channel);

// The client's credit, shared by threads. Any thread.
class Credit {
 public:
  // False: more than any client has.
  bool add(uint64_t bytes);
  // Takes up to `most`; 0: none now.
  uint64_t take(uint64_t most);
  // Waits for at least `least`; 0: give_up() ended the wait.
  uint64_t wait(uint64_t least, uint64_t most);
  void give_back(uint64_t bytes);
  // From now on wait() waits no longer than that.
  void give_up(std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  link::SendCredit credit_;
  bool giving_up_ = false;
  std::chrono::steady_clock::time_point until_;
};

// From a pipe into DATA frames.
class Outlet {
 public:
  Outlet(Wire wire, uint32_t stream, uint32_t channel) : wire_(wire), stream_(stream), channel_(channel) {}
  // The end that the program, or a file call, writes to.
  Result<Fd> open();
  // Main thread, when it may be ready. Never waits for drain(), which itself sends what is there.
  void pump(std::span<char> buffer);
  bool add_credit(uint32_t bytes);  // false: against the protocol, as where it was never opened
  Credit& waiting() { return credit_; }
  // Sends the end of the pipe as END, once all bytes before it are sent.
  void announce_end();
  // Sends the bytes that are in the pipe now, no more, and closes it.
  void drain();

 private:
  void send_end();
  // `most` bytes of credit are taken. How many were sent; 0: none now, -1: the pipe has ended.
  ssize_t move(std::span<char> buffer, uint64_t most);

  Wire wire_;
  uint32_t stream_, channel_;
  Credit credit_;
  std::mutex state_;  // of the next line, and held to close the pipe; never while something is sent
  bool opened_ = false, starved_ = false, taken_ = false, announces_ = false;
  std::mutex moving_;  // its holder reads the pipe
  Fd pipe_;
};

// From DATA frames into a pipe. Bytes that do not fit are kept, up to the window.
class Inlet {
 public:
  Inlet(Wire wire, uint32_t stream) : wire_(wire), stream_(stream) {}
  // The end that the program, or a file call, reads from.
  Result<Fd> open();
  // An eventfd that becomes readable once END has come and all bytes are in the pipe.
  Result<int> completion();
  bool put(std::string_view bytes);  // these two: false: against the protocol
  bool end();
  void pump();   // main thread
  void close();  // the program has ended

 private:
  size_t write_some(std::string_view bytes);
  void write_kept();
  void finish();

  Wire wire_;
  uint32_t stream_;
  std::mutex state_;
  Fd pipe_, complete_;
  std::string kept_;
  size_t written_ = 0;  // of kept_
  link::ReceiveWindow window_;
  bool opened_ = false, ended_ = false;
};

}  // namespace isogate::agent
