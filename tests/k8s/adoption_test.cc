// When a pod is re-attached, when it is not, and what is reported then.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "gateway/base/budgets.h"
#include "plugins/k8s/pod/measured_pod.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/renewals.h"
#include "tests/k8s/on_fake.h"

namespace isogate::k8s {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr uint32_t kAttached = ISOGATE_SANDBOX_ATTACHED, kFresh = ISOGATE_SANDBOX_FRESH,
                   kRuns = ISOGATE_SANDBOX_RUNS;

class K8sAdoption : public OnFake {
 protected:
  std::string uid() const { return api_.one("pods").at("metadata").at("uid"); }
  Json record() const {
    return Json::parse(api_.one("leases").at("metadata").at("annotations").at(kRecord).get<std::string>());
  }
  std::string pod() const { return api_.one("pods").at("metadata").at("name"); }
  void edit_lease(const std::function<void(Json&)>& change) {
    api_.edit("leases", FakeGateway::id_of("a"), change);
  }
  void lose_pod() {
    api_.drop("pods", pod());
    api_.cut_streams();
  }
  // Of the first call that does not begin over the broken stream.
  static isogate_status run_after_loss(FakeGateway& gateway, FakeGateway::Box& box,
                                       const std::string& command, std::string* said) {
    isogate_status status = ISOGATE_LOST;
    for (int tries = 0; tries < 3 && status == ISOGATE_LOST; ++tries)
      status = status_of([&] { *said = gateway.run(box, command); }, said);
    return status;
  }
  void expect_nothing_left() const {
    for (const char* plural : {"pods", "leases", "persistentvolumeclaims", "networkpolicies"})
      EXPECT_TRUE(api_.all(plural).empty()) << plural;
  }
};

TEST_F(K8sAdoption, APodMadeByThisOpenIsFreshAndOneThatWasThereIsNot) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.ready();
  EXPECT_EQ(box.flags, kRuns | kFresh);
  EXPECT_EQ(gateway.run(box, "echo mine > kept; cat kept"), "mine\n");
  const std::string first = uid();
  gateway.close(box, ISOGATE_CLOSE_DETACH);
  auto again = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
  EXPECT_EQ(again.flags, kRuns | kAttached);
  EXPECT_EQ(uid(), first);
  gateway.close(again, ISOGATE_CLOSE_STOP);
  auto third = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
  EXPECT_EQ(third.flags, kRuns | kAttached | kFresh) << "another pod on the same claim";
  EXPECT_EQ(gateway.run(third, "cat kept"), "mine\n");
}

// A sandbox whose pod has died, and whose next pod starts late: calls were cancelled while they waited for
// it.
class K8sLateStart : public K8sAdoption {
 protected:
  void die_and_begin_another(FakeGateway& gateway, FakeGateway::Box& box) {
    gateway.run(box, "echo mine > kept");
    api_.put_off_pods(true);
    api_.drop("pods", pod());
    api_.cut_streams();
    try_until(gateway, box, [this] { return !api_.all("pods").empty(); });
    ASSERT_EQ(api_.all("pods").size(), 1u) << gateway.log();
  }
  void try_until(FakeGateway& gateway, FakeGateway::Box& box, const std::function<bool()>& holds) {
    for (int tries = 0; tries < 60 && !holds(); ++tries) try_once(gateway, box);
  }
  // Cancelled a moment after the pod exists.
  void try_once(FakeGateway& gateway, FakeGateway::Box& box) {
    std::atomic<bool> ended{false};
    std::thread canceller([this, &ended] {
      for (int looks = 0; looks < 2'000 && !ended && api_.all("pods").empty(); ++looks)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      api_.signal_hanging_in(std::chrono::milliseconds(300));
    });
    EXPECT_NE(status_of([&] { gateway.run(box, "cat kept"); }), ISOGATE_OK);
    ended = true;
    canceller.join();
    api_.await_signal();
    api_.count_from_now();
  }
};

TEST_F(K8sLateStart, IsThatOfALaterCall) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.ready();
  die_and_begin_another(gateway, box);
  const std::string begun = uid();
  try_once(gateway, box);
  EXPECT_EQ(uid(), begun);
  api_.put_off_pods(false);
  EXPECT_EQ(gateway.run(box, "cat kept"), "mine\n");
  EXPECT_EQ(uid(), begun);
  EXPECT_TRUE(record().contains("evidence")) << "it serves unmeasured";
}

