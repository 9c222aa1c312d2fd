#include "gateway/front/exec.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "gateway/base/log.h"
#include "gateway/front/artifacts.h"
#include "gateway/front/exchange.h"
#include "gateway/front/names.h"
#include "gateway/front/null_sink.h"
#include "gateway/front/own_fd.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr size_t kChunk = 65536;
constexpr int kTimeoutExit = 124;
constexpr int kKilledExit = 137;

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

// One output pipe, read to its end; after the program's end, what is in it then.
struct Stream {
  Stream(const asio::any_io_executor& executor, Fd read_end, bool is_error)
      : pipe(executor, read_end.release()), done(executor), error(is_error) {
    pipe.native_non_blocking(true);
  }

  asio::posix::stream_descriptor pipe;
  Event done;
  bool error;
  bool ended = false;  // the program's tree is dead
  bool gave_up = false;
  size_t left = SIZE_MAX;  // to read after the end
  uint64_t total = 0;

  // What the tree wrote is in the pipe by now; what somebody else adds later is not its output.
  void program_ended() {
    ended = true;
    int waiting = 0;
    if (::ioctl(pipe.native_handle(), FIONREAD, &waiting) == 0) left = static_cast<size_t>(waiting);
    boost::system::error_code ignored;
    pipe.cancel(ignored);
  }

  asio::awaitable<void> drain(Output& output, const std::function<void()>& kill) {
    static std::array<char, kChunk> scratch;  // one thread, and Output copies before it waits
    const size_t most = std::min(scratch.size(), output.at_a_time());
    while (left > 0) {
      const bool unseen = gave_up || output.full(error);
      const ssize_t n = unseen ? discard_from_pipe(pipe.native_handle(), left)
                               : ::read(pipe.native_handle(), scratch.data(), std::min(left, most));
      if (n < 0 && errno == EINTR) continue;
      if (n == 0 || (n < 0 && (errno != EAGAIN || ended))) break;  // ended: somebody else has read the rest
      if (n < 0) {
        boost::system::error_code ignored;
        co_await pipe.async_wait(asio::posix::stream_descriptor::wait_read,
                                 asio::redirect_error(asio::use_awaitable, ignored));
        if (ended && left == SIZE_MAX) break;
        continue;
      }
      total += static_cast<uint64_t>(n);
      if (left != SIZE_MAX) left -= static_cast<size_t>(n);
      if (unseen) continue;
      try {
        co_await output.bytes(error, {scratch.data(), static_cast<size_t>(n)});
      } catch (...) {
        gave_up = true;
      }
      if (gave_up) kill();
    }
    done.set();
  }
};

// Until all of it is taken, or the pipe closed: whoever was handed the other end gets no more of it.
asio::awaitable<void> feed(std::shared_ptr<PipeEnd> pipe, std::shared_ptr<const std::string> bytes) {
  boost::system::error_code ignored;
  co_await asio::async_write(*pipe, asio::buffer(*bytes), asio::redirect_error(asio::use_awaitable, ignored));
  pipe->close(ignored);
}

ApiError waited_too_long(uint32_t seconds) {
  return {.code = Code::kRateLimited,
          .message = "no place became free within " + std::to_string(seconds) +
                     " s (limits.exec_queue_timeout_sec), and nothing of this exec ran; try again later",
          .retry_after_sec = 5};
}

asio::awaitable<Admission::Ticket> admitted(App& app, const SandboxRow& sandbox, Killer& killer) {
  const auto turn = std::make_shared<Event>(app.executor);
  const auto slot = std::make_shared<Admission::Ticket>();
  auto take = [turn, slot](Admission::Ticket ticket) {
    *slot = std::move(ticket);
    turn->set();
  };
  auto answer = app.admission.admit(sandbox.tenant, sandbox.sandbox_id, sandbox.backend, std::move(take));
  if (auto* ticket = std::get_if<Admission::Ticket>(&answer)) co_return std::move(*ticket);
  if (auto* refused = std::get_if<Admission::Refused>(&answer)) {
    throw ApiError{
        .code = Code::kRateLimited, .message = refused->reason, .retry_after_sec = refused->retry_after_sec};
  }
  const uint64_t waiter = std::get<Admission::Queued>(answer).waiter;
  killer.on_kill([&app, waiter, turn] {
    if (app.admission.cancel(waiter)) turn->set();
  });
  const uint32_t limit = app.config.limits.exec_queue_timeout_sec;
  if (!co_await turn->wait_for(std::chrono::seconds(limit)) && app.admission.cancel(waiter)) {
    killer.on_kill({});
    throw waited_too_long(limit);
  }
  if (app.draining)
    throw ApiError{.code = Code::kDraining, .message = "the gateway is shutting down", .retry_after_sec = 5};
  killer.on_kill({});
  if (killer.killed()) throw ClientGone{};
  co_return std::move(*slot);
}

