#include "gateway/front/exec/exec.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "gateway/front/app.h"
#include "gateway/front/base/names.h"
#include "gateway/front/base/own_fd.h"
#include "gateway/front/exec/artifacts.h"
#include "gateway/front/http/exchange.h"
#include "lib/clock.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr size_t kChunk = 65536;
constexpr size_t kTurn = 1 << 20;  // bytes of a pipe, before others have their turn
constexpr int kTimeoutExit = 124;
constexpr int kKilledExit = 137;
constexpr std::chrono::seconds kStateWithin{1};  // of a rejoined exec, after its reply
constexpr std::chrono::seconds kListWithin{5};   // of artifacts, after the deadline

// Takes at most `most` bytes of what a non-blocking pipe holds, and copies none of them. As read(2).
ssize_t discard_from_pipe(int pipe, size_t most) {
  static const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  constexpr size_t kAtOnce = 1 << 20;
  if (null >= 0)
    return ::splice(pipe, nullptr, null, nullptr, std::min(most, kAtOnce), SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  std::array<char, 65536> scratch;  // NOLINT: filled by read
  return ::read(pipe, scratch.data(), std::min(most, scratch.size()));
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
    left = bytes_in(pipe.native_handle()).value_or(SIZE_MAX);
    boost::system::error_code ignored;
    pipe.cancel(ignored);
  }

  asio::awaitable<void> drain(Output& output, const std::function<void()>& kill) {
    static std::array<char, kChunk> scratch;  // one thread, and Output copies before it waits
    const size_t most = std::min(scratch.size(), output.at_a_time());
    size_t turn = 0;  // bytes since it last waited
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
        turn = 0;
        continue;
      }
      total += static_cast<uint64_t>(n);
      turn += static_cast<size_t>(n);
      if (left != SIZE_MAX) left -= static_cast<size_t>(n);
      if (!unseen) {
        try {
          co_await output.bytes(error, {scratch.data(), static_cast<size_t>(n)});
        } catch (...) {
          gave_up = true;
        }
        if (gave_up) kill();
      }
      if (turn < kTurn) continue;
      turn = 0;
      co_await asio::post(pipe.get_executor(), asio::use_awaitable);
    }
    done.set();
  }
};

// Until all of it is taken, or the pipe closed: whoever was handed the other end gets no more of it.
asio::awaitable<void> feed(std::shared_ptr<PipeEnd> pipe, std::shared_ptr<const std::string> bytes,
                           std::shared_ptr<KeptEnds> kept) {
  boost::system::error_code ignored;
  co_await asio::async_write(*pipe, asio::buffer(*bytes), asio::redirect_error(asio::use_awaitable, ignored));
  if (kept && !ignored) signal_mark(kept->input_end.own.get());
  pipe->close(ignored);
}

// What a rejoined exec says of itself; nothing: it was not there.
asio::awaitable<std::optional<isogate_kept_state>> read_state(std::shared_ptr<PipeEnd> pipe) {
  isogate_kept_state state{};
  boost::system::error_code error;
  co_await asio::async_read(*pipe, asio::buffer(&state, sizeof state),
                            asio::redirect_error(asio::use_awaitable, error));
  constexpr uint64_t kMost = INT64_MAX / 2;
  if (error || state.stdout_offset > kMost || state.stderr_offset > kMost) co_return std::nullopt;
  co_return state;
}

// What keeps this sandbox's execs waiting, as far as one of the limits tells.
std::string full_limit(const App& app, const Sandbox& in) {
  const LimitsConfig& limits = app.config.limits;
  if (app.admission.running(in.row.sandbox_id) >= limits.max_execs_per_sandbox)
    return "as many execs of this agent run as limits.max_execs_per_sandbox admits, " +
           std::to_string(limits.max_execs_per_sandbox);
  if (app.admission.running() >= limits.max_execs)
    return "as many execs run as limits.max_execs admits, " + std::to_string(limits.max_execs);
  return "the tenant or the backend runs as many execs as its share admits, or starts others first";
}

ApiError waited_too_long(const App& app, const Sandbox& in) {
  return {.code = Code::kRateLimited,
          .message = "no place became free within " +
                     std::to_string(app.config.limits.exec_queue_timeout_sec) +
                     " s (limits.exec_queue_timeout_sec): " + full_limit(app, in) +
                     "; nothing of this exec ran; try again later",
          .retry_after_sec = 5};
}

