#include "plugins/k8s/proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "plugins/k8s/api_error.h"

namespace isogate::k8s {
namespace {

constexpr size_t kHeadMost = 16384;

[[noreturn]] void fail(const ClusterAccess& access, const std::string& why) {
  throw ApiError(ISOGATE_UNAVAILABLE, "cannot reach the API server at " + access.text() + " through proxy " +
                                          access.proxy->host + ":" + std::to_string(access.proxy->port) +
                                          ": " + why);
}

void wait(const Fd& socket, short events, const ClusterAccess& access, const Budget& budget) {
  const auto outcome = budget.wait(socket.get(), events);
  if (outcome == Budget::Outcome::kCancelled) throw ApiError(ISOGATE_CANCELLED, "cancelled");
  if (outcome == Budget::Outcome::kLate) fail(access, "it did not answer in time");
}

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void send(const Fd& socket, std::string_view bytes, const ClusterAccess& access, const Budget& budget) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (try_again()) {
      wait(socket, POLLOUT, access, budget);
    } else {
      fail(access, std::generic_category().message(errno));
    }
  }
}

// The API server speaks only when spoken to: nothing but the proxy's answer can be there.
std::string receive_head(const Fd& socket, const ClusterAccess& access, const Budget& budget) {
  std::string head;
  std::array<char, 2048> buffer{};
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (head.size() > kHeadMost) fail(access, "its answer has no end");
    const ssize_t n = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (n > 0) {
      head.append(buffer.data(), static_cast<size_t>(n));
    } else if (n == 0) {
      fail(access, "it hung up");
    } else if (try_again()) {
      wait(socket, POLLIN, access, budget);
    } else {
      fail(access, std::generic_category().message(errno));
    }
  }
  return head;
}

}  // namespace

void connect_through(const Fd& socket, const ClusterAccess& access, const Budget& budget) {
  const bool v6 = access.host.find(':') != std::string::npos;
  const std::string to = (v6 ? "[" + access.host + "]" : access.host) + ":" + std::to_string(access.port);
  std::string request = "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n";
  if (!access.proxy->authorization.empty())
    request += "Proxy-Authorization: " + access.proxy->authorization + "\r\n";
  send(socket, request + "\r\n", access, budget);
  const std::string head = receive_head(socket, access, budget);
  constexpr size_t kStatusAt = 9, kStatusSize = 3;  // "HTTP/1.1 200"
  if (!head.starts_with("HTTP/1.") || head.size() < kStatusAt + kStatusSize)
    fail(access, "it gave an answer that is no HTTP");
  const std::string status = head.substr(kStatusAt, kStatusSize);
  const std::string first = head.substr(0, head.find('\r'));
  if (status[0] != '2') fail(access, "it answered " + printable(first.substr(kStatusAt), 80));
  if (head.find("\r\n\r\n") + 4 != head.size()) fail(access, "it sent more than an answer");
}

}  // namespace isogate::k8s
