// Companions and the internal network, through a real gateway on a real Engine.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "lib/fd.h"
#include "plugins/docker/container/seccomp.h"
#include "tests/docker/engine_proxy.h"
#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;
using testing::HasSubstr;

// A server on port 5000 that says hello, healthy once its file is there.
const char* const kServer =
    "command: [sh, -c, \"touch /tmp/up; while :; do echo hello | nc -l -p 5000; done\"]";
const char* const kHealthy = "healthcheck: {test: [test, -e, /tmp/up], interval_sec: 1}";

// What a program in the sandbox does to reach something over TCP.
std::string reach(const std::string& host, int port) {
  return "python3 -c \"import socket; s = socket.create_connection(('" + host + "', " + std::to_string(port) +
         "), 2); print(s.recv(99).decode(), end='')\" 2>&1 | tail -n 1";
}

// On all addresses of this machine; never accepted, which a connect does not notice.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t size = sizeof any;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&any), size), 0);
    EXPECT_EQ(::listen(fd_.get(), 64), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&any), &size), 0);
    port = ntohs(any.sin_port);
  }
  int port = 0;

 private:
  Fd fd_;
};

class WithCompanions : public OnEngine {
 protected:
  test::GatewayOptions with(const std::string& companions, const std::string& network = "internal",
                            const std::string& more = {}) const {
    return options("network: " + network + ", companions: [" + companions + "]", more);
  }
  static std::string db(const std::string& more = {}) {
    return std::string("{name: db, image: \"isogate-test:small\", ") + kServer + (more.empty() ? "" : ", ") +
           more + "}";
  }
  bool has_companions(size_t count) const {
    return eventually(20, [&] {
      size_t running = 0;
      for (const Json& each : containers("companion")) running += each.at("State") == "running" ? 1 : 0;
      return running == count;
    });
  }
};

TEST_F(WithCompanions, TheyAreReachedByTheirNamesAndGoWithTheContainer) {
  Gateway gateway(with(db() + ", {name: cache-1, image: \"isogate-test:small\", " + kServer + "}"));
  const Caller me(gateway, "a");
  me.run("true");
  ASSERT_TRUE(has_companions(2)) << gateway.log();
  EXPECT_TRUE(eventually(10, [&] { return me.out(reach("db", 5000)) == "hello\n"; }));
  EXPECT_TRUE(eventually(10, [&] { return me.out(reach("cache-1", 5000)) == "hello\n"; }));
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_TRUE(containers("companion").empty());
  EXPECT_TRUE(containers("sandbox").empty());
}

TEST_F(WithCompanions, TheyAreHardenedAsTheSandboxItself) {
  Gateway gateway(with(db("memory_mb: 64, tmpfs: [/var/lib/db], env: {MODE: strict}")));
  Caller(gateway, "a").run("true");
  ASSERT_TRUE(has_companions(1)) << gateway.log();
  const Json seen = only("companion"), host = seen.at("HostConfig");
  EXPECT_EQ(host.at("CapDrop"), Json({"ALL"}));
  EXPECT_EQ(host.at("SecurityOpt"), Json({"no-new-privileges", "seccomp=" + seccomp_profile()}));
  EXPECT_EQ(host.at("ReadonlyRootfs"), true);
  EXPECT_EQ(host.at("Privileged"), false);
  EXPECT_EQ(host.at("Memory"), 64u << 20);
  EXPECT_EQ(host.at("PidsLimit"), 256);
  EXPECT_EQ(seen.at("Config").at("User"), only("sandbox").at("Config").at("User"));
  EXPECT_TRUE(seen.at("Mounts").empty()) << "nothing of this host, nor the workspace";
  const std::string id = seen.at("Id");
  EXPECT_EQ(
      exec(id, {"sh", "-c", "echo $MODE; touch /x 2> /dev/null || echo no; touch /var/lib/db/x && echo yes"}),
      "strict\nno\nyes\n");
}

TEST_F(WithCompanions, OneThatIsNotLimitedAsAskedDoesNotRun) {
  const std::string address = std::getenv(variable_);
  if (!address.starts_with("unix://")) GTEST_SKIP() << "the Engine is not at a Unix socket";
  EngineProxy proxy(address.substr(7));
  proxy.edit_containers([](const std::string& body) {
    Json json = Json::parse(body);
    if (json.at("Labels").at(kLabelRole) == "companion") json["HostConfig"]["MemorySwap"] = 1u << 30;
    return json.dump();
  });
  test::GatewayOptions options = with(db());
  options.env = {{"DOCKER_HOST", proxy.address()}};
  Gateway gateway(options);
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("echo fine"), "fine\n");
  EXPECT_TRUE(gateway.logs("does not put its limits in force: MemorySwap is 1073741824", 20))
      << gateway.log();
  for (const Json& each : containers("companion")) EXPECT_EQ(each.at("State"), "created");
}