TEST_F(K8sLateStart, IsGivenUpAfterItsTime) {
  FakeGateway gateway(api_, "/state", R"("ready_timeout_sec": 3)");
  auto box = gateway.ready();
  die_and_begin_another(gateway, box);
  const std::string begun = uid();
  try_until(gateway, box, [&] { return !api_.all("pods").empty() && uid() != begun; });
  EXPECT_NE(uid(), begun);
  api_.put_off_pods(false);
  EXPECT_EQ(gateway.run(box, "cat kept"), "mine\n");
}

TEST_F(K8sLateStart, EndsWithItsSandbox) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.ready();
  die_and_begin_another(gateway, box);
  gateway.close(box, ISOGATE_CLOSE_PURGE);
  EXPECT_TRUE(api_.all("pods").empty());
  EXPECT_TRUE(api_.all("leases").empty());
}

TEST_F(K8sLateStart, EndsWithTheOpeningThatWaitedForItInVain) {
  FakeGateway gateway(api_, "/state", R"("open_timeout_sec": 3)");
  auto box = gateway.used("echo mine > kept");
  gateway.close(box, ISOGATE_CLOSE_STOP);
  api_.put_off_pods(true);
  EXPECT_EQ(status_of([&] { gateway.open(ISOGATE_OPEN_KNOWN, box.handle); }), ISOGATE_UNAVAILABLE);
  EXPECT_TRUE(api_.all("pods").empty());
  api_.put_off_pods(false);
  auto again = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
  EXPECT_EQ(gateway.run(again, "cat kept"), "mine\n");
}

TEST_F(K8sAdoption, EvidenceOfAUsedPodIsWhatWasRecordedAndCostsNoRequest) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.left();
  auto again = gateway.open(ISOGATE_OPEN_KNOWN, box.handle);
  api_.count_from_now();
  const isogate_evidence found = gateway.evidence(again);
  EXPECT_EQ(api_.counted(), 0u);
  EXPECT_NE(found.flags & ISOGATE_EVIDENCE_MEASURED, 0u);
}

TEST_F(K8sAdoption, WhatIsNotUnderstoodIsNeitherThereNorGone) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.left("echo mine > kept");
  const std::string first = uid();
  const auto try_with = [&](const std::string& path) {
    const auto asks = [path](const Heard& heard) {
      return heard.method == "GET" && heard.target.find(path) != std::string::npos &&
             heard.target.find("/exec") == std::string::npos;
    };
    for (const char* answer : {"{}", "[]", "7", R"({"metadata":"x"})", R"({"metadata":{"uid":7}})"}) {
      api_.answer_if(asks, FakeCluster::json(answer));
      EXPECT_EQ(status_of([&] { gateway.ready(ISOGATE_OPEN_KNOWN, box.handle); }), ISOGATE_UNAVAILABLE)
          << path << " " << answer;
    }
    api_.answer_if({}, "");
  };
  try_with("/pods/isg-");
  try_with("/leases/isg-");
  EXPECT_EQ(uid(), first);
  auto again = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
  EXPECT_EQ(uid(), first);
  gateway.close(again, ISOGATE_CLOSE_STOP);
  try_with("/persistentvolumeclaims/isg-");
  auto third = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
  EXPECT_EQ(gateway.run(third, "cat kept"), "mine\n");
}

TEST_F(K8sAdoption, AnUnmeasuredPodThatATenantUsedIsNotMeasured) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.open();
  gateway.run(box, "true");
  EXPECT_NE(status_of([&] { gateway.evidence(box); }), ISOGATE_OK);
}

// Each is done to the pod while no gateway has a link to it.
struct Change {
  const char* what;
  std::function<void(FakeApi&, const std::string& pod)> make;
  bool is_anothers = false;  // then: it is kept
};
const Change kChanges[] = {
    {"its image was patched",
     [](FakeApi& api, const std::string& pod) { api.restart_container(pod, "evil:latest"); }},
    {"its container was restarted",
     [](FakeApi& api, const std::string& pod) { api.restart_container(pod, "isogate-sandbox:latest"); }},
    {"the image is to be patched",
     [](FakeApi& api, const std::string& pod) {
       api.edit("pods", pod, [](Json& it) { it["spec"]["containers"][0]["image"] = "evil:latest"; });
     }},
    {"it was relabelled out of its policy",
     [](FakeApi& api, const std::string& pod) {
       api.edit("pods", pod, [](Json& it) { it["metadata"]["labels"].erase(kLabelSandbox); });
     }},
    {"it was labelled into another policy",
     [](FakeApi& api, const std::string& pod) {
       api.edit("pods", pod, [](Json& it) { it["metadata"]["labels"]["role"] = "database"; });
     }},
    {"a container was added",
     [](FakeApi& api, const std::string& pod) {
       api.edit("pods", pod, [](Json& it) {
         it["spec"]["ephemeralContainers"] = {{{"name", "debug"}, {"image", "busybox"}}};
       });
     }},
    {"its policy lets packets out",
     [](FakeApi& api, const std::string&) {
       api.edit("networkpolicies", api.one("networkpolicies").at("metadata").at("name"),
                [](Json& it) { it["spec"]["ingress"] = {Json::object()}; });
     }},
    {"its policy is for other pods",
     [](FakeApi& api, const std::string&) {
       api.edit("networkpolicies", api.one("networkpolicies").at("metadata").at("name"), [](Json& it) {
         it["spec"]["podSelector"]["matchLabels"] = {{"a", "b"}};
       });
     }},
    {"it belongs to nobody",
     [](FakeApi& api, const std::string& pod) {
       api.edit("pods", pod, [](Json& it) { it["metadata"].erase("ownerReferences"); });
     },
     true},
};

