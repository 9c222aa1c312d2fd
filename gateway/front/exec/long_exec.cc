#include "gateway/front/exec/long_exec.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>
#include <utility>

#include "gateway/front/app.h"
#include "gateway/front/base/own_fd.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

ApiError exec_ended(const std::string& why) { return {.code = Code::kExecEnded, .message = why}; }

constexpr std::chrono::milliseconds kRejoinPause{500};
constexpr std::chrono::seconds kDiskWithin{5};       // after a kill
constexpr std::chrono::seconds kKnownGoneWithin{3};  // of a backend host, after its ends of pipes

// Of each stream, including the disk. One that nobody finds by its id has no more than it has in memory.
uint64_t bytes_in_all(const App& app, const ExecSpec& spec) {
  return spec.found_later ? app.config.exec.spool_bytes : 0;
}

ApiError no_input() { return exec_ended("the exec takes no input: its stdin is closed"); }

ApiError contact_lost() {
  return {
      .code = Code::kBackendUnavailable,
      .message = "contact with the exec was lost; the gateway reconnects. What was sent may not have arrived",
      .retry_after_sec = 1};
}

}  // namespace

LongExec::LongExec(App& app, ExecSpec spec, ByteShare memory)
    : app_(app),
      spec_(std::move(spec)),
      terms_(spec_.terms),
      memory_(std::move(memory)),
      tenant_(spec_.tenant),
      agent_(spec_.agent),
      command_(spec_.shown),
      changes_(app.executor),
      at_end_(app.executor),
      out_(app.spool, tenant_, terms_.kept_bytes, bytes_in_all(app, spec_)),
      error_(app.spool, tenant_, terms_.pty ? 0 : terms_.kept_bytes, bytes_in_all(app, spec_)),
      patience_(app.executor) {
  if (spec_.found_later) spec_.kept = ends_;
  if (!spec_.rejoin) return;
  make_ends();
  rejoined_ = looked_for_ = true;
  ends_->kept = true;
  answer_ = *spec_.rejoin;
}

void LongExec::make_ends() {
  ends_->input_end = or_throw(make_mark());
  open_ends();
}

// What no host has received yet stays.
void LongExec::open_ends() {
  // A host that ended has signalled its own copy of the one before.
  if (!ends_->detached) ends_->detach = or_throw(make_shared_event());
  ipc::ExecCall& call = spec_.call;
  if (!call.control) {
    Pipe orders = or_throw(make_pipe(NonBlocking::kWrite));
    call.control = std::move(orders.read);
    control_ = std::move(orders.write);
  }
  if (!terms_.stdin_open || input_closed_) {
    input_.reset();
  } else if (!call.std_in) {
    Pipe in = or_throw(make_pipe());
    call.std_in = std::move(in.read);
    input_ = std::make_shared<PipeEnd>(app_.executor, in.write.release());
    input_->native_non_blocking(true);
  }
  changes_.notify();
}

LongExec::~LongExec() = default;

std::shared_ptr<LongExec> rejoined_exec(App& app, const ExecRow& row, const SandboxRow& sandbox) {
  ExecSpec spec;
  spec.tenant = row.tenant;
  spec.agent = sandbox.agent_id;
  spec.request_id = row.request_id;
  spec.shown = row.command;
  spec.terms = *row.kept;
  ExecAnswer& known = spec.rejoin.emplace();
  known.exec_id = row.exec_id;
  known.backend = row.backend;
  known.started_ms = row.started_ms;
  known.isolation = sandbox.isolation;
  known.goes_on = true;
  return std::make_shared<LongExec>(app, std::move(spec), ByteShare(app.memory, row.tenant));
}

Task<void> LongExec::run() {
  const auto self = shared_from_this();
  const std::string request_id = spec_.request_id;
  try {
    answer_ = co_await run_and_rejoin();
  } catch (const ApiError& error) {
    refusal_ = error;
  } catch (const ClientGone&) {
    refusal_ = exec_ended("the exec was killed before it started");
  } catch (const std::exception& error) {
    log::error("exec_failed", {{"request_id", request_id}, {"reason", error.what()}});
    answer_.reason = "an internal error; the log has it";
    if (!taken()) refusal_ = ApiError{.code = Code::kInternal, .message = answer_.reason};
  }
  if (refusal_) answer_.outcome = Outcome::kNotStarted;
  end();
}

