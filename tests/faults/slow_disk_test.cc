#include <algorithm>
#include <thread>

#include "tests/faults/disk.h"
#include "tests/faults/faults.h"

// A disk that accepts no write for a while, like a frozen file system: what one tenant writes to it delays
// that tenant's calls, and nobody else's.
namespace isogate::test {
namespace {

class SlowDisk : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    if (!disk_.usable()) GTEST_SKIP() << "no file system can be mounted here";
    gateway_ = start(std::string(kLocal) + "probe_interval_sec: 1\nworkdir: " + disk_.path() + "\n" +
                     keys_yaml("abc"));
  }
  [[nodiscard]] Caller of(char tenant, const std::string& agent) const {
    return {gateway_->url(), tenant_key(tenant), agent};
  }
  // Sends a complete durable PUT, without waiting for its response.
  [[nodiscard]] std::unique_ptr<HttpConnection> put(const Caller& caller) const {
    auto connection = std::make_unique<HttpConnection>(gateway_->url(), 30);
    Headers headers = caller.headers();
    headers.emplace_back("Content-Length", "5");
    connection->send_request_head("PUT", caller.file_url("file?durable=true"), headers);
    connection->send("hello");
    return connection;
  }

  Disk disk_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(SlowDisk, OneTenantsDurableWritesEndNobodysExecs) {
  constexpr int kAgents = 20;
  for (int i = 0; i < kAgents; ++i) of('a', "a" + std::to_string(i)).run("true");
  const Caller other = of('b', "other");
  other.run("true");
  const pid_t host = host_of(*gateway_, "local");
  ExecStream witness(other, {{"command", "sleep 40; echo lived"}, {"timeout_sec", 100}}, 100);
  ASSERT_EQ(witness.next()->at("event"), "start");

  disk_.freeze();
  std::vector<std::unique_ptr<HttpConnection>> puts;
  for (int i = 0; i < kAgents; ++i) puts.push_back(put(of('a', "a" + std::to_string(i))));
  std::this_thread::sleep_for(std::chrono::seconds(1));  // they wait for the disk
  std::vector<std::unique_ptr<HttpConnection>> endings;  // these cancel them
  for (int i = 0; i < kAgents; ++i) {
    endings.push_back(std::make_unique<HttpConnection>(gateway_->url(), 100));
    endings.back()->send_request_head("DELETE", "/sandboxes/a" + std::to_string(i), of('a', "").headers());
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(25);
  double slowest = 0;
  while (std::chrono::steady_clock::now() < until) {
    slowest = std::max(slowest, seconds_of([&] { EXPECT_EQ(other.out("echo works"), "works\n"); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(slowest, 10.0) << "as long as the disk is frozen";
  EXPECT_NE(gateway_->log().find("backend_call_abandoned"), std::string::npos) << "nothing hung at all";
  EXPECT_EQ(host_of(*gateway_, "local"), host) << "the host was replaced";
  disk_.thaw();
  const auto events = witness.rest();
  EXPECT_EQ(data_of(events, "stdout"), "lived\n");
  EXPECT_EQ(events.back().at("outcome"), "exited");
  EXPECT_TRUE(eventually(60, [&] { return of('a', "a0").exec("true").status == 200; }));
}

// A hanging write keeps its slot, and one tenant has an eighth of the slots for durable writes.
TEST_F(SlowDisk, DurableWritesOfATenantAreBounded) {
  const Caller mine = of('a', "a0"), other = of('b', "b0");
  mine.run("true");
  other.run("true");
  disk_.freeze();
  std::vector<std::unique_ptr<HttpConnection>> puts;
  for (int i = 0; i < 64; ++i) puts.push_back(put(mine));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto one_more = put(mine);
  const Answer answer = answer_of(one_more->read_response());
  EXPECT_TRUE(refused(answer, 429, "rate_limited"));
  EXPECT_NE(answer.text.find("durable writes of this tenant"), std::string::npos) << answer.text;
  EXPECT_EQ(mine.get("/workspace/files/a0/nothing").status, 404) << "it may still read";
  EXPECT_EQ(other.get("/workspace/files/b0/nothing").status, 404);
  puts.clear();
  std::this_thread::sleep_for(std::chrono::seconds(20));  // all are abandoned by now
  const auto after = put(mine);
  EXPECT_EQ(after->read_response().status, 429) << "the host still works on the previous ones";
  disk_.thaw();
  EXPECT_TRUE(eventually(20, [&] { return put(mine)->read_response().status == 200; }));
}

}  // namespace
}  // namespace isogate::test
