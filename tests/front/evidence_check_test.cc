#include "gateway/front/sandboxes/evidence_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace isogate::front {
namespace {

const std::string kThisBoot = "4e2b6a52-9a51-4f39-8c8b-0d6a5d2c7f10",
                  kOtherBoot = "0a6d1f3c-5a27-4b1e-9a44-7d1f2b3c4d5e";
const Namespaces kHost{101, 102, 103, 104, 105, kThisBoot};

const Limits kLimits = [] {
  Limits limits;
  for (const LimitKind& kind : kLimitKinds) limits.set(kind.id, 512 * kind.scale);
  return limits;
}();

void limit(isogate_evidence& evidence, uint32_t id, uint64_t value) {
  Limits limits = Limits::of(evidence);
  limits.set(id, value);
  limits.put(evidence);
}

void boot(isogate_evidence& evidence, std::string_view id) {
  std::memset(evidence.boot_id, 0, sizeof evidence.boot_id);
  id.copy(evidence.boot_id, sizeof evidence.boot_id);
}

isogate_evidence sound() {
  isogate_evidence e{};
  e.struct_size = sizeof e;
  e.flags = ISOGATE_EVIDENCE_MEASURED | ISOGATE_EVIDENCE_NETWORK;
  e.uid = e.gid = 10007;
  e.no_new_privs = 1;
  e.seccomp_mode = 2;
  e.ns_mnt = 201, e.ns_pid = 202, e.ns_net = 203, e.ns_ipc = 204, e.ns_uts = 205;
  kLimits.put(e);
  return e;
}

Claim strong() {
  Claim claim;
  claim.isolation = ISOGATE_ISOLATION_NAMESPACE;
  claim.locality = ISOGATE_LOCALITY_HOST;
  claim.capabilities = ISOGATE_CAP_EVIDENCE | ISOGATE_CAP_UID_PER_SANDBOX | ISOGATE_CAP_EGRESS_DENY;
  claim.uid = 10007;
  claim.egress = ISOGATE_EGRESS_DENY;
  claim.limits = kLimits;
  claim.started_by_root = true;
  return claim;
}

struct Row {
  const char* says;  // part of the mismatch; empty: there is none
  std::function<void(isogate_evidence&, Claim&)> change;
};

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    isogate_evidence evidence = sound();
    Claim claim = strong();
    row.change(evidence, claim);
    std::optional<std::string> mismatch = evidence_mismatch(evidence, claim, kHost);
    if (*row.says == '\0') {
      EXPECT_FALSE(mismatch) << *mismatch;
      continue;
    }
    ASSERT_TRUE(mismatch) << row.says;
    EXPECT_NE(mismatch->find(row.says), std::string::npos) << row.says << " in: " << *mismatch;
  }
}

using E = isogate_evidence;
using C = Claim;

TEST(Evidence, OfASoundSandboxIsAccepted) {
  check({{"", [](E&, C&) {}},
         {"", [](E&, C& c) { c.isolation = ISOGATE_ISOLATION_CONTAINER; }},
         {"", [](E& e, C& c) { c.isolation = ISOGATE_ISOLATION_VM, boot(e, kOtherBoot); }}});
}

TEST(Evidence, EachNamespaceMustBeItsOwn) {
  check({{"mnt namespace is the host's", [](E& e, C&) { e.ns_mnt = kHost.mnt; }},
         {"pid namespace is the host's", [](E& e, C&) { e.ns_pid = kHost.pid; }},
         {"net namespace is the host's", [](E& e, C&) { e.ns_net = kHost.net; }},
         {"ipc namespace is the host's", [](E& e, C&) { e.ns_ipc = kHost.ipc; }},
         {"uts namespace is the host's", [](E& e, C&) { e.ns_uts = kHost.uts; }},
         {"mnt namespace could not be compared", [](E& e, C&) { e.ns_mnt = 0; }},
         {"uts namespace could not be compared", [](E& e, C&) { e.ns_uts = 0; }},
         {"pid namespace is the host's", [](E& e, C&) { e.ns_pid = 4026531836; }},
         {"ipc namespace is the host's", [](E& e, C&) { e.ns_ipc = 4026531839; }},
         {"uts namespace is the host's", [](E& e, C&) { e.ns_uts = 4026531838; }}});
}

