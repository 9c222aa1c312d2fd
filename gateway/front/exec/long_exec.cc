#include "gateway/front/exec/long_exec.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <utility>

#include "gateway/front/app.h"
#include "gateway/front/base/own_fd.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

ApiError exec_ended(const std::string& why) { return {.code = Code::kExecEnded, .message = why}; }

ApiError no_input() { return exec_ended("the exec takes no input: its stdin is closed"); }

}  // namespace

LongExec::LongExec(App& app, ExecSpec spec, Terms terms, MemoryShare memory)
    : app_(app),
      spec_(std::move(spec)),
      terms_(terms),
      memory_(std::move(memory)),
      tenant_(spec_.tenant),
      agent_(spec_.agent),
      command_(spec_.shown),
      changes_(app.executor),
      out_(terms.kept_bytes),
      error_(terms.pty ? 0 : terms.kept_bytes) {
  Pipe orders = or_throw(make_pipe());
  spec_.call.control = std::move(orders.read);
  control_ = std::move(orders.write);
  ::fcntl(control_.get(), F_SETFL, O_NONBLOCK);
  if (!terms_.stdin_open) return;
  Pipe in = or_throw(make_pipe());
  spec_.call.std_in = std::move(in.read);
  input_ = std::make_shared<PipeEnd>(app_.executor, in.write.release());
  input_->native_non_blocking(true);
}

LongExec::~LongExec() = default;

Task<void> LongExec::run() {
  const auto self = shared_from_this();
  const std::string request_id = spec_.call.call.request_id;
  if (input_ && spec_.stdin_bytes) {
    writing_ = true;
    asio::co_spawn(app_.executor, feed_first(), asio::detached);
  }
  try {
    answer_ = co_await run_exec(app_, spec_, *this, killer_, memory_);
  } catch (const ApiError& error) {
    refusal_ = error;
  } catch (const ClientGone&) {
    refusal_ = exec_ended("the exec was killed before it started");
  } catch (const std::exception& error) {
    log::error("exec_failed", {{"request_id", request_id}, {"reason", error.what()}});
    answer_.message = "an internal error; the log has it";
    if (!taken()) refusal_ = ApiError{.code = Code::kInternal, .message = answer_.message};
  }
  if (refusal_) answer_.outcome = Outcome::kNotStarted;
  end();
  if (!taken()) co_return;
  log::info("exec_ended", {{"request_id", request_id},
                           {"exec_id", answer_.exec_id},
                           {"tenant", tenant_},
                           {"agent_id", agent_},
                           {"backend", answer_.backend},
                           {"outcome", outcome_name(answer_.outcome)},
                           {"exit_code", answer_.exit_code.value_or(-1)},
                           {"ms", answer_.duration_ms}});
}

// What it keeps of its request goes; of what was claimed for its output stays what there is of it.
void LongExec::end() {
  ended_ = true;
  boost::system::error_code ignored;
  if (input_) input_->close(ignored);
  control_.reset();
  spec_ = ExecSpec();
  narrow();
  uint64_t kept = out_.held() + error_.held();
  for (const Artifact& each : answer_.artifacts) kept += sizeof each + each.name.size();
  memory_.hold(std::min<uint64_t>(memory_.bytes(), kept));
  changes_.notify();
}

Task<void> LongExec::feed_first() {
  const auto self = shared_from_this();
  const auto pipe = input_;
  const auto bytes = spec_.stdin_bytes;
  boost::system::error_code error;
  co_await asio::async_write(*pipe, asio::buffer(*bytes), asio::redirect_error(asio::use_awaitable, error));
  writing_ = false;
  changes_.notify();
}

// What the pipes hold then may exceed what is kept: the end is not held up by who reads slowly.
void LongExec::program_ended() {
  program_ended_ = true;
  changes_.notify();
}

void LongExec::narrow() {
  if (!ended_ || !readers_.empty()) return;
  out_.narrow(terms_.kept_bytes);
  error_.narrow(terms_.kept_bytes);
}

void LongExec::killed() {
  killed_ = true;
  changes_.notify();
}

void LongExec::control(uint32_t type, uint32_t a, uint32_t b) {
  if (ended_) throw exec_ended("the exec has ended");
  const isogate_control record{type, a, b, 0};
  if (::write(control_.get(), &record, sizeof record) == sizeof record) return;
  if (errno != EAGAIN) throw exec_ended("the exec has ended");
  throw ApiError{.code = Code::kRateLimited,
                 .message = "the exec has not taken earlier signals yet",
                 .retry_after_sec = 1};
}

void LongExec::send_signal(int signal) { control(ISOGATE_CONTROL_SIGNAL, static_cast<uint32_t>(signal), 0); }