Task<ExecAnswer> LongExec::run_and_rejoin() {
  ExecAnswer answer;
  if (spec_.rejoin) {
    answer = *spec_.rejoin;
  } else {
    answer = co_await run_exec(app_, spec_, *this, killer_, memory_);
    if (answer.goes_on) spec_.rejoin = answer;
  }
  while (answer.goes_on && !detached()) answer = co_await rejoin(std::move(answer));
  co_return answer;
}

// Its backend host, or the gateway, was away. It is looked for as long as it may be there.
Task<ExecAnswer> LongExec::rejoin(ExecAnswer before) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(std::max(app_.config.exec.survive_sec, 10u));
  for (std::string why;;) {
    if (!why.empty() && std::chrono::steady_clock::now() > until) {
      give_up_exec(app_, spec_, before, why);
      co_return before;
    }
    ExecSpec spec;
    spec.tenant = tenant_;
    spec.agent = agent_;
    spec.request_id = spec_.request_id;
    spec.shown = command_;
    spec.rejoin = spec_.rejoin;
    spec.kept = ends_;
    spec.terms = spec_.terms;
    call_ended_ = false;
    if (terms_.pty) spec.call.flags |= ISOGATE_EXEC_PTY;
    spec.call.control = std::move(spec_.call.control);
    spec.call.std_in = std::move(spec_.call.std_in);
    spec_ = std::move(spec);
    try {
      open_ends();
      ExecAnswer answer = co_await run_exec(app_, spec_, *this, killer_, memory_);
      if (!answer.goes_on || answer.found || detached()) co_return answer;
      why = "its backend could not be asked for it: " + answer.reason;
    } catch (const ClientGone&) {
      why = "it was killed before its backend could be asked for it";
    } catch (const ApiError& error) {
      why = "its backend could not be asked for it: " + error.message;
      const bool final = error.permanent && !is_broken();
      if (error.code == Code::kSandboxNotFound || error.code == Code::kSandboxLost || final) {
        give_up_exec(app_, spec_, before, why);
        co_return before;
      }
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (detached()) co_return before;
    co_await sleep_for(app_.executor, kRejoinPause);
  }
}

// Until an operator reloads; what it keeps goes on meanwhile.
bool LongExec::is_broken() const {
  const auto backend = app_.backends.find(answer_.backend);
  return backend && (backend->state == BackendState::kFailed || backend->state == BackendState::kQuarantined);
}

bool LongExec::detach() {
  if (ended() || !ends_->kept) return false;
  ends_->detached = true;
  signal_event(ends_->detach.get());
  return true;
}

void LongExec::rejoined(const isogate_kept_state& state) {
  const std::array<uint64_t, 2> from = {state.stdout_offset, state.stderr_offset};
  for (const bool error : {false, true}) {
    KeptStream& stream = error ? error_ : out_;
    const size_t i = error ? 1 : 0;
    known_[i] = stream.next() > from[i] ? stream.next() - from[i] : 0;
    if (from[i] > stream.next()) stream.skip_to(from[i]);
  }
  if ((state.flags & ISOGATE_KEPT_STDIN_OPEN) == 0 && input_) {
    boost::system::error_code ignored;
    input_->close(ignored);
  }
  looked_for_ = false;
  changes_.notify();
}

// What it keeps of its request goes; of what was claimed for its output stays what there is of it.
void LongExec::end() {
  at_end_.set();
  looked_for_ = false;
  boost::system::error_code ignored;
  if (input_) input_->close(ignored);
  control_.reset();
  ends_->detach.reset();
  ends_->input_end = {};
  spec_ = ExecSpec();
  narrow();
  uint64_t kept = out_.end().held() + error_.end().held();
  for (const Artifact& each : answer_.artifacts) kept += sizeof each + each.name.size();
  memory_.hold(std::min<uint64_t>(memory_.bytes(), kept));
  changes_.notify();
}

Task<void> LongExec::feed_first(std::shared_ptr<Writer> writer, std::shared_ptr<const std::string> bytes) {
  try {
    co_await writer->write(*bytes);
  } catch (const ApiError&) {  // the program takes no more
  }
}