TEST_F(K8sAdoption, WhatIsNotAsItWasMeasuredIsReplacedAtAdoption) {
  FakeGateway gateway(api_, "/state");
  for (const Change& change : kChanges) {
    SCOPED_TRACE(change.what);
    auto box = gateway.left("echo mine > kept");
    const std::string name = pod();
    change.make(api_, name);
    auto again = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
    EXPECT_EQ(again.flags, kRuns | kAttached | kFresh);
    EXPECT_NE(record().at("pod"), name);
    EXPECT_EQ(gateway.run(again, "cat kept"), "mine\n");
    gateway.close(again, ISOGATE_CLOSE_PURGE);
    EXPECT_EQ(api_.all("pods").size(), change.is_anothers ? 1u : 0u);
    if (change.is_anothers) api_.drop("pods", name);
  }
}

TEST_F(K8sAdoption, WhatIsNotAsItWasMeasuredIsReplacedAtARelink) {
  FakeGateway gateway(api_, "/state");
  for (const Change& change : kChanges) {
    SCOPED_TRACE(change.what);
    auto box = gateway.used("echo mine > kept");
    const std::string name = pod();
    change.make(api_, name);
    api_.cut_streams();
    std::string said;
    for (int tries = 0; said.empty() && tries < 3; ++tries)
      status_of([&] { said = gateway.run(box, "cat kept"); });
    EXPECT_EQ(said, "mine\n");
    EXPECT_NE(record().at("pod"), name);
    gateway.close(box, ISOGATE_CLOSE_PURGE);
    EXPECT_EQ(api_.all("pods").size(), change.is_anothers ? 1u : 0u);
    if (change.is_anothers) api_.drop("pods", name);
  }
}

TEST_F(K8sAdoption, AStreamThatBreaksIsReopenedToThePodThatWasMeasured) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.ready();
  const std::string first = uid();
  EXPECT_EQ(gateway.run(box, "echo before"), "before\n");
  api_.cut_streams();
  EXPECT_EQ(gateway.run(box, "echo after"), "after\n");
  EXPECT_EQ(uid(), first);
}

TEST_F(K8sAdoption, ALeaseThatNamesAnotherAgentsPodAndClaimIsNotBelieved) {
  FakeGateway gateway(api_, "/state");
  auto victim = gateway.used("echo secret > file", "b");
  const Json pod_of_b = api_.one("pods"), claim_of_b = api_.one("persistentvolumeclaims");
  auto box = gateway.left();
  const auto record_of = [](const Json& lease) {
    return Json::parse(lease.at("metadata").at("annotations").at(kRecord).get<std::string>());
  };
  Json of_a, of_b;
  for (const Json& each : api_.all("leases"))
    (each.at("metadata").at("name") == FakeGateway::id_of("a") ? of_a : of_b) = record_of(each);
  for (const char* field : {"pod", "pod_uid", "claim", "claim_uid", "evidence", "likeness"})
    of_a[field] = of_b[field];
  api_.edit("leases", FakeGateway::id_of("a"),
            [&](Json& lease) { lease["metadata"]["annotations"][kRecord] = of_a.dump(); });
  std::string said;
  try {
    auto again = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
    said = gateway.run(again, "cat file || true");
    gateway.close(again, ISOGATE_CLOSE_PURGE);
  } catch (const sdk::Error& error) {
    said = error.what();
  }
  EXPECT_EQ(said.find("secret"), std::string::npos);
  auto ended = gateway.open(ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_KNOWN, box.handle);
  status_of([&] { gateway.close(ended, ISOGATE_CLOSE_PURGE); });
  EXPECT_EQ(gateway.run(victim, "cat file"), "secret\n") << gateway.log();
  const auto is_there = [&](const char* plural, const Json& object) {
    for (const Json& each : api_.all(plural))
      if (each.at("metadata").at("uid") == object.at("metadata").at("uid")) return true;
    return false;
  };
  EXPECT_TRUE(is_there("pods", pod_of_b));
  EXPECT_TRUE(is_there("persistentvolumeclaims", claim_of_b));
}

