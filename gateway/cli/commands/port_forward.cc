// isogate port-forward
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <vector>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"
#include "gateway/cli/websocket.h"
#include "gateway/supervisor/listeners.h"
#include "lib/fd.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kUnsentToPortMost = 256u << 10, kUndeliveredMost = 256u << 10, kForwardPiece = 65536;

struct Forward {
  uint16_t local = 0, remote = 0;  // local 0: any free port
};

// "8080:80", ":80" (any free port), "80".
std::optional<Forward> parse_forward(std::string_view text) {
  const size_t colon = text.find(':');
  const auto remote = number_in<uint16_t>(colon == text.npos ? text : text.substr(colon + 1));
  if (!remote || *remote == 0) return std::nullopt;
  if (colon == text.npos) return Forward{*remote, *remote};
  if (colon == 0) return Forward{0, *remote};
  const auto local = number_in<uint16_t>(text.substr(0, colon));
  if (!local) return std::nullopt;
  return Forward{*local, *remote};
}

struct Listener {
  Fd socket;
  std::string address;
  uint16_t remote = 0;
};

Result<Listener> listen_on(const std::string& address, const Forward& forward) {
  auto opened = supervisor::open_tcp(join_address(address, std::to_string(forward.local)), "LOCAL:PORT");
  if (!opened.ok()) return opened.error();
  if (::listen(opened->socket.get(), SOMAXCONN) != 0)
    return os_error("cannot listen on " + opened->address, errno);
  return Listener{std::move(opened->socket), std::move(opened->address), forward.remote};
}

// One connection of a local program, carried to the port.
class Passage {
 public:
  Passage(Fd local, std::unique_ptr<WebSocket> socket)
      : local_(std::move(local)), socket_(std::move(socket)) {}

  // Why it broke off; empty: both sides have ended.
  std::string run() {
    while (!failure_ && !((sent_end_ || closed_) && delivered_end_)) turn();
    if (failure_ && !failure_->empty()) reset();
    socket_->send_close();
    socket_->flush();
    return failure_.value_or("");
  }

 private:
  [[nodiscard]] size_t undelivered() const { return bytes_.size() - at_; }

  void turn() {
    const bool hears = !closed_ && undelivered() < kUndeliveredMost;
    const bool reads = !sent_end_ && !closed_ && socket_->unsent() < kUnsentToPortMost;
    const auto of_socket = static_cast<short>((hears ? POLLIN : 0) | (socket_->unsent() > 0 ? POLLOUT : 0));
    const auto of_local = static_cast<short>((reads ? POLLIN : 0) | (undelivered() > 0 ? POLLOUT : 0));
    std::array<pollfd, 2> watched{{{of_socket == 0 ? -1 : socket_->fd(), of_socket, 0},
                                   {of_local == 0 ? -1 : local_.get(), of_local, 0}}};
    const int wait = hears && socket_->has_buffered() ? 0 : -1;
    if (::poll(watched.data(), watched.size(), wait) < 0 && errno != EINTR)
      return fail(os_error("cannot wait", errno).message);
    if (reads && (watched[1].revents & ~POLLOUT) != 0) read_local();
    if (hears && ((watched[0].revents & ~POLLOUT) != 0 || socket_->has_buffered())) receive();
    socket_->flush();
    deliver();
  }