using Deadline = std::chrono::steady_clock::time_point;

// What an exec waits for in a queue.
template <typename Place>
struct Turn {
  explicit Turn(const asio::any_io_executor& executor) : came(executor) {}
  void take(Place given) {
    place = std::move(given);
    came.set();
  }
  Event came;
  Place place;
};

// `leave` takes it out of its queue; false: its turn has come.
template <typename Place>
asio::awaitable<Place> wait_for(App& app, Sandbox& in, Killer& killer, Deadline until,
                                std::shared_ptr<Turn<Place>> turn, std::function<bool()> leave) {
  bool ended = false;
  const std::function<void()> cancel = [&ended, leave, turn] {
    if (!leave()) return;
    ended = true;
    turn->came.set();
  };
  const OnKill on_kill(killer, cancel);
  const OnSandboxEnd on_end(in, cancel);
  const bool in_time = co_await turn->came.wait_for(until - std::chrono::steady_clock::now());
  if (!in_time && leave()) throw waited_too_long(app, in);
  if (app.draining) throw draining();
  if (killer.killed()) throw ClientGone{};
  if (ended) {
    throw ApiError{
        .code = Code::kSandboxNotFound,
        .message = "the sandbox was ended while this exec waited for its turn, and nothing of it ran"};
  }
  co_return std::move(turn->place);
}

asio::awaitable<Admission::Ticket> admitted(App& app, Sandbox& in, Killer& killer, Deadline until) {
  const auto turn = std::make_shared<Turn<Admission::Ticket>>(app.executor);
  auto answer = app.admission.admit(in.row.tenant, in.row.sandbox_id, in.row.backend,
                                    [turn](Admission::Ticket ticket) { turn->take(std::move(ticket)); });
  if (auto* ticket = std::get_if<Admission::Ticket>(&answer)) co_return std::move(*ticket);
  if (auto* refused = std::get_if<Admission::Refused>(&answer)) {
    throw ApiError{
        .code = Code::kRateLimited, .message = refused->reason, .retry_after_sec = refused->retry_after_sec};
  }
  const uint64_t waiter = std::get<Admission::Queued>(answer).waiter;
  // Named, as below: GCC 12 destroys what a lambda in a co_await has captured twice.
  std::function<bool()> leave = [&app, waiter] { return app.admission.cancel(waiter); };
  co_return co_await wait_for(app, in, killer, until, turn, std::move(leave));
}

asio::awaitable<StartWindow::Slot> start_slot(App& app, Lease& lease, Killer& killer, Deadline until) {
  const auto window = lease.backend->starts;
  const auto turn = std::make_shared<Turn<StartWindow::Slot>>(app.executor);
  auto answer = window->enter(lease.sandbox->row.tenant,
                              [turn](StartWindow::Slot slot) { turn->take(std::move(slot)); });
  if (auto* slot = std::get_if<StartWindow::Slot>(&answer)) co_return std::move(*slot);
  const uint64_t waiter = std::get<StartWindow::Queued>(answer).waiter;
  std::function<bool()> leave = [window, waiter] { return window->cancel(waiter); };
  co_return co_await wait_for(app, *lease.sandbox, killer, until, turn, std::move(leave));
}

// What is kept of an end.
struct Ending {
  std::string request_id, exec_id, tenant, agent, backend;
  bool fault;
  ExecOutcome how;

  void record(App& app) const {
    const bool known = how.outcome != Outcome::kUnknown && how.outcome != Outcome::kNotStarted;
    std::optional<double> ms;  // none: not known, or nothing ran
    if (known && how.duration_ms > 0) ms = how.duration_ms;
    app.metrics.exec_ended(backend, outcome_name(how.outcome), ms ? std::optional(*ms / 1000) : std::nullopt);
    app.state->exec_closed(exec_id, how);
    log::info("exec_ended", {{"request_id", log::Own{request_id}},
                             {"exec_id", log::Own{exec_id}},
                             {"tenant", tenant},
                             {"agent_id", agent},
                             {"backend", log::Own{backend}},
                             {"outcome", log::Own{outcome_name(how.outcome)}},
                             {"exit_code", how.exit_code},
                             {"ms", ms},
                             {"reason", fault ? how.reason : ""}});
  }
};