// What the pipes hold then may exceed what is kept: neither the end nor the next host waits for who reads
// slowly.
void LongExec::call_ended() {
  call_ended_ = true;
  changes_.notify();
}

void LongExec::narrow() {
  if (!readers_.empty()) return;
  out_.narrow(terms_.kept_bytes);
  error_.narrow(terms_.kept_bytes);
}

// What it wrote last still goes to the disk, if that does not hang.
void LongExec::killed() {
  if (!std::exchange(killed_, true)) {
    patience_.set(kDiskWithin, [this] {
      out_.leave_disk();
      error_.leave_disk();
    });
  }
  changes_.notify();
}

void LongExec::control(uint32_t type, uint32_t a, uint32_t b) {
  if (ended()) throw exec_ended("the exec has ended");
  const isogate_control record{type, a, b, 0};
  if (::write(control_.get(), &record, sizeof record) == sizeof record) return;
  if (errno != EAGAIN) throw ends_->kept ? contact_lost() : exec_ended("the exec has ended");
  throw ApiError{.code = Code::kRateLimited,
                 .message = "the exec has not taken earlier signals yet",
                 .retry_after_sec = 1};
}

void LongExec::send_signal(int signal) { control(ISOGATE_CONTROL_SIGNAL, static_cast<uint32_t>(signal), 0); }

void LongExec::resize(uint16_t rows, uint16_t cols) {
  if (!terms_.pty && !ended()) throw invalid_request("the exec has no terminal");
  control(ISOGATE_CONTROL_RESIZE, rows, cols);
}

// It is not taken() yet, so nobody has asked for these ends.
void LongExec::admitted() {
  if (spec_.rejoin) return;  // it has them
  make_ends();
  if (input_ && spec_.stdin_bytes)
    asio::co_spawn(app_.executor, feed_first(std::make_shared<Writer>(shared_from_this()), spec_.stdin_bytes),
                   asio::detached);
}

Task<void> LongExec::started(const ExecAnswer& so_far) {
  if (!claimed_) memory_.add(out_.end().most() + error_.end().most() + 2 * (kAtATime + KeptStream::kAtATime));
  claimed_ = true;
  answer_ = so_far;
  changes_.notify();
  co_return;
}

size_t LongExec::room(bool error) const {
  if (killed_) return SIZE_MAX;
  size_t least = SIZE_MAX;
  if (output(error).end().most() == 0) return least;  // nothing is kept, for nobody
  for (const Reader* each : readers_) least = std::min(least, output(error).room(each->at(error)));
  return least;
}

Task<void> LongExec::bytes(bool error, std::string_view data) {
  KeptStream& stream = error ? error_ : out_;
  const auto here = static_cast<size_t>(std::min<uint64_t>(known_[error ? 1 : 0], data.size()));
  known_[error ? 1 : 0] -= here;
  data.remove_prefix(here);
  std::string rest;
  for (;;) {
    size_t size = std::min(data.size(), room(error));
    if (size < data.size() && call_ended_) {
      stream.widen(data.size());
      size = data.size();
    }
    if (rest.empty() && (size < data.size() || stream.waits(size))) data = rest = std::string(data);
    if (!co_await stream.append(data.substr(0, size))) continue;
    data.remove_prefix(size);
    changes_.notify();
    if (data.empty()) co_return;
    co_await changes_.until([this, error] { return room(error) > 0 || call_ended_; });
  }
}

bool LongExec::has_up_to(const Offsets& offsets) const {
  if (!rejoined_ || ended()) return true;
  return !looked_for_ && offsets[0].value_or(0) <= out_.next() && offsets[1].value_or(0) <= error_.next();
}

ApiError LongExec::dropped() const {
  return {.code = Code::kOutputDropped,
          .message = "the output from that offset on is not kept any more; `details` has the first that is",
          .details_json = "{\"stdout_first_offset\":" + std::to_string(out_.first()) +
                          ",\"stderr_first_offset\":" + std::to_string(error_.first()) + "}"};
}

