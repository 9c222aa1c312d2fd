// Evidence from inside an enclosure, taken by a child of its init.
#include <arpa/inet.h>

#include <cstring>

#include "runner/command_runner.h"
#include "runner/init/init.h"
#include "runner/init_channel.h"
#include "runner/measure.h"

namespace isogate {
namespace {

constexpr int kPatienceMs = 10'000;
constexpr uint32_t kMetadataPort = 80;

enum class Party { kGateway, kMetadata };

class Addresses {
 public:
  void add(Party party, const std::string& text, uint32_t port) {
    InitAddress address = {};
    address.port = port;
    address.family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
    if (::inet_pton(static_cast<int>(address.family), text.c_str(), address.bytes) != 1) return;
    parties_.push_back(party);
    bytes_.append(reinterpret_cast<const char*>(&address), sizeof address);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<Party>& parties() const { return parties_; }

 private:
  std::vector<Party> parties_;
  std::string bytes_;
};

Addresses to_try(const isogate_evidence_request& request) {
  Addresses addresses;
  addresses.add(Party::kMetadata, "169.254.169.254", kMetadataPort);
  addresses.add(Party::kMetadata, "fd00:ec2::254", kMetadataPort);
  if (request.gateway_port == 0) return addresses;
  const std::string own(request.gateway_address.ptr, request.gateway_address.len);
  for (const std::string& text : {std::string("127.0.0.1"), std::string("::1"), own}) {
    addresses.add(Party::kGateway, text, request.gateway_port);
  }
  return addresses;
}

}  // namespace

Result<isogate_evidence> CommandRunner::measure(const std::shared_ptr<Enclosure>& enclosure,
                                                const isogate_evidence_request& request) {
  auto init = make_init(*enclosure, enclosure->identity());
  if (!init) return init.error();
  const Addresses addresses = to_try(request);
  const auto portrait = std::make_unique<InitPortrait>();
  InitReport report = {};
  auto done = send_order(init->socket.get(), kInitMeasure, addresses.bytes(), {}, -1);
  if (done) done = receive_from_init(init->socket.get(), &report, sizeof report, kPatienceMs);
  if (done && report.os_errno != 0)
    done = describe_failure({report.stage, report.os_errno}, enclosure->identity());
  if (done) done = receive_from_init(init->socket.get(), portrait.get(), sizeof *portrait, kPatienceMs);
  keeper_->bury(std::move(*init));
  if (!done) return done.error();
  auto evidence = evidence_from(portrait->self);
  if (!evidence) return evidence;
  evidence->flags |= ISOGATE_EVIDENCE_NETWORK;
  if (enclosure->groups() != nullptr) evidence->limits = enclosure->groups()->in_force();
  for (size_t i = 0; i < addresses.parties().size(); ++i) {
    if (portrait->reached[i] != 0) continue;
    evidence->flags |= addresses.parties()[i] == Party::kGateway ? ISOGATE_EVIDENCE_REACHED_GATEWAY
                                                                 : ISOGATE_EVIDENCE_REACHED_METADATA;
  }
  return evidence;
}

}  // namespace isogate
