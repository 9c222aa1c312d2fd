#include "gateway/supervisor/listeners.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "gateway/config/grammar.h"
#include "lib/loopback.h"
#include "lib/text.h"

namespace isogate::supervisor {
namespace {

constexpr int kBacklog = 4096;
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr std::string_view kUnix = "unix:";
constexpr const char* kDefaultSocket = "isogate.sock";
constexpr const char* kRemedy = "--listen or --port";
constexpr std::chrono::seconds kFreedWithin{2};
constexpr std::chrono::milliseconds kTryAgain{20};  // no event says that an address is free

struct InfoDeleter {
  void operator()(addrinfo* info) const { ::freeaddrinfo(info); }
};
using Info = std::unique_ptr<addrinfo, InfoDeleter>;

Error bad_address(const std::string& address, const std::string& why) {
  return invalid("cannot listen on `" + address + "`: " + why);
}

Result<Info> parse_tcp(const std::string& address) {
  ListenAddress parts;
  if (!parse_listen_address(address, parts))
    return bad_address(address, "expected " + std::string(kListenAddress.expected));
  const std::string host = parts.host == "localhost" ? "127.0.0.1" : parts.host;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), std::to_string(parts.port).c_str(), &hints, &found))
    return bad_address(address, ::gai_strerror(failed));
  return Info(found);
}

Result<void> describe(Listener* listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* address = reinterpret_cast<sockaddr*>(&bound);
  if (::getsockname(listener->socket.get(), address, &size) != 0)
    return os_error("cannot ask for the address of `" + listener->address + "`", errno);
  if (::getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return bad_address(listener->address, "the kernel bound it to something unreadable");
  listener->loopback = is_loopback(host.data());
  listener->address = join_address(host.data(), port.data());
  return {};
}

Error bind_error(const std::string& address, const std::string& remedy, int error) {
  const std::string port = address.substr(address.rfind(':') + 1);
  if (error == EADDRINUSE)
    return {ISOGATE_ALREADY_EXISTS, error,
            "cannot listen on " + address + ": port " + port +
                " is in use; see who has it with: ss -ltnp 'sport = :" + port + "', or choose another with " +
                remedy};
  return os_error("cannot listen on " + address, error);
}

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!path.starts_with('/')) return bad_address("unix:" + path, "the path is not absolute");
  if (path.size() >= sizeof address.sun_path)
    return bad_address("unix:" + path,
                       "the path is longer than " + std::to_string(sizeof address.sun_path - 1) + " bytes");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<void> remove_stale(const sockaddr_un& address) {
  const std::string path = address.sun_path;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return os_error("cannot look at `" + path + "`", errno);
  }
  if (!S_ISSOCK(info.st_mode)) return bad_address("unix:" + path, "something is there that is no socket");
  if (info.st_uid != ::geteuid())
    return bad_address("unix:" + path, "the socket there belongs to uid " + std::to_string(info.st_uid));
  const Fd probe(::socket(AF_UNIX, kSocketFlags, 0));
  if (!probe) return os_error("cannot make a Unix socket", errno);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN)
    return Error{ISOGATE_ALREADY_EXISTS, EADDRINUSE,
                 "cannot listen on `unix:" + path + "`: another program listens there"};
  if (errno != ECONNREFUSED) return os_error("cannot tell whether `" + path + "` is in use", errno);
  if (::unlink(path.c_str()) != 0) return os_error("cannot remove the stale socket `" + path + "`", errno);
  return {};
}

Error no_directory(const std::string& path) {
  const std::string directory = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
  return {ISOGATE_NOT_FOUND, ENOENT,
          "cannot listen on unix:" + path + ": there is no directory `" + directory +
              "`; make it with: install -d -m 0755 " + directory};
}

