// What the probe reports about an Engine that is busy, or that does not have what is needed.
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "plugins/docker/backend.h"
#include "tests/docker/fake_engine.h"
#include "tests/docker/gateways.h"
#include "tests/docker/swaps.h"

namespace isogate::docker {
namespace {

class Probes : public testing::Test {
 protected:
  Probes() {
    host_.struct_size = sizeof host_;
    host_.log = [](void*, uint32_t, isogate_str) {};
    host_.instance = host_.backend_name = host_.shell = sdk::str("test");
    host_.sandboxes_dir = host_.uids_dir = sdk::str(directory_.path());
    fake_.say("/info", kInfo);
    make();
  }
  void make(const Json& more = Json::object()) {
    Json config = {{"image", "x"}, {"host", fake_.address()}};
    config.update(more);
    backend_ = std::make_unique<Backend>(sdk::Host(host_), config.dump());
  }
  isogate_probe probe() {
    isogate_probe out{};
    out.struct_size = sizeof out;
    const isogate_call call{sizeof call, -1, INT64_MAX, {}};
    backend_->probe(sdk::Call(call), out);
    return out;
  }

  const std::string kInfo = FakeEngine::json(
      R"({"ServerVersion": "20.10", "MemoryLimit": true, "SwapLimit": true, "CpuCfsQuota": true, "PidsLimit": true})");
  test::TemporaryDirectory directory_;
  isogate_host host_{};
  FakeEngine fake_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(Probes, ABusyEngineIsWhatItWas) {
  const isogate_probe first = probe();
  ASSERT_EQ(first.verdict, ISOGATE_PROBE_AVAILABLE) << first.detail;
  fake_.say("/info", "");  // never an answer
  const isogate_probe busy = probe();
  EXPECT_EQ(busy.verdict, ISOGATE_PROBE_AVAILABLE) << busy.detail;
  EXPECT_STREQ(busy.detail, first.detail);
  fake_.say("/_ping", "");
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE) << "it does not answer at all";
}

TEST_F(Probes, MoreProcessorsThanThereAreIsReportedBeforeTheFirstCall) {
  fake_.say(
      "/info",
      FakeEngine::json(
          R"({"NCPU": 1, "MemoryLimit": true, "SwapLimit": true, "CpuCfsQuota": true, "PidsLimit": true})"));
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_AVAILABLE) << probe().detail;
  make({{"cpus", 1.5}});
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE);
  EXPECT_NE(std::string(probe().detail).find("above the 1 processors"), std::string::npos);
}

// The limit is of RAM and swap together.
TEST_F(Probes, AnEngineThatCannotLimitSwapLimitsMemoryOnlyWhereThereIsNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto probe_at = [this](const std::string& data_root, bool swap, const Json& config) {
    const std::string can =
        R"("MemoryLimit": true, "SwapLimit": false, "CpuCfsQuota": true, "PidsLimit": true)";
    fake_.say("/info", FakeEngine::json("{" + can + R"(, "DockerRootDir": ")" + data_root + "\"}"));
    make(config);
    isogate_probe found{};
    with_swap(swap, [&] { found = probe(); });
    return found;
  };
  const auto limits_memory = [](const isogate_probe& found) {
    return (found.capabilities & ISOGATE_CAP_SANDBOX_LIMIT_MEMORY) != 0;
  };
  const Json usual = Json::object(), unlimited = {{"memory_mb", 0}};
  const isogate_probe refused = probe_at(directory_.path(), true, usual);
  EXPECT_EQ(refused.verdict, ISOGATE_PROBE_UNAVAILABLE);
  EXPECT_FALSE(limits_memory(refused));
  const std::string why = refused.detail;
  EXPECT_NE(why.find("memory_mb bounds memory and swap together"), why.npos) << why;
  EXPECT_NE(why.find("swapaccount=1"), why.npos) << why;

  const isogate_probe without = probe_at(directory_.path(), false, usual);
  EXPECT_EQ(without.verdict, ISOGATE_PROBE_AVAILABLE) << without.detail;
  EXPECT_TRUE(limits_memory(without));
  EXPECT_EQ(probe_at("/no/such/root", false, usual).verdict, ISOGATE_PROBE_UNAVAILABLE)
      << "nothing is known about the swap of another machine";

  const isogate_probe waived = probe_at(directory_.path(), true, unlimited);
  EXPECT_EQ(waived.verdict, ISOGATE_PROBE_AVAILABLE) << waived.detail;
  EXPECT_FALSE(limits_memory(waived)) << "no sandbox may request one either";
}

