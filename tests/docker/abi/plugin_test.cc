#include <atomic>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/hash.h"
#include "plugins/docker/client/engine.h"
#include "plugins/docker/container/profile.h"
#include "tests/eventually.h"
#include "tests/local/plugin.h"

// Many threads at once in one backend, with all its background work.
namespace isogate::test {
namespace {

using docker::Budget;
using docker::Engine;
using docker::Json;

class DockerPlugin : public Local {
 protected:
  void SetUp() override {
    const char* address = std::getenv("ISOGATE_TEST_DOCKER");
    if (address == nullptr || *address == '\0')
      GTEST_SKIP() << "ISOGATE_TEST_DOCKER is not set: tests/engines/docker.sh up prints its value";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (std::getenv("ISOGATE_TEST_RUNNER") == nullptr)
      GTEST_SKIP() << "a runner with a sanitizer needs libraries that images lack: name another build's in "
                      "ISOGATE_TEST_RUNNER";
#endif
    if (!is_root_user()) GTEST_SKIP() << "without root this plugin is driven by the contract's cases";
    address_ = address;
    engine_ = std::make_unique<Engine>(docker::parse_address(address_, "ISOGATE_TEST_DOCKER"));
    Backend::instance = "abi-" + random_hex(6);
  }
  void TearDown() override {
    if (engine_ == nullptr) return;
    EXPECT_EQ(containers().size(), 0u) << "something was left behind";
  }
  std::string config(Json more = Json::object()) const {
    Json all = {{"host", address_}, {"image", "isogate-test:base"}};
    // One built with a sanitizer does not run in the image: name another.
    if (const char* runner = std::getenv("ISOGATE_TEST_RUNNER")) all["runner"] = runner;
    all.update(more);
    return all.dump();
  }
  std::vector<Json> containers() {
    return engine_->list({{docker::kLabelInstance, Backend::instance}}, Budget(Budget::kUsual));
  }
  // As the gateway does before the first command.
  static void measure(Box& box) { ASSERT_EQ(box.evidence(), ISOGATE_OK) << box.error; }
  // One agent's life.
  static void live(Backend& backend, int number) {
    Box box(backend, number, "agent-" + std::to_string(number));
    ASSERT_NE(box.it, nullptr) << box.error;
    measure(box);
    const std::string mine = "mine " + std::to_string(number);
    EXPECT_EQ(box.write("file", mine), ISOGATE_OK) << box.error;
    std::vector<std::thread> execs;
    for (int i = 0; i < 3; ++i) execs.emplace_back([&] { EXPECT_EQ(box.sh("cat file").out, mine); });
    for (std::thread& each : execs) each.join();
    EXPECT_EQ(box.read("file").second, mine);
  }
  static void probe(Backend& backend) {
    isogate_probe out{};
    out.struct_size = sizeof out;
    isogate_error error{};
    error.struct_size = sizeof error;
    const isogate_call call = call_with();
    EXPECT_EQ(backend.api->probe(backend.it, &call, &out, &error), ISOGATE_OK) << error.message;
    EXPECT_EQ(out.verdict, ISOGATE_PROBE_AVAILABLE) << out.detail;
  }

  std::string address_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(DockerPlugin, AgentsComeAndGoAtOnce) {
  Backend backend(state_, "docker", config({{"warm_pool", 2}}), 0);
  ASSERT_NE(backend.it, nullptr) << backend.error;
  std::vector<std::thread> agents;
  for (int number = 1; number <= 6; ++number) agents.emplace_back([&, number] { live(backend, number); });
  for (int i = 0; i < 5; ++i) probe(backend);
  for (std::thread& each : agents) each.join();
}

TEST_F(DockerPlugin, ContainersDieUnderTheirCalls) {
  Backend backend(state_, "docker", config(), 0);
  Box box(backend);
  ASSERT_NE(box.it, nullptr) << box.error;
  measure(box);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(box.sh("echo up").out, "up\n");
    std::vector<std::thread> execs;
    std::atomic<int> running = 0;
    for (int i = 0; i < 4; ++i)
      execs.emplace_back([&] {
        Exec exec;
        exec.argv = {"/bin/sh", "-c", "echo up; sleep 30"};
        exec.beside = [&](Fd&, int, int, const std::function<std::string()>& output) {
          running += eventually(20, [&] { return output() == "up\n"; }) ? 1 : 0;
        };
        EXPECT_EQ(box.run(exec).status, ISOGATE_LOST);
      });
    EXPECT_TRUE(eventually(20, [&] { return running == 4; })) << "what has not begun is repeated elsewhere";
    for (const Json& each : containers()) engine_->kill(each.at("Id"), "KILL", Budget(Budget::kUsual));
    for (std::thread& each : execs) each.join();
  }
}

TEST_F(DockerPlugin, CompanionsComeAndGo) {
  const Json companion = {{"name", "web"},
                          {"image", "isogate-test:small"},
                          {"command", {"httpd", "-f", "-p", "8080", "-h", "/"}},
                          {"healthcheck", {{"test", {"true"}}, {"interval_sec", 1}}},
                          {"post_start", {{"command", {"/bin/sh", "-c", "echo done > hooked"}}}}};
  Backend backend(state_, "docker", config({{"network", "internal"}, {"companions", {companion}}}), 0);
  ASSERT_NE(backend.it, nullptr) << backend.error;
  for (int number = 1; number <= 2; ++number) {
    Box box(backend, number);
    ASSERT_NE(box.it, nullptr) << box.error;
    measure(box);
    bool hooked = false;
    for (int i = 0; i < 200 && !hooked; ++i) {
      hooked = box.sh("cat hooked 2>/dev/null").out == "done\n";
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_TRUE(hooked);
  }
  Box soon(backend, 3);  // and one that ends while they are being made
}

TEST_F(DockerPlugin, ItEndsWhileItMakesSomeAhead) {
  for (int milliseconds : {0, 50, 300, 700}) {
    Backend backend(state_, "docker", config({{"warm_pool", 3}}), 0);
    ASSERT_NE(backend.it, nullptr) << backend.error;
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  // The next backend removes what an interrupted creation left.
  Backend last(state_, "docker", config(), 0);
  for (int i = 0; i < 100 && !containers().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace
}  // namespace isogate::test