TEST(Evidence, OnAnotherKernelOnlyTheInitialNamespacesTell) {
  for (uint32_t locality : {ISOGATE_LOCALITY_CLUSTER, ISOGATE_LOCALITY_GATEWAY}) {
    check(
        {{"", [=](E& e, C& c) { c.locality = locality, e.ns_mnt = kHost.mnt; }},
         {"pid namespace is the host's", [=](E& e, C& c) { c.locality = locality, e.ns_pid = 4026531836; }},
         {"net namespace could not be compared", [=](E& e, C& c) { c.locality = locality, e.ns_net = 0; }}});
  }
  for (uint32_t locality : {0u, ISOGATE_LOCALITY_PROCESS, ISOGATE_LOCALITY_HOST, ISOGATE_LOCALITY_DAEMON, 9u})
    check(
        {{"mnt namespace is the host's", [=](E& e, C& c) { c.locality = locality, e.ns_mnt = kHost.mnt; }}});
}

TEST(Evidence, AVirtualMachineOnThisMachineHasAnotherKernel) {
  for (uint32_t locality : {ISOGATE_LOCALITY_PROCESS, ISOGATE_LOCALITY_HOST, ISOGATE_LOCALITY_DAEMON}) {
    const auto vm = [=](E& e, C& c, std::string_view id) {
      c.isolation = ISOGATE_ISOLATION_VM, c.locality = locality;
      boot(e, id);
      // Those of the guest's first process.
      e.ns_pid = 4026531836, e.ns_ipc = 4026531839, e.ns_uts = 4026531838, e.ns_net = kHost.net;
    };
    check({{"", [=](E& e, C& c) { vm(e, c, kOtherBoot); }},
           {"was not measured", [=](E& e, C& c) { vm(e, c, ""); }},
           {"runs on this machine's kernel", [=](E& e, C& c) { vm(e, c, kThisBoot); }},
           {"is malformed", [=](E& e, C& c) { vm(e, c, kOtherBoot.substr(1)); }},
           {"is malformed", [=](E& e, C& c) { vm(e, c, kOtherBoot + "\n"); }},
           {"is malformed", [=](E& e, C& c) { vm(e, c, std::string(40, 'a')); }},
           {"is malformed", [=](E& e, C& c) { vm(e, c, "4E2B6A52-9A51-4F39-8C8B-0D6A5D2C7F10"); }},
           {"bounding capabilities", [=](E& e, C& c) { vm(e, c, kOtherBoot), e.cap_bounding = 1; }}});
  }
}

TEST(Evidence, NothingIsAnotherKernelThanAnUnknownOne) {
  isogate_evidence evidence = sound();
  Claim claim = strong();
  claim.isolation = ISOGATE_ISOLATION_VM;
  boot(evidence, kOtherBoot);
  Namespaces host = kHost;
  EXPECT_FALSE(evidence_mismatch(evidence, claim, host));
  host.boot_id.clear();
  EXPECT_NE(evidence_mismatch(evidence, claim, host).value_or("").find("of this machine is not known"),
            std::string::npos);
}

// A container may have another file there, and a cluster's node is never this machine.
TEST(Evidence, ABootIdStandsForNoNamespaceElsewhere) {
  check({{"pid namespace is the host's",
          [](E& e, C& c) {
            c.isolation = ISOGATE_ISOLATION_CONTAINER, e.ns_pid = kHost.pid, boot(e, kOtherBoot);
          }},
         {"pid namespace is the host's", [](E& e, C& c) {
            c.isolation = ISOGATE_ISOLATION_VM, c.locality = ISOGATE_LOCALITY_CLUSTER;
            e.ns_pid = 4026531836, boot(e, kOtherBoot);
          }}});
}

TEST(Evidence, UnknownHostNamespacesCompareWithNothing) {
  EXPECT_TRUE(evidence_mismatch(sound(), strong(), Namespaces{}));
}

TEST(Evidence, NoPrivilegeMayBeLeft) {
  check({{"inheritable capabilities", [](E& e, C&) { e.cap_inheritable = 1; }},
         {"permitted capabilities", [](E& e, C&) { e.cap_permitted = 1ull << 40; }},
         {"effective capabilities", [](E& e, C&) { e.cap_effective = 1; }},
         {"bounding capabilities", [](E& e, C&) { e.cap_bounding = 1; }},
         {"ambient capabilities", [](E& e, C&) { e.cap_ambient = 1; }},
         {"no_new_privs", [](E& e, C&) { e.no_new_privs = 0; }},
         {"seccomp", [](E& e, C&) { e.seccomp_mode = 0; }},
         {"seccomp", [](E& e, C&) { e.seccomp_mode = 1; }}});
}

