#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "plugins/docker/container/seccomp.h"
#include "tests/docker/engine_proxy.h"
#include "tests/docker/gateways.h"
#include "tests/support/processes.h"

// The backend through a real gateway, on a real Engine: the life of containers.
namespace isogate::docker {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::ExecStream;
using test::Gateway;
using test::GatewayOptions;
using testing::HasSubstr;

class Lifecycle : public OnEngine {};

TEST_F(Lifecycle, HardensWhatTheEngineRuns) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const Json seen = engine_->inspect(container_of(gateway, "a"), usual());
  const Json& host = seen.at("HostConfig");
  EXPECT_EQ(host.at("CapDrop"), Json({"ALL"}));
  EXPECT_EQ(host.at("NetworkMode"), "none");
  EXPECT_EQ(host.at("ReadonlyRootfs"), true);
  EXPECT_EQ(host.at("Memory"), 512u << 20);
  EXPECT_EQ(host.at("MemorySwap"), 512u << 20);
  EXPECT_EQ(host.at("PidsLimit"), 256);
  EXPECT_EQ(host.at("NanoCpus"), 1000000000);
  EXPECT_EQ(host.at("Privileged"), false);
  EXPECT_EQ(host.at("SecurityOpt"), Json({"no-new-privileges", "seccomp=" + seccomp_profile()}));
  EXPECT_NE(seen.at("Config").at("User"), "");
  for (const Json& mount : seen.at("Mounts"))
    EXPECT_TRUE(mount.at("RW") == false || mount.at("Destination") == "/workspace") << mount;
  EXPECT_EQ(me.run("touch /x").at("exit_code"), 1);
  EXPECT_EQ(me.out("touch /tmp/x && echo ok"), "ok\n");
}

TEST_F(Lifecycle, ADeadContainerCostsTheCallThatSawItAndNothingElse) {
  Gateway gateway(options());
  const Caller me(gateway, "a"), other(gateway, "b");
  ASSERT_TRUE(succeeded(me.write("kept", "still here")));
  other.run("true");
  const std::string before = container_of(gateway, "a");
  ExecStream stream(me, {{"command", "echo up; sleep 60"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(stream.next()->at("event"), "stdout") << "it runs";
  engine_->kill(before, "KILL", usual());
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("event"), "exit");
  EXPECT_EQ(events.back().at("outcome"), "unknown") << events.back();
  EXPECT_TRUE(events.back().at("exit_code").is_null());
  EXPECT_EQ(me.out("cat kept"), "still here");
  EXPECT_NE(container_of(gateway, "a"), before);
  EXPECT_EQ(other.out("echo fine"), "fine\n");
}

TEST_F(Lifecycle, AContainerThatDiedBetweenCallsIsRecreated) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  ASSERT_TRUE(succeeded(me.write("kept", "still here")));
  engine_->remove(container_of(gateway, "a"), usual());
  EXPECT_EQ(me.out("cat kept"), "still here");
  EXPECT_THAT(gateway.log(), HasSubstr("recreated"));
}

TEST_F(Lifecycle, SigtermRemovesEveryContainerAndNoWorkspace) {
  const GatewayOptions first = lasting();
  std::string container;
  {
    Gateway gateway(first);
    for (const char* agent : {"a", "b", "c"})
      ASSERT_TRUE(succeeded(Caller(gateway, agent).write("kept", agent)));
    container = container_of(gateway, "b");
    gateway.stop();
  }
  EXPECT_EQ(failure_of([&] { engine_->inspect(container, usual()); }).http_status, 404);
  Gateway again(first);
  EXPECT_EQ(Caller(again, "b").content("kept"), "b");
}

TEST_F(Lifecycle, KeptContainersAreFoundAgainByWhatWasRecorded) {
  const std::string container = left_by(lasting("", "on_shutdown: keep"), "echo mine > /tmp/mark");
  EXPECT_EQ(engine_->inspect(container, usual()).at("State").at("Running"), true);
  Gateway again(lasting());
  EXPECT_EQ(Caller(again, "a").out("cat /tmp/mark"), "mine\n");
  EXPECT_EQ(container_of(again, "a"), container);
}

TEST_F(Lifecycle, KeptContainersAreRecreatedWhenTheirSettingsHaveChanged) {
  const std::string before =
      left_by(lasting("memory_mb: 256", "on_shutdown: keep"), "printf 'still here' > kept");
  Gateway again(lasting("memory_mb: 128"));
  EXPECT_EQ(Caller(again, "a").out("cat kept"), "still here");
  const std::string after = container_of(again, "a");
  EXPECT_NE(after, before);
  EXPECT_EQ(engine_->inspect(after, usual()).at("HostConfig").at("Memory"), 128u << 20);
}

TEST_F(Lifecycle, AGatewayThatIsKilledLeavesNoProgramAndFindsItsContainer) {
  const GatewayOptions same = lasting();
  std::string container;
  {
    Gateway gateway(same);
    ExecStream stream(Caller(gateway, "a"), {{"command", "sleep 4711.25"}});
    ASSERT_EQ(stream.next()->at("event"), "start");
    container = container_of(gateway, "a");
    gateway.kill();
  }
  Gateway again(same);
  const Caller me(again, "a");
  EXPECT_TRUE(
      eventually(5, [&] { return me.run("grep -l 4711[.]25 /proc/[0-9]*/cmdline").at("stdout") == ""; }));
  EXPECT_EQ(container_of(again, "a"), container);
}

TEST_F(Lifecycle, AContainerThatOnlyHasOurLabelsIsKept) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const Json ours = engine_->inspect(container_of(gateway, "a"), usual());
  const std::string planted = run({{"Labels", ours.at("Config").at("Labels")}});
  engine_->kill(ours.at("Id"), "KILL", usual());
  EXPECT_EQ(me.out("echo back"), "back\n");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(engine_->inspect(planted, usual()).at("State").at("Running"), true);
  engine_->remove(planted, usual());
}