TEST_F(Probes, ABusyEngineThatWasNeverSeenIsNotAvailable) {
  fake_.say("/info", "");
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE);
}

TEST_F(Probes, AnEngineThatRefusesIsNotBusy) {
  ASSERT_EQ(probe().verdict, ISOGATE_PROBE_AVAILABLE);
  fake_.say("/info", FakeEngine::json(R"({"message": "no"})", "", 500));
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE);
  fake_.say("/info", FakeEngine::json(R"({"ServerVersion": "20.10"})"));
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE) << "it cannot limit";
  fake_.say("/info", "");
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE) << "the last known state was unusable";
}

TEST_F(Probes, ARuntimeIsLookedForWhereTheEngineListsThem) {
  const auto verdict = [this](const std::string& runtimes, const char* wish) {
    const std::string all =
        R"("MemoryLimit": true, "SwapLimit": true, "CpuCfsQuota": true, "PidsLimit": true, "Runtimes": )" +
        runtimes;
    fake_.say("/info", FakeEngine::json("{" + all + "}"));
    make({{"runtime", wish}});
    return probe().verdict;
  };
  EXPECT_EQ(verdict(R"({"runc": {}, "crun": {}})", "crun"), ISOGATE_PROBE_AVAILABLE);
  EXPECT_EQ(verdict(R"({"runc": {}, "crun": {}})", "runsc"), ISOGATE_PROBE_UNAVAILABLE);
  EXPECT_EQ(verdict("{}", "runsc"), ISOGATE_PROBE_AVAILABLE) << "none are listed: it is not known";
  EXPECT_EQ(verdict("null", "runsc"), ISOGATE_PROBE_AVAILABLE);
  EXPECT_EQ(verdict(R"({"runc": {}})", "io.containerd.kata.v2"), ISOGATE_PROBE_AVAILABLE) << "never listed";
}

// A missing source counts if the Engine keeps its data in a directory of this host, or seems to.
TEST_F(Probes, AMissingMountIsLookedForWhereTheEngineSeesThisHost) {
  const auto verdict = [this](const std::string& data_root, const char* workspace) {
    const std::string can =
        R"("MemoryLimit": true, "SwapLimit": true, "CpuCfsQuota": true, "PidsLimit": true, )";
    fake_.say("/info", FakeEngine::json("{" + can + R"("DockerRootDir": ")" + data_root + "\"}"));
    make({{"workspace", workspace}, {"mounts", {{{"source", "/nope"}, {"target", "/data"}}}}});
    return probe().verdict;
  };
  EXPECT_EQ(verdict(directory_.path(), "auto"), ISOGATE_PROBE_UNAVAILABLE);
  EXPECT_NE(std::string(probe().detail).find("cannot mount `/nope` to /data"), std::string::npos);
  EXPECT_EQ(verdict("/no/such/root", "auto"), ISOGATE_PROBE_AVAILABLE) << "a gateway in a container";
  EXPECT_EQ(verdict("/no/such/root", "bind"), ISOGATE_PROBE_UNAVAILABLE);
  EXPECT_EQ(verdict(directory_.path(), "volume"), ISOGATE_PROBE_AVAILABLE);
}