TEST(Evidence, DeniedEgressMustBeTriedAndFail) {
  check(
      {{"was not tried", [](E& e, C&) { e.flags = ISOGATE_EVIDENCE_MEASURED; }},
       {"reaches this gateway", [](E& e, C&) { e.flags |= ISOGATE_EVIDENCE_REACHED_GATEWAY; }},
       {"metadata", [](E& e, C&) { e.flags |= ISOGATE_EVIDENCE_REACHED_METADATA; }},
       {"metadata",
        [](E& e, C& c) { c.egress = ISOGATE_EGRESS_PROXY, e.flags |= ISOGATE_EVIDENCE_REACHED_METADATA; }},
       {"", [](E& e, C& c) { c.egress = ISOGATE_EGRESS_PROXY, e.flags |= ISOGATE_EVIDENCE_REACHED_GATEWAY; }},
       {"",
        [](E& e, C& c) { c.egress = ISOGATE_EGRESS_ALLOW, e.flags |= ISOGATE_EVIDENCE_REACHED_METADATA; }},
       {"", [](E& e, C& c) { c.egress = ISOGATE_EGRESS_UNSET, e.flags = ISOGATE_EVIDENCE_MEASURED; }},
       {"was not tried", [](E& e, C& c) {
          c.isolation = ISOGATE_ISOLATION_NONE, c.limits = {}, e.flags = ISOGATE_EVIDENCE_MEASURED;
        }}});
}

TEST(Evidence, AUidPerSandboxIsTheOneTheBackendNamed) {
  check({{"run as uid 10008, its backend says 10007", [](E& e, C&) { e.uid = 10008; }},
         {"run as uid 0", [](E& e, C&) { e.uid = 0; }},
         {"run as uid 0", [](E& e, C& c) { e.uid = c.uid = 0; }},
         {"names none", [](E&, C& c) { c.uid = UINT32_MAX; }},
         {"run as uid 0", [](E& e, C& c) { c.isolation = ISOGATE_ISOLATION_NONE, e.uid = 0; }},
         {"", [](E& e, C& c) { c.started_by_root = false, e.uid = 1000; }},
         {"", [](E& e, C& c) { c.capabilities &= ~ISOGATE_CAP_UID_PER_SANDBOX, e.uid = 1000; }}});
}

TEST(Evidence, ALimitThatWasAskedForIsInForce) {
  for (const LimitKind& kind : kLimitKinds) {
    const uint64_t asked = kLimits.get(kind.id);
    const std::string of = std::string(kind.name) + " of " + std::to_string(asked) + " is ";
    const std::string missing = of + "not in force", more = of + "in force as " + std::to_string(asked + 1);
    check(
        {{missing.c_str(), [&](E& e, C&) { limit(e, kind.id, 0); }},
         {more.c_str(), [&](E& e, C&) { limit(e, kind.id, asked + 1); }},
         {"", [&](E& e, C&) { limit(e, kind.id, asked - 1); }},
         {missing.c_str(), [&](E& e, C& c) { c.isolation = ISOGATE_ISOLATION_NONE, limit(e, kind.id, 0); }}});
  }
  check({{"", [](E& e, C& c) { e.limit_count = 0, c.limits = {}; }},
         {"", [](E& e, C& c) { e.limit_count = 0, c.limits_best_effort = true; }}});
}

TEST(Evidence, WhatWasNotMeasuredProvesNoIsolation) {
  for (uint32_t isolation : {ISOGATE_ISOLATION_NAMESPACE, ISOGATE_ISOLATION_CONTAINER, ISOGATE_ISOLATION_VM})
    check(
        {{"not measured", [=](E& e, C& c) { e = {}, c.isolation = isolation; }},
         {"not measured", [=](E& e, C& c) { e.flags = ISOGATE_EVIDENCE_NETWORK, c.isolation = isolation; }}});
}

TEST(Evidence, AnUnknownLevelIsNeverGoodEnough) {
  for (uint32_t isolation : {1u, 15u, 31u, UINT32_MAX})
    check({{"isolation level is not known", [=](E&, C& c) { c.isolation = isolation; }}});
}