TEST_F(Lifecycle, APausedContainerIsReplacedOnceAnExecOfItHasTimedOut) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const std::string id = container_of(gateway, "a");
  docker({"pause", id});
  const Answer answer = me.exec("true", {{"timeout_sec", 1}});
  EXPECT_TRUE(answer.status >= 502 || answer.body.at("outcome") == "timed_out") << answer.text;
  EXPECT_TRUE(eventually(20, [&] { return me.exec("true").status == 200; }));
  EXPECT_NE(container_of(gateway, "a"), id);
}

TEST_F(Lifecycle, AKeptContainerThatIsPausedServesNothingAndCanBeDeleted) {
  const GatewayOptions keep = lasting("", "on_shutdown: keep");
  const std::string id = left_by(keep, "true");
  docker({"pause", id});
  Gateway again(keep);
  const Caller me(again, "a");
  const Answer answer = me.exec("true");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("unpause it, or DELETE the sandbox"));
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(failure_of([&] { engine_->inspect(id, usual()); }).http_status, 404);
  EXPECT_EQ(me.out("echo another"), "another\n");
}

// A name may be of another image by the next sandbox.
TEST_F(Lifecycle, AnImageIsLookedAtForEachSandbox) {
  const std::string image = "isogate-test-own:" + instance_;
  const auto change = [&](const std::string& what) {
    const std::string made = docker({"create", "isogate-test:small", "true"});
    const std::string id = made.substr(0, made.find('\n'));
    docker({"commit", "--change", what, id, image});
    engine_->remove(id, usual());
  };
  GatewayOptions admitted = options("", "", "images: [\"isogate-test-own:*\"]");
  Gateway gateway(admitted);
  const auto open = [&](const std::string& agent) {
    return Caller(gateway, agent).post("/sandboxes", {{"agent_id", agent}, {"image", image}});
  };
  const auto mark_of = [&](const std::string& agent) -> std::string {  // there is no bash in it
    return Caller(gateway, agent).run_argv({"/bin/sh", "-c", "echo $MARK"}).at("stdout");
  };
  change("ENV MARK=first");
  ASSERT_TRUE(succeeded(open("a")));
  EXPECT_EQ(mark_of("a"), "first\n");
  change("ENV MARK=second");
  ASSERT_TRUE(succeeded(open("b")));
  EXPECT_EQ(mark_of("b"), "second\n");
  change("VOLUME /data");
  const Answer answer = open("c");
  EXPECT_NE(answer.status / 100, 2);
  EXPECT_THAT(answer.text, HasSubstr("/data"));
  for (const char* agent : {"a", "b"})
    Caller(gateway, agent).call("DELETE", "/sandboxes/" + std::string(agent));
  docker({"rmi", "--force", image});
}

TEST_F(Lifecycle, TooMuchMemoryIsReportedFromTheKernelsCounter) {
  Gateway gateway(options("memory_mb: 64"));
  const Json result = Caller(gateway, "a").run("python3 -c 'x = bytearray(10**9)'");
  EXPECT_EQ(result.at("outcome"), "oom_killed") << result;
  EXPECT_EQ(result.at("exit_code"), 137);
  EXPECT_EQ(Caller(gateway, "a").out("echo fine"), "fine\n");
}