TEST_F(WithCompanions, NoCallWaitsForThemOrFailsWithThem) {
  Gateway gateway(
      with("{name: broken, image: \"isogate-test:small\", command: [/no/such/program]}, "
           "{name: dies, image: \"isogate-test:small\", command: [sh, -c, \"exit 7\"]}"));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("echo fine"), "fine\n");
  EXPECT_TRUE(eventually(20, [&] {
    return gateway.log().find("companion `dies` of") != std::string::npos &&
           gateway.log().find("ended with exit code 7") != std::string::npos &&
           gateway.log().find("companion `broken` of") != std::string::npos;
  })) << gateway.log();
  EXPECT_EQ(me.out("echo still fine"), "still fine\n");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_TRUE(containers("companion").empty());
}

TEST_F(WithCompanions, OneThatDiesIsStartedAgain) {
  Gateway gateway(with(db()));
  const Caller me(gateway, "a");
  me.run("true");
  ASSERT_TRUE(has_companions(1)) << gateway.log();
  const std::string id = only("companion").at("Id");
  engine_->kill(id, "KILL", usual());
  EXPECT_TRUE(eventually(20, [&] { return engine_->inspect(id, usual()).at("State").at("Running") == true; }))
      << gateway.log();
  EXPECT_THAT(gateway.log(), HasSubstr("ended with exit code 137"));
}

// The waits for its end broke off three times; its first end is answered as the first.
TEST_F(WithCompanions, ContactLostWithTheEngineIsNoEndOfACompanion) {
  const std::string address = std::getenv(variable_);
  if (!address.starts_with("unix://")) GTEST_SKIP() << "the Engine is not at a Unix socket";
  EngineProxy proxy(address.substr(7));
  proxy.fail_all("POST /containers/*/wait", Fault::kReset);
  test::GatewayOptions options = with(db());
  options.env = {{"DOCKER_HOST", proxy.address()}};
  Gateway gateway(options);
  const Caller me(gateway, "a");
  me.run("true");
  ASSERT_TRUE(gateway.logs("is looked at again", 20)) << gateway.log();
  std::this_thread::sleep_for(seconds(8));
  proxy.heal();
  const std::string id = only("companion").at("Id");
  engine_->kill(id, "KILL", usual());
  const auto is_up = [&] { return engine_->inspect(id, usual()).at("State").at("Running") == true; };
  EXPECT_LT(test::seconds_of([&] { EXPECT_TRUE(eventually(30, is_up)) << gateway.log(); }), 15)
      << "the fourth start is 25 s after the third";
}

TEST_F(WithCompanions, ARefusedCreationCountsAndANameThatIsStillInUseDoesNot) {
  const std::string address = std::getenv(variable_), create = "POST /containers/create";
  if (!address.starts_with("unix://")) GTEST_SKIP() << "the Engine is not at a Unix socket";
  EngineProxy proxy(address.substr(7));
  test::GatewayOptions options = with(db());
  options.env = {{"DOCKER_HOST", proxy.address()}};
  Gateway gateway(options);
  Caller(gateway, "a").run("true");
  ASSERT_TRUE(has_companions(1)) << gateway.log();
  proxy.fail_all(create, Fault::kError);
  engine_->remove(only("companion").at("Id"), usual());
  EXPECT_TRUE(gateway.logs("is not up: cannot create container", 20)) << gateway.log();
  proxy.fail_all(create, Fault::kReset);
  EXPECT_TRUE(gateway.logs("is looked at again in 5 s: cannot create container", 20)) << gateway.log();
  proxy.fail_all(create, Fault::kInUse);
  EXPECT_TRUE(gateway.logs("the name is already in use", 20)) << gateway.log();
  proxy.heal();
  EXPECT_TRUE(has_companions(1)) << gateway.log();
  EXPECT_THAT(gateway.log(),
              testing::Not(testing::ContainsRegex("is not up: [^\n]*the name is already in use")));
}

TEST_F(WithCompanions, PostStartRunsInTheSandboxOnceTheCompanionIsHealthy) {
  const std::string hook =
      "post_start: {command: [python3, -c, \"import socket, os; s = socket.create_connection(('db', 5000), "
      "5); "
      "open('seen', 'a').write(s.recv(9).decode() + str(os.getuid()))\"]}";
  Gateway gateway(with(db(std::string(kHealthy) + ", " + hook)));
  const Caller me(gateway, "a");
  const std::string uid = me.out("id -u");
  EXPECT_TRUE(eventually(30, [&] { return me.out("cat seen 2> /dev/null") == "hello\n" + uid.substr(0, 5); }))
      << gateway.log();
  EXPECT_TRUE(gateway.logs("has run", 5));
}