Ending ending_of(ExecSpec& spec, const ExecAnswer& answer) {
  Ending ending{.request_id = std::move(spec.request_id),
                .exec_id = answer.exec_id,
                .tenant = std::move(spec.tenant),
                .agent = std::move(spec.agent),
                .backend = answer.backend,
                .fault = answer.outcome == Outcome::kUnknown || answer.fault,
                .how = answer};
  ending.how.ended_ms = wall_clock_ms();
  return ending;
}

// One exec in flight.
class Flight {
 public:
  Flight(App& app, ExecSpec& spec, Output& output, Lease& lease, Admission::Ticket ticket,
         StartWindow::Slot start, ByteShare& memory)
      : app_(app),
        ticket_(std::make_shared<Admission::Ticket>(std::move(ticket))),
        start_(std::move(start)),
        spec_(spec),
        output_(output),
        lease_(lease),
        memory_(memory),
        cancel_(or_throw(Cancel::make(app.executor))) {
    answer_.exec_id = spec.rejoin ? spec.rejoin->exec_id : new_exec_id();
    answer_.backend = lease.backend->config.name;
    answer_.started_ms = spec.rejoin ? spec.rejoin->started_ms : wall_clock_ms();
    answer_.isolation = lease.sandbox->row.isolation;
    ++lease_.sandbox->execs;
  }
  ~Flight() { --lease_.sandbox->execs; }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  void kill() {
    cancel_->fire();
    output_.killed();
    listing_.kill();
  }
  asio::awaitable<ExecAnswer> run();

 private:
  asio::awaitable<ExecAnswer> fly();
  void close_journal();
  void complete_call();
  [[nodiscard]] bool can_keep() const;
  // By an orderly stop, to its backend: nothing here ends it any more.
  [[nodiscard]] bool is_left() const { return spec_.kept && spec_.kept->detached; }
  void keep();
  void keep_unsent(ipc::Call unsent);
  [[nodiscard]] bool goes_on(const ipc::Reply& reply) const;
  asio::awaitable<void> pass_on(std::shared_ptr<Stream> stream);
  asio::awaitable<void> take_state(std::shared_ptr<PipeEnd> pipe);
  void arm_timer();
  asio::awaitable<void> list_artifacts(ArtifactWatch& artifacts);
  [[nodiscard]] bool never_started(const ipc::Reply& reply) const;
  [[nodiscard]] bool was_cancelled(const ipc::Reply& reply) const;
  void conclude(const ipc::Reply& reply);
  [[nodiscard]] bool may_be_sampled() const;
  [[nodiscard]] bool proves_execs() const;
  std::string where_it_ran(const isogate_exec_result& end);
  void journal_start();
  void journal_end(std::array<std::shared_ptr<Stream>, 2> pipes);
  void give_back_places(const ipc::Reply& reply, std::chrono::nanoseconds took);

  App& app_;
  // Until the host is done with it: who reads slowly takes nobody's place.
  std::shared_ptr<Admission::Ticket> ticket_;
  StartWindow::Slot start_;
  ExecSpec& spec_;
  Output& output_;
  Lease& lease_;
  ByteShare& memory_;
  std::shared_ptr<Cancel> cancel_;
  Alarm timer_{app_.executor};
  std::chrono::steady_clock::time_point deadline_;
  std::shared_ptr<PipeEnd> input_;
  std::array<uint64_t, 2> offsets_{};  // of a rejoined one, where its output began
  Event stated_{app_.executor};        // these are known
  Killer listing_;                     // of artifacts
  bool timed_out_ = false;
  bool journaled_ = false;  // its row is open, and nobody else will close it
  ExecAnswer answer_;
  OnSandboxEnd on_end_{*lease_.sandbox, [this] {
                         if (!is_left()) kill();
                       }};
};

bool Flight::may_be_sampled() const {
  const Backend& backend = *lease_.backend;
  return spec_.needed_limits() != 0 && backend.config.exec_limits_sampled && backend.probe &&
         (backend.probe->capabilities & kSampledLimits) != 0;
}

