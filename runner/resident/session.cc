#include "runner/resident/session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "runner/plugin_abi.h"

namespace isogate::resident {
namespace {

constexpr std::chrono::milliseconds kRouseAfter{25}, kKillAfter{100};
constexpr size_t kKeptIdle = 4;
constexpr size_t kStack = 1 << 20;
constexpr size_t kMostWeight = 64 << 20;  // of all requests under way, bytes

Error no_thread() {
  return {ISOGATE_RESOURCE_EXHAUSTED, EAGAIN,
          "cannot start a thread for this call: this sandbox's limit on processes (pids) is reached"};
}

}  // namespace

Session::Session(Place& place, Connection& connection, Poller& poller)
    : place_(place), connection_(connection), poller_(poller) {}

Result<void> Session::start() {
  if (!add_thread()) return no_thread();
  return {};
}

void* Session::thread_main(void* self) {
  static_cast<Session*>(self)->work();
  return nullptr;
}

bool Session::add_thread() {
  {
    const std::lock_guard lock(crew_);
    ++threads_;
  }
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread{};
  const bool made = ::pthread_create(&thread, &attributes, thread_main, this) == 0;
  ::pthread_attr_destroy(&attributes);
  if (made) return true;
  const std::lock_guard lock(crew_);
  --threads_;
  return false;
}

// The last thing a thread does with this session is to give the lock back.
void Session::work() {
  std::unique_lock lock(crew_);
  while (!over_) {
    if (led_) {
      if (idle_ >= kKeptIdle) break;
      ++idle_;
      turn_.wait(lock);
      --idle_;
      continue;
    }
    led_ = true;
    lock.unlock();
    const CallPtr call = lead();
    if (call != nullptr) serve(call);
    lock.lock();
    if (call != nullptr) continue;
    over_ = true;
    turn_.notify_all();
  }
  --threads_;
  if (threads_ == 0) poller_.nudge();
}

// False: there is no thread that could.
bool Session::let_others_read() {
  {
    const std::lock_guard lock(crew_);
    led_ = false;
    if (idle_ > 0) {
      turn_.notify_one();
      return true;
    }
  }
  if (add_thread()) return true;
  const std::lock_guard lock(crew_);
  if (led_) return true;  // one that has just ended its call
  led_ = true;
  return false;
}

Session::CallPtr Session::lead() {
  try {
    for (CallPtr call;;) {
      Frame frame;
      switch (decoder_.next(frame)) {
        case Decoder::Next::kFault:
          fault(decoder_.fault());
          break;
        case Decoder::Next::kFrame:
          if (!take(frame, call)) break;
          if (call != nullptr && let_others_read()) return call;
          if (call != nullptr) refuse(call);
          continue;
        case Decoder::Next::kMore:
          const size_t size = connection_.read(decoder_.room());
          decoder_.took(size);
          if (size > 0) continue;
      }
      break;
    }
  } catch (const std::bad_alloc&) {
    fault("there is no memory for its frames");
  }
  end_calls();
  return nullptr;
}

void Session::refuse(CallPtr& call) {
  forget(*call);
  answer(call->stream(), Answer(no_thread()));
  call.reset();
}

void Session::serve(const CallPtr& call) {
  Answer told;
  try {
    told = call->run();
  } catch (const std::bad_alloc&) {
    told = Answer(Error{ISOGATE_RESOURCE_EXHAUSTED, ENOMEM, "out of memory"});
  } catch (const std::exception& error) {
    told = Answer(Error{ISOGATE_INTERNAL, 0, error.what()});
  }
  forget(*call);
  answer(call->stream(), told);
}

void Session::answer(uint32_t stream, const Answer& told) {
  connection_.send(ISOGATE_RUNNER_RESULT, stream, told.encoded());
}

void Session::forget(const Call& call) {
  const std::lock_guard lock(table_);
  weight_ -= call.weight();
  calls_.erase(call.stream());
}

Result<void> Session::admit(const CallPtr& call) {
  const std::lock_guard lock(table_);
  if (stopped_) return Error{ISOGATE_UNAVAILABLE, 0, "this runner is ending"};
  if (calls_.size() >= ISOGATE_RUNNER_MAX_STREAMS)
    return Error{ISOGATE_RESOURCE_EXHAUSTED, 0,
                 "more than " + std::to_string(ISOGATE_RUNNER_MAX_STREAMS) + " calls at a time"};
  if (weight_ + call->weight() > kMostWeight)
    return Error{ISOGATE_RESOURCE_EXHAUSTED, 0, "the requests under way are too large together"};
  calls_.emplace(call->stream(), call);
  weight_ += call->weight();
  return {};
}

Session::CallPtr Session::find(uint32_t stream) {
  const std::lock_guard lock(table_);
  const auto found = calls_.find(stream);
  return found == calls_.end() ? nullptr : found->second;
}

void Session::end_calls() {
  connection_.stop();
  const std::lock_guard lock(table_);
  stopped_ = true;
  for (const auto& [stream, call] : calls_) call->cancel(true);
  poller_.nudge();
}

void Session::stop() { end_calls(); }

bool Session::is_over() {
  const std::lock_guard lock(crew_);
  return threads_ == 0;
}

Clock::duration Session::rouse() {
  Clock::duration longest{};
  {
    const std::lock_guard lock(table_);
    for (const auto& [stream, call] : calls_) longest = std::max(longest, call->overdue());
  }
  if (longest > kRouseAfter) place_.strays().rouse(longest > kKillAfter);
  return longest;
}

bool Session::greeted() {
  const std::lock_guard lock(table_);
  return greeted_;
}

std::string Session::why() {
  const std::lock_guard lock(table_);
  return why_;
}

void Session::pump(uint64_t key, std::span<char> buffer) {
  const CallPtr call = find(static_cast<uint32_t>(key >> 2));
  if (call != nullptr) call->pump(static_cast<uint32_t>(key & 3), buffer);
}

}  // namespace isogate::resident