TEST_F(WithCompanions, AFailingHookIsLogged) {
  Gateway gateway(with(db(std::string(kHealthy) + ", post_start: {command: [sh, -c, \"exit 9\"]}") +
                       ", {name: slow, image: \"isogate-test:small\", " + kServer + ", " + kHealthy +
                       ", post_start: {command: [sleep, \"60\"], timeout_sec: 1}}"));
  const Caller me(gateway, "a");
  me.run("true");
  EXPECT_TRUE(eventually(30, [&] {
    return gateway.log().find("ended with exit code 9") != std::string::npos &&
           gateway.log().find("was killed after 1 s") != std::string::npos;
  })) << gateway.log();
  EXPECT_EQ(me.out("echo fine"), "fine\n");
}

TEST_F(WithCompanions, AnUnhealthyOneIsReportedAndItsHookNeverRuns) {
  Gateway gateway(
      with(db("healthcheck: {test: [\"false\"], interval_sec: 1, retries: 1}, "
              "post_start: {command: [touch, ran]}")));
  const Caller me(gateway, "a");
  me.run("true");
  EXPECT_TRUE(gateway.logs("is unhealthy", 20));
  EXPECT_NE(me.run("test -e ran").at("exit_code"), 0);
}

TEST_F(WithCompanions, ARestartedGatewayReattachesThemAndRunsNoHookTwice) {
  test::GatewayOptions keep =
      with(db(std::string(kHealthy) + ", post_start: {command: [sh, -c, \"echo x >> ran\"]}"), "internal",
           "on_shutdown: keep");
  keep.state_dir = state_.path();
  std::string companion, container;
  {
    Gateway gateway(keep);
    const Caller me(gateway, "a");
    me.run("true");
    ASSERT_TRUE(gateway.logs("has run", 30)) << gateway.log();
    companion = only("companion").at("Id");
    container = only("sandbox").at("Id");
    gateway.stop();
  }
  Gateway again(keep);
  const Caller me(again, "a");
  EXPECT_EQ(me.out("cat ran"), "x\n");
  EXPECT_TRUE(again.logs("is healthy", 20));
  EXPECT_EQ(only("companion").at("Id"), companion);
  EXPECT_EQ(only("sandbox").at("Id"), container);
  EXPECT_TRUE(eventually(10, [&] { return me.out(reach("db", 5000)) == "hello\n"; }));
  EXPECT_EQ(me.out("cat ran"), "x\n");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_TRUE(containers("companion").empty());
}

TEST_F(WithCompanions, AKilledGatewaysCompanionsAreRemovedWithTheSandbox) {
  test::GatewayOptions same = with(db());
  same.state_dir = state_.path();
  {
    Gateway gateway(same);
    Caller(gateway, "a").run("true");
    ASSERT_TRUE(has_companions(1)) << gateway.log();
    gateway.kill();
  }
  Gateway again(same);
  const Caller me(again, "a");
  me.run("true");
  EXPECT_EQ(containers("companion").size(), 1u);
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_TRUE(containers("companion").empty());
}

TEST_F(WithCompanions, OneThatOnlyHasTheLabelsIsKept) {
  Gateway gateway(with(db()));
  const Caller me(gateway, "a");
  me.run("true");
  ASSERT_TRUE(has_companions(1)) << gateway.log();
  const std::string planted = run({{"Labels", only("companion").at("Config").at("Labels")}});
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(engine_->inspect(planted, usual()).at("State").at("Running"), true);
  engine_->remove(planted, usual());
}

TEST_F(WithCompanions, ADeadSandboxsContainerComesBackWithFreshOnes) {
  Gateway gateway(with(db()));
  const Caller me(gateway, "a");
  me.run("true");
  ASSERT_TRUE(has_companions(1)) << gateway.log();
  const std::string before = only("companion").at("Id");
  engine_->kill(only("sandbox").at("Id"), "KILL", usual());
  EXPECT_EQ(me.out("echo back"), "back\n");
  ASSERT_TRUE(has_companions(1)) << gateway.log();
  EXPECT_NE(only("companion").at("Id"), before);
  EXPECT_TRUE(eventually(10, [&] { return me.out(reach("db", 5000)) == "hello\n"; }));
}

TEST_F(WithCompanions, AnImageThatIsNotThereIsNamed) {
  test::GatewayOptions absent = with("{name: db, image: \"no-such-image:1\"}");
  absent.wait_ready = false;
  Gateway gateway(absent);
  const std::string backends = detail_of(gateway);
  EXPECT_THAT(backends, HasSubstr("no-such-image:1"));
  EXPECT_THAT(backends, HasSubstr("companion `db`"));
}

