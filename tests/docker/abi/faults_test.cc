// Every request to the Engine fails once, in each way, in every step of a sandbox's life: what follows is an
// error or the isolation that was promised, and what was purged is gone.
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/hash.h"
#include "plugins/common/bounded_call.h"
#include "plugins/docker/client/engine.h"
#include "plugins/docker/container/profile.h"
#include "tests/docker/engine_proxy.h"
#include "tests/docker/swaps.h"
#include "tests/local/plugin.h"
#include "tests/support/program.h"

namespace isogate::test {
namespace {

using docker::Budget;
using docker::Engine;
using docker::EngineProxy;
using docker::Fault;
using docker::Json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct NamedFault {
  Fault fault;
  const char* name;
};
constexpr NamedFault kFaults[] = {{Fault::kError, "error"},
                                  {Fault::kReset, "reset"},
                                  {Fault::kNoAnswer, "no answer"},
                                  {Fault::kHang, "hang"}};

class DockerFaults : public Local {
 protected:
  void SetUp() override {
    const char* address = std::getenv("ISOGATE_TEST_DOCKER");
    if (address == nullptr || *address == '\0')
      GTEST_SKIP() << "ISOGATE_TEST_DOCKER is not set: tests/engines/docker.sh up prints its value";
    if (std::string(address).rfind("unix://", 0) != 0) GTEST_SKIP() << "the Engine is not at a Unix socket";
    if (!is_root_user()) GTEST_SKIP() << "without root this plugin is driven by the contract's cases";
    engine_ = std::make_unique<Engine>(docker::parse_address(address, "ISOGATE_TEST_DOCKER"));
    proxy_ = std::make_unique<EngineProxy>(std::string(address).substr(7));
    Backend::instance = "faults-" + random_hex(6);
  }
  void make(Json more = Json::object(), uint32_t flags = 0) {
    Json all = {{"host", proxy_->address()}, {"image", "isogate-test:small"}};
    all.update(more);
    backend_ = std::make_unique<Backend>(state_, "docker", all.dump(), flags);
    ASSERT_NE(backend_->it, nullptr) << backend_->error;
  }

  static isogate_status open(Box& box, int cancel_fd = -1) {
    box.agent = Backend::instance;  // a uid depends on the name, and other tests run at the same time
    box.open(box.spec(), cancel_fd);
    return box.status;
  }
  static Ran sh(Box& box, const std::string& script, int cancel_fd = -1) {
    Exec exec;
    exec.argv = {"/bin/sh", "-c", script};
    exec.cancel_fd = cancel_fd;
    return box.run(exec);
  }
  // An error, or the promised isolation.
  static void expect_isolated(Box& box, const std::string& when, int cancel_fd = -1) {
    const Ran ran =
        sh(box, "grep -E '^(Seccomp|NoNewPrivs|CapEff|CapBnd):' /proc/self/status; hostname", cancel_fd);
    if (ran.status != ISOGATE_OK || (ran.result.flags & ISOGATE_RESULT_KILLED) != 0) return;
    EXPECT_NE(ran.out.find("NoNewPrivs:\t1\n"), std::string::npos) << when << ran.out;
    EXPECT_NE(ran.out.find("Seccomp:\t2\n"), std::string::npos) << when << ran.out;
    EXPECT_NE(ran.out.find("CapEff:\t0000000000000000\n"), std::string::npos) << when << ran.out;
    EXPECT_NE(ran.out.find("CapBnd:\t0000000000000000\n"), std::string::npos) << when << ran.out;
    EXPECT_NE(ran.out.find("sandbox\n"), std::string::npos) << when << ran.out;
  }
  // What this test's gateway has on the Engine, except the runner's own volume, which stays.
  std::string left() {
    const Budget budget(std::chrono::seconds(30));
    std::string all;
    for (const Json& each : engine_->list({{docker::kLabelInstance, Backend::instance}}, budget))
      all += " container " + each.at("Names").dump();
    for (const Json& each :
         engine_->list({{docker::kLabelInstance, Backend::instance}}, budget, docker::ObjectKind::kVolume))
      if (each.at("Labels").value(docker::kLabelRole, "") != "runner")
        all += " volume " + each.at("Name").dump();
    const auto networks =
        run_program({"docker", "-H", std::getenv("ISOGATE_TEST_DOCKER"), "network", "ls", "-q", "--filter",
                     std::string("label=") + docker::kLabelInstance + "=" + Backend::instance});
    if (!networks.out.empty()) all += " network " + networks.out;
    return all;
  }
  bool nothing_is_left(milliseconds most) {
    const auto until = Clock::now() + most;
    while (!left().empty()) {
      if (Clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(100));
    }
    return true;
  }
  // As a gateway does: until it is open and measured.
  void open_at_last(Box& box, const std::string& when) {
    for (int tries = 0; box.it == nullptr && tries < 4; ++tries) open(box);
    ASSERT_NE(box.it, nullptr) << when << box.error;
    ASSERT_EQ(box.evidence(), ISOGATE_OK) << when << box.error;
  }
  void purge_at_last(Box& box, const std::string& when) {
    for (int tries = 0; box.it != nullptr && tries < 4; ++tries) box.close(ISOGATE_CLOSE_PURGE);
    ASSERT_EQ(box.it, nullptr) << when << box.error;
    EXPECT_EQ(left(), "") << when;
  }

