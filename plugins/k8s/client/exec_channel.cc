#include "plugins/k8s/client/exec_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "plugins/k8s/client/exec_pump.h"

namespace isogate::k8s {
namespace {

constexpr const char* kV5 = "v5.channel.k8s.io";
constexpr const char* kV4 = "v4.channel.k8s.io";

struct Pair {
  Fd ours, theirs;
};

Pair make_pair() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    sdk::fail_with_errno("cannot make a socket pair", errno);
  constexpr int kRoom = 512 << 10;
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof kRoom);
  return {Fd(ends[0]), Fd(ends[1])};
}

class Channel final : public ExecChannel {
 public:
  Channel(std::unique_ptr<net::Transport> transport, std::string early, bool v5, const ExecRequest& request,
          Pair pair, Pair errors)
      : pair_(std::move(pair.ours)),
        errors_(std::move(errors.ours)),
        v5_(v5),
        pump_(std::move(transport), std::move(early), v5, request, std::move(pair.theirs),
              std::move(errors.theirs)) {}

  [[nodiscard]] int fd() const override { return pair_.get(); }

  ssize_t read_some(char* to, size_t size) override {
    const ssize_t n = ::recv(pair_.get(), to, size, 0);
    if (n > 0 || size == 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return n;
    const auto end = pump_.ended();
    if (end && end->how != ExecEnd::How::kLost) return 0;
    errno = ECONNRESET;
    return -1;
  }

  ssize_t write_some(const char* from, size_t size) override {
    return ::send(pair_.get(), from, size, MSG_NOSIGNAL);
  }

  void shutdown() override {
    pump_.stop();
    ::shutdown(pair_.get(), SHUT_RDWR);
  }

  void end_input() override {
    if (!v5_)
      throw ApiError(ISOGATE_UNSUPPORTED, "the API server speaks v4.channel.k8s.io, which cannot end stdin");
    ::shutdown(pair_.get(), SHUT_WR);
  }

  [[nodiscard]] std::chrono::steady_clock::time_point last_received() const override { return pump_.heard(); }
  [[nodiscard]] bool can_end_input() const override { return v5_; }
  [[nodiscard]] int stderr_fd() const override { return errors_.get(); }
  [[nodiscard]] std::string stderr_text() const override { return printable(pump_.stderr_bytes(), 4096); }

  ExecEnd wait(const Budget& budget) override {
    const auto outcome = budget.wait(pump_.done_fd(), POLLIN);
    if (outcome == Budget::Outcome::kCancelled) throw ApiError(ISOGATE_CANCELLED, "cancelled");
    if (outcome == Budget::Outcome::kLate)
      throw ApiError(ISOGATE_UNAVAILABLE, "the exec did not end in time", 0, true);
    return *pump_.ended();
  }

  [[nodiscard]] std::optional<ExecEnd> ended() const override { return pump_.ended(); }

 private:
  const Fd pair_, errors_;
  const bool v5_;
  ExecPump pump_;
};

ApiRequest written(const ExecRequest& request) {
  const Resource what{"v1", request.name_space, "pods", request.pod, "exec"};
  ApiRequest out{
      .method = "GET", .path = what.path(), .attempt = "exec into " + what.text(), .name = what.name};
  if (!request.container.empty()) out.query.emplace_back("container", request.container);
  for (const auto& argument : request.command) out.query.emplace_back("command", argument);
  if (request.stdin_open) out.query.emplace_back("stdin", "true");
  out.query.emplace_back("stdout", "true");
  out.query.emplace_back(request.tty ? "tty" : "stderr", "true");
  return out;
}

// Throws unless the server agreed, by RFC 6455, to an offered protocol. True: to v5.
bool agreed(const HttpHead& head, const std::string& key, const std::string& attempt) {
  const auto fail = [&](const char* why) {
    throw ApiError(ISOGATE_UNAVAILABLE, "cannot " + attempt + ": " + why, 0, true);
  };
  std::string upgrade = head.header("upgrade");
  std::transform(upgrade.begin(), upgrade.end(), upgrade.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (upgrade != "websocket" || head.header("sec-websocket-accept") != net::websocket_accept(key))
    fail("the API server's answer is no WebSocket's");
  if (!head.header("sec-websocket-extensions").empty())
    fail("the API server uses an extension nobody offered");
  const std::string protocol = head.header("sec-websocket-protocol");
  if (protocol != kV5 && protocol != kV4) fail("the API server speaks neither v5 nor v4.channel.k8s.io");
  return protocol == kV5;
}

}  // namespace

std::unique_ptr<ExecChannel> ExecChannel::open(Api& api, const ExecRequest& request, const Budget& budget) {
  const ApiRequest asked = written(request);
  const std::string key = net::new_websocket_key();
  ApiStream stream = api.open(asked,
                              {{"Connection", "Upgrade"},
                               {"Upgrade", "websocket"},
                               {"Sec-WebSocket-Version", "13"},
                               {"Sec-WebSocket-Key", key},
                               {"Sec-WebSocket-Protocol", std::string(kV5) + ", " + kV4}},
                              budget);
  const bool v5 = agreed(stream.head, key, asked.attempt);
  Pair pair = make_pair();
  Pair errors = request.separate_stderr ? make_pair() : Pair{};
  std::string early;
  auto transport = stream.connection->detach(early);
  return std::make_unique<Channel>(std::move(transport), std::move(early), v5, request, std::move(pair),
                                   std::move(errors));
}

}  // namespace isogate::k8s
