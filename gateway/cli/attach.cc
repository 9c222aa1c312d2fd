#include "gateway/cli/attach.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/commands/exec.h"
#include "gateway/cli/output.h"
#include "gateway/cli/terminal.h"
#include "gateway/cli/websocket.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSilenceMost{60};  // a ping comes every 15 s
constexpr double kSignalSec = 10;
constexpr int kNotFound = 404, kConflict = 409;
constexpr size_t kUnshownMost = 256u << 10, kUnsentMost = 64u << 10;

// Output on its way to a descriptor that may be slow.
class Screen {
 public:
  explicit Screen(int fd) : fd_(fd) {}
  [[nodiscard]] size_t pending() const { return bytes_.size() - shown_; }
  [[nodiscard]] pollfd watch() const { return {pending() == 0 ? -1 : fd_, POLLOUT, 0}; }

  void add(std::string_view bytes) {
    bytes_.erase(0, std::exchange(shown_, 0));
    bytes_ += bytes;
  }

  // After POLLOUT, which promises room for so much in a pipe. 0, or an errno.
  int show() {
    constexpr size_t kRoom = 4096;
    const ssize_t n = ::write(fd_, bytes_.data() + shown_, std::min(pending(), kRoom));
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
    shown_ += static_cast<size_t>(n);
    return 0;
  }

 private:
  const int fd_;
  std::string bytes_;
  size_t shown_ = 0;
};

// 0 stdout, 1 stderr, and beyond what is not known.
size_t stream_of(const std::string& head) { return static_cast<unsigned char>(head[0]) - size_t{1}; }

class Session {
 public:
  Session(HttpClient& client, const Attachment& to) : client_(client), to_(to) {}
  AttachEnd run();

 private:
  std::optional<AttachEnd> open();
  void begin();
  void turn();
  [[nodiscard]] int wait_ms() const;
  AttachEnd conclude();
  void show_way_back() const;

  void receive();
  void take_binary(std::string_view piece, bool begins);
  void take_offset(size_t stream, uint64_t offset);
  void take_text(std::string_view text);
  void take_stdin();
  void take_signal(int number);
  void interrupt(int number);
  bool send_signal(const char* name);
  void send_size();
  void show(Screen& screen);

  void lose(const std::string& why);
  void detach(int exit_code) { detached_ = exit_code; }
  [[nodiscard]] bool over() const {
    return detached_ || failed_ || (closed_ && screens_[0].pending() + screens_[1].pending() == 0);
  }
  [[nodiscard]] bool reads_socket() const {
    return !closed_ && screens_[0].pending() < kUnshownMost && screens_[1].pending() < kUnshownMost;
  }
  [[nodiscard]] bool reads_stdin() const {
    return stdin_open_ && !closed_ && socket_->unsent() < kUnsentMost;
  }