TEST_F(K8sAdoption, APodThatWasNotTriedAgainstAllListenersIsReplaced) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.open();
  gateway.evidence(box, "10.0.0.1:80");
  gateway.run(box, "echo mine > kept");
  const std::string first = uid();
  gateway.close(box, ISOGATE_CLOSE_DETACH);
  auto again = gateway.open(ISOGATE_OPEN_KNOWN, box.handle);
  gateway.evidence(again, "10.0.0.1:80 127.0.0.1:7777");
  EXPECT_EQ(uid(), first) << "another loopback's is none that a pod could reach";
  gateway.evidence(again, "10.0.0.1:80 10.0.0.1:9090");
  EXPECT_NE(uid(), first);
  EXPECT_EQ(gateway.run(again, "cat kept"), "mine\n");
}

TEST_F(K8sAdoption, APodThatAnotherGatewayMadeIsNotUsedUntilItWasTriedAgainstAllListenersHere) {
  FakeGateway one(api_, "/one"), two(api_, "/two");
  auto box = one.open();
  one.evidence(box, "10.0.0.1:80 10.0.0.2:80");
  one.run(box, "echo mine > kept");
  lose_pod();
  auto other = two.open();
  two.evidence(other, "10.0.0.1:80");
  two.run(other, "true");
  const std::string its = uid();
  std::string said;
  EXPECT_EQ(run_after_loss(one, box, "true", &said), ISOGATE_UNAVAILABLE);
  EXPECT_THAT(said, HasSubstr("give them the same `listen`"));
  EXPECT_EQ(uid(), its) << "the other gateway uses it";
  two.close(other, ISOGATE_CLOSE_STOP);
  EXPECT_EQ(one.run(box, "cat kept"), "mine\n");
}

TEST_F(K8sAdoption, APodThatAnotherGatewayMadeIsReplacedForWhatDiffersAndTheLogSaysSo) {
  FakeGateway one(api_, "/one"), two(api_, "/two");
  auto box = one.open();
  one.evidence(box, "10.0.0.1:80 10.0.0.2:80");
  one.run(box, "echo mine > kept");
  lose_pod();
  auto other = two.open();
  two.evidence(other, "10.0.0.1:80");
  two.run(other, "true");
  const std::string its = pod();
  api_.edit("networkpolicies", api_.one("networkpolicies").at("metadata").at("name"), [](Json& it) {
    it["spec"]["podSelector"]["matchLabels"] = {{"a", "b"}};
  });
  std::string said;
  EXPECT_EQ(run_after_loss(one, box, "cat kept", &said), ISOGATE_OK);
  EXPECT_EQ(said, "mine\n");
  EXPECT_THAT(one.log(),
              HasSubstr("the pod " + its + " of a sandbox is recreated: its NetworkPolicy selects"));
}

// The first one is recorded as if it had run as another group.
TEST_F(K8sAdoption, APodThatDoesNotIsolateAsTheFirstServesNoCallAlsoIfItCannotBeRemoved) {
  FakeGateway gateway(api_, "/state", R"("liveness_interval_sec": 0)");
  auto before = gateway.left("echo mine > kept");
  edit_lease([](Json& lease) {
    Json& text = lease["metadata"]["annotations"][kRecord];
    Json record = Json::parse(text.get<std::string>());
    record["evidence"]["gid"] = 4711;
    text = record.dump();
  });
  auto box = gateway.ready(ISOGATE_OPEN_KNOWN, before.handle);
  lose_pod();
  api_.fail_if(
      [](const Heard& heard) {
        return heard.method == "DELETE" && heard.target.find("/pods/") != std::string::npos;
      },
      FakeApi::Fault::kError);
  std::string said;
  EXPECT_EQ(run_after_loss(gateway, box, "echo ran > ran", &said), ISOGATE_UNAVAILABLE);
  EXPECT_THAT(said, HasSubstr("does not isolate as the first one did"));
  ASSERT_EQ(api_.all("pods").size(), 1u);
  for (int calls = 0; calls < 2; ++calls) {
    EXPECT_NE(status_of([&] { gateway.run(box, "echo ran > ran"); }), ISOGATE_OK);
    EXPECT_NE(status_of([&] { gateway.read(box, "kept"); }), ISOGATE_OK);
  }
  ASSERT_EQ(api_.all("pods").size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(api_.workspace_of(pod()) + "/ran"));
  api_.fail_if({}, FakeApi::Fault::kError);
  EXPECT_EQ(status_of([&] { gateway.run(box, "true"); }), ISOGATE_UNAVAILABLE) << "nor the next one";
  EXPECT_TRUE(api_.all("pods").empty());
}