bool Flight::can_keep() const {
  const Backend& backend = *lease_.backend;
  const bool may_lose_input = spec_.stdin_bytes && !spec_.terms.stdin_open;  // and take a part for the whole
  return spec_.kept && !spec_.artifact_dir && !may_lose_input && app_.config.exec.survive_sec > 0 &&
         backend.hello && (backend.hello->capabilities & ISOGATE_CAP_KEPT_EXECS) != 0 && backend.probe &&
         (backend.probe->capabilities & ISOGATE_CAP_KEPT_EXECS) != 0;
}

void Flight::keep() {
  ipc::ExecCall& call = spec_.call;
  if (!spec_.rejoin && !can_keep()) return;
  spec_.kept->kept = true;
  call.keep = spec_.rejoin ? ipc::Keep::kRejoin : ipc::Keep::kStart;
  call.grace_sec = std::max(app_.config.exec.survive_sec, 1u);
  call.detach = duplicate(spec_.kept->detach);
  call.input_end = duplicate(spec_.kept->input_end.theirs);
}

void Flight::complete_call() {
  ipc::ExecCall& call = spec_.call;
  const int64_t now = steady_date_ms();
  if (!spec_.rejoin)
    spec_.terms.deadline_ms = now + static_cast<int64_t>(std::ceil(spec_.timeout_sec * 1000));
  const std::chrono::milliseconds left(std::max<int64_t>(spec_.terms.deadline_ms - now, 0));
  deadline_ = std::chrono::steady_clock::now() + left;
  call.call.deadline_ns = std::chrono::nanoseconds(deadline_.time_since_epoch()).count();
  call.call.request_id = spec_.request_id;
  call.sandbox_id = lease_.sandbox->row.sandbox_id;
  call.exec_id = answer_.exec_id;
  if (may_be_sampled()) call.flags |= ISOGATE_EXEC_LIMITS_SAMPLED;
  keep();
}

asio::awaitable<void> Flight::take_state(std::shared_ptr<PipeEnd> pipe) {
  if (const auto state = co_await read_state(std::move(pipe))) {
    offsets_ = {state->stdout_offset, state->stderr_offset};
    answer_.found = true;
    output_.rejoined(*state);
  }
  stated_.set();
}

asio::awaitable<void> Flight::pass_on(std::shared_ptr<Stream> stream) {
  if (spec_.rejoin) co_await stated_.wait();
  co_await stream->drain(output_, [this] { kill(); });
}

// What clients sent is for the next attempt.
void Flight::keep_unsent(ipc::Call unsent) {
  auto* call = std::get_if<ipc::ExecCall>(&unsent);
  if (call == nullptr) return;
  spec_.call.std_in = std::move(call->std_in);
  spec_.call.control = std::move(call->control);
}

bool Flight::goes_on(const ipc::Reply& reply) const {
  if (!spec_.kept || !spec_.kept->kept) return false;
  // It was not asked for: the next attempt does.
  if (spec_.rejoin && !answer_.found &&
      (reply.status == ISOGATE_UNAVAILABLE || reply.status == ISOGATE_RESOURCE_EXHAUSTED ||
       reply.status == ISOGATE_CANCELLED))
    return true;
  if (reply.status != ISOGATE_LOST) return false;
  // Contact was lost: one look whether it is there all the same, and to kill it where that was to be done.
  return spec_.kept->detached || !lease_.channel->connected() || !spec_.rejoin;
}

void Flight::arm_timer() {
  timer_.set(deadline_ - std::chrono::steady_clock::now(), [this] {
    timed_out_ = !cancel_->fired();
    kill();
  });
}

// After the program: till its deadline, or for a little while where that is near or past. Who has killed it
// does not wait for them.
asio::awaitable<void> Flight::list_artifacts(ArtifactWatch& artifacts) {
  if (cancel_->fired() && !timed_out_) {
    answer_.reason = "its artifacts were not listed: it was killed";
    co_return;
  }
  listing_.reset();
  const std::chrono::nanoseconds rest = deadline_ - std::chrono::steady_clock::now();
  timer_.set(std::max<std::chrono::nanoseconds>(rest, kListWithin), [this] { listing_.kill(); });
  try {
    co_await artifacts.after(answer_, listing_);
  } catch (const ApiError& error) {
    answer_.reason = "its artifacts could not be listed: " + error.message;
  } catch (const std::exception& error) {
    answer_.reason = "its artifacts could not be listed: " + std::string(error.what());
  }
  timer_.cancel();
}

