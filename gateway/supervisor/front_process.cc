#include "gateway/supervisor/front_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "lib/log.h"

namespace isogate::supervisor {

FrontProcess::FrontProcess(Context& context, const std::vector<Listener>& listeners, Events events)
    : context_(context),
      listeners_(listeners),
      events_(std::move(events)),
      early_(context.timings),
      late_(context.timings) {}

void FrontProcess::start() {
  start_at_.reset();
  auto child = context_.start_front();
  if (!child) return crashed(child.error().message);
  process_.control = ControlChannel(std::move(child->control));
  process_.child = std::move(*child);
  ready_ = serves_ = false;
  forbidden_call_.clear();
  const auto sidecar = std::chrono::seconds(
      context_.config.wait_for_sidecar.empty() ? 0 : context_.config.wait_for_sidecar_timeout_sec);
  process_.kill_later(context_.timings.ready + sidecar, "did not become ready in time");
  const Secrets& secrets = context_.secrets;
  FrontStart message{&context_.config, secrets.local_key_sha256, context_.state.path, {0}, {}, {},
                     &secrets.tls};
  if (const uid_t own = context_.accounts.front_uid; own != 0) message.peer_uids.push_back(own);
  std::vector<int> sockets;
  for (const Listener& listener : listeners_) {
    message.listeners.push_back(listener.address);
    message.kinds.push_back(listener.kind);
    sockets.push_back(listener.socket.get());
  }
  process_.control.send(front_start_message(message), std::move(sockets));
  log::info("front_started", {{"front_pid", process_.child.pid}});
  events_.started();
}

void FrontProcess::close() {
  if (!running()) return;
  process_.control.close();
  process_.kill_later(std::min<std::chrono::milliseconds>(context_.timings.stop / 2, budget::kFrontEnds),
                      "did not end when asked to");
}

void FrontProcess::retire() {
  retired_ = true;
  if (!ready_) process_.kill_at.reset();  // the time of a start is not that of a drain
}

void FrontProcess::kill(const std::string& why) {
  if (!running() || process_.killed) return;
  if (retired_) context_.had_to_kill = true;
  log::warn("front_killed", {{"reason", why}});
  process_.kill_now(why);
}

void FrontProcess::attend() {
  process_.control.flush();
  receive();
}

void FrontProcess::receive() {
  for (int i = 0; i < ControlChannel::kRecordsPerTurn && process_.control.fd() >= 0; ++i) {
    auto received = process_.control.receive();
    if (!received && received.error().os_errno != ECONNRESET)
      return kill("broke the control protocol: " + received.error().message);
    if (!received)
      return process_.kill_later(context_.timings.leave, "closed its control socket and did not end");
    if (!*received) return;
    const FromChild& record = **received;
    if (record.type == "ready") {
      if (std::exchange(ready_, true)) return kill("sent `ready` twice");
      process_.kill_at.reset();
      events_.ready();
    } else if (record.type == "serving") {
      serves_ = true;
    } else if (record.type == "drained") {
      if (!record.message.empty()) context_.had_to_kill = true;
      events_.drained();
    } else if (record.type == "stuck") {
      events_.stuck(record);
    } else if (record.type == "reloaded") {
      events_.reloaded(record.number);
    } else if (record.type == "reload_refused") {
      events_.reload_refused(record.number, record.message);
    } else if (record.type == "violation") {
      forbidden_call_ = record.message.substr(0, 64);
    } else if (record.type == "fatal") {
      if (!ready_ && !retired_) return events_.hopeless(record.message);
      log::error("front_failed", {{"reason", record.message}});
    }
  }
}

void FrontProcess::ended(int wait_status) {
  receive();  // its last records
  const ChildProcess gone = std::exchange(process_, {});
  events_.lost();
  std::string how = describe_end(wait_status) + (gone.killed ? ", because it " + gone.kill_reason : "");
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSYS) {
    const std::string name = forbidden_call_.empty() ? "unknown" : forbidden_call_;
    log::error("front_forbidden_system_call", {{"system_call", name}, {"front_pid", gone.child.pid}});
    how += ", for the forbidden system call `" + name + "`";
  }
  if (!retired_) crashed(how);
  if (retired_ && WIFSIGNALED(wait_status) && !gone.killed)
    log::error("front_crashed_while_stopping", {{"reason", how}});
}

void FrontProcess::crashed(const std::string& reason) {
  const auto delay = ready_ ? late_.crashed(Clock::now()).value_or(context_.timings.longest_backoff)
                            : early_.crashed(Clock::now());
  if (!delay)
    return events_.hopeless("the front crashed " + std::to_string(context_.timings.crash_limit) +
                            " times before it was ready, the last time with " + reason);
  log::error("front_crashed", {{"reason", reason}, {"restart_in_ms", delay->count()}});
  ready_ = false;
  start_at_ = Clock::now() + *delay;
}

void FrontProcess::tick(TimePoint now) {
  if (start_at_ && *start_at_ <= now && !retired_) start();
  if (process_.kill_at && *process_.kill_at <= now) kill(process_.kill_reason);
}

TimePoint FrontProcess::next_deadline() const {
  const TimePoint start = retired_ ? TimePoint::max() : start_at_.value_or(TimePoint::max());
  return std::min(start, process_.kill_at.value_or(TimePoint::max()));
}

}  // namespace isogate::supervisor