// The FakeGateway's network is open, so that it refuses to deny egress.
TEST_F(K8sAdoption, APodThatIsRefusedNowEndsWhenItWouldBeReAttached) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.left("echo mine > kept");
  gateway.egress = ISOGATE_EGRESS_DENY;
  std::string why;
  const uint32_t flags = ISOGATE_OPEN_RUNNING_ONLY | ISOGATE_OPEN_KNOWN;
  EXPECT_EQ(status_of([&] { gateway.open(flags, box.handle); }, &why), ISOGATE_NO_SANDBOX);
  EXPECT_THAT(why, HasSubstr("egress is to be denied"));
  EXPECT_TRUE(api_.all("pods").empty());
  gateway.egress = ISOGATE_EGRESS_UNSET;
  auto again = gateway.ready(ISOGATE_OPEN_KNOWN, box.handle);
  EXPECT_EQ(gateway.run(again, "cat kept"), "mine\n");
}

TEST_F(K8sAdoption, APodIsReAttachedAlsoIfAnotherGatewayHasJustWritten) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.ready();
  const std::string first = uid();
  gateway.close(box, ISOGATE_CLOSE_DETACH);
  bool refused = false;
  api_.answer_if(
      [&refused](const Heard& heard) {
        const bool writes = heard.method == "PUT" && heard.target.find("/leases/isg-") != std::string::npos;
        return writes && !std::exchange(refused, true);
      },
      FakeCluster::status(409, "Conflict"));
  auto again = gateway.open(ISOGATE_OPEN_RUNNING_ONLY | ISOGATE_OPEN_KNOWN, box.handle);
  EXPECT_TRUE(refused);
  EXPECT_EQ(again.flags, kRuns | kAttached);
  EXPECT_EQ(uid(), first);
  api_.answer_if({}, "");
}

TEST_F(K8sAdoption, AnImageIsChosenOnceForAllGateways) {
  FakeGateway one(api_, "/one"), two(api_, "/two");
  const auto image = [this] { return api_.one("pods").at("spec").at("containers").at(0).at("image"); };
  one.image = "tools:1";
  auto box = one.used("echo mine > kept");
  EXPECT_EQ(image(), "tools:1");
  one.close(box, ISOGATE_CLOSE_STOP);
  two.image = "other:1";
  std::string why;
  EXPECT_EQ(status_of([&] { two.open(); }, &why), ISOGATE_ALREADY_EXISTS);
  EXPECT_THAT(why, HasSubstr("tools:1"));
  two.image.clear();
  EXPECT_EQ(status_of([&] { two.open(); }, &why), ISOGATE_UNSUPPORTED) << "nobody has checked it here";
  EXPECT_THAT(why, HasSubstr("tools:1"));
  EXPECT_TRUE(api_.all("pods").empty());
  two.image = "tools:1";
  auto again = two.ready();
  EXPECT_EQ(two.run(again, "cat kept"), "mine\n");
  EXPECT_EQ(image(), "tools:1");
  one.image.clear();
  auto joined = one.open();
  EXPECT_EQ(one.run(joined, "cat kept"), "mine\n") << "its pod runs";
}

TEST_F(K8sAdoption, ASandboxThatIsRefusedNowCanOnlyBeEnded) {
  FakeGateway gateway(api_, "/state");
  for (const uint32_t mode : {ISOGATE_CLOSE_STOP, ISOGATE_CLOSE_PURGE}) {
    gateway.egress = ISOGATE_EGRESS_UNSET;
    auto box = gateway.left();
    gateway.egress = ISOGATE_EGRESS_DENY;
    EXPECT_EQ(status_of([&] { gateway.open(ISOGATE_OPEN_KNOWN, box.handle); }), ISOGATE_UNSUPPORTED);
    auto refused = gateway.open(ISOGATE_OPEN_ATTACH_ONLY, box.handle);
    EXPECT_EQ(status_of([&] { gateway.run(refused, "true"); }), ISOGATE_UNSUPPORTED);
    EXPECT_EQ(status_of([&] { gateway.read(refused, "x"); }), ISOGATE_UNSUPPORTED);
    EXPECT_EQ(status_of([&] { gateway.evidence(refused); }), ISOGATE_UNSUPPORTED);
    EXPECT_EQ(api_.all("pods").size(), 1u);
    EXPECT_EQ(status_of([&] { gateway.close(refused, mode); }), ISOGATE_OK) << gateway.log();
    EXPECT_TRUE(api_.all("pods").empty());
    EXPECT_EQ(api_.all("leases").empty(), mode == ISOGATE_CLOSE_PURGE);
  }
}

