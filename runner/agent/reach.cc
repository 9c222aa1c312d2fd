#include "runner/agent/reach.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <sstream>

#include "lib/fd.h"
#include "lib/text.h"

namespace isogate::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kReachPatience{500};
constexpr int kSilent = 0, kWrongArguments = 2, kOut = 10, kUnknown = 11;  // exit codes

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;  // 0: not numeric
};

// "fe80::1%eth0"; false: it is none, or there is no such interface.
bool take_v6(const std::string& text, sockaddr_in6& address) {
  const size_t percent = std::min(text.find('%'), text.size());
  const bool has_zone = percent < text.size();
  if (has_zone) address.sin6_scope_id = ::if_nametoindex(text.c_str() + percent + 1);
  return ::inet_pton(AF_INET6, text.substr(0, percent).c_str(), &address.sin6_addr) == 1 &&
         (!has_zone || address.sin6_scope_id != 0);
}

Address address_of_target(const Target& target) {
  Address address;
  auto* const four = reinterpret_cast<sockaddr_in*>(&address.bytes);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  const uint16_t port = htons(static_cast<uint16_t>(target.port));
  if (::inet_pton(AF_INET, target.address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = port;
    address.size = sizeof *four;
  } else if (take_v6(target.address, *six)) {
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
    decided = errno == EADDRNOTAVAIL && target.address.find('%') != std::string::npos ? Reached::untried
                                                                                      : meaning(errno);
  return {};
}

Result<Target> target_of(const std::string& text) {
  const auto [address, port] = split_address(text);
  const Target target{std::string(address), number_in<uint16_t>(port).value_or(0)};
  const bool fine = target.port != 0 && (target.address == "hop" || address_of_target(target).size != 0);
  if (!fine) return invalid("`" + text + "` is not ADDRESS:PORT with a numeric address");
  return target;
}

std::optional<std::string> hop_of(std::string_view route) {
  std::istringstream fields{std::string(route)};
  std::string interface, destination, hop;
  fields >> interface >> destination >> hop;
  const auto address = number_in<uint32_t>(hop, 16);
  if (destination != "00000000" || address.value_or(0) == 0) return std::nullopt;
  char text[INET_ADDRSTRLEN] = {};
  return ::inet_ntop(AF_INET, &*address, text, sizeof text);
}

std::optional<std::string> hop_of_v6(std::string_view route) {
  std::istringstream fields{std::string(route)};
  std::string destination, length, source, source_length, hop, metric, references, uses, flags, interface;
  fields >> destination >> length >> source >> source_length >> hop >> metric >> references >> uses >>
      flags >> interface;
  in6_addr address{};
  constexpr size_t kDigits = 2 * sizeof address.s6_addr;
  if (length != "00" || hop.size() != kDigits || hop == std::string(kDigits, '0')) return std::nullopt;
  for (size_t i = 0; i < sizeof address.s6_addr; ++i) {
    const auto byte = number_in<uint8_t>(std::string_view(hop).substr(2 * i, 2), 16);
    if (!byte) return std::nullopt;
    address.s6_addr[i] = *byte;
  }
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, &address, text, sizeof text);
  return IN6_IS_ADDR_LINKLOCAL(&address) ? text + ("%" + interface) : text;
}

}  // namespace

std::vector<std::string> first_hops(std::string_view routes, std::string_view routes6) {
  std::vector<std::string> hops;
  while (!routes.empty())
    if (auto hop = hop_of(next_part(routes, '\n')); hop) hops.push_back(std::move(*hop));
  while (!routes6.empty())
    if (auto hop = hop_of_v6(next_part(routes6, '\n')); hop) hops.push_back(std::move(*hop));
  return hops;
}

Result<std::vector<std::string>> first_hops() {
  constexpr size_t kMost = size_t{16} << 20;
  std::string texts[2];
  for (const bool six : {false, true}) {
    const char* const path = six ? "/proc/net/ipv6_route" : "/proc/net/route";
    const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
    if (!file && errno == ENOENT && six) continue;  // this kernel has no IPv6
    if (!file) return os_error(std::string("cannot open `") + path + "`", errno);
    auto text = read_to_end(file.get(), kMost, std::string("cannot read `") + path + "`");
    if (!text) return text.error();
    texts[six ? 1 : 0] = std::move(*text);
  }
  return first_hops(texts[0], texts[1]);
}

Result<std::vector<Target>> parse_targets(const std::vector<std::string>& texts,
                                          const std::vector<std::string>& hops) {
  std::vector<Target> all;
  for (const std::string& text : texts) {
    const auto target = target_of(text);
    if (!target) return target.error();
    if (target->address != "hop") {
      all.push_back(*target);
      continue;
    }
    for (const std::string& hop : hops) all.push_back({hop, target->port});
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
  const bool by_hop = std::any_of(texts.begin(), texts.end(),
                                  [](const std::string& each) { return each.starts_with("hop:"); });
  const auto hops = by_hop ? first_hops() : std::vector<std::string>();
  const auto targets = parse_targets(texts, hops ? *hops : std::vector<std::string>());
  if (!targets) {
    std::fprintf(stderr, "isogate-runner: %s\n", targets.error().message.c_str());
    return kWrongArguments;
  }
  if (!hops) {
    std::printf("hop untried: %s\n", hops.error().message.c_str());
    return kUnknown;
  }
  const std::vector<Reached> found = reach(*targets);
  constexpr const char* kWords[] = {"silent", "refused", "connected", "untried"};
  bool out = false, untried = false;
  for (size_t i = 0; i < found.size(); ++i) {
    const Target& target = (*targets)[i];
    std::printf("%s %s\n", join_address(target.address, std::to_string(target.port)).c_str(),
                kWords[static_cast<int>(found[i])]);
    untried = untried || found[i] == Reached::untried;
    out = out || found[i] == Reached::connected || found[i] == Reached::refused;
  }
  if (out) return kOut;
  return untried ? kUnknown : kSilent;
}

}  // namespace isogate::agent
