#include "runner/agent/reach.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "lib/fd.h"
#include "lib/text.h"
#include "runner/agent/evidence.h"
#include "runner/cgroup/cgroup_detect.h"

namespace isogate::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kReachPatience{500};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;  // 0: not numeric
};

Address address_of_target(const Target& target) {
  Address address;
  auto* const four = reinterpret_cast<sockaddr_in*>(&address.bytes);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  const uint16_t port = htons(static_cast<uint16_t>(target.port));
  if (::inet_pton(AF_INET, target.address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = port;
    address.size = sizeof *four;
  } else if (::inet_pton(AF_INET6, target.address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = port;
    address.size = sizeof *six;
  }
  return address;
}

Reached meaning(int error) {
  if (error == 0) return Reached::connected;
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EAGAIN)
    return Reached::untried;
  return error == ECONNREFUSED ? Reached::refused : Reached::silent;
}

// Empty: the result is known already.
Fd begin(const Target& target, Reached& decided) {
  const Address address = address_of_target(target);
  if (address.size == 0) {
    decided = Reached::untried;
    return {};
  }
  Fd socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) {
    decided = errno == EAFNOSUPPORT ? Reached::silent : Reached::untried;
    return socket;
  }
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0)
    decided = Reached::connected;
  else if (errno == EINPROGRESS)
    return socket;
  else
    decided = meaning(errno);
  return {};
}

Result<Target> target_of(const std::string& text) {
  const auto [address, port] = split_address(text);
  const Target target{std::string(address), number_in<uint16_t>(port).value_or(0)};
  const bool fine = target.port != 0 && (target.address == "hop" || address_of_target(target).size != 0);
  if (!fine) return invalid("`" + text + "` is not ADDRESS:PORT with a numeric address");
  return target;
}

}  // namespace

Result<std::vector<Target>> parse_targets(const std::vector<std::string>& texts, const std::string& routes) {
  std::vector<Target> all;
  for (const std::string& text : texts) {
    const auto target = target_of(text);
    if (!target) return target.error();
    if (target->address != "hop") {
      all.push_back(*target);
      continue;
    }
    for (const std::string& hop : first_hops(routes)) all.push_back({hop, target->port});
  }
  return all;
}

std::vector<Reached> reach(const std::vector<Target>& targets) {
  std::vector<Reached> found(targets.size(), Reached::silent);
  std::vector<Fd> sockets;
  for (size_t i = 0; i < targets.size(); ++i) sockets.push_back(begin(targets[i], found[i]));
  const auto until = Clock::now() + kReachPatience;
  for (size_t open = targets.size(); open > 0;) {
    std::vector<pollfd> slots;
    open = 0;
    for (const Fd& socket : sockets) {
      slots.push_back({socket ? socket.get() : -1, POLLOUT, 0});
      open += socket ? 1 : 0;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (open == 0 || left <= 0) break;
    if (::poll(slots.data(), slots.size(), static_cast<int>(left)) <= 0) continue;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].revents == 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      const bool asked = ::getsockopt(sockets[i].get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0;
      found[i] = asked ? meaning(error) : Reached::untried;
      sockets[i].reset();
    }
  }
  return found;
}

int report_reached(const std::vector<std::string>& texts) {
  const auto targets = parse_targets(texts, read_small_file(AT_FDCWD, "/proc/net/route"));
  if (!targets) {
    std::fprintf(stderr, "isogate-runner: %s\n", targets.error().message.c_str());
    return 2;
  }
  const std::vector<Reached> found = reach(*targets);
  constexpr const char* kWords[] = {"silent", "refused", "connected", "untried"};
  bool out = false, untried = false;
  for (size_t i = 0; i < found.size(); ++i) {
    const Target& target = (*targets)[i];
    const bool six = target.address.find(':') != std::string::npos;
    std::printf("%s%s%s:%u %s\n", six ? "[" : "", target.address.c_str(), six ? "]" : "", target.port,
                kWords[static_cast<int>(found[i])]);
    untried = untried || found[i] == Reached::untried;
    out = out || found[i] == Reached::connected || found[i] == Reached::refused;
  }
  if (out) return 10;
  return untried ? 11 : 0;
}

}  // namespace isogate::agent
