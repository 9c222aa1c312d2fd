#include "gateway/front/api/attach.h"

#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "gateway/front/api/exec_json.h"
#include "gateway/front/api/execs.h"
#include "gateway/front/api/json_in.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kPassWithin{2};  // what a client that left has sent
constexpr size_t kPart = 32768;                 // of output, in one message
constexpr size_t kMostPending = 65536;          // for stdin, before no more is read

constexpr std::string_view kMessageFields[] = {"type", "signal", "cols", "rows"};

std::string exit_text(const LongExec& exec) {
  std::string text = "{\"event\":\"exit\"";
  append_end(text, exec.answer(), is_truncated(exec));
  append_not_started(text, exec.refusal());
  return text + "}";
}

}  // namespace

Attachment::Attachment(std::shared_ptr<LongExec> exec, const Offsets& from, bool read_only)
    : exec_(std::move(exec)) {
  reader_.emplace(exec_, from);
  if (!read_only && exec_->input_open()) writer_.emplace(exec_);
}

uint64_t Attachment::most_bytes() const {
  return 2 * KeptStream::kAtATime + kPart + most_message() + (writer_ ? kMostPending : 0);
}

// Who leaves, or does not answer the goodbye, holds nothing of the exec any more.
Task<void> Attachment::run(const asio::any_io_executor& executor, WebSocket& socket) {
  socket_ = &socket;
  asio::co_spawn(executor, take_input(), [this](const std::exception_ptr&) {
    input_read_ = input_ended_ = true;
    exec_->changes().notify();
  });
  asio::co_spawn(executor, pass_input(), [this](const std::exception_ptr&) {
    input_passed_ = true;
    if (fault_) writer_.reset();  // others need not wait until this client has read
    exec_->changes().notify();
  });
  bool gone = false;
  try {
    co_await send_output();
  } catch (const ApiError& error) {  // output_dropped: the exec was killed, or the disk failed
    end_input(WebSocket::kPolicy, error.message);
  } catch (...) {
    gone = true;
  }
  reader_.reset();
  co_await release_writer();
  if (!gone && fault_) co_await socket_->close(fault_->first, fault_->second);
  if (!gone && !fault_ && !input_read_) co_await socket_->close(WebSocket::kNormal, "");
  socket_->abort();
  co_await exec_->changes().until([this] { return input_read_; });
}

// What a client has sent before it left still reaches the program, within a moment.
Task<void> Attachment::release_writer() {
  input_ended_ = true;
  exec_->changes().notify();
  const bool passed = co_await exec_->changes().until([this] { return input_passed_; }, kPassWithin);
  if (!passed) {
    if (writer_) writer_->cancel();
    exec_->changes().notify();
    co_await exec_->changes().until([this] { return input_passed_; });
  }
  writer_.reset();
}

void Attachment::end_input(uint16_t code, std::string reason) {
  fault_.emplace(code, std::move(reason));
  input_ended_ = true;
  exec_->changes().notify();
}

void Attachment::end_unadmitted() {
  pending_.clear();
  if (writer_) writer_->cancel();
  end_input(WebSocket::kPolicy, kNoLongerAdmitted);
}

Task<void> Attachment::take_input() {
  while (!input_ended_) {
    const std::optional<WebSocket::Message> message = co_await socket_->read();
    if (!message || fault_) co_return;
    try {
      if (message->text) {
        obey(message->bytes);
      } else if (!writer_ && !exec_->ended()) {
        throw invalid_request("this client may not write to stdin, or it is closed");
      } else if (!close_after_ && !input_passed_) {
        pending_ += message->bytes;
      }
    } catch (const ApiError& error) {
      if (error.code == Code::kExecEnded) continue;  // its output may still be on the way
      co_return end_input(error.code == Code::kInvalidRequest ? WebSocket::kBadData : WebSocket::kPolicy,
                          error.message);
    }
    exec_->changes().notify();
    co_await exec_->changes().until(
        [this] { return pending_.size() < kMostPending || input_passed_ || input_ended_; });
  }
}

// What the program takes no more is dropped, as a terminal does.
Task<void> Attachment::pass_input() {
  while (writer_ && exec_->input_open()) {
    co_await exec_->changes().until(
        [this] { return !pending_.empty() || close_after_ || input_ended_ || !exec_->input_open(); });
    const std::string part = std::exchange(pending_, {});
    if (part.empty() && !close_after_) co_return;
    exec_->changes().notify();
    try {
      if (!part.empty()) co_await writer_->write(part);
    } catch (const ApiError&) {
      co_return;
    }
    if (close_after_ && pending_.empty()) co_return writer_->close();
  }
}

void Attachment::obey(const std::string& text) {
  const json message = parse_body(text, kMessageFields);
  const std::string type = text_field(message, "type").value_or("");
  if (type == "resize") {
    const auto [rows, cols] = size_in(message);
    try {
      exec_->resize(rows, cols);
    } catch (const ApiError& error) {  // a size is worth no connection: its host may be back in a moment
      if (error.code != Code::kBackendUnavailable) throw;
    }
  } else if (type == "signal") {
    exec_->send_signal(signal_in(message));
  } else if (type == "close_stdin") {
    close_after_ = true;
  } else {
    throw invalid_request("`type` must be resize, signal or close_stdin");
  }
}

Task<void> Attachment::send_output() {
  co_await socket_->write(true, start_event(exec_->answer()));
  while (!input_ended_) {
    const bool sent_out = co_await send_part(false);
    const bool sent_error = co_await send_part(true);
    if (sent_out || sent_error) continue;
    if (exec_->detached()) co_return end_input(WebSocket::kGoingAway, draining().message);
    if (exec_->ended()) co_return co_await socket_->write(true, exit_text(*exec_));
    const bool came =
        co_await exec_->changes().until([this] { return reader_->ready() || input_ended_; }, kPingAfter);
    if (!came) co_await socket_->write(true, R"({"event":"ping"})");
  }
}

Task<bool> Attachment::send_part(bool error) {
  const std::string_view part = co_await reader_->next(error, kPart);
  if (part.empty()) co_return false;
  std::string message(1, error ? '\2' : '\1');
  for (int shift = 56; shift >= 0; shift -= 8)
    message += static_cast<char>((reader_->at(error) >> shift) & 0xFF);
  message += part;
  co_await socket_->write(false, message);
  reader_->took(error, part.size());
  co_return true;
}

int signal_in(const json& body) {
  const std::string name = text_field(body, "signal").value_or("");
  const std::string_view brief = std::string_view(name).substr(name.starts_with("SIG") ? 3 : 0);
  const auto number = number_in<int>(name);
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = ::sigabbrev_np(signal);
    if (number ? signal == *number : known != nullptr && brief == known) return signal;
  }
  throw invalid_request("`signal` must be a name such as TERM or SIGTERM, or a number as text, not `" +
                        printable(name, 40) + "`");
}

std::pair<uint16_t, uint16_t> size_in(const json& body) {
  const auto rows = count_field(body, "rows", 1, kMostCells), cols = count_field(body, "cols", 1, kMostCells);
  if (!rows || !cols) throw invalid_request("give both `rows` and `cols`");
  return {static_cast<uint16_t>(*rows), static_cast<uint16_t>(*cols)};
}

bool is_truncated(const LongExec& exec) { return exec.output(false).first() + exec.output(true).first() > 0; }

}  // namespace isogate::front
