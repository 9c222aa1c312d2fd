#include <unistd.h>

#include <cstring>

#include "runner/plugin_abi.h"
#include "runner/resident/session.h"

namespace isogate::resident {
namespace {

bool is_request(uint16_t type) {
  return type == ISOGATE_RUNNER_EXEC || type == ISOGATE_RUNNER_FILE || type == ISOGATE_RUNNER_EVIDENCE ||
         type == ISOGATE_RUNNER_PROVE;
}

std::unique_ptr<Call> make_call(Place& place, Wire wire, const Frame& frame) {
  if (frame.head.type == ISOGATE_RUNNER_EXEC) return make_exec(place, wire, frame);
  if (frame.head.type == ISOGATE_RUNNER_FILE) return make_file(place, wire, frame);
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

bool Session::greet(const Frame& frame) {
  const auto said = head_of<isogate_runner_hello>(frame.payload);
  if (greeted_) return fault("a second hello");
  if (said.magic != ISOGATE_RUNNER_MAGIC) return fault("a hello of something else");
  isogate_runner_hello own{};
  own.magic = ISOGATE_RUNNER_MAGIC;
  own.major = ISOGATE_RUNNER_MAJOR;
  own.minor = ISOGATE_RUNNER_MINOR;
  own.pid = static_cast<uint32_t>(::getpid());
  own.uid = ::geteuid();
  if (connection_.takes_descriptors()) own.flags |= ISOGATE_RUNNER_HAS_DESCRIPTORS;
  if (place_.has_terminals()) own.flags |= ISOGATE_RUNNER_HAS_PTY;
  if (own.pid == 1) own.flags |= ISOGATE_RUNNER_IS_INIT;
  set_text(own.build, ISOGATE_VERSION);
  if (!connection_.send(ISOGATE_RUNNER_HELLO, 0, {reinterpret_cast<const char*>(&own), sizeof own}))
    return false;
  if (said.major != ISOGATE_RUNNER_MAJOR)
    return fault("version " + std::to_string(said.major) + " of the protocol");
  const std::lock_guard lock(table_);
  greeted_ = true;
  return true;
}

// False: against the protocol, or the connection is broken.
bool Session::take(const Frame& frame, CallPtr& to_run) {
  const uint16_t type = frame.head.type;
  if (type == ISOGATE_RUNNER_HELLO) return greet(frame);
  if (!greeted_) return fault("a frame before its hello");
  if (type == ISOGATE_RUNNER_PING) return connection_.send(ISOGATE_RUNNER_PONG, 0, frame.payload);
  if (is_request(type)) return begin(frame, to_run);
  if (frame.head.stream > last_stream_) return fault("a frame of a stream that has not begun");
  return pass_on(frame);
}

// The batch that belongs to this request. False: none does, or another number of descriptors.
bool Session::give_descriptors(const Frame& frame, const Call& call, Batch& batch) {
  if ((frame.head.flags & ISOGATE_RUNNER_WITH_DESCRIPTORS) == 0) return true;
  auto came = connection_.take_batch();
  if (!came || call.descriptors() == 0) return false;
  batch = std::move(*came);
  return batch.cut || batch.fds.size() == call.descriptors();
}

bool Session::begin(const Frame& frame, CallPtr& to_run) {
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

// What belongs to a stream that has ended was on its way then: it is skipped.
bool Session::pass_on(const Frame& frame) {
  const CallPtr call = find(frame.head.stream);
  if (call == nullptr) return true;
  if (frame.head.type == ISOGATE_RUNNER_CANCEL) {
    call->cancel(false);
    poller_.nudge();
    return true;
  }
  bool sound = false;
  if (frame.head.type == ISOGATE_RUNNER_CONTROL) {
    sound = call->control(head_of<isogate_control>(frame.payload));
  } else {
    const auto head = head_of<isogate_runner_channel>(frame.payload);
    if (frame.head.type == ISOGATE_RUNNER_DATA)
      sound = call->data(head.channel, frame.payload.substr(sizeof head));
    if (frame.head.type == ISOGATE_RUNNER_END) sound = call->end(head.channel);
    if (frame.head.type == ISOGATE_RUNNER_CREDIT) sound = call->credit(head.channel, head.bytes);
  }
  return sound || fault("a frame of type " + std::to_string(frame.head.type) +
                        " that its stream has no use for, or no credit");
}

}  // namespace isogate::resident
