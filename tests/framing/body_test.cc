// Bodies that end too early, arrive too slowly or are unexpected. An upload takes effect completely or not at
// all, and no byte of a body is ever a request.
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

class Bodies : public Framing {
 protected:
  static std::string put(const std::string& framing, const Gateway& to = gateway()) {
    return filled(
        "PUT /workspace/files/AGENT/target HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer KEY\r\n" + framing,
        to, agent());
  }
  static void old_content_is_there(const Gateway& in = gateway()) {
    const Caller caller(in, agent());
    EXPECT_EQ(caller.content("target"), "old");
    EXPECT_EQ(caller.out("ls -A"), "target\n") << "something else is left";
  }
  // The shared one waits longer than any process may pause on a busy machine.
  static constexpr const char* kImpatient =
      "allow_unisolated: true\nbackends: [{name: local}]\n"
      "limits: {header_timeout_sec: 2, body_idle_timeout_sec: 2}\n";
};

TEST_F(Bodies, ACutUploadCommitsNothing) {
  ASSERT_TRUE(succeeded(me().write("target", "old")));
  const std::string much(300000, 'n');
  for (const std::string& bytes : {
           put("Content-Length: 10\r\n\r\nnew"),
           put("Content-Length: 10\r\n\r\n"),
           put("Content-Length: 9999999\r\n\r\n") + much,
           put("Content-Length: 999999999999999999\r\n\r\n") + much,
           put("Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n"),
           put("Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n0\r\n"),
           put("Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n0\r\n\r"),
           put("Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n0"),
           put("Transfer-Encoding: chunked\r\n\r\n493e1\r\n") + much,
           put("Transfer-Encoding: chunked\r\n\r\n493e0\r\n") + much + "\r\n",
           put("Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\nzz\r\n"),
           put("Transfer-Encoding: chunked\r\n\r\n493e0\r\n") + much + "\r\n0\r\nX: y\r\n",
           put("Transfer-Encoding: chunked\r\n\r\n493e0\r\n") + much + "\r\n0\r\nHost: y\r\n\r\n",
       }) {
    const Said said = say(gateway().url(), bytes, true);
    EXPECT_TRUE(said.closed);
    EXPECT_LE(said.answers(), 1);
    EXPECT_TRUE(said.status() == 0 || said.status() == 400) << said.bytes;
    old_content_is_there();
  }
}