  // `step` with each of its requests failing once; `before` and `after` with a sound Engine.
  void each_request(const std::function<void(Box&)>& before,
                    const std::function<void(Box&, int cancel_fd, const std::string& when)>& step,
                    const std::function<void(Box&, const std::string& when)>& after) {
    const bool all = std::getenv("ISOGATE_SLOW_TESTS") != nullptr;
    for (size_t i = 0;; ++i) {
      bool any = false;
      for (size_t f = 0; f < std::size(kFaults); ++f) {
        if (!all && i > 2 && f != i % std::size(kFaults)) continue;
        const auto& [fault, name] = kFaults[f];
        Box box(*backend_, Box::Deferred{});
        before(box);
        if (testing::Test::HasFatalFailure()) return;
        proxy_->fail(i, fault);
        std::string when = "request " + std::to_string(i) + ", " + name + ": ";
        const auto begin = Clock::now();
        const BoundedCall bounded(milliseconds(3'000));
        step(box, bounded.call().cancel_fd(), when);
        EXPECT_LT(Clock::now() - begin, std::chrono::seconds(8)) << when << "a slow Engine holds a call";
        any = any || !proxy_->failed().empty();
        when += proxy_->failed() + ": ";
        proxy_->heal();
        after(box, when);
        if (testing::Test::HasFatalFailure()) return;
      }
      if (!any) {
        EXPECT_GT(i, 2u);
        return;
      }
    }
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineProxy> proxy_;
  std::unique_ptr<Backend> backend_;
};

// The profile is measured, whatever the Engine reports.
TEST_F(DockerFaults, AnEngineThatDoesNotApplyTheProfileServesNobody) {
  proxy_->edit_containers([](const std::string& body) {
    Json json = Json::parse(body);
    json["HostConfig"]["SecurityOpt"] = {"no-new-privileges"};
    return json.dump();
  });
  make();
  Box box(*backend_, Box::Deferred{});
  ASSERT_EQ(open(box), ISOGATE_OK) << box.error;
  EXPECT_EQ(box.evidence(), ISOGATE_UNAVAILABLE);
  EXPECT_NE(box.error.find("seccomp_profile"), std::string::npos) << box.error;
  EXPECT_EQ(left(), "") << "its container goes at once";
}

// The limits are compared, whatever the Engine reports about itself.
TEST_F(DockerFaults, AnEngineThatDoesNotLimitAsAskedServesNobody) {
  const auto change = [&](const char* limit, int64_t value) {
    proxy_->edit_containers([limit, value](const std::string& body) {
      Json json = Json::parse(body);
      json["HostConfig"][limit] = value;
      return json.dump();
    });
  };
  make();
  const auto expect_refusal = [&](const char* limit, int64_t value) {
    change(limit, value);
    Box box(*backend_, Box::Deferred{});
    EXPECT_EQ(open(box), ISOGATE_UNAVAILABLE) << limit;
    EXPECT_NE(box.error.find(limit + std::string(" is ") + std::to_string(value)), std::string::npos)
        << box.error;
    EXPECT_EQ(left(), "") << "its container goes at once";
  };
  docker::with_swap(true, [&] { expect_refusal("MemorySwap", -1); });
  expect_refusal("MemorySwap", int64_t{1} << 30);
  expect_refusal("NanoCpus", 1'500'000'000);
  expect_refusal("PidsLimit", 1024);

  const auto expect_service = [&] {
    Box box(*backend_, Box::Deferred{});
    open_at_last(box, "");
    expect_isolated(box, "");
    purge_at_last(box, "");
  };
  change("MemorySwap", -1);
  docker::with_swap(false, expect_service);
  backend_.reset();
  make(Json::object(), ISOGATE_HOST_LIMITS_BEST_EFFORT);
  docker::with_swap(true, expect_service);
}

// Else the uids run out on a disk that one tenant has filled.
TEST_F(DockerFaults, ASandboxThatHasNoRoomKeepsNoUid) {
  const std::string sandboxes = state_ + "/sandboxes";
  ASSERT_EQ(::mount("none", sandboxes.c_str(), "tmpfs", 0, "size=1m,mode=0711"), 0) << strerror(errno);
  make();
  {
    std::ofstream ballast(sandboxes + "/ballast");
    ballast << std::string(2 << 20, 'x') << std::flush;
  }
  for (int number = 1; number <= 5; ++number) {
    const Box box(*backend_, number, Backend::instance + std::to_string(number));
    EXPECT_NE(box.status, ISOGATE_OK);
  }
  EXPECT_EQ(registered_uids(state_), "");
  EXPECT_EQ(left(), "");
  ASSERT_EQ(::unlink((sandboxes + "/ballast").c_str()), 0);
  {
    Box box(*backend_, Box::Deferred{});
    open_at_last(box, "");
    purge_at_last(box, "");
  }
  backend_.reset();
  EXPECT_EQ(::umount2(sandboxes.c_str(), MNT_DETACH), 0);
}

// This process lives on: a second failure must not end it.
TEST_F(DockerFaults, WithoutDescriptorsAnOpenFailsAndTheNextOneCleansUp) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  proxy_->edit_containers([&usual](const std::string& body) {
    const rlimit none{3, usual.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    return body;
  });
  make();
  Box box(*backend_, Box::Deferred{});
  const isogate_status status = open(box);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_NE(status, ISOGATE_OK);
  proxy_->edit_containers(nullptr);
  open_at_last(box, "");
  purge_at_last(box, "");
}

// The next call finds the container gone, or its stopped processes dead.
TEST_F(DockerFaults, WhatTheEngineCannotKillAtOnceIsKilledLater) {
  make({{"transport", "stream"}});
  Box box(*backend_, Box::Deferred{});
  open_at_last(box, "");
  proxy_->fail_all("* /containers/*/kill", Fault::kError);
  EXPECT_NE(sh(box, "kill -9 -1; sleep 5").status, ISOGATE_OK);
  proxy_->heal();
  const auto runs = [&] {
    const auto all = engine_->list({{docker::kLabelInstance, Backend::instance}}, Budget(Budget::kUsual));
    return std::any_of(all.begin(), all.end(),
                       [](const Json& each) { return each.at("State") == "running"; });
  };
  for (int i = 0; i < 100 && runs(); ++i) std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(runs());
  expect_isolated(box, "afterwards");
  EXPECT_EQ(sh(box, "true").status, ISOGATE_OK);
}

// The connection that the container was measured over still answers.
TEST_F(DockerFaults, WhereACallLostContactNothingElseRuns) {
  make({{"transport", "exec"}});
  Box box(*backend_, Box::Deferred{});
  open_at_last(box, "");
  const Json only =
      engine_->list({{docker::kLabelInstance, Backend::instance}}, Budget(Budget::kUsual)).at(0);
  proxy_->fail_all("* /containers/*/kill", Fault::kError);
  EXPECT_EQ(sh(box, "kill -9 $(awk '/^PPid/ { print $2 }' /proc/$PPID/status); sleep 5").status,
            ISOGATE_LOST);
  EXPECT_EQ(sh(box, "true").status, ISOGATE_OK);
  EXPECT_FALSE(engine_->find(only.at("Id"), Budget(Budget::kUsual)));
  proxy_->heal();
  purge_at_last(box, "");
}

// The call has failed by then.
TEST_F(DockerFaults, AContainerThatTheEngineMakesLateToFillAVolumeDoesNotStay) {
  make({{"workspace", "volume"}});
  proxy_->fail_all("POST /containers/create", Fault::kLate);
  Box box(*backend_, Box::Deferred{});
  EXPECT_NE(open(box), ISOGATE_OK);
  EXPECT_EQ(proxy_->failed(), "POST /containers/create");
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_EQ(left(), "");
  proxy_->heal();
  open_at_last(box, "");
  purge_at_last(box, "");
}

TEST_F(DockerFaults, AStopFailsWhileTheEngineCannotEndTheContainer) {
  make();
  Box box(*backend_, Box::Deferred{});
  open_at_last(box, "");
  proxy_->fail_all("DELETE /containers/*", Fault::kError);
  const BoundedCall bounded(milliseconds(2'000));
  EXPECT_NE(box.close(ISOGATE_CLOSE_STOP, bounded.call().cancel_fd()), ISOGATE_OK);
  EXPECT_NE(left(), "");
  proxy_->heal();
  EXPECT_EQ(box.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << box.error;
  EXPECT_EQ(left(), "");
  open_at_last(box, "");
  purge_at_last(box, "");
}

// Attaching only to close needs no container, and no configuration that could create one.
TEST_F(DockerFaults, ASandboxIsClosedThoughNoContainerCouldBeMade) {
  make();
  {
    Box box(*backend_, Box::Deferred{});
    open_at_last(box, "");
    ASSERT_EQ(box.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << box.error;
  }
  backend_.reset();
  make({{"image", "no-such-image:1"}});
  Box box(*backend_, Box::Deferred{});
  isogate_sandbox_spec spec = box.spec(ISOGATE_OPEN_ATTACH_ONLY);
  spec.egress = ISOGATE_EGRESS_ALLOW;
  ASSERT_TRUE(box.open(spec)) << box.error;
  EXPECT_NE(sh(box, "true").status, ISOGATE_OK);
  EXPECT_EQ(box.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << box.error;
  box.open(box.spec(ISOGATE_OPEN_ATTACH_ONLY));
  EXPECT_EQ(box.status, ISOGATE_NO_SANDBOX) << box.error;
}

// Nothing is measured in it later, and an earlier measurement counts only for the same container.
TEST_F(DockerFaults, EvidenceIsOfTheContainerThatRuns) {
  make();
  isogate_evidence first{}, again{};
  Box box(*backend_, Box::Deferred{});
  ASSERT_EQ(open(box), ISOGATE_OK) << box.error;
  EXPECT_EQ(box.info.flags & ISOGATE_SANDBOX_FRESH, ISOGATE_SANDBOX_FRESH);
  ASSERT_EQ(box.evidence(&first), ISOGATE_OK) << box.error;
  ASSERT_EQ(box.close(ISOGATE_CLOSE_DETACH), ISOGATE_OK) << box.error;
  ASSERT_EQ(open(box), ISOGATE_OK) << box.error;
  EXPECT_EQ(box.info.flags & (ISOGATE_SANDBOX_FRESH | ISOGATE_SANDBOX_ATTACHED), ISOGATE_SANDBOX_ATTACHED);
  ASSERT_EQ(box.evidence(&again), ISOGATE_OK) << box.error;
  EXPECT_EQ(again.ns_pid, first.ns_pid);
  ASSERT_EQ(box.close(ISOGATE_CLOSE_DETACH), ISOGATE_OK) << box.error;
  const Json only =
      engine_->list({{docker::kLabelInstance, Backend::instance}}, Budget(Budget::kUsual)).at(0);
  engine_->kill(only.at("Id"), "KILL", Budget(Budget::kUsual));
  engine_->start(only.at("Id"), Budget(Budget::kUsual));
  ASSERT_EQ(open(box), ISOGATE_OK) << box.error;
  EXPECT_EQ(box.info.flags & (ISOGATE_SANDBOX_FRESH | ISOGATE_SANDBOX_ATTACHED),
            ISOGATE_SANDBOX_FRESH | ISOGATE_SANDBOX_ATTACHED);
  ASSERT_EQ(box.evidence(&again), ISOGATE_OK) << box.error;
}

struct Case {
  const char* name;
  const char* config;
};

class DockerFaultsIn : public DockerFaults, public testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    DockerFaults::SetUp();
    if (!IsSkipped()) make(Json::parse(GetParam().config));
  }
};

TEST_P(DockerFaultsIn, AnOpenThatFailsLeavesNothingAndServesNothingUnmeasured) {
  each_request([](Box&) {},
               [&](Box& box, int cancel_fd, const std::string& when) {
                 if (open(box, cancel_fd) != ISOGATE_OK) return;
                 EXPECT_NE(box.info.flags & ISOGATE_SANDBOX_FRESH, 0u) << when;
                 if (box.evidence(nullptr, cancel_fd) == ISOGATE_OK) expect_isolated(box, when);
               },
               [&](Box& box, const std::string& when) {
                 if (box.it == nullptr) {
                   EXPECT_TRUE(nothing_is_left(std::chrono::seconds(20))) << when << left();
                 }
                 open_at_last(box, when);
                 if (testing::Test::HasFatalFailure()) return;
                 expect_isolated(box, when);
                 purge_at_last(box, when);
               });
}

TEST_P(DockerFaultsIn, APurgeThatSucceedsLeftNothingAndOneThatFailedIsRepeated) {
  each_request([&](Box& box) { open_at_last(box, ""); },
               [&](Box& box, int cancel_fd, const std::string& when) {
                 if (box.close(ISOGATE_CLOSE_PURGE, cancel_fd) == ISOGATE_OK) {
                   EXPECT_EQ(left(), "") << when;
                 }
               },
               [&](Box& box, const std::string& when) { purge_at_last(box, when); });
}

TEST_P(DockerFaultsIn, AStopThatSucceedsLeftNothingRunning) {
  const auto running = [&] {
    return engine_->list({{docker::kLabelInstance, Backend::instance}}, Budget(Budget::kUsual)).size();
  };
  each_request([&](Box& box) { open_at_last(box, ""); },
               [&](Box& box, int cancel_fd, const std::string& when) {
                 if (box.close(ISOGATE_CLOSE_STOP, cancel_fd) == ISOGATE_OK) {
                   EXPECT_EQ(running(), 0u) << when;
                 }
               },
               [&](Box& box, const std::string& when) {
                 for (int tries = 0; box.it != nullptr && tries < 4; ++tries) box.close(ISOGATE_CLOSE_STOP);
                 ASSERT_EQ(box.it, nullptr) << when << box.error;
                 EXPECT_EQ(running(), 0u) << when;
                 open_at_last(box, when);
                 if (!testing::Test::HasFatalFailure()) purge_at_last(box, when);
               });
}

TEST_P(DockerFaultsIn, AContainerThatIsReplacedIsolatesAsBeforeOrIsAnError) {
  each_request(
      [&](Box& box) {
        open_at_last(box, "");
        if (testing::Test::HasFatalFailure()) return;
        for (const Json& each :
             engine_->list({{docker::kLabelInstance, Backend::instance}}, Budget(Budget::kUsual)))
          engine_->kill(each.at("Id"), "KILL", Budget(Budget::kUsual));
      },
      [&](Box& box, int cancel_fd, const std::string& when) { expect_isolated(box, when, cancel_fd); },
      [&](Box& box, const std::string& when) {
        Ran last;
        for (int tries = 0; tries < 4; ++tries)
          if ((last = sh(box, "true")).status == ISOGATE_OK) break;
        EXPECT_EQ(last.status, ISOGATE_OK) << when << last.error;
        expect_isolated(box, when);
        purge_at_last(box, when);
      });
}

INSTANTIATE_TEST_SUITE_P(Places, DockerFaultsIn,
                         testing::Values(Case{"bind", R"({})"},
                                         Case{"volume", R"({"workspace": "volume", "network": "internal"})"}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace isogate::test