void Flight::journal_start() {
  if (spec_.rejoin) return;
  std::optional<KeptTerms> kept;
  if (spec_.kept && spec_.kept->kept) kept = spec_.terms;
  app_.state->exec_opened({.exec_id = answer_.exec_id,
                           .sandbox_id = lease_.sandbox->row.sandbox_id,
                           .tenant = spec_.tenant,
                           .backend = answer_.backend,
                           .request_id = spec_.request_id,
                           .command = spec_.shown,
                           .started_ms = answer_.started_ms,
                           .ended = std::nullopt,
                           .kept = kept});
  journaled_ = true;
}

// When what runs now waits, before anything that happens later. A response that is written next is with the
// kernel by then, and the next request is not read yet: nobody can see that it came late. `pipes`: closed
// then, too.
void Flight::journal_end(std::array<std::shared_ptr<Stream>, 2> pipes) {
  journaled_ = false;
  asio::post(app_.executor, [&app = app_, ending = ending_of(spec_, answer_), cancel = cancel_,
                             pipes = std::move(pipes)] { ending.record(app); });
}

// Of one that an exception ends.
void Flight::close_journal() {
  if (!std::exchange(journaled_, false)) return;
  answer_.outcome = Outcome::kUnknown;
  answer_.reason = "an internal error; the log has it";
  ending_of(spec_, answer_).record(app_);
}

void Flight::give_back_places(const ipc::Reply& reply, std::chrono::nanoseconds took) {
  if (const auto* end = std::get_if<isogate_exec_result>(&reply.value))
    start_.ended(took - std::chrono::nanoseconds(std::min<uint64_t>(end->wall_ns, INT64_MAX)));
  start_.release();
  if (ticket_.use_count() > 1) ticket_->strand();
  ticket_.reset();
}

bool Flight::proves_execs() const {
  const auto& hello = lease_.backend->hello;
  return hello && (hello->capabilities & ISOGATE_CAP_PROVEN_EXECS) != 0;
}

// Empty: it ran under no less than its sandbox was accepted with, by its own proof where its backend gives
// one.
std::string Flight::where_it_ran(const isogate_exec_result& end) {
  if ((end.flags & ISOGATE_RESULT_PROVEN) != 0) {
    const uint32_t accepted = answer_.isolation;
    answer_.isolation = std::min(end.isolation, accepted);
    if (end.isolation >= accepted) return {};
    return "it ran with isolation " + std::string(isolation_name(end.isolation)) +
           ", less than its sandbox was opened with";
  }
  const bool started = (end.flags & ISOGATE_RESULT_NOT_STARTED) == 0;
  if (!started || !proves_execs()) return {};
  answer_.isolation_known = false;
  return "its backend did not prove where it ran";
}

// An error that asserts that nothing was started, unless output proves the contrary.
bool Flight::never_started(const ipc::Reply& reply) const {
  const bool wrote = answer_.stdout_bytes > 0 || answer_.stderr_bytes > 0;
  return !spec_.rejoin && !wrote && reply.status != ISOGATE_OK && reply.status != ISOGATE_LOST;
}

// By the front, or at its deadline: what a backend host that ends has cancelled is refused.
bool Flight::was_cancelled(const ipc::Reply& reply) const {
  return reply.status == ISOGATE_CANCELLED && (cancel_->fired() || timed_out_);
}

