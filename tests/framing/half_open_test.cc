// Clients that vanish: a machine that lost its power, a network that lost its route. Their kernel
// acknowledges nothing any more.
#include <linux/filter.h>
#include <sys/socket.h>

#include <future>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

class HalfOpen : public Framing {
 protected:
  // From here on every packet to this socket is dropped before TCP sees it.
  static void lose_power(const HttpConnection& connection) {
    sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &drop};
    ASSERT_EQ(::setsockopt(connection.fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  }
};

// One that waits for its response, and one whose stream is silent except for pings.
TEST_F(HalfOpen, FreesItsPlaceWithinAMinute) {
  if (!slow_tests()) GTEST_SKIP() << "takes 50 s: set ISOGATE_SLOW_TESTS=1";
  const std::string waits = new_mark(), streams = new_mark();
  HttpConnection waiting(gateway().url(), 120);
  const std::string body =
      Json{{"agent_id", agent()}, {"timeout_sec", 600}, {"command", "sleep " + waits}}.dump();
  waiting.send("POST /exec HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer " + gateway().key() +
               "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  ExecStream stream(me(), {{"command", "sleep " + streams}, {"timeout_sec", 600}}, 120);
  ASSERT_EQ(stream.status(), 200);
  ASSERT_TRUE(there_within(10, waits) && there_within(10, streams));
  lose_power(waiting);
  lose_power(stream.connection);
  auto one = std::async(std::launch::async, [&] { return gone_within(60, waits); });
  EXPECT_TRUE(gone_within(60, streams)) << "the stream";
  EXPECT_TRUE(one.get()) << "the answer";
}

// A client whose kernel still acknowledges is alive, however long it is silent.
TEST_F(HalfOpen, IsNotSaidOfAClientThatOnlyWaits) {
  if (!slow_tests()) GTEST_SKIP() << "takes 65 s: set ISOGATE_SLOW_TESTS=1";
  HttpConnection connection(gateway().url(), 120);
  const Json body = {{"agent_id", agent()}, {"timeout_sec", 120}, {"command", "sleep 62; echo alive"}};
  const HttpResponse answer = connection.request("POST", "/exec", me().headers(), body.dump());
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("alive"), std::string::npos);
}

// Its window is full, and the kernel probes it less and less often.
TEST_F(HalfOpen, IsNotSaidOfAClientThatPausesItsReading) {
  if (!slow_tests()) GTEST_SKIP() << "takes 110 s: set ISOGATE_SLOW_TESTS=1";
  const Gateway patient(
      "allow_unisolated: true\nbackends: [{name: local}]\nlimits: {write_timeout_sec: 600}\n");
  const std::string mark = new_mark();
  const ExecStream stream(Caller(patient, "a"), {{"command", "yes & sleep " + mark}, {"timeout_sec", 600}},
                          120);
  ASSERT_EQ(stream.status(), 200);
  ASSERT_TRUE(there_within(10, mark));
  EXPECT_FALSE(gone_within(110, mark));
}

}  // namespace
}  // namespace isogate::test
