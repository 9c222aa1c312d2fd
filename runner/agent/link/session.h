// One served connection: the frames of its client become calls, each run by its own thread.
//
// One thread reads at a time. When it receives a call, another thread takes over reading, and it runs the
// call itself, so a request is not handed from thread to thread. A few idle threads are kept. Threads
// count as processes of the container: if no more can be started, only the call is refused.
//
// The session ends when the connection ends, or the client breaks the protocol: then all calls are
// cancelled. is_over() is true once the last one has ended.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runner/agent/calls/call.h"
#include "runner/agent/link/connection.h"

namespace isogate::agent {

class Session {
 public:
  // Borrows all of them. The poller is nudged when something here needs the main thread's attention.
  Session(Place& place, Connection& connection, Poller& poller);

  // These are the main thread's.
  Result<void> start();
  void stop();
  bool is_over();
  bool greeted();     // the client has sent its hello
  std::string why();  // what the client did that ended the session; empty: nothing
  // While a cancelled call has not ended, continues its reaper if a program has stopped it, and kills it
  // later. Returns how long ago the oldest such call was cancelled.
  Clock::duration handle_overdue();
  void pump(uint64_t key, std::span<char> buffer);

 private:
  using CallPtr = std::shared_ptr<Call>;
  static void* thread_main(void* self);
  bool add_thread();  // its thread is counted from then on
  void work();
  bool let_others_read();

  // The reading thread's.
  CallPtr lead();
  bool take(const link::Frame& frame, CallPtr& to_run);
  bool greet(const link::Frame& frame);
  bool begin(const link::Frame& frame, CallPtr& to_run);
  bool give_descriptors(const link::Frame& frame, const Call& call, Batch& batch);
  bool pass_on(const link::Frame& frame);
  bool fault(std::string what);
  void answer(uint32_t stream, const Answer& answer);

  Result<void> admit(const CallPtr& call);
  void refuse(CallPtr& call);
  void forget(const Call& call);
  void end_calls();
  CallPtr find(uint32_t stream);
  void serve(const CallPtr& call);

  Place& place_;
  Connection& connection_;
  Poller& poller_;
  link::Decoder decoder_{link::Sender::kClient};
  uint32_t last_stream_ = 0;

  std::mutex crew_;  // of the next four
  std::condition_variable turn_;
  bool led_ = false, over_ = false;
  size_t idle_ = 0, threads_ = 0;

  std::mutex table_;  // of the rest
  std::unordered_map<uint32_t, CallPtr> calls_;
  size_t weight_ = 0;
  bool stopped_ = false, greeted_ = false;
  std::string why_;
};

}  // namespace isogate::agent