LongExec::Writer::Writer(std::shared_ptr<LongExec> to) : to_(std::move(to)) {
  if (to_->ended()) throw exec_ended("the exec has ended");
  if (!to_->input_open()) throw no_input();
  if (to_->writing_) {
    throw ApiError{.code = Code::kAlreadyAttached,
                   .message = "another client writes to the exec's stdin; read_only=true only reads",
                   .retry_after_sec = 1};
  }
  to_->writing_ = true;
}

LongExec::Writer::~Writer() {
  to_->writing_ = false;
  to_->changes_.notify();
}

Task<void> LongExec::Writer::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto pipe = to_->input_;
    if (cancelled_ || !pipe || !pipe->is_open()) throw no_input();
    boost::system::error_code error;
    bytes.remove_prefix(co_await pipe->async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                                        asio::redirect_error(asio::use_awaitable, error)));
    if (error && !cancelled_) co_await wait_for_next(pipe);
  }
}

Task<void> LongExec::Writer::write_body(Exchange& exchange) {
  const auto pipe = to_->input_;
  if (!pipe || !pipe->is_open()) throw no_input();
  bool broken = false;
  Killer& client = exchange.watch_client();
  try {
    const OnKill on_kill(client, [this] { cancel(); });
    while (!client.killed() && co_await exchange.read_body_to_pipe(*pipe) > 0) {
    }
  } catch (const PipeClosed&) {
    broken = true;
  }
  if (client.killed()) throw ClientGone{};
  if (!broken) co_return;
  co_await wait_for_next(pipe);
  throw to_->input_open() ? contact_lost() : no_input();
}

// The reader of `broken` went away: the program closed its stdin, or of one that is kept the backend host
// ended.
Task<void> LongExec::Writer::wait_for_next(std::shared_ptr<PipeEnd> broken) {
  if (to_->ends_->kept) {
    const bool is_there = co_await to_->changes_.until(
        [&] { return to_->input_ != broken || !broken->is_open() || to_->ended() || cancelled_; },
        kKnownGoneWithin);
    if (is_there) co_return;
    drop();
  } else {
    close();
  }
}

void LongExec::Writer::close() {
  to_->input_closed_ = true;
  signal_mark(to_->ends_->input_end.own.get());
  drop();
}

void LongExec::Writer::drop() {
  boost::system::error_code ignored;
  if (to_->input_) to_->input_->close(ignored);
  to_->changes_.notify();
}

void LongExec::Writer::cancel() {
  cancelled_ = true;
  boost::system::error_code ignored;
  if (to_->input_open()) to_->input_->cancel(ignored);
  to_->changes_.notify();
}

LongExec::Reader::Reader(std::shared_ptr<LongExec> of, const Offsets& from) : of_(std::move(of)) {
  for (const bool error : {false, true}) {
    const KeptStream& stream = of_->output(error);
    const uint64_t wanted = from[error ? 1 : 0].value_or(stream.first());
    if (wanted < stream.first()) throw of_->dropped();
    if (wanted > stream.next()) {
      throw invalid_request("`" + std::string(error ? "stderr" : "stdout") +
                            "_offset` is beyond the end: the stream has " + std::to_string(stream.next()) +
                            " bytes so far");
    }
    at_[error ? 1 : 0] = wanted;
  }
  of_->readers_.insert(this);
}

LongExec::Reader::~Reader() {
  of_->readers_.erase(this);
  of_->narrow();
  of_->changes_.notify();
}

Task<std::string_view> LongExec::Reader::next(bool error, size_t most) {
  KeptStream& stream = error ? of_->error_ : of_->out_;
  if (stream.end().most() == 0) co_return std::string_view();
  std::string_view bytes;
  if (at(error) >= stream.first()) bytes = co_await stream.read(at(error), pieces_[error ? 1 : 0]);
  if (at(error) < stream.first()) throw of_->dropped();
  co_return bytes.substr(0, most);
}

void LongExec::Reader::took(bool error, size_t bytes) {
  at_[error ? 1 : 0] += bytes;
  of_->changes_.notify();
}

bool LongExec::Reader::ready() const {
  const auto has = [this](bool error) {
    const KeptStream& stream = of_->output(error);
    return stream.end().most() > 0 && at(error) != stream.next();
  };
  return of_->ended() || has(false) || has(true);
}

}  // namespace isogate::front
