#include "runner/resident/evidence.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <sstream>

#include "runner/cgroup_detect.h"
#include "runner/cgroup_limits.h"
#include "runner/fd.h"

namespace isogate::resident {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{300};
constexpr uint32_t kMetadataPort = 80;
constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // v1 has a number for none

struct Attempt {
  Fd socket;
  uint32_t flag;  // what its success says
  bool reached = false;
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;  // 0: not numeric
};

Address address_of(const std::string& text, uint32_t port) {
  Address address;
  auto* const four = reinterpret_cast<sockaddr_in*>(&address.bytes);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  const uint16_t in_order = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = in_order;
    address.size = sizeof *four;
  } else if (::inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = in_order;
    address.size = sizeof *six;
  }
  return address;
}

void begin(std::vector<Attempt>& attempts, uint32_t flag, const std::string& text, uint32_t port) {
  const Address address = address_of(text, port);
  if (address.size == 0) return;
  Fd socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return;
  const int result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size);
  if (result != 0 && errno != EINPROGRESS) return;
  attempts.push_back({std::move(socket), flag, result == 0});
}

bool connected(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

void finish(std::vector<Attempt>& attempts) {
  const auto until = Clock::now() + kPatience;
  for (;;) {
    std::vector<pollfd> slots;
    for (const Attempt& one : attempts) slots.push_back({one.reached ? -1 : one.socket.get(), POLLOUT, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return;
    const int ready = ::poll(slots.data(), slots.size(), static_cast<int>(left));
    if (ready == 0 || (ready < 0 && errno != EINTR)) return;
    for (size_t i = 0; ready > 0 && i < slots.size(); ++i) {
      if (slots[i].revents == 0) continue;
      attempts[i].reached = connected(attempts[i].socket.get());
      if (!attempts[i].reached) attempts[i].socket.reset();
    }
    const auto open = [](const Attempt& one) { return !one.reached && one.socket; };
    if (std::none_of(attempts.begin(), attempts.end(), open)) return;
  }
}

bool has(const CgroupHierarchy& hierarchy, const char* controller) {
  const auto& names = hierarchy.controllers;
  return std::find(names.begin(), names.end(), controller) != names.end();
}

}  // namespace

std::vector<std::string> first_hops(std::string_view routes) {
  std::vector<std::string> hops;
  std::istringstream lines{std::string(routes)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string interface, destination, hop;
    fields >> interface >> destination >> hop;
    in_addr address{};
    const auto [end, error] = std::from_chars(hop.data(), hop.data() + hop.size(), address.s_addr, 16);
    if (destination != "00000000" || error != std::errc() || address.s_addr == 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    if (::inet_ntop(AF_INET, &address, text, sizeof text) != nullptr) hops.emplace_back(text);
  }
  return hops;
}

uint32_t try_network(const std::string& gateway_address, uint32_t gateway_port) {
  std::vector<Attempt> attempts;
  for (const char* text : {"169.254.169.254", "fd00:ec2::254"})
    begin(attempts, ISOGATE_EVIDENCE_REACHED_METADATA, text, kMetadataPort);
  if (gateway_port != 0) {
    std::vector<std::string> addresses = first_hops(read_small_file(AT_FDCWD, "/proc/net/route"));
    for (const char* text : {"127.0.0.1", "::1"}) addresses.emplace_back(text);
    addresses.push_back(gateway_address);
    for (const std::string& text : addresses)
      begin(attempts, ISOGATE_EVIDENCE_REACHED_GATEWAY, text, gateway_port);
  }
  finish(attempts);
  uint32_t flags = ISOGATE_EVIDENCE_NETWORK;
  for (const Attempt& one : attempts) flags |= one.reached ? one.flag : 0;
  return flags;
}

isogate_limits limits_in_force() {
  isogate_limits limits{};
  for (const CgroupHierarchy& hierarchy : detect_cgroups()) {
    const Fd group(::openat(AT_FDCWD, hierarchy.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!group) continue;
    const int version = hierarchy.version;
    if (has(hierarchy, "memory")) limits.memory_bytes = read_memory_limit(group.get(), version);
    if (has(hierarchy, "cpu")) limits.cpu_millis = read_cpu_limit(group.get(), version);
    if (has(hierarchy, "pids")) limits.pids = read_pids_limit(group.get());
  }
  if (limits.memory_bytes >= kNoLimit) limits.memory_bytes = 0;
  return limits;
}

}  // namespace isogate::resident