// Reached over a link here, so that its name does not show it.
TEST_F(Probes, AMountThatShowsTheEnginesSocketIsRefusedByWhatItIs) {
  const std::string place = fake_.address().substr(7, fake_.address().rfind('/') - 7);
  const std::string link = directory_.path() + "/link";
  ASSERT_EQ(::symlink((place + "/s").c_str(), link.c_str()), 0);
  make({{"host", "unix://" + link}, {"mounts", {{{"source", place}, {"target", "/data"}}}}});
  EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE);
  const std::string why = probe().detail;
  EXPECT_NE(why.find("cannot mount `" + place + "` to /data: it shows an engine's socket"), why.npos) << why;
}

TEST_F(Probes, ASharedDirectoryThatShowsTheEnginesSocketIsRefused) {
  const std::string place = fake_.address().substr(7, fake_.address().rfind('/') - 7);
  const std::string link = directory_.path() + "/link";
  ASSERT_EQ(::symlink(place.c_str(), link.c_str()), 0);
  for (const std::string& source : {place, link, std::string("/run")}) {
    const isogate_shared_dir shared{sdk::str("data"), sdk::str(source)};
    host_.shared_dirs = &shared;
    host_.shared_dir_count = 1;
    make();
    EXPECT_EQ(probe().verdict, ISOGATE_PROBE_UNAVAILABLE) << source;
    const std::string why = probe().detail;
    EXPECT_NE(why.find("cannot mount `" + source + "` to /mnt/data"), why.npos) << why;
    EXPECT_NE(why.find("whole machine"), why.npos) << why;
    backend_.reset();
  }
}

TEST_F(Probes, AnEngineOfTheEnvironmentWithoutTlsIsReportedAsARelaxation) {
  backend_.reset();
  FakeEngine far(true);
  far.say("/info", kInfo);
  std::vector<std::string> lines;
  host_.ctx = &lines;
  host_.log = [](void* ctx, uint32_t, isogate_str line) {
    static_cast<std::vector<std::string>*>(ctx)->emplace_back(sdk::view(line));
  };
  host_.flags |= ISOGATE_HOST_PROBE_ONLY;
  ::setenv("DOCKER_HOST", far.address().c_str(), 1);
  backend_ = std::make_unique<Backend>(sdk::Host(host_), R"({"image": "x"})");
  const std::string detail = probe().detail;
  (void)probe();
  ::unsetenv("DOCKER_HOST");
  backend_.reset();
  const std::string plain = "the Engine is spoken to over " + far.address() + " without TLS";
  EXPECT_NE(detail.find("relaxed: "), std::string::npos) << detail;
  EXPECT_NE(detail.find(plain), std::string::npos) << detail;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "relaxation: " + plain), 1);
}

TEST_F(Probes, WhatEarlierPurgesLeftIsSweptAtTheStart) {
  namespace fs = std::filesystem;
  const fs::path trash = fs::path(directory_.path()) / ".purged";
  fs::permissions(directory_.path(), fs::perms::owner_all);
  const auto leave = [&] {
    fs::create_directories(trash / "left/inner");
    fs::permissions(trash, fs::perms::owner_all);
  };
  leave();
  make();
  EXPECT_TRUE(test::eventually(20, [&] { return fs::is_empty(trash); }));
  backend_.reset();
  leave();
  host_.flags |= ISOGATE_HOST_PROBE_ONLY;
  make();
  backend_.reset();
  EXPECT_TRUE(fs::exists(trash)) << "a probe removes nothing";
}

using ProbeOfAnEngine = OnEngine;

TEST_F(ProbeOfAnEngine, ARuntimeThatItDoesNotKnowIsNamedWithThoseItHas) {
  test::GatewayOptions unknown = options("runtime: no-such-runtime");
  unknown.wait_ready = false;
  const test::Gateway gateway(unknown);
  const std::string backends = detail_of(gateway);
  EXPECT_NE(backends.find("knows no runtime `no-such-runtime`"), std::string::npos) << backends;
  EXPECT_NE(backends.find("runc"), std::string::npos) << backends;
}

}  // namespace
}  // namespace isogate::docker