  HttpClient& client_;
  const Attachment& to_;
  HeldSignals signals_{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::unique_ptr<WebSocket> socket_;
  RawMode raw_;
  DetachKeys keys_;
  std::array<Screen, 2> screens_{Screen(1), Screen(2)};
  std::array<uint64_t, 2> offsets_{};  // what comes next of stdout and stderr
  std::string head_;                   // of the message that is coming
  Clock::time_point received_at_ = Clock::now();
  bool stdin_open_ = false;
  int interrupts_ = 0;
  bool closed_ = false;  // nothing more comes
  std::string lost_;     // why, without an end
  std::optional<Result<ExecEnd>> end_;
  std::optional<int> detached_, failed_;  // the exit code
};

AttachEnd Session::run() {
  if (auto refused = open()) return *refused;
  begin();
  while (!over()) turn();
  return conclude();
}

std::optional<AttachEnd> Session::open() {
  const std::string target =
      "/execs/" + percent_encode(to_.exec_id) + "/attach" + (to_.read_only ? "?read_only=true" : "");
  auto opened = WebSocket::open(client_, target, signals_.fd());
  if (!opened.ok() && opened.error().status == ISOGATE_CANCELLED) {
    detach(kInterrupted);
    return conclude();
  }
  if (!opened.ok()) {
    lose(opened.error().message);
    return conclude();
  }
  if (const auto* answer = std::get_if<HttpAnswer>(&*opened)) {
    report_refusal(*answer, false);
    const bool runs_on = answer->status != kNotFound && answer->status != kConflict;
    if (runs_on) show_way_back();
    return AttachEnd{.exit_code = kGateway, .runs_on = runs_on};
  }
  socket_ = std::move(std::get<std::unique_ptr<WebSocket>>(*opened));
  return std::nullopt;
}

void Session::begin() {
  stdin_open_ = to_.sends_stdin && !to_.read_only;
  if (!to_.pty || to_.read_only || ::isatty(0) == 0) return;
  signals_.add({SIGWINCH, SIGTSTP, SIGCONT});
  send_size();
  if (auto entered = raw_.enter(); !entered.ok()) complain(entered.error().message);
}

void Session::turn() {
  const bool listens = reads_socket();
  if (!listens) received_at_ = Clock::now();
  const auto events = static_cast<short>((listens ? POLLIN : 0) | (socket_->unsent() > 0 ? POLLOUT : 0));
  std::array<pollfd, 5> watched{{{signals_.fd(), POLLIN, 0},
                                 {closed_ || events == 0 ? -1 : socket_->fd(), events, 0},
                                 {reads_stdin() ? 0 : -1, POLLIN, 0},
                                 screens_[0].watch(),
                                 screens_[1].watch()}};
  if (::poll(watched.data(), watched.size(), wait_ms()) < 0 && errno != EINTR)
    return lose(os_error("cannot wait", errno).message);
  if (watched[0].revents != 0) take_signal(signals_.next());
  if (watched[3].revents != 0) show(screens_[0]);
  if (watched[4].revents != 0) show(screens_[1]);
  if (watched[2].revents != 0) take_stdin();
  if (listens && ((watched[1].revents & ~POLLOUT) != 0 || socket_->has_buffered())) receive();
  socket_->flush();
  if (!closed_ && Clock::now() - received_at_ >= kSilenceMost)
    lose("the gateway sent nothing for " + std::to_string(kSilenceMost.count()) + " s");
}

int Session::wait_ms() const {
  if (!reads_socket()) return -1;
  if (socket_->has_buffered()) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(received_at_ + kSilenceMost - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void Session::receive() {
  received_at_ = Clock::now();
  auto received =
      socket_->receive({[this](std::string_view piece, bool begins) { take_binary(piece, begins); },
                        [this](std::string_view text) { take_text(text); }});
  if (!received.ok() && !closed_) lose(received.error().message);
}

void Session::take_binary(std::string_view piece, bool begins) {
  constexpr size_t kHead = 9;  // the stream, and the offset of the first byte
  if (begins) head_.clear();
  if (head_.size() < kHead) {
    const size_t missing = std::min(kHead - head_.size(), piece.size());
    head_ += piece.substr(0, missing);
    piece.remove_prefix(missing);
    if (head_.size() < kHead) return;
    uint64_t offset = 0;
    for (size_t i = 1; i < kHead; ++i) offset = offset << 8 | static_cast<unsigned char>(head_[i]);
    if (stream_of(head_) < offsets_.size()) take_offset(stream_of(head_), offset);
  }
  const size_t stream = stream_of(head_);
  if (stream >= screens_.size()) return;
  offsets_[stream] += piece.size();
  screens_[stream].add(piece);
}

void Session::take_offset(size_t stream, uint64_t offset) {
  if (offset > offsets_[stream] && !raw_.entered())
    complain(std::to_string(offset - offsets_[stream]) + " bytes of " + (stream == 0 ? "stdout" : "stderr") +
             " are no longer kept");
  offsets_[stream] = offset;
}

void Session::take_text(std::string_view text) {
  const Json event = Json::parse(text, nullptr, false);
  if (!event.is_object() || !event.contains("event") || event["event"] != "exit") return;
  end_ = parse_exec_end(text);
  closed_ = true;
}

void Session::take_stdin() {
  std::array<char, 16384> bytes{};
  const ssize_t n = ::read(0, bytes.data(), bytes.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0 && !raw_.entered()) return socket_->send_binary({bytes.data(), static_cast<size_t>(n)});
  if (n > 0) {
    const std::string keys = keys_.pass({bytes.data(), static_cast<size_t>(n)});
    if (!keys.empty()) socket_->send_binary(keys);
    if (keys_.detached()) detach(kDone);
    return;
  }
  stdin_open_ = false;
  if (raw_.entered()) return detach(kInterrupted);
  socket_->send_text(R"({"type":"close_stdin"})");
}

void Session::take_signal(int number) {
  switch (number) {
    case 0:
      return;
    case SIGWINCH:
      return send_size();
    case SIGTSTP:
      raw_.leave();
      ::kill(::getpid(), SIGSTOP);
      [[fallthrough]];
    case SIGCONT:
      (void)raw_.enter().ok();
      return send_size();
    case SIGQUIT:
      return detach(kDone);
    case SIGHUP:
      return detach(kInterrupted);
    default:
      return interrupt(number);
  }
}

void Session::interrupt(int number) {
  if (raw_.entered() || to_.read_only || closed_ || ++interrupts_ > 2) return detach(kInterrupted);
  const char* name = interrupts_ == 2 ? "KILL" : number == SIGTERM ? "TERM" : "INT";
  if (send_signal(name) && interrupts_ == 1 && ::isatty(2) != 0)
    complain("the signal was sent to the program; once more kills it");
}

// By a call of its own: the WebSocket may be full of stdin that the program does not read.
bool Session::send_signal(const char* name) {
  HttpRequest request = post("/execs/" + percent_encode(to_.exec_id) + "/signal", {{"signal", name}});
  request.wait_sec = kSignalSec;
  auto answer = client_.call(request);
  if (!answer.ok()) complain(answer.error().message);
  if (answer.ok() && !answer->ok()) report_refusal(*answer, false);
  return answer.ok() && answer->ok();
}

void Session::send_size() {
  const TerminalSize size = terminal_size();
  socket_->send_text(Json({{"type", "resize"}, {"cols", size.cols}, {"rows", size.rows}}).dump());
}

void Session::show(Screen& screen) {
  const int failure = screen.show();
  if (failure == 0) return;
  failed_ = failure == EPIPE ? kPipeClosed : kFailed;
  if (failure == EPIPE && to_.is_ours && !raw_.entered() && !closed_) send_signal("PIPE");
  raw_.leave();
  if (failure != EPIPE) complain(os_error("cannot write the program's output", failure).message);
}

void Session::lose(const std::string& why) {
  closed_ = true;
  lost_ = why;
}

AttachEnd Session::conclude() {
  const bool was_raw = raw_.entered();
  raw_.leave();
  if (socket_ != nullptr) {
    socket_->send_close();
    socket_->flush();
  }
  const std::optional<int> exit_code = detached_ ? detached_ : failed_;
  if (end_ && exit_code) return {*exit_code, true};
  if (end_ && !end_->ok()) return {report(end_->error(), false), true};
  if (end_) {
    (*end_)->truncated = false;  // what is kept is less than what came
    return {end_with(**end_, false), true};
  }
  if (was_raw) advise("");  // the cursor may be anywhere
  complain(lost_.empty() ? "detached" : "contact was lost: " + lost_);
  show_way_back();
  return {.exit_code = exit_code.value_or(kGateway), .runs_on = true};
}

void Session::show_way_back() const {
  advise("The program may run on: `isogate attach " + to_.exec_id + "` goes back to it.");
}

}  // namespace

AttachEnd attach(HttpClient& client, const Attachment& to) { return Session(client, to).run(); }

int run_attach(const AttachOptions& options) {
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), false);
  HttpRequest request{.method = "GET", .target = "/execs/" + percent_encode(options.exec_id)};
  const auto [failed, answer] = ask(*client, request, false);
  if (failed != kDone) return kGateway;
  const Json state = Json::parse(answer.body);
  if (check_agent(state, options.agent) != kDone) return kGateway;
  return attach(*client, {.exec_id = options.exec_id,
                          .pty = state.value("pty", false),
                          .sends_stdin = state.value("stdin", "closed") == "open",
                          .read_only = options.read_only})
      .exit_code;
}

}  // namespace isogate::cli
