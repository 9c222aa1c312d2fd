// Clients that begin to send and then stop: each is bounded, and nobody else waits for them.
#include <sys/socket.h>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

class SlowWriter : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
    gateway_ = std::make_unique<Gateway>(
        "allow_unisolated: true\nbackends: [{name: local}]\nlimits: {body_idle_timeout_sec: 3}\n");
  }
  [[nodiscard]] Caller me() const { return {*gateway_, "a"}; }

  // A PUT of which only the head is sent.
  [[nodiscard]] std::unique_ptr<HttpConnection> begin_upload(const std::string& name) const {
    auto connection = std::make_unique<HttpConnection>(gateway_->url(), 30);
    Headers headers = me().headers();
    headers.emplace_back("Content-Length", "100000");
    connection->send_request_head("PUT", me().file_url(name), headers);
    return connection;
  }
  std::unique_ptr<Gateway> gateway_;
};

// splice(2) stops at the urgent mark forever, and poll reports that there is something to read.
TEST_F(SlowWriter, UrgentDataDoesNotSuspendTheIdleLimit) {
  const auto upload = begin_upload("urgent");
  upload->send("aaaaa");
  ASSERT_EQ(::send(upload->fd(), "X", 1, MSG_OOB), 1);
  upload->send("bbbbb");
  const double took = seconds_of([&] { upload->read_until_closed(); });
  EXPECT_LT(took, 20.0);
  EXPECT_EQ(me().read("urgent").status, 404);
}

TEST_F(SlowWriter, UploadsLeaveRoomForExecs) {
  gateway_ = nullptr;  // all must be there at once, however long they take to begin
  gateway_ = std::make_unique<Gateway>(
      "allow_unisolated: true\nbackends: [{name: local}]\nlimits: {body_idle_timeout_sec: 300}\n");
  ASSERT_EQ(me().out("echo on"), "on\n");
  std::vector<std::unique_ptr<HttpConnection>> uploads;
  for (int i = 0; i < 700; ++i) {
    uploads.push_back(begin_upload("f" + std::to_string(i)));
    uploads.back()->send("x");
  }
  EXPECT_EQ(me().out("echo on"), "on\n");
  for (auto& upload : uploads) upload->finish_sending();
  size_t refused = 0;
  for (auto& upload : uploads)
    if (upload->read_until_closed().find("HTTP/1.1 429 ") == 0) ++refused;
  EXPECT_GE(refused, 100u);
  EXPECT_LT(refused, 700u);
  // A place is free once the backend has answered.
  EXPECT_TRUE(eventually(10, [&] { return me().write("after", "x").status == 200; }));
}

}  // namespace
}  // namespace isogate::test
