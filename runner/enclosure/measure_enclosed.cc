// Evidence from inside an enclosure, taken by a child of its init.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "lib/text.h"
#include "runner/enclosure/init/init.h"
#include "runner/enclosure/init_channel.h"
#include "runner/enclosure/measure.h"
#include "runner/exec/command_runner.h"

namespace isogate {
namespace {

constexpr int kMeasurePatienceMs = 10'000;
constexpr uint32_t kMetadataPort = 80;

enum class Party { kGateway, kMetadata };

// Nothing has an address of a family that this kernel does not have.
bool kernel_has_ipv6() {
  const Fd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket || errno != EAFNOSUPPORT;
}

class Addresses {
 public:
  void add(Party party, const std::string& text, uint32_t port) {
    InitAddress address = {};
    address.port = port;
    address.family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
    if (::inet_pton(static_cast<int>(address.family), text.c_str(), address.bytes) != 1) {
      complete_ = false;
      return;
    }
    if (address.family == AF_INET6 && !ipv6_) return;
    const std::string one(reinterpret_cast<const char*>(&address), sizeof address);
    for (size_t i = 0; i < parties_.size(); ++i)
      if (parties_[i] == party && bytes_.compare(i * sizeof address, sizeof address, one) == 0) return;
    if (parties_.size() == kInitMostAddresses) {
      complete_ = false;
      return;
    }
    parties_.push_back(party);
    bytes_ += one;
  }
  // One listener of the gateway: at its address, and on the loopback, where a wildcard also listens.
  void add_listener(const std::string& address, uint32_t port) {
    for (const char* loopback : {"127.0.0.1", "::1"}) add(Party::kGateway, loopback, port);
    add(Party::kGateway, address, port);
  }
  // "ip:port" or "[ip]:port"
  void add_listener(std::string_view text) {
    const auto [address, digits] = split_address(text);
    const uint16_t port = number_in<uint16_t>(digits).value_or(0);
    if (port == 0)
      complete_ = false;
    else
      add_listener(std::string(address), port);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<Party>& parties() const { return parties_; }
  [[nodiscard]] bool complete() const { return complete_; }  // false: one could not even be named

 private:
  const bool ipv6_ = kernel_has_ipv6();
  std::vector<Party> parties_;
  std::string bytes_;
  bool complete_ = true;
};

Addresses to_try(const isogate_evidence_request& request) {
  Addresses addresses;
  addresses.add(Party::kMetadata, "169.254.169.254", kMetadataPort);
  addresses.add(Party::kMetadata, "fd00:ec2::254", kMetadataPort);
  if (request.gateway_port != 0)
    addresses.add_listener(std::string(request.gateway_address.ptr, request.gateway_address.len),
                           request.gateway_port);
  std::string_view rest(request.gateway_listeners.ptr, request.gateway_listeners.len);
  while (!rest.empty()) {
    const size_t space = std::min(rest.find(' '), rest.size());
    addresses.add_listener(rest.substr(0, space));
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  return addresses;
}

}  // namespace

Result<isogate_evidence> CommandRunner::measure_enclosed(Enclosure& place, const Identity& identity,
                                                         const isogate_evidence_request& request) {
  const Enclosure::Visit visit(place);
  if (!visit) return Error{ISOGATE_NO_SANDBOX, 0, "the sandbox is closed"};
  auto init = take_init(place, identity, true, -1);
  if (!init) return init.error();
  const Addresses addresses = to_try(request);
  const auto portrait = std::make_unique<InitPortrait>();
  InitReport report = {};
  auto done = send_order(init->socket.get(), kInitMeasure, addresses.bytes(), {}, -1);
  if (done) done = receive_from_init(init->socket.get(), &report, sizeof report, kMeasurePatienceMs, -1);
  if (done && report.os_errno != 0) done = describe_failure({report.stage, report.os_errno}, identity);
  if (done)
    done = receive_from_init(init->socket.get(), portrait.get(), sizeof *portrait, kMeasurePatienceMs, -1);
  keeper_->reap_later(std::move(*init));
  if (!done) return done.error();
  auto evidence = evidence_from(portrait->self);
  if (!evidence) return evidence;
  if (place.groups() != nullptr) place.groups()->in_force().put(*evidence);
  bool all_tried = addresses.complete();
  for (size_t i = 0; i < addresses.parties().size(); ++i) {
    if (portrait->reached[i] != kAnswered && portrait->reached[i] != kSilent) all_tried = false;
    if (portrait->reached[i] != kAnswered) continue;
    evidence->flags |= addresses.parties()[i] == Party::kGateway ? ISOGATE_EVIDENCE_REACHED_GATEWAY
                                                                 : ISOGATE_EVIDENCE_REACHED_METADATA;
  }
  if (all_tried) evidence->flags |= ISOGATE_EVIDENCE_NETWORK;
  return evidence;
}

}  // namespace isogate