Result<Listener> open_unix(const std::string& path) {
  auto address = unix_address(path);
  if (!address) return address.error();
  if (auto removed = remove_stale(*address); !removed) return removed.error();
  Listener listener{"unix:" + path, path, true, ListenerKind::kNative,
                    Fd(::socket(AF_UNIX, kSocketFlags, 0))};
  if (!listener.socket) return os_error("cannot make a Unix socket", errno);
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(listener.socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int error = errno;
  ::umask(before);
  if (bound != 0 && error == ENOENT) return no_directory(path);
  if (bound != 0) return os_error("cannot listen on unix:" + path, error);
  return listener;
}

// A gateway that was killed leaves its front, which ends for that, and keeps its addresses till then.
Result<Listener> open_when_free(const std::string& address) {
  for (const auto until = std::chrono::steady_clock::now() + kFreedWithin;;) {
    auto opened =
        address.starts_with(kUnix) ? open_unix(address.substr(kUnix.size())) : open_tcp(address, kRemedy);
    if (opened || opened.error().os_errno != EADDRINUSE || std::chrono::steady_clock::now() >= until)
      return opened;
    std::this_thread::sleep_for(kTryAgain);
  }
}

}  // namespace

Result<Listener> open_tcp(const std::string& address, const std::string& remedy) {
  auto info = parse_tcp(address);
  if (!info) return info.error();
  Listener listener{address, "", true, ListenerKind::kNative,
                    Fd(::socket((*info)->ai_family, kSocketFlags, 0))};
  const int fd = listener.socket.get();
  if (fd < 0) return os_error("cannot listen on " + address, errno);
  const int on = 1;
  if (::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ((*info)->ai_family == AF_INET6 && ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0))
    return os_error("cannot set up a socket for " + address, errno);
  if (::bind(fd, (*info)->ai_addr, (*info)->ai_addrlen) != 0) return bind_error(address, remedy, errno);
  if (auto described = describe(&listener); !described) return described.error();
  return listener;
}

Result<void> check_listener_keys(const std::vector<Listener>& listeners, const Config& config) {
  for (const Listener& listener : listeners)
    if (!listener.loopback && listener.kind != ListenerKind::kMetrics && !config.names_callers())
      return Error{
          ISOGATE_PERMISSION_DENIED, 0,
          "refusing to listen on " + listener.address +
              ", beyond this machine, without configured keys: add `keys` with at least one entry (name, "
              "tenant, sha256), or listen on 127.0.0.1"};
  return {};
}

Result<std::vector<Listener>> open_listeners(const Config& config, const std::string& state_path) {
  std::vector<std::string> addresses = config.listen;
  const bool has_unix = std::any_of(addresses.begin(), addresses.end(),
                                    [](const std::string& address) { return address.starts_with(kUnix); });
  const std::string default_path = state_path + "/" + kDefaultSocket;
  if (!has_unix && default_path.size() < sizeof(sockaddr_un::sun_path))
    addresses.push_back(std::string(kUnix) + default_path);
  std::vector<std::pair<std::string, ListenerKind>> wanted;
  for (const std::string& address : addresses) wanted.emplace_back(address, ListenerKind::kNative);
  for (const std::string& address : config.e2b.listen) wanted.emplace_back(address, ListenerKind::kE2b);
  if (!config.metrics.listen.empty()) wanted.emplace_back(config.metrics.listen, ListenerKind::kMetrics);
  std::vector<Listener> listeners;
  for (const auto& [address, kind] : wanted) {
    auto opened = open_when_free(address);
    if (!opened) {
      remove_socket_files(listeners);
      return opened.error();
    }
    listeners.push_back(std::move(*opened));
    listeners.back().kind = kind;
  }
  auto checked = check_listener_keys(listeners, config);
  for (const Listener& listener : listeners)
    if (checked && ::listen(listener.socket.get(), kBacklog) != 0)
      checked = bind_error(listener.address, kRemedy, errno);
  if (!checked) {
    remove_socket_files(listeners);
    return checked.error();
  }
  return listeners;
}

void remove_socket_files(const std::vector<Listener>& listeners) {
  for (const Listener& listener : listeners)
    if (!listener.path.empty()) (void)::unlink(listener.path.c_str());
}

}  // namespace isogate::supervisor