void Flight::conclude(const ipc::Reply& reply) {
  if (was_cancelled(reply) && never_started(reply)) {
    answer_.outcome = timed_out_ ? Outcome::kTimedOut : Outcome::kKilled;
    answer_.exit_code = timed_out_ ? kTimeoutExit : kKilledExit;
    return;
  }
  if (reply.status != ISOGATE_OK) {
    answer_.outcome = Outcome::kUnknown;
    answer_.isolation_known = !proves_execs();
    answer_.reason = reply.message;
    return;
  }
  const auto& end = std::get<isogate_exec_result>(reply.value);
  if (const std::string unproven = where_it_ran(end); !unproven.empty()) {
    answer_.outcome = Outcome::kUnknown;
    answer_.reason = unproven;
    lease_.distrust();
    log::error("exec_isolation_not_proven",
               {{"exec_id", answer_.exec_id}, {"backend", answer_.backend}, {"reason", unproven}});
    return;
  }
  answer_.left_behind = (end.flags & ISOGATE_RESULT_LEFT_BEHIND) != 0;
  answer_.duration_ms = static_cast<double>(end.wall_ns) / 1e6;
  answer_.cpu_ms = static_cast<double>(end.cpu_ns) / 1e6;
  answer_.max_rss_bytes = end.max_rss_bytes;
  answer_.signal = end.term_signal;
  answer_.exit_code = end.term_signal != 0 ? 128 + end.term_signal : end.exit_code;
  answer_.outcome = end.term_signal != 0 ? Outcome::kSignaled : Outcome::kExited;
  if ((end.flags & ISOGATE_RESULT_OOM_KILLED) != 0) {
    answer_.outcome = Outcome::kOomKilled;
    answer_.exit_code = kKilledExit;
  } else if ((end.flags & ISOGATE_RESULT_PIDS_EXCEEDED) != 0) {
    answer_.outcome = Outcome::kKilled;
    answer_.exit_code = kKilledExit;
    answer_.reason = "it had more processes and threads than `cgroup.max_pids`";
  } else if ((end.flags & ISOGATE_RESULT_KILLED) != 0) {
    answer_.outcome = timed_out_ ? Outcome::kTimedOut : Outcome::kKilled;
    answer_.exit_code = timed_out_ ? kTimeoutExit : kKilledExit;
  }
}

asio::awaitable<ExecAnswer> Flight::run() {
  try {
    co_return co_await fly();
  } catch (...) {
    close_journal();
    throw;
  }
}

asio::awaitable<ExecAnswer> Flight::fly() {
  output_.admitted();
  Pipe out = or_throw(make_pipe());
  Pipe err = or_throw(make_pipe());
  complete_call();
  ipc::ExecCall& call = spec_.call;
  call.std_out = std::move(out.write);
  call.std_err = std::move(err.write);
  if (spec_.stdin_bytes && !call.std_in) {
    Pipe in = or_throw(make_pipe());
    call.std_in = std::move(in.read);
    input_ = std::make_shared<PipeEnd>(app_.executor, in.write.release());
    input_->native_non_blocking(true);
    asio::co_spawn(app_.executor,
                   feed(input_, spec_.stdin_bytes, call.keep == ipc::Keep::kNot ? nullptr : spec_.kept),
                   asio::detached);
  }
  auto standard_out = std::make_shared<Stream>(app_.executor, std::move(out.read), false);
  auto standard_err = std::make_shared<Stream>(app_.executor, std::move(err.read), true);
  ArtifactWatch artifacts(lease_, spec_, memory_);
  arm_timer();
  if (spec_.artifact_dir) co_await artifacts.before(listing_);
  if (app_.draining && !spec_.rejoin) throw draining();  // it began while the sandbox was opened
  co_await output_.started(answer_);
  journal_start();
  std::shared_ptr<PipeEnd> state_in;
  if (spec_.rejoin) {
    Pipe state = or_throw(make_pipe());
    call.state = std::move(state.write);
    state_in = std::make_shared<PipeEnd>(app_.executor, state.read.release());
    asio::co_spawn(app_.executor, take_state(state_in), asio::detached);
  }
  for (const auto& stream : {standard_out, standard_err}) {
    asio::co_spawn(app_.executor, pass_on(stream),
                   [stream](const std::exception_ptr&) { stream->done.set(); });
  }
  const auto begun = std::chrono::steady_clock::now();
  ipc::Reply reply;
  if (cancel_->fired() && !spec_.rejoin) {
    reply.status = ISOGATE_CANCELLED;  // while its artifacts were listed: nothing is started any more
    call = ipc::ExecCall();
  } else {
    OnBehalf whose(spec_.tenant, ticket_);
    ipc::Call unsent;
    reply = co_await lease_.channel->call(std::move(call), cancel_, std::move(whose), &unsent);
    keep_unsent(std::move(unsent));
  }
  timer_.cancel();
  if (!cancel_->fired()) timed_out_ = std::chrono::steady_clock::now() >= deadline_;  // its backend was first
  give_back_places(reply, std::chrono::steady_clock::now() - begun);
  on_end_.leave();
  boost::system::error_code ignored;
  if (input_) input_->close(ignored);
  app_.backends.judge(*lease_.backend, lease_.sandbox->row, reply);
  if (state_in && !co_await stated_.wait_for(kStateWithin)) state_in->close(ignored);
  if (state_in) co_await stated_.wait();
  answer_.goes_on = goes_on(reply);
  output_.call_ended();
  standard_out->program_ended();
  standard_err->program_ended();
  co_await standard_out->done.wait();
  co_await standard_err->done.wait();
  answer_.stdout_bytes = offsets_[0] + standard_out->total;
  answer_.stderr_bytes = offsets_[1] + standard_err->total;
  conclude(reply);
  std::optional<ApiError> refusal;
  if (never_started(reply) && !was_cancelled(reply)) {
    refusal = from_backend(reply.error());
    answer_.outcome = Outcome::kNotStarted;
    answer_.fault = refusal->is_fault();
  }
  if (reply.status == ISOGATE_NO_SANDBOX || reply.status == ISOGATE_SANDBOX_LOST ||
      (reply.status == ISOGATE_LOST && !is_left()))
    lease_.lost(reply.status);
  if (answer_.goes_on) {
    journaled_ = false;  // by who rejoins it
    co_return answer_;
  }
  if (spec_.artifact_dir && reply.status == ISOGATE_OK) co_await list_artifacts(artifacts);
  journal_end({std::move(standard_out), std::move(standard_err)});
  if (refusal) throw std::move(*refusal);
  co_return answer_;
}

}  // namespace

