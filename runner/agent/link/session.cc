#include "runner/agent/link/session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace isogate::agent {
namespace {

constexpr size_t kKeptIdle = 4;
constexpr size_t kStack = 1 << 20;
constexpr size_t kMostWeight = 64 << 20;  // of all requests under way, bytes

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

// The last thing that a thread does with this session is to release the lock.
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

// False: no thread could be started for it.
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
      link::Frame frame;
      switch (decoder_.next(frame)) {
        case link::Decoder::Next::kFault:
          fault(decoder_.fault());
          break;
        case link::Decoder::Next::kFrame:
          if (!take(frame, call)) break;
          if (call != nullptr && let_others_read()) return call;
          if (call != nullptr) refuse(call);
          continue;
        case link::Decoder::Next::kMore:
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
  const Answer result = Answer::of([&call] { return call->run(); });
  forget(*call);
  answer(call->stream(), result);
}

void Session::answer(uint32_t stream, const Answer& answer) {
  connection_.send(ISOGATE_RUNNER_RESULT, stream, answer.encoded());
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

Clock::duration Session::handle_overdue() {
  Clock::duration longest{};
  {
    const std::lock_guard lock(table_);
    for (const auto& [stream, call] : calls_) longest = std::max(longest, call->overdue());
  }
  place_.orphans().continue_reapers(longest);
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

namespace {

// The struct at the front of a payload, which the decoder has found long enough for it.
template <typename T>
T head_of(const link::Frame& frame) {
  T head{};
  std::memcpy(&head, frame.payload.data(), sizeof head);
  return head;
}

bool is_request(uint16_t type) {
  return type == ISOGATE_RUNNER_EXEC || type == ISOGATE_RUNNER_FILE || type == ISOGATE_RUNNER_EVIDENCE ||
         type == ISOGATE_RUNNER_PROVE || type == ISOGATE_RUNNER_CONNECT || type == ISOGATE_RUNNER_REJOIN;
}

std::unique_ptr<Call> make_call(Place& place, Wire wire, const link::Frame& frame) {
  if (frame.head.type == ISOGATE_RUNNER_EXEC) return make_exec(place, wire, frame);
  if (frame.head.type == ISOGATE_RUNNER_FILE) return make_file(place, wire, frame);
  if (frame.head.type == ISOGATE_RUNNER_CONNECT) return make_connect(place, wire, frame);
  if (frame.head.type == ISOGATE_RUNNER_REJOIN) return make_rejoin(place, wire, frame);
  if (frame.head.type == ISOGATE_RUNNER_PROVE) return make_prove(place, wire, frame);
  return make_measure(place, wire, frame);
}

}  // namespace

// Always false.
bool Session::fault(std::string what) {
  const std::lock_guard lock(table_);
  if (why_.empty()) why_ = std::move(what);
  return false;
}

bool Session::greet(const link::Frame& frame) {
  const auto hello = head_of<isogate_runner_hello>(frame);
  if (greeted_) return fault("a second hello");
  if (hello.magic != ISOGATE_RUNNER_MAGIC) return fault("a hello of another protocol");
  isogate_runner_hello own = link::make_hello();
  own.pid = static_cast<uint32_t>(::getpid());
  own.uid = ::geteuid();
  if (connection_.takes_descriptors()) own.flags |= ISOGATE_RUNNER_HAS_DESCRIPTORS;
  if (place_.has_terminals()) own.flags |= ISOGATE_RUNNER_HAS_PTY;
  if (own.pid == 1) own.flags |= ISOGATE_RUNNER_IS_INIT;
  if (!connection_.send(ISOGATE_RUNNER_HELLO, 0, link::bytes_of(own))) return false;
  if (hello.major != ISOGATE_RUNNER_MAJOR)
    return fault("version " + std::to_string(hello.major) + " of the protocol");
  const std::lock_guard lock(table_);
  greeted_ = true;
  return true;
}

// False: against the protocol, or the connection is broken.
bool Session::take(const link::Frame& frame, CallPtr& to_run) {
  const uint16_t type = frame.head.type;
  if (type == ISOGATE_RUNNER_HELLO) return greet(frame);
  if (!greeted_) return fault("a frame before its hello");
  if (type == ISOGATE_RUNNER_PING) return connection_.send(ISOGATE_RUNNER_PONG, 0, frame.payload);
  if (is_request(type)) return begin(frame, to_run);
  if (frame.head.stream > last_stream_) return fault("a frame of a stream that has not begun");
  return pass_on(frame);
}

// The batch that belongs to this request. False: there is none, or it has another number of descriptors.
bool Session::give_descriptors(const link::Frame& frame, const Call& call, Batch& batch) {
  if ((frame.head.flags & ISOGATE_RUNNER_WITH_DESCRIPTORS) == 0) return true;
  auto came = connection_.take_batch();
  if (!came || call.descriptors() == 0) return false;
  batch = std::move(*came);
  return batch.cut || batch.fds.size() == call.descriptors();
}

bool Session::begin(const link::Frame& frame, CallPtr& to_run) {
  if (frame.head.stream <= last_stream_) return fault("a stream that goes backwards");
  last_stream_ = frame.head.stream;
  const CallPtr call = make_call(place_, {connection_, poller_}, frame);
  if (call == nullptr) return fault("a request that is not laid out as it should be");
  Batch batch;
  if (!give_descriptors(frame, *call, batch)) return fault("other descriptors than a request says");
  Result<void> ready;
  if (batch.cut) ready = os_error("cannot take the descriptors of this call", EMFILE);
  if (ready) ready = call->open(std::move(batch.fds));
  if (ready) ready = admit(call);
  if (!ready) {
    answer(call->stream(), Answer(ready.error()));
    return true;
  }
  to_run = call;
  return true;
}

// Frames of a stream that has ended were in transit: they are skipped.
bool Session::pass_on(const link::Frame& frame) {
  const CallPtr call = find(frame.head.stream);
  if (call == nullptr) return true;
  if (frame.head.type == ISOGATE_RUNNER_CANCEL) {
    call->cancel(false);
    poller_.nudge();
    return true;
  }
  bool sound = false;
  if (frame.head.type == ISOGATE_RUNNER_CONTROL) {
    sound = call->control(head_of<isogate_control>(frame));
  } else {
    const auto head = head_of<isogate_runner_channel>(frame);
    if (frame.head.type == ISOGATE_RUNNER_DATA)
      sound = call->data(head.channel, frame.payload.substr(sizeof head));
    if (frame.head.type == ISOGATE_RUNNER_END) sound = call->end(head.channel);
    if (frame.head.type == ISOGATE_RUNNER_CREDIT) sound = call->credit(head.channel, head.bytes);
  }
  return sound || fault("a frame of type " + std::to_string(frame.head.type) +
                        " that its stream has no use for, or no credit");
}

}  // namespace isogate::agent