// RFC 9110, 10.1.1: an HTTP/1.0 client would take it for the response.
TEST_F(Bodies, AnHttp10ClientIsNotToldToContinue) {
  const std::string body = R"({"command":"echo old","agent_id":"a"})";
  for (const std::string version : {"1.0", "1.1"}) {
    HttpConnection connection(gateway().url(), 10);
    connection.send("POST /exec HTTP/" + version +
                    "\r\nHost: gw\r\nConnection: close\r\nAuthorization: Bearer " + gateway().key() +
                    "\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n");
    pollfd said{connection.fd(), POLLIN, 0};
    const int told = ::poll(&said, 1, version == "1.1" ? 10'000 : 500);
    EXPECT_EQ(told, version == "1.1" ? 1 : 0) << version;
    connection.send(body);
    const std::string answer = connection.read_until_closed();
    EXPECT_EQ(answer.find(" 100 ") != std::string::npos, told == 1) << answer;
    EXPECT_NE(answer.find(R"("stdout":"old\n")"), std::string::npos) << answer;
  }
}

TEST_F(Bodies, AnUploadWhoseClientDiesCommitsNothing) {
  ASSERT_TRUE(succeeded(me().write("target", "old")));
  for (int i = 0; i < 20; ++i) {
    HttpConnection connection(gateway().url(), 5);
    connection.send(put("Content-Length: 600000\r\n\r\n") + std::string(static_cast<size_t>(i) * 31000, 'n'));
    const linger reset{1, 0};
    ::setsockopt(connection.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    connection.close();
  }
  old_content_is_there();
}

TEST_F(Bodies, AnUploadThatStopsComingIs408AndCommitsNothing) {
  const Gateway own(kImpatient);
  ASSERT_TRUE(succeeded(Caller(own, agent()).write("target", "old")));
  for (const std::string framing :
       {"Content-Length: 10\r\n\r\nnew", "Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n"}) {
    const Said said = say(own.url(), put(framing, own), false);
    EXPECT_TRUE(said.closed);
    EXPECT_EQ(said.status(), 408) << said.bytes;
    old_content_is_there(own);
  }
}

// Each byte is within the idle limit; in total it is far below the minimum rate.
TEST_F(Bodies, AnUploadThatTricklesIs408AndCommitsNothing) {
  const Gateway own(kImpatient);
  ASSERT_TRUE(succeeded(Caller(own, agent()).write("target", "old")));
  HttpConnection connection(own.url(), 20);
  connection.send(put("Content-Length: 1000000\r\n\r\n", own));
  std::thread sender([&] {
    try {
      for (int i = 0; i < 50; ++i) {
        connection.send("n");
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
    } catch (const std::runtime_error&) {  // closed
    }
  });
  EXPECT_EQ(connection.read_response("PUT").status, 408);
  sender.join();
  old_content_is_there(own);
}

// The deadline is for the whole header: bytes do not move it.
TEST_F(Bodies, AHeaderThatTricklesIs408) {
  const Gateway own(kImpatient);
  HttpConnection connection(own.url(), 20);
  connection.send("GET /livez HTTP/1.1\r\nHost: gw\r\nX: ");
  std::thread sender([&] {
    try {
      for (int i = 0; i < 200; ++i) {
        connection.send("x");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    } catch (const std::runtime_error&) {
    }
  });
  const double took = seconds_of([&] { EXPECT_EQ(connection.read_response().status, 408); });
  sender.join();
  EXPECT_LT(took, 15);
}

TEST_F(Bodies, AnUnreadBodyIsNoRequest) {
  const std::string inner = marker_request(gateway(), agent());
  const std::string length = "Content-Length: " + std::to_string(inner.size()) + "\r\n";
  const std::string keyed = filled("Host: gw\r\nAuthorization: Bearer KEY\r\n", gateway(), agent());
  struct Unread {
    std::string head;
    int status;
  };
  for (const Unread& unread : {
           Unread{"PUT /workspace/files/" + agent() + "/x HTTP/1.1\r\nHost: gw\r\n", 401},
           Unread{"GET /livez HTTP/1.1\r\nHost: gw\r\n", 200},
           Unread{"GET /backends HTTP/1.1\r\n" + keyed, 200},
           Unread{"DELETE /sandboxes/none HTTP/1.1\r\n" + keyed, 404},
           Unread{"POST /nothing HTTP/1.1\r\n" + keyed, 404},
           Unread{"POST /livez HTTP/1.1\r\n" + keyed, 405},
           Unread{"BREW /exec HTTP/1.1\r\n" + keyed, 405},
           Unread{"POST /exec HTTP/1.1\r\n" + keyed + "Content-Type: text/plain\r\n", 415},
           Unread{"POST /exec HTTP/1.1\r\n" + keyed + "Expect: what\r\n", 400},
           Unread{"OPTIONS * HTTP/1.1\r\n" + keyed, 400},
           Unread{"CONNECT gw:443 HTTP/1.1\r\n" + keyed, 400},
           Unread{"POST http://gw/exec HTTP/1.1\r\n" + keyed, 400},
       }) {
    for (const std::string& framing :
         {length + "\r\n" + inner, "Transfer-Encoding: chunked\r\n\r\n" + inner}) {
      const Said said = say(gateway().url(), unread.head + framing, false);
      EXPECT_TRUE(said.closed) << unread.head;
      EXPECT_EQ(said.answers(), 1) << said.bytes;
      EXPECT_EQ(said.status(), unread.status) << unread.head << said.bytes;
    }
  }
  EXPECT_EQ(me().out("ls -A"), "");
}

TEST_F(Bodies, BytesBehindTheBodyAreTheNextRequestAndJudgedAsSuch) {
  const Said said = say(gateway().url(), put("Content-Length: 3\r\n\r\nnewGARBAGE\r\n\r\n"), false);
  EXPECT_TRUE(said.closed);
  EXPECT_EQ(said.answers(), 2) << said.bytes;
  EXPECT_NE(said.bytes.find("HTTP/1.1 400 "), std::string::npos) << said.bytes;
  EXPECT_EQ(me().content("target"), "new");
}

TEST_F(Bodies, AStatusHasItsReason) {
  const std::string body = R"({"command":"true","background":true,"agent_id":")" + agent() + "\"}";
  const Said said =
      say(gateway().url(),
          filled("POST /exec HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer KEY\r\nConnection: close\r\n"
                 "Content-Type: application/json\r\nContent-Length: " +
                     std::to_string(body.size()) + "\r\n\r\n" + body,
                 gateway(), agent()),
          false);
  EXPECT_TRUE(said.bytes.starts_with("HTTP/1.1 202 Accepted\r\n")) << said.bytes;
}

TEST_F(Bodies, AnEndInsideAHeadIsAnsweredOnce) {
  const Said said = say(gateway().url(), "GET /livez HTTP/1.1\r\nHost: gw\r\n", true);
  EXPECT_TRUE(said.closed);
  EXPECT_EQ(said.status(), 400);
  EXPECT_EQ(say(gateway().url(), "", true).bytes, "");
}

TEST_F(Bodies, ContinueIsSaidOnceAndOnlyWhenTheBodyIsWanted) {
  HttpConnection refused_one(gateway().url(), 5);
  refused_one.send(
      "PUT /workspace/files/a/x HTTP/1.1\r\nHost: gw\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  const std::string answer = refused_one.read_until_closed();
  EXPECT_EQ(answer.rfind("HTTP/1.1 401", 0), 0u) << answer;
  HttpConnection wanted(gateway().url(), 5);
  wanted.send(put("Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
  char line[32] = {};
  ASSERT_EQ(::recv(wanted.fd(), line, 25, MSG_WAITALL), 25);
  EXPECT_STREQ(line, "HTTP/1.1 100 Continue\r\n\r\n");
  wanted.send("new");
  EXPECT_EQ(wanted.read_response("PUT").status, 200);
  EXPECT_EQ(me().content("target"), "new");
}

TEST_F(Bodies, AClientThatSendsItsBodyIsNotToldToContinue) {
  HttpConnection connection(gateway().url(), 5);
  connection.send(put("Expect: 100-continue\r\nContent-Length: 6\r\n\r\nnew"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the rest is waited for
  connection.send("er!");
  char line[13] = {};
  ASSERT_EQ(::recv(connection.fd(), line, 12, MSG_WAITALL), 12);
  EXPECT_STREQ(line, "HTTP/1.1 200");
}

}  // namespace
}  // namespace isogate::test