// One exec in flight.
class Flight {
 public:
  Flight(App& app, const ExecSpec& spec, Output& output, Lease& lease, Admission::Ticket ticket,
         MemoryShare& memory)
      : app_(app),
        ticket_(std::move(ticket)),
        spec_(spec),
        output_(output),
        lease_(lease),
        memory_(memory),
        cancel_(or_throw(Cancel::make(app.executor))) {
    answer_.exec_id = new_exec_id();
    answer_.backend = lease.backend->config.name;
    answer_.isolation = lease.sandbox->row.isolation;
    lease_.sandbox->kills.insert(&kill_);
    ++lease_.sandbox->execs;
  }
  ~Flight() {
    lease_.sandbox->kills.erase(&kill_);
    --lease_.sandbox->execs;
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  void kill() { cancel_->fire(); }
  asio::awaitable<ExecAnswer> run();

 private:
  ipc::ExecCall make_call();
  void arm_timer();
  void conclude(const ipc::Reply& reply);
  void journal_start();
  void journal_end();

  App& app_;
  Admission::Ticket ticket_;  // until its program has ended: who reads slowly takes nobody's place
  const ExecSpec& spec_;
  Output& output_;
  Lease& lease_;
  MemoryShare& memory_;
  std::shared_ptr<Cancel> cancel_;
  Alarm timer_{app_.executor};
  std::shared_ptr<PipeEnd> input_;
  bool timed_out_ = false;
  std::function<void()> kill_ = [this] { kill(); };
  ExecAnswer answer_;
};

ipc::ExecCall Flight::make_call() {
  ipc::ExecCall call;
  call.call.request_id = spec_.request_id;
  const std::chrono::duration<double> timeout(spec_.timeout_sec);
  call.call.deadline_ns =
      (std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(timeout))
          .time_since_epoch()
          .count();
  call.sandbox_id = lease_.sandbox->row.sandbox_id;
  call.exec_id = answer_.exec_id;
  call.cwd = spec_.cwd;
  call.user = spec_.user;
  call.argv = spec_.argv;
  call.env = spec_.env;
  call.limits = spec_.limits;
  return call;
}

void Flight::arm_timer() {
  timer_.set(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(spec_.timeout_sec)),
      [this] {
        timed_out_ = !cancel_->fired();
        kill();
      });
}

void Flight::journal_start() {
  app_.state->exec_opened({.exec_id = answer_.exec_id,
                           .sandbox_id = lease_.sandbox->row.sandbox_id,
                           .tenant = spec_.tenant,
                           .backend = answer_.backend,
                           .request_id = spec_.request_id,
                           .command = spec_.shown,
                           .started_ms = now_ms(),
                           .ended = std::nullopt});
}

void Flight::journal_end() {
  app_.state->exec_closed(answer_.exec_id, {.ended_ms = now_ms(),
                                            .outcome = answer_.outcome,
                                            .exit_code = answer_.exit_code,
                                            .signal = answer_.signal,
                                            .reason = answer_.message,
                                            .stdout_bytes = answer_.stdout_bytes,
                                            .stderr_bytes = answer_.stderr_bytes,
                                            .duration_ms = static_cast<uint64_t>(answer_.duration_ms)});
  app_.metrics.exec_ended(answer_.backend, answer_.outcome, answer_.duration_ms / 1000);
}

void Flight::conclude(const ipc::Reply& reply) {
  if (reply.status == ISOGATE_CANCELLED) {  // before the program started
    answer_.outcome = timed_out_ ? "timed_out" : "killed";
    answer_.exit_code = timed_out_ ? kTimeoutExit : kKilledExit;
    return;
  }
  if (reply.status != ISOGATE_OK) {
    answer_.outcome = "unknown";
    answer_.message = reply.message;
    return;
  }
  const auto& end = std::get<ipc::ExecEnd>(reply.value);
  answer_.duration_ms = static_cast<double>(end.wall_ns) / 1e6;
  answer_.cpu_ms = static_cast<double>(end.cpu_ns) / 1e6;
  answer_.max_rss_bytes = end.max_rss_bytes;
  answer_.signal = end.term_signal;
  answer_.exit_code = end.term_signal != 0 ? 128 + end.term_signal : end.exit_code;
  answer_.outcome = end.term_signal != 0 ? "signaled" : "exited";
  if ((end.flags & ISOGATE_RESULT_OOM_KILLED) != 0) {
    answer_.outcome = "oom_killed";
    answer_.exit_code = kKilledExit;
  } else if ((end.flags & ISOGATE_RESULT_KILLED) != 0) {
    answer_.outcome = timed_out_ ? "timed_out" : "killed";
    answer_.exit_code = timed_out_ ? kTimeoutExit : kKilledExit;
  }
}