void LongExec::resize(uint16_t rows, uint16_t cols) {
  if (!terms_.pty && !ended_) throw invalid_request("the exec has no terminal");
  control(ISOGATE_CONTROL_RESIZE, rows, cols);
}

Task<void> LongExec::started(const ExecAnswer& so_far) {
  memory_.add(out_.most() + error_.most() + 2 * kAtATime);
  answer_ = so_far;
  changes_.notify();
  co_return;
}

size_t LongExec::room(bool error) const {
  if (killed_) return SIZE_MAX;
  size_t least = SIZE_MAX;
  if (output(error).most() == 0) return least;  // nothing is kept, for nobody
  for (const Reader* each : readers_) least = std::min(least, output(error).room(each->at(error)));
  return least;
}

Task<void> LongExec::bytes(bool error, std::string_view data) {
  Spool& spool = error ? error_ : out_;
  std::string rest;
  for (;;) {
    const std::string_view part = data.substr(0, room(error));
    spool.append(part);
    data.remove_prefix(part.size());
    changes_.notify();
    if (data.empty()) co_return;
    if (rest.empty()) data = rest = std::string(data);
    co_await changes_.until([this, error] { return room(error) > 0 || program_ended_; });
    if (room(error) < data.size() && program_ended_) spool.widen(data.size());
  }
}

ApiError LongExec::dropped() const {
  return {.code = Code::kOutputDropped,
          .message = "the output from that offset on is not kept any more; `details` has the first that is",
          .details_json = "{\"stdout_first_offset\":" + std::to_string(out_.first()) +
                          ",\"stderr_first_offset\":" + std::to_string(error_.first()) + "}"};
}

LongExec::Writer::Writer(std::shared_ptr<LongExec> to) : to_(std::move(to)), pipe_(to_->input_) {
  if (to_->ended_) throw exec_ended("the exec has ended");
  if (!to_->input_open()) throw no_input();
  if (to_->writing_) {
    throw ApiError{.code = Code::kAlreadyAttached,
                   .message = "another client writes to the exec's stdin; read_only=true only reads",
                   .retry_after_sec = 1};
  }
  to_->writing_ = true;
}

LongExec::Writer::~Writer() { to_->writing_ = false; }

Task<void> LongExec::Writer::write(std::string_view bytes) {
  boost::system::error_code error;
  while (!bytes.empty() && !error && !cancelled_)
    bytes.remove_prefix(co_await pipe_->async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                                         asio::redirect_error(asio::use_awaitable, error)));
  if (bytes.empty()) co_return;
  if (!cancelled_) close();
  throw no_input();
}

Task<void> LongExec::Writer::write_body(Exchange& exchange) {
  bool gone = false;
  Killer& client = exchange.watch_client();
  client.on_kill([this, &gone] {
    gone = true;
    cancel();
  });
  try {
    while (!gone && co_await exchange.read_body_to_pipe(*pipe_) > 0) {
    }
  } catch (const PipeClosed&) {
    client.on_kill({});
    if (gone) throw ClientGone{};
    close();
    throw no_input();
  }
  client.on_kill({});
  if (gone) throw ClientGone{};
}

void LongExec::Writer::close() {
  boost::system::error_code ignored;
  pipe_->close(ignored);
  to_->changes_.notify();
}

void LongExec::Writer::cancel() {
  cancelled_ = true;
  boost::system::error_code ignored;
  if (pipe_->is_open()) pipe_->cancel(ignored);
}

LongExec::Reader::Reader(std::shared_ptr<LongExec> of, const std::array<std::optional<uint64_t>, 2>& from)
    : of_(std::move(of)) {
  for (const bool error : {false, true}) {
    const Spool& spool = of_->output(error);
    const uint64_t wanted = from[error ? 1 : 0].value_or(spool.first());
    if (wanted < spool.first()) throw of_->dropped();
    if (wanted > spool.next()) {
      throw invalid_request("`" + std::string(error ? "stderr" : "stdout") + "_offset` is behind the " +
                            std::to_string(spool.next()) + " bytes there are");
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

std::string_view LongExec::Reader::next(bool error) const {
  if (of_->output(error).most() == 0) return {};
  if (at(error) < of_->output(error).first()) throw of_->dropped();
  return of_->output(error).from(at(error));
}

void LongExec::Reader::took(bool error, size_t bytes) {
  at_[error ? 1 : 0] += bytes;
  of_->changes_.notify();
}

bool LongExec::Reader::ready() const {
  const auto has = [this](bool error) {
    return of_->output(error).most() > 0 && at(error) != of_->output(error).next();
  };
  return of_->ended() || has(false) || has(true);
}

}  // namespace isogate::front