TEST(Evidence, NoIsolationClaimsNothing) {
  Claim none;
  EXPECT_FALSE(evidence_mismatch(isogate_evidence{}, none, kHost));
  none.capabilities = ISOGATE_CAP_EVIDENCE;
  std::optional<std::string> mismatch = evidence_mismatch(isogate_evidence{}, none, kHost);
  ASSERT_TRUE(mismatch);
  EXPECT_NE(mismatch->find("nothing was measured"), std::string::npos);
}

TEST(Evidence, EveryMismatchIsNamed) {
  isogate_evidence evidence = sound();
  evidence.ns_net = kHost.net;
  evidence.seccomp_mode = 0;
  std::optional<std::string> mismatch = evidence_mismatch(evidence, strong(), kHost);
  ASSERT_TRUE(mismatch);
  EXPECT_NE(mismatch->find("net namespace"), std::string::npos);
  EXPECT_NE(mismatch->find("; it runs under no seccomp filter"), std::string::npos);
}

TEST(Evidence, OwnNamespacesAreKnown) {
  Result<Namespaces> own = own_namespaces();
  ASSERT_TRUE(own.ok());
  for (uint64_t inode : {own->mnt, own->pid, own->net, own->ipc, own->uts}) EXPECT_NE(inode, 0u);
  EXPECT_EQ(own->boot_id.size(), kThisBoot.size()) << own->boot_id;
}

TEST(Ports, AreOpenedOnlyInANetworkMeasuredAsAnother) {
  using Change = std::function<void(isogate_evidence&, Claim&, Namespaces & host)>;
  const auto shares = [](auto& e, auto& c, uint32_t isolation, std::string_view boot_id) {
    c.isolation = isolation;
    e.ns_net = kHost.net, boot(e, boot_id);
  };
  const std::vector<std::pair<const char*, Change>> rows = {
      {"", [](auto&, auto&, auto&) {}},
      {"not measured", [](auto& e, auto&, auto&) { e.flags &= ~ISOGATE_EVIDENCE_MEASURED; }},
      {"not measured", [](auto& e, auto&, auto&) { e.ns_net = 0; }},
      {"shares this gateway's", [](auto& e, auto&, auto&) { e.ns_net = kHost.net; }},
      {"could not be compared", [](auto&, auto&, auto& host) { host.net = 0; }},
      {"reaches a listener", [](auto& e, auto&, auto&) { e.flags |= ISOGATE_EVIDENCE_REACHED_GATEWAY; }},
      {"", [](auto&, auto& c, auto&) { c.locality = ISOGATE_LOCALITY_CLUSTER; }},
      {"",
       [](auto& e, auto& c, auto&) {  // the same number on another kernel
         c.locality = ISOGATE_LOCALITY_CLUSTER;
         e.ns_net = kHost.net;
       }},
      {"not tried",
       [](auto& e, auto& c, auto&) {
         c.locality = ISOGATE_LOCALITY_GATEWAY;
         e.flags &= ~ISOGATE_EVIDENCE_NETWORK;
       }},
      {"", [&](auto& e, auto& c, auto&) { shares(e, c, ISOGATE_ISOLATION_VM, kOtherBoot); }},
      {"shares this gateway's",
       [&](auto& e, auto& c, auto&) { shares(e, c, ISOGATE_ISOLATION_VM, kThisBoot); }},
      {"shares this gateway's",  // its image may have another file there
       [&](auto& e, auto& c, auto&) { shares(e, c, ISOGATE_ISOLATION_CONTAINER, kOtherBoot); }},
      {"shares this gateway's",
       [&](auto& e, auto& c, auto&) { shares(e, c, ISOGATE_ISOLATION_NONE, kOtherBoot); }},
      {"not tried",
       [&](auto& e, auto& c, auto&) {
         shares(e, c, ISOGATE_ISOLATION_VM, kOtherBoot);
         e.flags &= ~ISOGATE_EVIDENCE_NETWORK;
       }},
  };
  for (const auto& [says, change] : rows) {
    isogate_evidence evidence = sound();
    Claim claim = strong();
    Namespaces host = kHost;
    change(evidence, claim, host);
    const auto obstacle = ports_obstacle(evidence, claim, host);
    EXPECT_EQ(obstacle.has_value(), *says != '\0') << says;
    EXPECT_NE(obstacle.value_or("").find(says), std::string::npos) << obstacle.value_or("");
  }
}

}  // namespace
}  // namespace isogate::front