asio::awaitable<ExecAnswer> Flight::run() {
  Pipe out = or_throw(make_pipe());
  Pipe err = or_throw(make_pipe());
  ipc::ExecCall call = make_call();
  call.std_out = std::move(out.write);
  call.std_err = std::move(err.write);
  if (spec_.stdin_bytes) {
    Pipe in = or_throw(make_pipe());
    call.std_in = std::move(in.read);
    input_ = std::make_shared<PipeEnd>(app_.executor, in.write.release());
    input_->native_non_blocking(true);
    asio::co_spawn(app_.executor, feed(input_, spec_.stdin_bytes), asio::detached);
  }
  const auto standard_out = std::make_shared<Stream>(app_.executor, std::move(out.read), false);
  const auto standard_err = std::make_shared<Stream>(app_.executor, std::move(err.read), true);
  ArtifactWatch artifacts(lease_, spec_, memory_);
  if (spec_.artifact_dir) co_await artifacts.before();
  co_await output_.started(answer_);
  journal_start();
  arm_timer();
  for (const auto& stream : {standard_out, standard_err}) {
    asio::co_spawn(app_.executor, stream->drain(output_, kill_),
                   [stream](const std::exception_ptr&) { stream->done.set(); });
  }
  const ipc::Reply reply = co_await lease_.channel->call(std::move(call), cancel_);
  timer_.cancel();
  ticket_.release();
  lease_.sandbox->kills.erase(&kill_);
  boost::system::error_code ignored;
  if (input_) input_->close(ignored);
  app_.backends.judge(*lease_.backend, lease_.sandbox->row, reply);
  standard_out->program_ended();
  standard_err->program_ended();
  co_await standard_out->done.wait();
  co_await standard_err->done.wait();
  answer_.stdout_bytes = standard_out->total;
  answer_.stderr_bytes = standard_err->total;
  conclude(reply);
  const bool never_started =
      reply.status != ISOGATE_OK && reply.status != ISOGATE_LOST && reply.status != ISOGATE_CANCELLED;
  if (never_started) answer_.outcome = "not_started";
  if (reply.status == ISOGATE_NO_SANDBOX || reply.status == ISOGATE_SANDBOX_LOST ||
      reply.status == ISOGATE_LOST)
    app_.sandboxes.lost(lease_, reply.status);
  if (spec_.artifact_dir && reply.status == ISOGATE_OK) {
    answer_.with_artifacts = true;
    try {
      co_await artifacts.after(answer_);
    } catch (const ApiError& error) {
      answer_.message = "its artifacts could not be listed: " + error.message;
    }
  }
  journal_end();
  if (never_started) throw from_backend({reply.status, reply.os_errno, reply.message});
  co_return answer_;
}

}  // namespace

uint64_t ExecSpec::bytes() const {
  uint64_t sum = stdin_bytes ? stdin_bytes->size() : 0;
  sum += cwd.size() + user.size() + (artifact_dir ? artifact_dir->size() : 0);
  for (const std::string& each : argv) sum += sizeof each + each.size();
  for (const auto& each : env) sum += sizeof each + each.first.size() + each.second.size();
  return sum;
}

asio::awaitable<ExecAnswer> run_exec(App& app, const ExecSpec& spec, Output& output, Killer& killer,
                                     MemoryShare& memory) {
  if (app.draining)
    throw ApiError{.code = Code::kDraining, .message = "the gateway is shutting down", .retry_after_sec = 5};
  uint64_t needed = 0;
  if (!spec.user.empty()) needed |= ISOGATE_CAP_USER;
  if (spec.limits.memory_bytes != 0) needed |= ISOGATE_CAP_LIMIT_MEMORY;
  if (spec.limits.cpu_millis != 0) needed |= ISOGATE_CAP_LIMIT_CPU;
  if (spec.limits.pids != 0) needed |= ISOGATE_CAP_LIMIT_PIDS;
  const Wanted wanted{.tenant = spec.tenant,
                      .agent = spec.agent,
                      .backend = spec.backend,
                      .min_isolation = spec.min_isolation,
                      .capabilities = needed,
                      .request_id = spec.request_id};
  Lease lease = co_await app.sandboxes.acquire(wanted);
  if (killer.killed()) throw ClientGone{};
  Admission::Ticket ticket = co_await admitted(app, lease.sandbox->row, killer);
  Flight flight(app, spec, output, lease, std::move(ticket), memory);
  killer.on_kill([&flight] { flight.kill(); });
  try {
    ExecAnswer answer = co_await flight.run();
    killer.on_kill({});
    app.state->touch_sandbox(lease.sandbox->row.sandbox_id, lease.sandbox->row.last_used_ms = now_ms());
    co_return answer;
  } catch (...) {
    killer.on_kill({});
    throw;
  }
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return "SIG" + (name == nullptr ? std::to_string(signal) : std::string(name));
}

}  // namespace isogate::front