uint64_t ExecSpec::needed_limits() const {
  uint64_t needed = 0;
  for (const LimitKind& kind : kLimitKinds) needed |= call.limits.get(kind.id) != 0 ? kind.exec : 0;
  return needed;
}

uint64_t ExecSpec::bytes() const {
  uint64_t sum = stdin_bytes ? stdin_bytes->size() : 0;
  sum += call.cwd.size() + call.user.size() + (artifact_dir ? artifact_dir->size() : 0);
  for (const std::string& each : call.argv) sum += sizeof each + each.size();
  for (const auto& each : call.env) sum += sizeof each + each.first.size() + each.second.size();
  return sum;
}

asio::awaitable<ExecAnswer> run_exec(App& app, ExecSpec& spec, Output& output, Killer& killer,
                                     ByteShare& memory) {
  if (app.draining) throw draining();
  spec.capabilities = spec.needed_limits();
  if (!spec.call.user.empty()) spec.capabilities |= ISOGATE_CAP_USER;
  if ((spec.call.flags & ISOGATE_EXEC_PTY) != 0) spec.capabilities |= ISOGATE_CAP_PTY;
  if ((spec.call.flags & ISOGATE_EXEC_MERGE_STDERR) != 0) spec.capabilities |= ISOGATE_CAP_MERGE_STDERR;
  if (spec.rejoin) spec.existing = spec.running = true;
  std::optional<Lease> held(co_await app.sandboxes.acquire(spec));
  if (killer.killed() && !spec.rejoin) throw ClientGone{};
  Admission::Ticket ticket;
  StartWindow::Slot start;
  if (spec.rejoin) {
    const SandboxRow& row = held->sandbox->row;
    ticket = app.admission.readmit(row.tenant, row.sandbox_id, row.backend);
  } else {
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::seconds(app.config.limits.exec_queue_timeout_sec);
    ticket = co_await admitted(app, *held->sandbox, killer, until);
    start = co_await start_slot(app, *held, killer, until);
  }
  // While it waited the policy may have changed, and its sandbox.
  while (!app.sandboxes.still_good(*held, spec)) {
    held.reset();
    held.emplace(co_await app.sandboxes.acquire(spec));
    if (killer.killed() && !spec.rejoin) throw ClientGone{};
  }
  Lease& lease = *held;
  Flight flight(app, spec, output, lease, std::move(ticket), std::move(start), memory);
  const OnKill on_kill(killer, [&flight] { flight.kill(); });
  ExecAnswer answer = co_await flight.run();
  app.state->touch_sandbox(lease.sandbox->row.sandbox_id, lease.sandbox->row.last_used_ms = wall_clock_ms());
  co_return answer;
}

void give_up_exec(App& app, ExecSpec& spec, ExecAnswer& answer, const std::string& why) {
  answer.outcome = Outcome::kUnknown;
  answer.reason = why;
  answer.goes_on = false;
  ending_of(spec, answer).record(app);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return "SIG" + (name == nullptr ? std::to_string(signal) : std::string(name));
}

}  // namespace isogate::front
