// Each step at the API server fails, in each way, followed by each call: the result is an error, or what was
// promised. And what was purged successfully is gone.
#include <csignal>

#include "plugins/k8s/pod/profile.h"
#include "tests/k8s/on_fake.h"

namespace isogate::k8s {
namespace {

using Fault = FakeApi::Fault;

constexpr struct {
  Fault fault;
  const char* name;
} kFaults[] = {{Fault::kError, "is answered 500"},
               {Fault::kReset, "is cut off before it is done"},
               {Fault::kLostAnswer, "is cut off after it is done"},
               {Fault::kHang, "hangs"}};

constexpr const char* kKinds[] = {"pods", "leases", "persistentvolumeclaims", "networkpolicies"};

class K8sFaultTable : public OnFake {
 protected:
  using Box = FakeGateway::Box;
  // What runs before, without a fault; what runs with one; whether that is a close.
  struct Step {
    const char* name;
    std::function<Box(const std::string& agent)> before;
    std::function<void(Box& box, const std::string& agent)> with_fault;
    bool closes = false;
  };

  Box used(const std::string& agent) { return gateway_.used("echo mine > kept", agent); }
  Box closed(const std::string& agent, uint32_t mode) {
    Box box = used(agent);
    gateway_.close(box, mode);
    box.sandbox.reset();
    return box;
  }
  void run_table(const Step& step);
  void run_case(const Step& step, size_t number, Fault fault);
  void expect_promised(Box& box, const std::string& agent);
  void expect_gone(const std::string& agent);
  std::vector<Json> of(const std::string& plural, const std::string& agent) const;
  std::string next_agent() {
    std::string name = "x";
    for (int n = ++agents_; n > 0; n /= 26) name += static_cast<char>('a' + n % 26);
    return name;
  }