// All addresses of this machine, and the one that the network's bridge would have.
TEST_F(WithCompanions, NothingOfThisMachineIsReachedFromAnInternalNetwork) {
  const Listener listener;
  Gateway gateway(options("network: internal, companions: [" + db() + "]", "", "egress: deny"));
  const Caller me(gateway, "a");
  me.run("true");
  const Json networks = only("sandbox").at("NetworkSettings").at("Networks");
  ASSERT_EQ(networks.size(), 1u);
  std::vector<std::string> addresses{networks.begin()->at("Gateway"), "169.254.169.254", "1.1.1.1"};
  const auto own = test::run_program({"hostname", "-I"});
  for (std::istringstream words(own.out); words;) {
    std::string word;
    if (words >> word && word.find(':') == std::string::npos) addresses.push_back(word);
  }
  for (const std::string& each : addresses) {
    if (each.empty()) continue;
    const Json result = me.run("python3 -c \"import socket; socket.create_connection(('" + each + "', " +
                               std::to_string(listener.port) + "), 1)\"");
    EXPECT_NE(result.at("exit_code"), 0) << each;
  }
  EXPECT_NE(me.run("python3 -c \"import socket; socket.gethostbyname('example.com')\"").at("exit_code"), 0);
  ASSERT_TRUE(has_companions(1));
  EXPECT_TRUE(eventually(10, [&] { return me.out(reach("db", 5000)) == "hello\n"; }));
  EXPECT_EQ(only("sandbox").at("HostConfig").at("Dns"), Json({"127.0.0.1"}));
}

TEST_F(WithCompanions, ANameThatNobodyHasIsGivenUpSoon) {
  Gateway gateway(with(db()));
  const Caller me(gateway, "a");
  me.run("true");
  for (const char* name : {"nobody", "example.com"}) {
    Json result;
    const double took = test::seconds_of([&] { result = me.run(std::string("getent hosts ") + name); });
    EXPECT_NE(result.at("exit_code"), 0) << result;
    EXPECT_LT(took, 9) << name << ": ten seconds and more without the options of the resolver";
  }
  EXPECT_EQ(only("sandbox").at("HostConfig").at("DnsOptions"), Json({"timeout:1", "attempts:1"}));
}

// The control: with a way out the same listener is reached, so the test above measures something.
TEST_F(WithCompanions, ThisMachineIsReachedFromADedicatedNetwork) {
  const Listener listener;
  Gateway gateway(with(db(), "dedicated"));
  const Caller me(gateway, "a");
  me.run("true");
  const std::string address = only("sandbox").at("NetworkSettings").at("Networks").begin()->at("Gateway");
  const Json result = me.run("python3 -c \"import socket; socket.create_connection(('" + address + "', " +
                             std::to_string(listener.port) + "), 1)\"");
  EXPECT_EQ(result.at("exit_code"), 0) << result;
  EXPECT_TRUE(eventually(20, [&] { return me.out(reach("db", 5000)) == "hello\n"; })) << gateway.log();
}

TEST_F(WithCompanions, TwoSandboxesDoNotMeet) {
  Gateway gateway(with(db()));
  const Caller me(gateway, "a"), other(gateway, "b");
  me.run("true");
  other.run("true");
  ASSERT_TRUE(has_companions(2)) << gateway.log();
  std::vector<std::string> addresses;
  for (const Json& each : containers("companion")) {
    const Json seen = engine_->inspect(each.at("Id"), usual());
    addresses.push_back(seen.at("NetworkSettings").at("Networks").begin()->at("IPAddress"));
  }
  int reached = 0;
  for (const std::string& each : addresses)
    reached += me.run("python3 -c \"import socket; socket.create_connection(('" + each + "', 5000), 2)\"")
                           .at("exit_code") == 0
                   ? 1
                   : 0;
  EXPECT_EQ(reached, 1) << "its own, and not the other one's";
}

TEST_F(WithCompanions, AnInternalNetworkTakesThePlaceOfOneWithAWayOut) {
  const auto network = [this]() -> std::string {
    return only("sandbox").at("NetworkSettings").at("Networks").begin()->at("NetworkID");
  };
  left_by(lasting("network: dedicated", "on_shutdown: keep"), "true");
  const std::string before = network();
  Gateway again(lasting("network: internal"));
  Caller(again, "a").run("true");
  const std::string after = network();
  EXPECT_NE(after, before);
  const Json seen = engine_->inspect(after, usual(), ObjectKind::kNetwork);
  EXPECT_EQ(seen.at("Internal"), true);
  EXPECT_EQ(seen.at("Options").at("com.docker.network.bridge.inhibit_ipv4"), "true");
  EXPECT_EQ(seen.at("Options").at("com.docker.network.bridge.enable_icc"), "false")
      << "its containers cannot reach each other";
  EXPECT_EQ(failure_of([&] { engine_->inspect(before, usual(), ObjectKind::kNetwork); }).http_status, 404);
}

}  // namespace
}  // namespace isogate::docker