TEST_F(Lifecycle, WhoKillsAllItCanOverAStreamLosesItsCallsAndNoMore) {
  Gateway gateway(options("transport: stream"));
  const Caller me(gateway, "a");
  ASSERT_TRUE(succeeded(me.write("kept", "still here")));
  const std::string container = container_of(gateway, "a");
  const Answer answer = me.exec("kill -9 -1; sleep 5");
  EXPECT_TRUE(answer.status == 502 || answer.body.at("outcome") != "exited") << answer.text;
  EXPECT_EQ(me.out("cat kept"), "still here");
  EXPECT_NE(container_of(gateway, "a"), container) << "what still runs in the old one is not known";
}

// With a runner for each call, none knows whether another one's program uses it.
TEST_F(Lifecycle, WhatProgramsLeaveInMemoryGoesWhereOneRunnerRunsThemAll) {
  const std::vector<std::pair<std::string, std::string>> transports = {{"stream", "1\n"},
                                                                       {"exec", "left\n2\n"}};
  for (const auto& [transport, found] : transports) {
    Gateway gateway(options("transport: " + transport));
    const Caller me(gateway, "a");
    me.run("echo x > /dev/shm/left; python3 -c 'import ctypes; ctypes.CDLL(None).shmget(0, 4096, 0o1600)'");
    EXPECT_EQ(me.out("ls -A /dev/shm; wc -l < /proc/sysvipc/shm"), found) << transport;
  }
}

TEST_F(Lifecycle, ManyExecsInOneContainerAtOnce) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  std::vector<std::thread> clients;
  std::atomic<int> done = 0;
  const double seconds = test::seconds_of([&] {
    for (int i = 0; i < 48; ++i)
      clients.emplace_back([&] { done += me.run("echo $$").at("exit_code") == 0 ? 1 : 0; });
    for (std::thread& client : clients) client.join();
  });
  EXPECT_EQ(done, 48);
  EXPECT_LT(seconds, 20) << "an exec of the Engine for each takes longer";
}

// Whatever it left running, and whatever it does at its timeout.
TEST_F(Lifecycle, NothingAnExecLeavesHoldsItsAnswerOrSurvivesIt) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const std::string mark = test::new_mark();
  const std::string daemons = "sleep " + mark + " & setsid -f sleep " + mark + "; echo same bytes";
  double plain = 1e9, held = 1e9;
  for (int i = 0; i < 5; ++i) {
    plain = std::min(plain, test::seconds_of([&] { EXPECT_EQ(me.out("echo same bytes"), "same bytes\n"); }));
    held = std::min(held, test::seconds_of([&] { EXPECT_EQ(me.out(daemons), "same bytes\n"); }));
    EXPECT_TRUE(test::gone_within(1, mark));
  }
  EXPECT_LT(held, plain + 1);  // at most 100 ms on an idle machine
  std::vector<std::string> commands = test::stubborn_commands(mark);
  commands.push_back("f() { setsid sleep " + mark + " & f & f; }; (f) & exec sleep " + mark);
  for (const std::string& command : commands) {
    const Answer answer = me.exec(command, {{"timeout_sec", 1}});
    EXPECT_TRUE(answer.body.value("outcome", "") == "timed_out" || refused(answer, 502, "outcome_unknown"))
        << answer.text;
    EXPECT_TRUE(test::gone_within(3, mark)) << test::marked(mark).size() << " survivors of " << command;
    EXPECT_EQ(me.out("echo works"), "works\n") << "after " << command;
  }
  EXPECT_EQ(containers_of(gateway, "a").size(), 1u);
}

TEST_F(Lifecycle, ADedicatedNetworkIsNobodyElsesAndGoesWithTheSandbox) {
  Gateway gateway(options("network: dedicated"));
  const Caller me(gateway, "a"), other(gateway, "b");
  me.run("true");
  other.run("true");
  const Json mine =
      engine_->inspect(container_of(gateway, "a"), usual()).at("NetworkSettings").at("Networks");
  const Json theirs =
      engine_->inspect(container_of(gateway, "b"), usual()).at("NetworkSettings").at("Networks");
  ASSERT_EQ(mine.size(), 1u);
  const std::string id = mine.begin()->at("NetworkID");
  EXPECT_NE(id, theirs.begin()->at("NetworkID").get<std::string>());
  EXPECT_EQ(engine_->inspect(id, usual(), ObjectKind::kNetwork).at("Labels").at(kLabelInstance), instance_);
  const Json backend = me.get("/backends").body.at("backends").at(0);
  EXPECT_THAT(backend.dump(), HasSubstr("network with a way out"));
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(failure_of([&] { engine_->inspect(id, usual(), ObjectKind::kNetwork); }).http_status, 404);
  EXPECT_EQ(me.out("echo back"), "back\n");
}