  FakeGateway gateway_{api_, "/state", R"("liveness_interval_sec": 0)"};
  int agents_ = 0;
};

std::vector<Json> K8sFaultTable::of(const std::string& plural, const std::string& agent) const {
  std::vector<Json> found;
  for (const Json& each : api_.all(plural))
    if (each.at("metadata").at("labels").value(kLabelSandbox, "") == FakeGateway::id_of(agent))
      found.push_back(each);
  return found;
}

// Only the recorded pod runs: measured, owned by the Lease, and selected by its policy.
void K8sFaultTable::expect_promised(Box& box, const std::string& agent) {
  const isogate_status status = status_of([&] {
    gateway_.evidence(box);
    EXPECT_EQ(gateway_.run(box, "echo ran"), "ran\n");
  });
  if (status != ISOGATE_OK) return;
  const auto pods = of("pods", agent), leases = of("leases", agent), policies = of("networkpolicies", agent);
  ASSERT_EQ(pods.size(), 1u);
  ASSERT_EQ(leases.size(), 1u);
  ASSERT_EQ(policies.size(), 1u);
  const Json record = Json::parse(leases[0].at("metadata").at("annotations").at(kRecord).get<std::string>());
  EXPECT_EQ(record.at("pod_uid"), pods[0].at("metadata").at("uid"));
  EXPECT_TRUE(record.contains("evidence"));
  EXPECT_TRUE(record.at("likeness").is_object());
  EXPECT_TRUE(belongs_to(pods[0], leases[0].at("metadata").at("uid")));
}

void K8sFaultTable::expect_gone(const std::string& agent) {
  for (const char* plural : kKinds) EXPECT_TRUE(of(plural, agent).empty()) << plural << " are left";
}

void K8sFaultTable::run_case(const Step& step, size_t number, Fault fault) {
  const std::string agent = next_agent();
  Box box = step.before(agent);
  const std::string handle = box.handle;
  api_.count_from_now();
  api_.fail(number, fault);
  const isogate_status status = status_of([&] { step.with_fault(box, agent); });
  SCOPED_TRACE(std::string(step.name) + ", where request " + std::to_string(number) + " (" +
               api_.request(number) + ") " +
               (fault == Fault::kHang ? "hangs" : kFaults[static_cast<int>(fault)].name));
  api_.count_from_now();
  if (step.closes && status != ISOGATE_OK) {
    EXPECT_EQ(status_of([&] { gateway_.run(box, "echo ran"); }), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(status_of([&] { gateway_.read(box, "kept"); }), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(status_of([&] { gateway_.write(box, "kept", "x"); }), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(status_of([&] { gateway_.evidence(box); }), ISOGATE_NO_SANDBOX);
  }
  if (!step.closes && box.sandbox) expect_promised(box, agent);
  // The next open returns the same sandbox, or its loss; never another one.
  if (box.sandbox && !step.closes) status_of([&] { gateway_.close(box, ISOGATE_CLOSE_DETACH); });
  if (step.closes && status != ISOGATE_OK) {
    EXPECT_EQ(status_of([&] { gateway_.close(box, ISOGATE_CLOSE_STOP); }), ISOGATE_OK);
    EXPECT_TRUE(of("pods", agent).empty()) << "it was stopped";
  }
  Box next;
  if (status_of([&] { next = gateway_.ready(0, "", agent); }) == ISOGATE_OK) {
    expect_promised(next, agent);
    EXPECT_EQ(status_of([&] { gateway_.close(next, ISOGATE_CLOSE_PURGE); }), ISOGATE_OK);
  } else {
    ADD_FAILURE() << "it can no longer be opened: " << gateway_.log().substr(gateway_.log().size() / 2);
  }
  expect_gone(agent);
}

void K8sFaultTable::run_table(const Step& step) {
  const std::string agent = next_agent();
  Box box = step.before(agent);
  api_.count_from_now();
  step.with_fault(box, agent);
  const size_t requests = api_.counted();
  ASSERT_GT(requests, 0u);
  for (size_t number = 1; number <= requests; ++number)
    for (const auto& each : kFaults) run_case(step, number, each.fault);
}

TEST_F(K8sFaultTable, OpeningANewOne) {
  run_table({"opening a new one", [](const std::string&) { return Box(); },
             [this](Box& box, const std::string& agent) { box = gateway_.ready(0, "", agent); }});
}

TEST_F(K8sFaultTable, TakingOneUpAgain) {
  run_table({"taking one up again",
             [this](const std::string& agent) { return closed(agent, ISOGATE_CLOSE_DETACH); },
             [this](Box& box, const std::string& agent) {
               box = gateway_.ready(ISOGATE_OPEN_KNOWN, box.handle, agent);
             }});
}

TEST_F(K8sFaultTable, OpeningOneThatWasStopped) {
  run_table({"opening one that was stopped",
             [this](const std::string& agent) { return closed(agent, ISOGATE_CLOSE_STOP); },
             [this](Box& box, const std::string& agent) {
               box = gateway_.ready(ISOGATE_OPEN_KNOWN, box.handle, agent);
             }});
}

TEST_F(K8sFaultTable, ReplacingAPodThatDied) {
  run_table({"replacing a pod that died", [this](const std::string& agent) { return used(agent); },
             [this](Box& box, const std::string& agent) {
               for (const Json& each : of("pods", agent)) api_.drop("pods", each.at("metadata").at("name"));
               api_.cut_streams();
               isogate_status status = ISOGATE_LOST;
               for (int tries = 0; tries < 3 && status == ISOGATE_LOST; ++tries)
                 status = status_of([&] { gateway_.run(box, "cat kept"); });
               if (status != ISOGATE_OK) throw sdk::Error(status, "it was not replaced");
             }});
}

TEST_F(K8sFaultTable, StoppingOne) {
  run_table({"stopping one", [this](const std::string& agent) { return used(agent); },
             [this](Box& box, const std::string&) { gateway_.close(box, ISOGATE_CLOSE_STOP); }, true});
}

TEST_F(K8sFaultTable, PurgingOne) {
  run_table({"purging one", [this](const std::string& agent) { return used(agent); },
             [this](Box& box, const std::string&) { gateway_.close(box, ISOGATE_CLOSE_PURGE); }, true});
}

// A successful purge leaves nothing, whatever failed the first time.
TEST_F(K8sFaultTable, APurgeThatFailedIsRetriedUntilNothingIsLeft) {
  api_.collect_garbage(false);
  for (size_t number = 1; number < 14; ++number)
    for (const auto& each : kFaults) {
      const std::string agent = next_agent();
      Box box = used(agent);
      api_.count_from_now();
      api_.fail(number, each.fault);
      const isogate_status first = status_of([&] { gateway_.close(box, ISOGATE_CLOSE_PURGE); });
      SCOPED_TRACE("request " + std::to_string(number) + " (" + api_.request(number) + ") " + each.name);
      api_.count_from_now();
      if (first == ISOGATE_OK) expect_gone(agent);
      EXPECT_EQ(status_of([&] { gateway_.close(box, ISOGATE_CLOSE_PURGE); }), ISOGATE_OK);
      expect_gone(agent);
    }
}

}  // namespace
}  // namespace isogate::k8s
