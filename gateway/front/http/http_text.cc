#include "gateway/front/http/http_text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/status.hpp>
#include <ctime>

#include "lib/text.h"

namespace isogate::front {
namespace {

std::string_view reason_of(unsigned status) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
  return {reason.data(), reason.size()};
}

// RFC 9110 IMF-fixdate, made once a second.
std::string_view date() {
  static std::time_t made_at = 0;
  static std::array<char, 40> text{};
  static size_t size = 0;
  const std::time_t now = std::time(nullptr);
  if (now != made_at) {
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    made_at = now;
  }
  return {text.data(), size};
}

// No answer is a page: a browser that opens one shows text or saves it, runs nothing, and lends it to nobody.
constexpr std::string_view kSecurityHeaders =
    "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY"
    "\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin";
constexpr std::string_view kContentPolicy =
    "\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'; sandbox";
constexpr std::string_view kExposed = "X-Request-Id, Retry-After, ETag, Content-Range, Accept-Ranges";

bool has_policy(const Headers& headers) {
  return std::any_of(headers.begin(), headers.end(),
                     [](const auto& header) { return header.first == "Content-Security-Policy"; });
}

}  // namespace

std::string AnswerHead::text(const Headers& headers) const {
  std::string out;
  out.reserve(640);
  out.append("HTTP/1.1 ").append(std::to_string(status)).append(" ");
  out.append(proxied ? reason : reason_of(status));
  if (!proxied) out.append("\r\nDate: ").append(date());
  if (!content_type.empty()) out.append("\r\nContent-Type: ").append(content_type);
  if (length && status != 204) out.append("\r\nContent-Length: ").append(std::to_string(*length));
  if (chunked) out.append("\r\nTransfer-Encoding: chunked");
  out.append("\r\nX-Request-Id: ").append(request_id);
  if (!proxied) out.append(kSecurityHeaders);
  if (!proxied && !has_policy(headers)) out.append(kContentPolicy);
  if (!proxied && !cors_origin.empty()) {
    out.append("\r\nAccess-Control-Allow-Origin: ").append(cors_origin);
    out.append("\r\nVary: Origin\r\nAccess-Control-Expose-Headers: ").append(kExposed);
  }
  if (switches) out.append("\r\nConnection: Upgrade");
  if (close) out.append("\r\nConnection: close");
  if (keep_alive_10) out.append("\r\nConnection: keep-alive");
  for (const auto& [name, value] : headers) out.append("\r\n").append(name).append(": ").append(value);
  out.append("\r\n\r\n");
  return out;
}

bool equal_no_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return to_lower(x) == to_lower(y); });
}

void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void probe_when_silent(int socket) {
  const int on = 1, idle = 15, interval = 5, count = 6;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

std::optional<std::chrono::milliseconds> silent_for(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (info.tcpi_probes == 0 && info.tcpi_retransmits == 0) return std::chrono::milliseconds::zero();
  return std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
}

int uid_of_peer(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return -1;
  return static_cast<int>(credentials.uid);
}

bool ready_for(int fd, short events) {
  pollfd one{fd, events, 0};
  return ::poll(&one, 1, 0) == 1;
}

std::string peer_address(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  const void* raw = address.ss_family == AF_INET6
                        ? static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr)
                        : static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(&address)->sin_addr);
  const char* made = ::inet_ntop(address.ss_family, raw, text.data(), text.size());
  return made == nullptr ? "?" : made;
}

}  // namespace isogate::front