TEST_F(Lifecycle, AWorkspaceIsNeverSwappedForAnEmptyOne) {
  const GatewayOptions bind = lasting(), volume = lasting("workspace: volume");
  {
    Gateway gateway(bind);
    ASSERT_TRUE(succeeded(Caller(gateway, "a").write("kept", "in a directory")));
  }
  {
    Gateway gateway(volume);
    const Answer refusal = Caller(gateway, "a").read("kept");
    EXPECT_EQ(refusal.status, 503);
    EXPECT_THAT(refusal.text, HasSubstr("set it to bind"));
    ASSERT_TRUE(succeeded(Caller(gateway, "b").write("kept", "in a volume")));
  }
  Gateway gateway(bind);
  EXPECT_EQ(Caller(gateway, "a").content("kept"), "in a directory");
  EXPECT_EQ(Caller(gateway, "b").content("kept"), "in a volume");
  gateway.stop();
  Gateway last(volume);
  EXPECT_TRUE(succeeded(Caller(last, "b").call("DELETE", "/sandboxes/b?purge=true")));
  EXPECT_TRUE(
      engine_->list({{kLabelInstance, instance_}, {kLabelRole, "workspace"}}, usual(), ObjectKind::kVolume)
          .empty());
}

TEST_F(Lifecycle, ARunnersVolumeThatIsPrunedIsFilledAgainAndNoneIsUsedHalfMade) {
  const std::string address = std::getenv(variable_);
  if (!address.starts_with("unix://")) GTEST_SKIP() << "the Engine is not at a Unix socket";
  EngineProxy proxy(address.substr(7));
  GatewayOptions by_proxy = options("workspace: volume");
  by_proxy.env = {{"DOCKER_HOST", proxy.address()}};
  Gateway gateway(by_proxy);
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("echo first"), "first\n");
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  const auto volumes =
      engine_->list({{kLabelInstance, instance_}, {kLabelRole, "runner"}}, usual(), ObjectKind::kVolume);
  ASSERT_EQ(volumes.size(), 1u);
  engine_->remove(volumes[0].at("Name"), usual(), ObjectKind::kVolume);
  proxy.fail_all("PUT /containers/*/archive", Fault::kError);
  EXPECT_EQ(me.read("nothing").status, 503);
  EXPECT_THAT(proxy.failed(), HasSubstr("/archive"));
  proxy.heal();
  EXPECT_EQ(me.out("echo again"), "again\n");
}

TEST_F(Lifecycle, AnUnreachableEngineIsAReasonAndNothingRuns) {
  GatewayOptions nowhere = options();
  nowhere.env = {{"DOCKER_HOST", "unix:///nonexistent/docker.sock"}};
  nowhere.wait_ready = false;
  Gateway gateway(nowhere);
  const Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("/nonexistent/docker.sock"));
}

TEST_F(Lifecycle, AnImageThatIsNotThereIsNamedWithTheRemedy) {
  GatewayOptions absent = options();
  absent.yaml = "backends:\n  - name: docker\n    config: {image: \"no-such-image:1\"}\n";
  absent.wait_ready = false;
  Gateway gateway(absent);
  const Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("no-such-image:1"));
  EXPECT_THAT(answer.text, HasSubstr("sandbox-image"));
}

// What a purge has no time for is done next to the calls: what an earlier gateway left, and what this one
// leaves.
TEST_F(Lifecycle, WhatAPurgeLeavesIsSweptAfterwards) {
  namespace fs = std::filesystem;
  Gateway gateway(options());
  const fs::path trash = fs::path(gateway.state_dir()) / "sandboxes/.purged";
  const Caller me(gateway, "a");
  me.run("touch file");
  fs::create_directories(trash / "left/inner");
  fs::permissions(trash, fs::perms::owner_all);
  ASSERT_EQ(me.call("DELETE", "/sandboxes/a?purge=true").status, 200);
  EXPECT_TRUE(eventually(20, [&] { return fs::is_empty(trash); }));
}

}  // namespace
}  // namespace isogate::docker
