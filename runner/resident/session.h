// One connection, served: the frames of its client become calls, each run by a thread of its own.
//
// One thread reads at a time. When it has a call to run it leaves the reading to another, and runs the call
// itself, so that nothing is handed over on the way to a program. A few threads without work are kept.
// Threads count as processes of the container, so that where no more can be had a call is refused, and
// nothing else happens.
//
// The session is over when the connection has ended, or the client has broken the protocol: then all calls
// are cancelled, and is_over() once the last one has ended.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runner/resident/call.h"
#include "runner/resident/connection.h"
#include "runner/resident/decoder.h"

namespace isogate::resident {

class Session {
 public:
  // Borrows all of them. The poller is nudged when something here needs the main thread's attention.
  Session(Place& place, Connection& connection, Poller& poller);

  // These are the main thread's.
  Result<void> start();
  void stop();
  bool is_over();
  bool greeted();     // the client has said hello
  std::string why();  // what the client did that ended the session; empty: nothing
  // The longest that a cancelled call has not ended, because somebody stops its supervisor: that goes on
  // then, or is killed.
  Clock::duration rouse();
  void pump(uint64_t key, std::span<char> buffer);

 private:
  using CallPtr = std::shared_ptr<Call>;
  static void* thread_main(void* self);
  bool add_thread();  // its thread is counted from then on
  void work();
  bool let_others_read();

  // The reading thread's.
  CallPtr lead();
  bool take(const Frame& frame, CallPtr& to_run);
  bool greet(const Frame& frame);
  bool begin(const Frame& frame, CallPtr& to_run);
  bool give_descriptors(const Frame& frame, const Call& call, Batch& batch);
  bool pass_on(const Frame& frame);
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
  Decoder decoder_;
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

}  // namespace isogate::resident
