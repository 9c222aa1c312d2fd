#include "gateway/front/backends/select.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace isogate::front {
namespace {

Candidate backend(const std::string& name, uint32_t isolation, uint32_t locality) {
  Candidate candidate;
  candidate.name = name;
  candidate.hello_seen = true;
  candidate.state = BackendState::kUp;
  ipc::Probe probe;
  probe.verdict = ISOGATE_PROBE_AVAILABLE;
  probe.isolation = isolation;
  probe.locality = locality;
  probe.capabilities = ISOGATE_CAP_USER;
  candidate.probe = probe;
  return candidate;
}
Candidate local() { return backend("local", ISOGATE_ISOLATION_NONE, ISOGATE_LOCALITY_PROCESS); }
Candidate spaces() { return backend("namespace", ISOGATE_ISOLATION_NAMESPACE, ISOGATE_LOCALITY_HOST); }
Candidate docker() { return backend("docker", ISOGATE_ISOLATION_CONTAINER, ISOGATE_LOCALITY_DAEMON); }

using Change = std::function<void(Candidate&)>;
Candidate with(Candidate candidate, const Change& change) {
  change(candidate);
  return candidate;
}

std::vector<Candidate> all() { return {local(), spaces(), docker()}; }
Policy developer() { return {false, ISOGATE_ISOLATION_NONE, true}; }

SelectRequest named(std::string name) {
  SelectRequest request;
  request.backend = std::move(name);
  return request;
}
SelectRequest pinned(std::string name) {
  SelectRequest request;
  request.pinned = std::move(name);
  return request;
}

void expect_chosen(const Decision& decision, const std::string& name, uint32_t isolation) {
  ASSERT_TRUE(decision.chosen) << decision.message;
  EXPECT_EQ(*decision.chosen, name);
  EXPECT_EQ(decision.isolation, isolation);
  EXPECT_EQ(decision.refusal, Refusal::kNone);
  EXPECT_EQ(decision.message, "");
}

void expect_refused(const Decision& decision, Refusal refusal, const std::vector<std::string>& words) {
  EXPECT_FALSE(decision.chosen);
  EXPECT_EQ(decision.refusal, refusal) << decision.message;
  for (const std::string& word : words)
    EXPECT_NE(decision.message.find(word), std::string::npos) << decision.message;
  for (const CandidateVerdict& verdict : decision.verdicts) {
    EXPECT_FALSE(verdict.eligible);
    EXPECT_FALSE(verdict.reason.empty()) << verdict.name;
  }
}

TEST(Select, TakesTheFirstEligibleInTheOperatorsOrder) {
  expect_chosen(select(all(), developer(), {}), "local", ISOGATE_ISOLATION_NONE);
  expect_chosen(select({docker(), spaces(), local()}, developer(), {}), "docker",
                ISOGATE_ISOLATION_CONTAINER);
  Decision decision = select({docker(), spaces()}, {}, {});
  ASSERT_EQ(decision.verdicts.size(), 2u);
  EXPECT_TRUE(decision.verdicts[1].eligible);
  EXPECT_EQ(decision.verdicts[1].reason, "eligible; `docker` comes first");
}

TEST(Select, IsolationNoneNeedsAllowUnisolated) {
  expect_chosen(select(all(), {}, {}), "namespace", ISOGATE_ISOLATION_NAMESPACE);
  expect_refused(select({local()}, {}, {}), Refusal::kPolicy,
                 {"`local`", "isolation is none", "allow_unisolated"});
  expect_refused(select({local()}, {}, named("local")), Refusal::kPolicy, {"allow_unisolated"});
}

TEST(Select, RequireRemoteAdmitsOnlyOtherPlaces) {
  Policy remote{true, ISOGATE_ISOLATION_NONE, true};
  struct Row {
    uint32_t locality;
    bool admitted;
  };
  for (const Row& row : {Row{ISOGATE_LOCALITY_PROCESS, false},
                         {ISOGATE_LOCALITY_HOST, false},
                         {ISOGATE_LOCALITY_DAEMON, true},
                         {ISOGATE_LOCALITY_CLUSTER, true},
                         {ISOGATE_LOCALITY_GATEWAY, true}}) {
    Candidate candidate = backend("x", ISOGATE_ISOLATION_VM, row.locality);
    for (const SelectRequest& request : {SelectRequest{}, named("x"), pinned("x")}) {
      Decision decision = select({candidate}, remote, request);
      if (row.admitted)
        expect_chosen(decision, "x", ISOGATE_ISOLATION_VM);
      else
        expect_refused(decision, Refusal::kPolicy,
                       {"require_remote", std::string(locality_name(row.locality))});
    }
  }
}

TEST(Select, TheHigherFloorCounts) {
  for (uint32_t policy : {0u, 10u, 20u, 30u})
    for (uint32_t asked : {0u, 10u, 20u, 30u})
      for (uint32_t offered : {0u, 10u, 20u, 30u}) {
        SelectRequest request;
        request.min_isolation = asked;
        Decision decision =
            select({backend("x", offered, ISOGATE_LOCALITY_HOST)}, {false, policy, true}, request);
        EXPECT_EQ(decision.chosen.has_value(), offered >= policy && offered >= asked)
            << policy << " " << asked << " " << offered;
      }
  expect_refused(select({spaces()}, {false, ISOGATE_ISOLATION_VM, false}, {}), Refusal::kPolicy,
                 {"isolation is namespace", "below the vm", "min_isolation"});
}

// A retry does not change what no plugin promises.
TEST(Select, IsolationThatNoBackendCouldEverGiveIsUnsupported) {
  const auto best = [](Candidate c, uint32_t isolation) {
    c.best = isolation;
    return c;
  };
  const Candidate able = best(docker(), ISOGATE_ISOLATION_VM),
                  unable = best(docker(), ISOGATE_ISOLATION_CONTAINER);
  const auto down = [](Candidate c) {
    c.state = BackendState::kDown;
    c.probe.reset();
    return c;
  };
  const auto unprobed = [](Candidate c) {
    c.good = std::exchange(c.probe, std::nullopt);
    return c;
  };
  SelectRequest vm;
  vm.min_isolation = ISOGATE_ISOLATION_VM;
  struct Row {
    std::vector<Candidate> candidates;
    Refusal refusal;
  };
  for (const Row& row : {Row{{unable}, Refusal::kUnsupported},
                         {{down(unable)}, Refusal::kUnsupported},
                         {{unprobed(unable)}, Refusal::kUnsupported},
                         {{unable, best(spaces(), ISOGATE_ISOLATION_NAMESPACE)}, Refusal::kUnsupported},
                         {{unable, docker()}, Refusal::kPolicy},  // an unknown level may be enough
                         {{able, unable}, Refusal::kPolicy},      // the operator can repair or configure it
                         {{unable, down(able)}, Refusal::kUnavailable}}) {
    expect_refused(select(row.candidates, {}, vm), row.refusal, {"vm"});
    SelectRequest on = vm;
    on.backend = "docker";
    if (row.candidates.size() == 1) expect_refused(select(row.candidates, {}, on), row.refusal, {"vm"});
    // The operator can change their own min_isolation.
    EXPECT_NE(select(row.candidates, {false, ISOGATE_ISOLATION_VM, false}, vm).refusal,
              Refusal::kUnsupported);
  }
}

TEST(Select, ANamedBackendIsThatOneOrAnError) {
  expect_chosen(select(all(), developer(), named("docker")), "docker", ISOGATE_ISOLATION_CONTAINER);
  expect_refused(select(all(), developer(), named("dokcer")), Refusal::kNoSuchBackend,
                 {"`dokcer`", "`local`", "`docker`"});
  expect_refused(select(all(), developer(), named("")), Refusal::kNoSuchBackend, {});
  expect_refused(select({}, developer(), named("local")), Refusal::kNoSuchBackend, {"none is configured"});
  std::vector<Candidate> down = {local(), with(docker(), [](Candidate& c) {
                                   c.state = BackendState::kDown;
                                   c.reason = "its process ended by signal 9";
                                 })};
  expect_refused(select(down, developer(), named("docker")), Refusal::kUnavailable, {"`docker`", "signal 9"});
}

TEST(Select, SaysOnceThatABackendIsUnavailable) {
  const Candidate gone = with(docker(), [](Candidate& c) {
    c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE;
    c.probe->detail = "its probe failed: it hangs";
  });
  const Decision decision = select({gone}, developer(), {});
  EXPECT_EQ(decision.message,
            "no backend can be used: `docker`, it is unavailable: its probe failed: it hangs");
}

TEST(Select, ASandboxStaysWhereItsWorkspaceIs) {
  expect_chosen(select(all(), developer(), pinned("docker")), "docker", ISOGATE_ISOLATION_CONTAINER);
  Decision elsewhere = select({local(), spaces()}, developer(), pinned("docker"));
  expect_refused(elsewhere, Refusal::kPolicy, {"`docker`", "workspace", "no longer configured"});
  std::vector<Candidate> unavailable = {local(), with(docker(), [](Candidate& c) {
                                          c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE;
                                          c.probe->detail = "cannot connect to /run/docker.sock";
                                        })};
  expect_refused(select(unavailable, developer(), pinned("docker")), Refusal::kUnavailable,
                 {"holds the workspace", "docker.sock"});
}

TEST(Select, ANamedBackendThatIsNotThePinnedOneIsAnError) {
  SelectRequest request = pinned("docker");
  request.backend = "local";
  expect_refused(select(all(), developer(), request), Refusal::kElsewhere,
                 {"`docker`", "`local`", "?purge=true"});
  request.backend = "docker";
  expect_chosen(select(all(), developer(), request), "docker", ISOGATE_ISOLATION_CONTAINER);
}

TEST(Select, APinnedSandboxCountsWithTheIsolationItWasOpenedWith) {
  SelectRequest request = pinned("docker");
  request.pinned_isolation = ISOGATE_ISOLATION_NAMESPACE;
  expect_chosen(select(all(), {}, request), "docker", ISOGATE_ISOLATION_NAMESPACE);
  request.min_isolation = ISOGATE_ISOLATION_CONTAINER;
  expect_refused(select(all(), {}, request), Refusal::kPolicy, {"namespace", "opened so"});
  request.min_isolation = std::nullopt;
  request.pinned_isolation = ISOGATE_ISOLATION_VM;  // the probe has a newer result
  expect_chosen(select(all(), {}, request), "docker", ISOGATE_ISOLATION_CONTAINER);
  request.pinned_isolation = 25;
  expect_refused(select(all(), {}, request), Refusal::kPolicy, {"not known"});
}

TEST(Select, ADegradedBackendServesWithWhatItsProbeSays) {
  Candidate degraded = with(docker(), [](Candidate& c) {
    c.probe->verdict = ISOGATE_PROBE_DEGRADED;
    c.probe->isolation = ISOGATE_ISOLATION_NAMESPACE;
    c.probe->detail = "no seccomp profile";
  });
  Decision decision = select({degraded}, {}, {});
  expect_chosen(decision, "docker", ISOGATE_ISOLATION_NAMESPACE);
  EXPECT_EQ(decision.verdicts[0].reason, "chosen (degraded: no seccomp profile)");
  expect_refused(select({degraded}, {false, ISOGATE_ISOLATION_CONTAINER, false}, {}), Refusal::kPolicy,
                 {"no seccomp profile"});
}

TEST(Select, MissingCapabilitiesAreNamed) {
  SelectRequest request;
  request.capabilities = ISOGATE_CAP_PTY | ISOGATE_CAP_USER | ISOGATE_CAP_LIMIT_MEMORY;
  expect_refused(select({docker()}, {}, request), Refusal::kUnsupported, {"lacks pty, limit_memory"});
  request.capabilities = ISOGATE_CAP_USER;
  expect_chosen(select({docker()}, {}, request), "docker", ISOGATE_ISOLATION_CONTAINER);
  request.capabilities = 1ull << 60;
  expect_refused(select({docker()}, {}, request), Refusal::kUnsupported, {"not known"});
}

// Whatever is configured, and whatever a request needs: it runs where a request without needs would, or not
// at all.
TEST(Select, WhatARequestNeedsNeverChoosesAnotherBackend) {
  const auto able = [](Candidate c) {
    c.probe->capabilities |= ISOGATE_CAP_PTY | ISOGATE_CAP_LIMIT_MEMORY;
    return c;
  };
  const auto unable = [](Candidate c) {
    c.probe->capabilities = 0;
    return c;
  };
  const Candidate crashed = with(docker(), [](Candidate& c) { c.state = BackendState::kDown; });
  const Candidate gone = with(docker(), [](Candidate& c) { c.state = BackendState::kFailed; });
  const Candidate failed = with(gone, [](Candidate& c) { c.good = c.probe; });
  const Candidate probed_away =
      with(docker(), [](Candidate& c) { c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE; });
  struct Row {
    const char* what;
    std::vector<Candidate> candidates;
    std::string lacking;  // the chosen backend, which cannot do it; empty: it can, or none is chosen
  };
  const std::vector<Row> rows = {
      {"less isolation behind", {unable(docker()), able(local())}, "docker"},
      {"more isolation behind", {unable(spaces()), able(docker())}, "namespace"},
      {"the same isolation behind", {unable(docker()), able(docker())}, "docker"},
      {"nothing behind", {unable(docker())}, "docker"},
      {"able, and first", {able(docker()), unable(local())}, ""},
      {"no isolation first", {unable(local()), able(spaces())}, "local"},
      {"two that cannot", {unable(docker()), unable(spaces()), able(local())}, "docker"},
      {"behind one that failed after it had served", {failed, unable(spaces()), able(local())}, ""},
      {"behind one that is missing", {gone, unable(spaces()), able(local())}, "namespace"},
      {"behind one that was never there", {probed_away, unable(spaces()), able(local())}, "namespace"},
      {"behind one that crashed", {crashed, unable(spaces()), able(docker())}, ""},
      {"behind one that crashed, as good", {crashed, unable(docker()), able(local())}, "docker"},
      {"all crashed", {crashed}, ""},
  };
  for (const bool fallback : {false, true}) {
    for (const bool unisolated : {true, false}) {
      const Policy policy{false, ISOGATE_ISOLATION_NONE, unisolated, fallback};
      for (const Row& row : rows) {
        SCOPED_TRACE(std::string(row.what) + (fallback ? ", fallback" : "") + (unisolated ? ", none" : ""));
        const Decision without = select(row.candidates, policy, {});
        for (const uint64_t needed :
             {ISOGATE_CAP_PTY, ISOGATE_CAP_USER, ISOGATE_CAP_LIMIT_MEMORY, ISOGATE_CAP_LIMIT_CPU}) {
          SelectRequest request;
          request.capabilities = needed;
          const Decision decision = select(row.candidates, policy, request);
          if (decision.chosen) {
            EXPECT_EQ(decision.chosen, without.chosen);
            EXPECT_EQ(decision.isolation, without.isolation);
          } else if (without.chosen) {
            expect_refused(
                decision, Refusal::kUnsupported,
                {"`" + *without.chosen + "`, it lacks " + std::string(capability_names(needed)[0])});
          }
        }
        SelectRequest terminal;
        terminal.capabilities = ISOGATE_CAP_PTY;
        const Decision decision = select(row.candidates, policy, terminal);
        if (!row.lacking.empty() && !fallback && unisolated)
          expect_refused(decision, Refusal::kUnsupported, {"`" + row.lacking + "`, it lacks pty"});
      }
    }
  }
  // What the policy excludes was never its choice.
  SelectRequest request;
  request.capabilities = ISOGATE_CAP_PTY;
  request.min_isolation = ISOGATE_ISOLATION_CONTAINER;
  expect_chosen(select({spaces(), able(docker())}, {}, request), "docker", ISOGATE_ISOLATION_CONTAINER);
}

TEST(Select, SampledLimitsServeOnlyWhereTheyAreWrittenDown) {
  const std::pair<uint64_t, uint64_t> pairs[] = {{ISOGATE_CAP_LIMIT_MEMORY, ISOGATE_CAP_LIMIT_MEMORY_SAMPLED},
                                                 {ISOGATE_CAP_LIMIT_CPU, ISOGATE_CAP_LIMIT_CPU_SAMPLED},
                                                 {ISOGATE_CAP_LIMIT_PIDS, ISOGATE_CAP_LIMIT_PIDS_SAMPLED}};
  for (const auto& [enforced, sampled] : pairs) {
    SelectRequest request;
    request.capabilities = enforced;
    Candidate samples = with(docker(), [&, bit = sampled](Candidate& c) { c.probe->capabilities |= bit; });
    const std::string name(capability_names(enforced)[0]);
    expect_refused(select({samples}, {}, request), Refusal::kUnsupported,
                   {"lacks " + name, "write limits.exec: sampled"});
    samples.wanted.exec_sampled = true;
    expect_chosen(select({samples}, {}, request), "docker", ISOGATE_ISOLATION_CONTAINER);
    request.capabilities |= ISOGATE_CAP_PTY;
    expect_refused(select({samples}, {}, request), Refusal::kUnsupported, {"lacks pty"});
    Candidate neither = docker();
    neither.wanted.exec_sampled = true;
    expect_refused(select({neither}, {}, request), Refusal::kUnsupported, {"lacks pty, " + name});
  }
}

TEST(Select, AnOutageThatPassesNeverChoosesLessIsolation) {
  const std::vector<std::pair<const char*, Change>> outages = {
      {"a breaker", [](Candidate& c) { c.breaker_open = true; }},
      {"a crash", [](Candidate& c) { c.state = BackendState::kDown; }},
      {"many crashes", [](Candidate& c) { c.state = BackendState::kQuarantined; }},
      {"a start", [](Candidate& c) { c.state = BackendState::kStarting; }},
      {"a lost engine",
       [](Candidate& c) {
         c.good = c.probe;
         c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE;
       }},
      {"a lost engine, with settings that were changed meanwhile",
       [](Candidate& c) {
         c.seen = c.probe->isolation;
         c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE;
       }},
      {"a start that failed, with settings that were changed meanwhile",
       [](Candidate& c) {
         c.seen = c.probe->isolation;
         c.probe.reset();
         c.state = BackendState::kFailed;
       }},
  };
  for (const auto& [what, outage] : outages) {
    SCOPED_TRACE(what);
    const Candidate out = with(docker(), outage);
    expect_refused(select({out, spaces(), local()}, developer(), {}), Refusal::kUnavailable,
                   {"less than `docker`", "fallback: allowed"});
    Candidate other = docker();
    other.name = "podman";
    expect_chosen(select({out, local(), other}, developer(), {}), "podman", ISOGATE_ISOLATION_CONTAINER);
    Policy relaxed = developer();
    relaxed.fallback_allowed = true;
    expect_chosen(select({out, local()}, relaxed, {}), "local", ISOGATE_ISOLATION_NONE);
    expect_chosen(select({local(), out}, developer(), {}), "local", ISOGATE_ISOLATION_NONE);
  }
}

TEST(Select, WhatIsNotUpIsNotEligible) {
  struct Row {
    const char* word;
    Change change;
    Refusal refusal;
    bool passes = false;  // by itself
  };
  const std::vector<Row> rows = {
      {"is starting", [](Candidate& c) { c.state = BackendState::kStarting; }, Refusal::kUnavailable, true},
      {"is down: why", [](Candidate& c) { c.state = BackendState::kDown, c.reason = "why"; },
       Refusal::kUnavailable, true},
      {"is down: absent", [](Candidate& c) { c.state = BackendState::kFailed, c.reason = "absent"; },
       Refusal::kPolicy},
      {"quarantined", [](Candidate& c) { c.state = BackendState::kQuarantined; }, Refusal::kPolicy, true},
      {"still being loaded", [](Candidate& c) { c.hello_seen = false; }, Refusal::kUnavailable, true},
      {"not been probed", [](Candidate& c) { c.probe.reset(); }, Refusal::kUnavailable, true},
      {"circuit breaker is open: 3 failures",
       [](Candidate& c) { c.breaker_open = true, c.breaker_reason = "3 failures"; }, Refusal::kUnavailable,
       true},
      {"unavailable: no socket",
       [](Candidate& c) { c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE, c.probe->detail = "no socket"; },
       Refusal::kUnavailable},
      {"verdict that is not known, 0", [](Candidate& c) { c.probe->verdict = 0; }, Refusal::kUnavailable,
       true},
      {"verdict that is not known, 4", [](Candidate& c) { c.probe->verdict = 4; }, Refusal::kUnavailable,
       true},
      {"no longer in the configuration", [](Candidate& c) { c.configured = false; }, Refusal::kPolicy},
      {"isolation level is not known, 15", [](Candidate& c) { c.probe->isolation = 15; }, Refusal::kPolicy},
      {"isolation level is not known, 4294967295", [](Candidate& c) { c.probe->isolation = UINT32_MAX; },
       Refusal::kPolicy},
      {"locality is not known, 0", [](Candidate& c) { c.probe->locality = 0; }, Refusal::kPolicy},
      {"locality is not known, 6", [](Candidate& c) { c.probe->locality = 6; }, Refusal::kPolicy},
  };
  for (const Row& row : rows) {
    Candidate bad = with(docker(), row.change);
    expect_refused(select({bad}, developer(), {}), row.refusal, {row.word});
    expect_refused(select({bad}, developer(), pinned("docker")), row.refusal, {row.word});
    const Decision decision = select({bad, local()}, developer(), {});
    if (row.passes)
      expect_refused(decision, Refusal::kUnavailable, {row.word});
    else
      expect_chosen(decision, "local", ISOGATE_ISOLATION_NONE);
  }
}

TEST(Select, WhatIsOpenIsServedWhateverProbeAndBreakerSay) {
  Candidate busy = with(docker(), [](Candidate& c) {
    c.good = c.probe;
    c.probe = ipc::Probe{};
    c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE;
    c.breaker_open = true;
  });
  SelectRequest request = pinned("docker");
  expect_refused(select({busy}, {}, request), Refusal::kUnavailable,
                 {"it is unavailable", "breaker is open"});
  request.open = true;
  expect_chosen(select({busy}, {}, request), "docker", ISOGATE_ISOLATION_CONTAINER);
  request.min_isolation = ISOGATE_ISOLATION_VM;
  expect_refused(select({busy}, {}, request), Refusal::kPolicy, {"below the vm"});
  request.min_isolation.reset();
  busy.state = BackendState::kDown;
  expect_refused(select({busy}, {}, request), Refusal::kUnavailable, {"is down"});
}

TEST(Select, AnUnknownFloorExcludesEverything) {
  expect_refused(select(all(), {false, 15, true}, {}), Refusal::kPolicy, {"asked for is not known, 15"});
  SelectRequest request;
  request.min_isolation = 40;
  expect_refused(select({backend("x", 40, ISOGATE_LOCALITY_HOST)}, developer(), request), Refusal::kPolicy,
                 {});
  request.min_isolation = 5;
  expect_refused(select(all(), developer(), request), Refusal::kPolicy, {"asked for is not known, 5"});
}

TEST(Select, EveryReasonIsGiven) {
  Candidate bad = with(local(), [](Candidate& c) {
    c.state = BackendState::kDown;
    c.reason = "it crashed";
  });
  Policy strict{true, ISOGATE_ISOLATION_CONTAINER, false};
  SelectRequest request;
  request.capabilities = ISOGATE_CAP_PTY;
  expect_refused(select({bad, spaces()}, strict, request), Refusal::kPolicy,
                 {"it crashed", "require_remote", "below the container", "allow_unisolated", "pty", "`local`",
                  "`namespace`"});
}

TEST(Select, TheRefusalIsTheMostHopefulOne) {
  Candidate down = with(docker(), [](Candidate& c) { c.state = BackendState::kDown; });
  expect_refused(select({local(), down}, {}, {}), Refusal::kUnavailable, {});
  SelectRequest request;
  request.capabilities = ISOGATE_CAP_PTY;
  expect_refused(select({local(), docker()}, {}, request), Refusal::kUnsupported, {});
}

TEST(Select, NoBackendAtAllIsAnErrorThatSaysSo) {
  expect_refused(select({}, developer(), {}), Refusal::kPolicy, {"no backend is configured"});
}

TEST(Select, APluginsWordsCannotForgeALine) {
  Candidate bad = with(docker(), [](Candidate& c) {
    c.probe->verdict = ISOGATE_PROBE_UNAVAILABLE;
    c.probe->detail = "a\nb\x1b[2J" + std::string(5000, 'x');
  });
  Decision decision = select({bad}, developer(), {});
  EXPECT_EQ(decision.message.find('\n'), std::string::npos);
  EXPECT_EQ(decision.message.find('\x1b'), std::string::npos);
  EXPECT_LT(decision.message.size(), 1200u);
}

TEST(Names, OfIsolationAndLocalityGoBothWays) {
  for (const char* name : {"none", "namespace", "container", "vm"}) {
    auto value = parse_isolation(name);
    ASSERT_TRUE(value);
    EXPECT_EQ(isolation_name(*value), name);
  }
  uint32_t locality = ISOGATE_LOCALITY_PROCESS;
  for (const char* name : {"process", "host", "daemon", "cluster", "gateway"})
    EXPECT_EQ(locality_name(locality++), name);
  for (const char* bad : {"", "None", "unknown", "vm ", "0"}) {
    EXPECT_FALSE(parse_isolation(bad));
  }
  EXPECT_EQ(isolation_name(15), "unknown");
  EXPECT_EQ(locality_name(0), "unknown");
}

TEST(Names, OfCapabilitiesAreOnePerBit) {
  uint64_t seen = 0;
  for (const auto& [bit, name] : capability_table()) {
    EXPECT_EQ(bit & (bit - 1), 0u);
    EXPECT_FALSE(seen & bit);
    seen |= bit;
    EXPECT_EQ(capability_names(bit), std::vector<std::string_view>{name});
  }
  EXPECT_EQ(seen, (ISOGATE_CAP_KEPT_EXECS << 1) - 1) << "every capability of the ABI has its name";
  EXPECT_TRUE(capability_names(1ull << 63).empty());
}

TEST(Select, WhatEverySandboxIsToHaveMustBeEnforceable) {
  const auto limited = [](Candidate candidate, bool best_effort) {
    candidate.wanted.limits.set(ISOGATE_LIMIT_MEMORY_BYTES, 1 << 20);
    candidate.wanted.limits.set(ISOGATE_LIMIT_DISK_BYTES, 1 << 20);
    candidate.wanted.best_effort = best_effort;
    return candidate;
  };
  expect_refused(select({limited(spaces(), false)}, {}, {}), Refusal::kPolicy,
                 {"it cannot limit memory_mb, disk_mb: remove it or write limits.mode: best_effort"});
  expect_chosen(select({limited(spaces(), true)}, {}, {}), "namespace", ISOGATE_ISOLATION_NAMESPACE);
  const Candidate engine = with(limited(docker(), false), [](Candidate& candidate) {
    candidate.probe->capabilities |= ISOGATE_CAP_SANDBOX_LIMIT_MEMORY;
  });
  expect_refused(select({engine}, {}, {}), Refusal::kPolicy, {"it cannot limit disk_mb:"});
  const Candidate of_execs = with(limited(spaces(), false), [](Candidate& candidate) {
    candidate.probe->capabilities |= ISOGATE_CAP_LIMIT_MEMORY;
  });
  expect_refused(select({of_execs}, {}, {}), Refusal::kPolicy, {"it cannot limit memory_mb, disk_mb:"});
  const Candidate able = with(limited(spaces(), false), [](Candidate& candidate) {
    candidate.probe->capabilities |= ISOGATE_CAP_SANDBOX_LIMIT_MEMORY | ISOGATE_CAP_SANDBOX_LIMIT_DISK;
  });
  expect_chosen(select({able}, {}, {}), "namespace", ISOGATE_ISOLATION_NAMESPACE);
}

TEST(Select, AnEgressThatEveryOpenWouldRefuseIsNotEligible) {
  struct Row {
    uint32_t egress;
    bool denies;          // the backend claims ISOGATE_CAP_EGRESS_DENY
    const char* refusal;  // "": it is chosen
  };
  for (const Row& row : {Row{ISOGATE_EGRESS_UNSET, false, ""},
                         {ISOGATE_EGRESS_UNSET, true, ""},
                         {ISOGATE_EGRESS_DENY, false, "remove egress: deny"},
                         {ISOGATE_EGRESS_DENY, true, ""},
                         {ISOGATE_EGRESS_PROXY, false, "no egress proxy: write egress: allow"},
                         {ISOGATE_EGRESS_PROXY, true, "no egress proxy: write egress: deny"},
                         {ISOGATE_EGRESS_ALLOW, false, ""},
                         {ISOGATE_EGRESS_ALLOW, true, "remove egress: allow"},
                         {4, false, "egress is not known, 4"},
                         {4, true, "egress is not known, 4"}}) {
    const Candidate candidate = with(docker(), [&row](Candidate& c) {
      c.wanted.egress = row.egress;
      c.probe->capabilities = row.denies ? ISOGATE_CAP_EGRESS_DENY : 0;
    });
    SCOPED_TRACE(std::to_string(row.egress) + (row.denies ? ", denies" : ""));
    for (const SelectRequest& request : {SelectRequest{}, named("docker"), pinned("docker")}) {
      const Decision decision = select({candidate, local()}, {}, request);
      if (*row.refusal == '\0')
        expect_chosen(decision, "docker", ISOGATE_ISOLATION_CONTAINER);
      else
        expect_refused(decision, Refusal::kPolicy, {row.refusal});
    }
  }
}

}  // namespace
}  // namespace isogate::front