TEST_F(K8sAdoption, ACloseThatFailsLeavesASandboxThatCanOnlyBeClosed) {
  FakeGateway gateway(api_, "/state");
  for (const uint32_t mode : {ISOGATE_CLOSE_STOP, ISOGATE_CLOSE_PURGE}) {
    auto box = gateway.used();
    api_.fail_if([](const Heard& heard) { return heard.method == "DELETE"; }, FakeApi::Fault::kError);
    EXPECT_NE(status_of([&] { gateway.close(box, mode); }), ISOGATE_OK);
    api_.fail_if({}, FakeApi::Fault::kError);
    EXPECT_EQ(status_of([&] { gateway.run(box, "echo ran"); }), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(status_of([&] { gateway.read(box, "x"); }), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(status_of([&] { gateway.evidence(box); }), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(status_of([&] { gateway.close(box, ISOGATE_CLOSE_PURGE); }), ISOGATE_OK);
    expect_nothing_left();
  }
}

// The session would connect again from a backend host that is exiting.
TEST_F(K8sAdoption, ACloseThatFailsReleasesTheRunner) {
  FakeGateway gateway(api_, "/state", R"("liveness_interval_sec": 1, "liveness_patience_sec": 1)");
  for (const uint32_t mode : {ISOGATE_CLOSE_STOP, ISOGATE_CLOSE_PURGE}) {
    auto box = gateway.used();
    api_.fail_if([](const Heard& heard) { return heard.target.find("/leases/isg-") != std::string::npos; },
                 FakeApi::Fault::kError);
    EXPECT_EQ(status_of([&] { gateway.close(box, mode); }), ISOGATE_UNAVAILABLE);
    api_.fail_if({}, FakeApi::Fault::kError);
    api_.count_from_now();
    api_.cut_streams();
    std::this_thread::sleep_for(seconds(3));  // its liveness would be checked
    for (size_t number = 1; number <= api_.counted(); ++number)
      EXPECT_NE(api_.request(number), "GET pods/exec");
    EXPECT_EQ(status_of([&] { gateway.close(box, ISOGATE_CLOSE_PURGE); }), ISOGATE_OK);
  }
}

TEST_F(K8sAdoption, AThousandSandboxesCanBeStoppedInTheTimeOfAGatewaysEnd) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.used();
  api_.count_from_now();
  gateway.close(box, ISOGATE_CLOSE_STOP);
  const ApiLimits limits;
  const double most = limits.burst + limits.qps * static_cast<double>(budget::kCloseAll.count());
  EXPECT_LE(1'000.0 * static_cast<double>(api_.counted()), most);
}

TEST_F(K8sAdoption, AStopFailsWhileItsPodRuns) {
  FakeGateway gateway(api_, "/state", R"("open_timeout_sec": 3)");
  auto box = gateway.used();
  const std::string name = pod();
  api_.keep_pods(true);
  api_.signal_hanging_in(seconds(1));
  EXPECT_NE(status_of([&] { gateway.close(box, ISOGATE_CLOSE_STOP); }), ISOGATE_OK);
  EXPECT_TRUE(api_.runs(name));
  api_.count_from_now();
  api_.keep_pods(false);
  EXPECT_EQ(status_of([&] { gateway.close(box, ISOGATE_CLOSE_STOP); }), ISOGATE_OK);
  EXPECT_FALSE(api_.runs(name));
}

TEST_F(K8sAdoption, AnEmptyDirIsLostWithItsPodUntilItIsPurged) {
  FakeGateway gateway(api_, "/state", R"("workspace": "empty_dir")");
  auto box = gateway.used("echo mine > kept");
  api_.drop("pods", pod());
  api_.cut_streams();
  isogate_status status = ISOGATE_LOST;
  for (int tries = 0; tries < 3 && status == ISOGATE_LOST; ++tries)
    status = status_of([&] { gateway.run(box, "true"); });
  EXPECT_EQ(status, ISOGATE_SANDBOX_LOST);
  EXPECT_EQ(status_of([&] { gateway.evidence(box); }), ISOGATE_SANDBOX_LOST);
  EXPECT_EQ(status_of([&] { gateway.run(box, "true"); }), ISOGATE_SANDBOX_LOST);
  EXPECT_EQ(status_of([&] { gateway.close(box, ISOGATE_CLOSE_PURGE); }), ISOGATE_OK);
  EXPECT_TRUE(api_.all("leases").empty());
}

TEST_F(K8sAdoption, APurgeLeavesNothingWithoutGarbageCollection) {
  api_.collect_garbage(false);
  FakeGateway gateway(api_, "/state");
  auto box = gateway.used();
  gateway.close(box, ISOGATE_CLOSE_PURGE);
  expect_nothing_left();
}

// As by POST /sandboxes.
TEST_F(K8sAdoption, APurgeOfWhatIsOpenHereAndWasNotUsedIsForAllGateways) {
  FakeGateway one(api_, "/one"), two(api_, "/two");
  auto box = one.used("echo mine > kept");
  auto joined = two.open();
  EXPECT_EQ(joined.flags, kRuns);
  two.close(joined, ISOGATE_CLOSE_PURGE);
  expect_nothing_left();
}

// As for a DELETE that reaches a replica which does not have it open, or never had.
TEST_F(K8sAdoption, APurgeWhereItIsNotOpenRemovesWhatAnotherGatewayHasOpen) {
  FakeGateway one(api_, "/one"), two(api_, "/two");
  for (const bool is_known : {false, true}) {
    const std::string handle = is_known ? two.left().handle : "";
    auto used = one.used("echo mine > kept");
    auto attached = two.open(ISOGATE_OPEN_ATTACH_ONLY, handle);
    two.close(attached, ISOGATE_CLOSE_PURGE);
    expect_nothing_left();
  }
}

// Its front remembers the handle when another gateway has purged the sandbox, and begun another one.
TEST_F(K8sAdoption, AHandleOfAPurgedSandboxLeadsToNoOtherAndItsEndIsFinished) {
  FakeGateway one(api_, "/one"), two(api_, "/two");
  const std::string handle = one.left().handle;
  auto purged = two.used();
  two.close(purged, ISOGATE_CLOSE_PURGE);
  const auto expect_gone = [&] {
    EXPECT_EQ(status_of([&] { one.open(ISOGATE_OPEN_ATTACH_ONLY, handle); }), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(status_of([&] { one.open(0, handle); }), ISOGATE_SANDBOX_LOST);
    EXPECT_EQ(status_of([&] { one.open(ISOGATE_OPEN_KNOWN, handle); }), ISOGATE_SANDBOX_LOST);
  };
  expect_gone();
  expect_nothing_left();
  auto next = two.used("echo its > kept");
  expect_gone();
  EXPECT_EQ(two.run(next, "cat kept"), "its\n");
}

TEST_F(K8sAdoption, OnlyA404OfTheLeaseItselfIsALoss) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.left();
  const struct {
    const char* what;
    std::string answer;
  } table[] = {
      {"a proxy's", FakeCluster::json("<html>404 page not found</html>", 404)},
      {"of the namespace", FakeCluster::status(404, "NotFound", "", "box")},
      {"that names nothing", FakeCluster::json(R"({"kind":"Status","reason":"NotFound"})", 404)},
      {"a 403", FakeCluster::status(403, "Forbidden")},
      {"a 500", FakeCluster::status(500, "InternalError")},
  };
  for (const auto& row : table) {
    api_.answer_if(
        [](const Heard& heard) {
          return heard.method == "GET" && heard.target.find("/leases/isg") != std::string::npos;
        },
        row.answer);
    EXPECT_EQ(status_of([&] { gateway.open(ISOGATE_OPEN_KNOWN, box.handle); }), ISOGATE_UNAVAILABLE)
        << row.what;
    api_.answer_if({}, "");
  }
  EXPECT_EQ(gateway.ready(ISOGATE_OPEN_KNOWN, box.handle).flags, kRuns | kAttached);
  api_.drop("leases", FakeGateway::id_of("a"));
  EXPECT_EQ(status_of([&] { gateway.open(ISOGATE_OPEN_KNOWN, box.handle); }), ISOGATE_SANDBOX_LOST);
}

TEST_F(K8sAdoption, ARefusalOfTheClusterIsNoMistakeOfWhoClosesOrOpens) {
  FakeGateway gateway(api_, "/state");
  const auto refuse = [&](const std::string& lease) {
    api_.answer_if(
        [lease](const Heard& heard) { return heard.target.find("/leases" + lease) != std::string::npos; },
        FakeCluster::status(403, "Forbidden"));
  };
  refuse("");
  EXPECT_EQ(status_of([&] { gateway.open(); }), ISOGATE_UNAVAILABLE) << "it cannot announce itself";
  api_.answer_if({}, "");
  auto box = gateway.used();
  refuse("/isg");
  for (const uint32_t mode : {ISOGATE_CLOSE_STOP, ISOGATE_CLOSE_PURGE})
    EXPECT_EQ(status_of([&] { gateway.close(box, mode); }), ISOGATE_UNAVAILABLE) << mode;
  api_.answer_if({}, "");
  EXPECT_EQ(status_of([&] { gateway.close(box, ISOGATE_CLOSE_PURGE); }), ISOGATE_OK);
}

TEST_F(K8sAdoption, AnotherGatewayAtWorkIsWaitedForAsLongAsWasWrittenAndNamed) {
  FakeGateway gateway(api_, "/state", R"("busy_timeout_sec": 1)");
  auto box = gateway.left();
  // By a clock that is ahead, or behind: neither matters.
  for (const char* time : {"2020-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"}) {
    api_.edit("leases", FakeGateway::id_of("a"), [&](Json& lease) {
      lease["spec"] = {{"holderIdentity", "somebody"}, {"leaseDurationSeconds", 180}, {"renewTime", time}};
    });
    const auto since = std::chrono::steady_clock::now();
    std::string message;
    EXPECT_EQ(status_of([&] { gateway.open(ISOGATE_OPEN_KNOWN, box.handle); }, &message),
              ISOGATE_UNAVAILABLE);
    EXPECT_LT(std::chrono::steady_clock::now() - since, seconds(5));
    EXPECT_THAT(message, HasSubstr("another gateway is at work on this sandbox, somebody"));
  }
  api_.edit("leases", FakeGateway::id_of("a"),
            [&](Json& lease) { lease["spec"]["leaseDurationSeconds"] = 0; });
  EXPECT_EQ(gateway.ready(ISOGATE_OPEN_KNOWN, box.handle).flags, kRuns | kAttached)
      << "it was silent for too long";
}

TEST_F(K8sAdoption, AnOpenSandboxAlsoWaitsForAnotherGatewayAtWork) {
  FakeGateway gateway(api_, "/state");
  auto box = gateway.used("echo mine > kept");
  const auto hold = [&](const char* holder) {
    edit_lease([&](Json& lease) {
      lease["spec"] = {{"holderIdentity", holder},
                       {"leaseDurationSeconds", 180},
                       {"renewTime", "2026-01-01T00:00:00.000000Z"}};
    });
  };
  hold("somebody");
  lose_pod();
  std::thread other([&] {
    std::this_thread::sleep_for(seconds(3));
    hold("");
  });
  std::string said;
  EXPECT_EQ(run_after_loss(gateway, box, "cat kept", &said), ISOGATE_OK);
  EXPECT_EQ(said, "mine\n");
  other.join();
}

TEST_F(K8sAdoption, AnOpeningEndsInItsTimeAndSaysWhatItWaitedFor) {
  FakeGateway gateway(api_, "/state", R"("open_timeout_sec": 1)");
  auto box = gateway.left();
  api_.keep_pods(true);
  api_.edit("pods", pod(), [](Json& it) { it["metadata"]["labels"]["role"] = "database"; });
  const auto since = std::chrono::steady_clock::now();
  std::string message;
  EXPECT_EQ(status_of([&] { gateway.open(ISOGATE_OPEN_KNOWN, box.handle); }, &message), ISOGATE_UNAVAILABLE);
  EXPECT_LT(std::chrono::steady_clock::now() - since, seconds(4));
  EXPECT_THAT(message, HasSubstr("open_timeout_sec, 1 s: it waited for the end of its pod before"));
}

TEST(K8sRenewals, AreTimedByTheLocalClockOnly) {
  Renewals renewals;
  const auto begin = Renewals::Clock::now();
  EXPECT_FALSE(renewals.lapsed("x", "1", seconds(60), begin));
  EXPECT_FALSE(renewals.lapsed("x", "1", seconds(60), begin + seconds(60)));
  EXPECT_TRUE(renewals.lapsed("x", "1", seconds(60), begin + seconds(61)));
  EXPECT_FALSE(renewals.lapsed("x", "2", seconds(60), begin + seconds(62))) << "it was renewed";
  EXPECT_FALSE(renewals.lapsed("y", "1", seconds(60), begin + seconds(100))) << "seen for the first time";
}

TEST(K8sMeasuredPod, ListenersOfOtherLoopbacksAreNone) {
  EXPECT_EQ(tried_of({"10.0.0.1", 80, ""}), "10.0.0.1:80");
  EXPECT_EQ(tried_of({"127.0.0.1", 80, "127.0.0.1:80 [::1]:80 0.0.0.0:90 [fd00::1]:7"}),
            "0.0.0.0:90 [fd00::1]:7");
  EXPECT_TRUE(covers("a b", "b"));
  EXPECT_TRUE(covers("", ""));
  EXPECT_FALSE(covers("a b", "b c"));
}

}  // namespace
}  // namespace isogate::k8s
