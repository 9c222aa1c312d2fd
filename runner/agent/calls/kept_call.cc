// The calls of a session that view a program which outlives it.
#include <optional>

#include "runner/agent/calls/kept_exec.h"

namespace isogate::agent {
namespace {

class KeptCall : public Call {
 public:
  using Call::Call;

  bool data(uint32_t channel, std::string_view bytes) override {
    return channel == ISOGATE_RUNNER_STDIN && view_->put(bytes);
  }
  bool end(uint32_t channel) override { return channel == ISOGATE_RUNNER_STDIN && view_->end_input(); }
  bool credit(uint32_t channel, uint32_t bytes) override { return view_->add_credit(channel, bytes); }
  bool control(const isogate_control& record) override {
    exec_->control(record);
    return true;
  }
  // The end of the session does not end the program.
  void cancel(bool at_once) override {
    if (at_once) return view_->detach();
    Call::cancel(false);
    exec_->kill();
    view_->give_up(kDeliverPatience);
  }

 protected:
  Answer show();

  std::shared_ptr<KeptExec> exec_;
  std::optional<KeptExec::View> view_;  // both from open() on
};

Answer KeptCall::show() {
  for (;;) {
    const auto next = view_->next();
    if (next.ended) return exec_->answer();
    if (next.frame == 0) return Answer(Error{ISOGATE_LOST, 0, "another stream has this exec now"});
    if (!wire_.connection.send(next.frame, stream(), link::bytes_of(next.channel), next.bytes))
      return Answer(Error{ISOGATE_LOST, 0, "the client is gone"});
  }
}

class StartCall final : public KeptCall {
 public:
  StartCall(Place& place, Wire wire, const link::Frame& frame, link::ExecOrder order)
      : KeptCall(place, wire, frame), order_(std::move(order)) {}

  Result<void> open(std::vector<Fd>) override {
    const uint32_t streams = order_.head.flags;
    exec_ = std::make_shared<KeptExec>(place_, std::move(order_));
    if (auto opened = exec_->open(); !opened) return opened;
    if (auto made = make_cancel(); !made) return made;
    view_.emplace(exec_, streams);
    return {};
  }

  Answer run() override {
    if (auto added = place_.kept().add(exec_); !added) return Answer(added.error());
    if (auto started = exec_->start(); !started) {
      place_.kept().forget(exec_->id());
      return Answer(started.error());
    }
    return show();
  }

 private:
  link::ExecOrder order_;
};

class RejoinCall final : public KeptCall {
 public:
  RejoinCall(Place& place, Wire wire, const link::Frame& frame, const isogate_runner_rejoin& asked)
      : KeptCall(place, wire, frame), asked_(asked) {}

  Result<void> open(std::vector<Fd>) override {
    if (auto made = make_cancel(); !made) return made;
    KeptId id{};
    std::copy(std::begin(asked_.id), std::end(asked_.id), id.begin());
    exec_ = place_.kept().find(id);
    if (exec_ == nullptr) return Error{ISOGATE_NOT_FOUND, ENOENT, "there is no exec of that id any more"};
    view_.emplace(exec_, asked_.flags);
    return {};
  }

  Answer run() override {
    if (!wire_.connection.send(ISOGATE_RUNNER_REJOINED, stream(), link::bytes_of(view_->state())))
      return Answer(Error{ISOGATE_LOST, 0, "the client is gone"});
    return show();
  }

 private:
  const isogate_runner_rejoin asked_;
};

}  // namespace

std::unique_ptr<Call> make_kept_exec(Place& place, Wire wire, const link::Frame& frame,
                                     link::ExecOrder order) {
  if ((frame.head.flags & ISOGATE_RUNNER_WITH_DESCRIPTORS) != 0) return nullptr;
  return std::make_unique<StartCall>(place, wire, frame, std::move(order));
}

std::unique_ptr<Call> make_rejoin(Place& place, Wire wire, const link::Frame& frame) {
  const auto asked = link::parse_rejoin(frame.payload);
  if (!asked) return nullptr;
  return std::make_unique<RejoinCall>(place, wire, frame, *asked);
}

}  // namespace isogate::agent