  void read_local() {
    const ssize_t n = ::recv(local_.get(), piece_.data(), piece_.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return leave();
    if (n > 0) return socket_->send_binary({piece_.data(), static_cast<size_t>(n)});
    sent_end_ = true;
    socket_->send_text(R"({"type":"end"})");
  }

  void receive() {
    const auto received =
        socket_->receive({[this](std::string_view piece, bool) { bytes_ += piece; },
                          [this](std::string_view text) {
                            const Json event = Json::parse(text, nullptr, false);
                            got_end_ = got_end_ || (event.is_object() && event.value("event", "") == "end");
                          }});
    if (received.ok()) return;
    closed_ = true;
    if (!got_end_) fail(received.error().message);
  }

  void deliver() {
    if (undelivered() > 0) {
      const ssize_t n = ::send(local_.get(), bytes_.data() + at_, undelivered(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return leave();
      at_ += n > 0 ? static_cast<size_t>(n) : 0;
      if (at_ >= kForwardPiece) bytes_.erase(0, std::exchange(at_, 0));
    }
    if (undelivered() > 0 || !got_end_ || delivered_end_) return;
    delivered_end_ = true;
    ::shutdown(local_.get(), SHUT_WR);
  }

  void fail(std::string why) {
    if (!failure_) failure_ = std::move(why);
  }
  void leave() { fail(""); }  // the local program has gone

  // It must not take the end of what came for the end of all.
  void reset() {
    const linger at_once{1, 0};
    ::setsockopt(local_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

  Fd local_;
  std::unique_ptr<WebSocket> socket_;
  std::array<char, kForwardPiece> piece_{};
  std::string bytes_;  // for the local program, delivered up to at_
  size_t at_ = 0;
  bool sent_end_ = false, got_end_ = false, delivered_end_ = false;
  bool closed_ = false;  // the WebSocket
  std::optional<std::string> failure_;
};

void carry(const HttpClient& client, const std::string& agent, uint16_t port, Fd local) {
  const int on = 1;
  ::setsockopt(local.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const std::string target =
      "/sandboxes/" + percent_encode(agent) + "/ports/" + std::to_string(port) + "?half_close=true";
  const std::string what = "connection to port " + std::to_string(port) + ": ";
  auto opened = WebSocket::open(client, target, -1);
  if (!opened.ok()) return complain(what + opened.error().message);
  if (const auto* answer = std::get_if<HttpAnswer>(&*opened)) {
    report_refusal(*answer, false);
    return;
  }
  Passage passage(std::move(local), std::move(std::get<std::unique_ptr<WebSocket>>(*opened)));
  if (const std::string why = passage.run(); !why.empty()) complain(what + why);
}

// A sandbox that is not there would be noticed by the first connection alone.
int check_sandbox(HttpClient& client, const std::string& agent) {
  const auto [failed, answer] = ask(client, {.method = "GET", .target = "/sandboxes"}, false);
  if (failed != kDone) return failed;
  const Json all = Json::parse(answer.body);
  for (const Json& one : all.at("sandboxes"))
    if (one.at("agent_id") == agent) return kDone;
  complain("agent `" + agent + "` has no sandbox");
  return kFailed;
}

int serve(const HttpClient& client, const std::string& agent, const std::vector<Listener>& listeners) {
  bool paused = false;
  std::vector<pollfd> watched;
  for (const Listener& each : listeners) watched.push_back({each.socket.get(), POLLIN, 0});
  for (;;) {
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) {
      complain(os_error("cannot wait", errno).message);
      return kFailed;
    }
    for (size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      Fd local(::accept4(watched[i].fd, nullptr, nullptr, SOCK_CLOEXEC));
      const int failed = local ? 0 : errno;
      const bool lacks_means = failed != 0 && failed != EINTR && failed != EAGAIN && failed != ECONNABORTED;
      if (lacks_means && !std::exchange(paused, true))
        complain(os_error("cannot accept a connection; tried until it can", failed).message);
      if (lacks_means) ::poll(nullptr, 0, 50);  // it stays in the queue
      if (!local) continue;
      paused = false;
      try {
        std::thread([&client, &agent, port = listeners[i].remote, fd = std::move(local)]() mutable {
          carry(client, agent, port, std::move(fd));
        }).detach();
      } catch (const std::system_error& error) {
        complain(std::string("cannot start a thread for a connection: ") + error.what());
      }
    }
  }
}

}  // namespace

int run_port_forward(const PortForwardOptions& options) {
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), false);
  std::vector<Listener> listeners;
  for (const std::string& text : options.ports) {
    const auto forward = parse_forward(text);
    if (!forward) return report(invalid("`" + text + "` is not PORT or LOCAL:PORT, each 1 to 65535"), false);
    auto listener = listen_on(options.address, *forward);
    if (!listener.ok()) {
      complain(listener.error().message);
      return listener.error().status == ISOGATE_INVALID_ARGUMENT ? kUsage : kFailed;
    }
    listeners.push_back(std::move(*listener));
  }
  if (const int missing = check_sandbox(*client, options.agent); missing != kDone) return missing;
  for (const Listener& each : listeners)
    print("Forwarding from " + each.address + " -> " + std::to_string(each.remote) + "\n");
  return serve(*client, options.agent, listeners);
}

}  // namespace isogate::cli
