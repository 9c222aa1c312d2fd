// What a tenant can do that controls the runner, or connects in its place: through a gateway.
#include <gmock/gmock.h>

#include <csignal>
#include <thread>

#include "tests/docker/gateways.h"
#include "tests/support/processes.h"
#include "tests_dirs.h"

namespace isogate::docker {
namespace {

using test::Answer;
using test::Caller;
using test::ExecStream;
using test::Gateway;
using test::GatewayOptions;
using testing::HasSubstr;
using testing::Not;

class Hostile : public OnEngine {
 protected:
  // Its runners are hostile_runner.cc.
  GatewayOptions with_hostile_runners() {
    return options("transport: stream, runner: " ISOGATE_BUILD_DIR
                   "/bin/hostile_runner"
                   ", mounts: [{source: " ISOGATE_BUILD_DIR "/bin/isogate-runner, target: /opt/runner}]");
  }
};

// Neither the call nor its response contains anything of the forged message; the connection is dropped, and
// the next call has a new one.
TEST_F(Hostile, WhatARunnerMakesUpIsRefusedInLittleMemory) {
  Gateway gateway(with_hostile_runners());
  const Caller me(gateway, "x"), other(gateway, "y");
  me.run("true");
  other.run("true");
  ExecStream neighbour(other, {{"command", "echo up; read line; echo $line"}, {"timeout_sec", 120}}, 120);
  ASSERT_EQ(neighbour.next()->at("event"), "start");
  const pid_t host = test::host_of(gateway, "docker"), front = test::front_of(gateway);
  const long before = test::resident_kib(host) + test::resident_kib(front);
  for (const char* how : {"garbage", "huge", "stranger", "flood"}) {
    const Answer answer = me.exec("echo evil-" + std::string(how), {{"timeout_sec", 5}});
    EXPECT_TRUE(answer.status >= 500 || answer.body.at("outcome") == "unknown")
        << how << ": " << answer.text.substr(0, 300);
    EXPECT_EQ(me.out("echo works"), "works\n") << how;
  }
  for (const char* how : {"garbage", "huge", "stranger", "above", "absolute", "kind", "large", "many"}) {
    const Answer answer = me.post("/workspace/list", {{"path", "evil-" + std::string(how)}});
    EXPECT_GE(answer.status, 500) << how << ": " << answer.text.substr(0, 300);
    EXPECT_THAT(answer.text, Not(HasSubstr("passwd")));
    EXPECT_THAT(answer.text, Not(HasSubstr("../")));
    EXPECT_EQ(me.out("echo works"), "works\n") << how;
  }
  for (const char* how : {"garbage", "huge", "largestat"})
    EXPECT_GE(me.post("/workspace/stat", {{"path", "evil-" + std::string(how)}}).status, 500) << how;
  for (const char* how : {"flood", "huge"}) {
    const int status = me.read("evil-" + std::string(how)).status;
    EXPECT_TRUE(status == 413 || status >= 500)
        << how << ": " << status;  // it may say that it is too much for a response
  }
  EXPECT_EQ(me.out("echo works"), "works\n");
  EXPECT_LT(test::resident_kib(host) + test::resident_kib(front) - before, test::kib_bound(24 * 1024));
  EXPECT_EQ(test::host_of(gateway, "docker"), host) << "the backend host was restarted";
  EXPECT_EQ(other.out("echo fine"), "fine\n");
}

// What the next container answers would come behind the first part.
TEST_F(Hostile, WhatARunnerBreaksOffIsNotRepeatedIntoTheSameAnswer) {
  Gateway gateway(with_hostile_runners());
  const Caller me(gateway, "x");
  me.run("mkdir ev''il-halflist; touch ev''il-halflist/a; printf content > ev''il-halfread");
  const auto list = [&] { return me.post("/workspace/list", {{"path", "evil-halflist"}}); };
  for (const Answer& broken : {list(), me.read("evil-halfread")}) {
    EXPECT_TRUE(test::refused(broken, 503, "backend_unavailable")) << broken.text;
    EXPECT_EQ(broken.body.at("error").at("retryable"), true);
    EXPECT_THAT(broken.text, HasSubstr("contact with the runner was lost"));
  }
  const Answer whole = list();
  EXPECT_TRUE(succeeded(whole));
  EXPECT_EQ(whole.body.at("entries").size(), 1u) << whole.text;
  EXPECT_EQ(me.content("evil-halfread"), "content");
}

// Of X's container only its first process is accepted, whoever connects.
TEST_F(Hostile, OnlyTheRunnerIsAccepted) {
  const GatewayOptions keep = lasting("", "on_shutdown: keep");
  std::string container;
  {
    Gateway gateway(keep);
    const Caller x(gateway, "x"), y(gateway, "y");
    x.run("echo x > /tmp/mark");
    y.run("echo y > /tmp/mark");
    EXPECT_EQ(
        x.out("cd /run/isogate/gate && for try in 'ln -s /tmp/y runner.sock' 'ln -sf /tmp/y other.sock' "
              "'mv runner.sock away' 'rm runner.sock' 'touch file'; do $try 2>/dev/null && echo $try; done; "
              "true"),
        "");
    EXPECT_EQ(x.out("python3 -c 'import socket; s = socket.socket(socket.AF_UNIX)\ntry: "
                    "s.bind(\"/run/isogate/gate/rival.sock\")\nexcept OSError: print(\"refused\")'"),
              "refused\n");
    EXPECT_EQ(x.out("ls /var/run/docker.sock /run/docker.sock /run/isogate/gate/../../y 2>/dev/null; true"),
              "");
    container = container_of(gateway, "x");
    gateway.stop();
  }
  // A rival process that runs next to the runner and connects without end.
  const std::string rival =
      "import socket, time\nkept = []\nwhile True:\n  s = socket.socket(socket.AF_UNIX)\n  try:\n"
      "    s.connect('/run/isogate/gate/runner.sock'); kept.append(s); time.sleep(0.02)\n"
      "  except OSError: time.sleep(0.0005)\n";
  const Json seen = engine_->inspect(container, usual());
  const std::string user = seen.at("Config").at("User");
  const Json body{{"Cmd", {"python3", "-c", rival}}, {"User", user}, {"AttachStdout", true}};
  const auto stream = engine_->exec_start(engine_->exec_create(container, body, usual()), usual());
  const pid_t runner = seen.at("State").at("Pid").get<pid_t>();
  ASSERT_EQ(::kill(runner, SIGSTOP), 0);  // so that the rival comes first
  Gateway again(keep);
  std::this_thread::sleep_for(milliseconds(500));
  ASSERT_EQ(::kill(runner, SIGCONT), 0);
  const Caller x(again, "x"), y(again, "y");
  EXPECT_EQ(x.out("cat /tmp/mark"), "x\n");
  EXPECT_EQ(container_of(again, "x"), container);
  EXPECT_THAT(again.log(), HasSubstr("others than the runner connected"));
  EXPECT_EQ(y.out("cat /tmp/mark"), "y\n");
  again.signal(SIGTERM);
  EXPECT_EQ(again.wait(60), 0);
}

// It has the name, the labels and the program of our container, and is still another one.
TEST_F(Hostile, APlantedContainerIsNeitherAdoptedNorRemovedNorSpokenTo) {
  const GatewayOptions keep = lasting("transport: stream", "on_shutdown: keep");
  const std::string ours = left_by(keep, "printf 'still here' > kept");
  const Json seen = engine_->inspect(ours, usual());
  engine_->remove(ours, usual());
  const std::string planted = engine_->create_container(
      seen.at("Name").get<std::string>().substr(1),
      {{"Image", "isogate-test:base"},
       {"Cmd", {"sleep", "600"}},
       {"Labels", seen.at("Config").at("Labels")},
       {"HostConfig", {{"NetworkMode", "none"}, {"Mounts", seen.at("HostConfig").at("Mounts")}}}},
      usual());
  engine_->start(planted, usual());
  Gateway again(keep);
  const Caller x(again, "a");
  EXPECT_EQ(x.content("kept"), "still here");
  EXPECT_EQ(x.out("cat /proc/1/comm"), "isogate-runner\n");
  EXPECT_TRUE(succeeded(x.call("DELETE", "/sandboxes/a?purge=true")));
  const Json after = engine_->inspect(planted, usual());
  EXPECT_EQ(after.at("State").at("Running"), true);
  EXPECT_TRUE(after.at("ExecIDs").is_null()) << after.at("ExecIDs");
}

}  // namespace
}  // namespace isogate::docker
