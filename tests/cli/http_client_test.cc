#include "gateway/cli/http_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lib/text.h"
#include "tests/cli/fake_gateway.h"
#include "tests/eventually.h"

namespace isogate::cli {
namespace {

using test::FakeGateway;
using test::json_answer;
using test::TemporaryDirectory;

HttpClient client_of(const FakeGateway& gateway) {
  return HttpClient(*parse_url(gateway.url()), "secret-key");
}

HttpRequest get(const std::string& target) {
  HttpRequest request;
  request.method = "GET";
  request.target = target;
  request.wait_sec = 5;
  return request;
}

HttpRequest post(const std::string& body) {
  HttpRequest request = get("/exec");
  request.method = "POST";
  request.content_type = "application/json";
  request.body = body;
  return request;
}

TEST(Url, FormsThatAreTaken) {
  EXPECT_EQ(parse_url("http://127.0.0.1:8080")->text(), "http://127.0.0.1:8080");
  EXPECT_EQ(parse_url("http://example.org")->text(), "http://example.org:9090");
  EXPECT_EQ(parse_url("http://[::1]:8080/")->text(), "http://[::1]:8080");
  EXPECT_EQ(parse_url("https://example.org:443")->text(), "https://example.org:443");
  EXPECT_EQ(parse_url("unix:/run/x.sock")->text(), "unix:/run/x.sock");
  EXPECT_EQ(parse_url("unix:///run/x.sock")->text(), "unix:/run/x.sock");
}

TEST(Url, FormsThatAreRefused) {
  for (const char* url : {"", "127.0.0.1:9090", "https://", "httpss://x", "http://", "http://:9090",
                          "http://x:0", "http://x:99999", "http://x:1a", "http://x/path", "http://u:p@x",
                          "http://x?key=1", "http://[::1]x:9090", "unix:relative", "unix:", "ftp://x"})
    EXPECT_FALSE(parse_url(url).ok()) << url;
  EXPECT_FALSE(parse_url("unix:/" + std::string(200, 'x')).ok());
}

TEST(Url, KnowsWhatIsOnThisMachine) {
  for (const char* url :
       {"http://127.0.0.1", "http://127.9.9.9", "http://localhost", "http://[::1]", "unix:/x"})
    EXPECT_TRUE(parse_url(url)->on_this_machine()) << url;
  for (const char* url : {"http://example.org", "http://10.0.0.1", "http://[2001:db8::1]",
                          "http://localhost.example.org", "http://127.0.0.1.example.org"})
    EXPECT_FALSE(parse_url(url)->on_this_machine()) << url;
}

TEST(Escape, PathsKeepTheirInnerSlashes) {
  EXPECT_EQ(escape_path("a/b c/ü"), "a/b%20c/%C3%BC");
  EXPECT_EQ(escape_path("/workspace/a"), "%2Fworkspace/a");
  EXPECT_EQ(escape_path("a//b"), "a/%2Fb");
  EXPECT_EQ(escape_path("../x?y#z%"), "../x%3Fy%23z%25");
  EXPECT_EQ(percent_encode("a/b&c=d"), "a%2Fb%26c%3Dd");
}

TEST(HttpClient, SendsTheKeyOnlyInTheHeader) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{}"); });
  auto answer = client_of(gateway).call(post("{\"x\":1}"));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "{}");
  std::string request = gateway.requests().at(0);
  EXPECT_EQ(request.find("POST /exec HTTP/1.1\r\n"), 0u);
  EXPECT_NE(request.find("Authorization: Bearer secret-key\r\n"), std::string::npos);
  EXPECT_NE(request.find("Content-Length: 7\r\n"), std::string::npos);
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"x\":1}"));
  EXPECT_EQ(request.find("secret-key"), request.rfind("secret-key"));
}

TEST(HttpClient, SpeaksOverAUnixSocket) {
  TemporaryDirectory directory;
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{}"); }, directory.path() + "/s");
  EXPECT_EQ(socket_error(directory.path() + "/s"), 0);
  EXPECT_EQ(socket_error(directory.path() + "/t"), ENOENT);
  auto answer = client_of(gateway).call(get("/livez"));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_NE(gateway.requests().back().find("Host: localhost\r\n"), std::string::npos);
}

TEST(HttpClient, ARefusedConnectionIsUnavailable) {
  auto answer = HttpClient(*parse_url("http://127.0.0.1:1"), "").call(get("/livez"));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().status, ISOGATE_UNAVAILABLE);
  EXPECT_NE(answer.error().message.find("127.0.0.1:1"), std::string::npos);
}

TEST(HttpClient, AnAnswerCutShortIsLost) {
  const std::string answers[] = {
      "",
      "HTTP/1.1 200 OK\r\nContent-Le",
      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123456789",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
  };
  for (const std::string& text : answers) {
    FakeGateway gateway([&](const std::string&) { return text; });
    for (bool with_sink : {false, true}) {
      std::string got;
      BodySink sink = [&](std::string_view bytes) {
        got += bytes;
        return Result<void>();
      };
      auto answer = client_of(gateway).call(get("/x"), with_sink ? sink : BodySink());
      ASSERT_FALSE(answer.ok()) << text;
      EXPECT_EQ(answer.error().status, ISOGATE_LOST) << text;
    }
  }
}

TEST(HttpClient, AFileOfUnknownLengthIsRefused) {
  FakeGateway gateway(
      [](const std::string&) { return std::string("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"); });
  auto answer = client_of(gateway).call(get("/x"), [](std::string_view) { return Result<void>(); });
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().status, ISOGATE_LOST);
}

TEST(HttpClient, EventsComeThroughChunks) {
  FakeGateway gateway([](const std::string&) {
    return std::string(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: "
        "chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
  });
  std::string got;
  auto answer = client_of(gateway).call(get("/x"), [&](std::string_view bytes) {
    got += bytes;
    return Result<void>();
  });
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(got, "abcdefg");
}

TEST(HttpClient, ARefusalIsCollectedAndNotGivenToTheSink) {
  FakeGateway gateway([](const std::string&) { return test::refusal(404, "file_not_found", "no"); });
  auto answer =
      client_of(gateway).call(get("/x"), [](std::string_view) -> Result<void> { return invalid("never"); });
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 404);
  EXPECT_NE(answer->body.find("file_not_found"), std::string::npos);
}

TEST(HttpClient, SilenceIsLostAfterTheWait) {
  FakeGateway gateway([](const std::string&) { return std::string(); });
  gateway.hold = true;
  HttpRequest request = get("/x");
  request.wait_sec = 0.3;
  auto answer = client_of(gateway).call(request);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().status, ISOGATE_LOST);
}

TEST(HttpClient, WaitsLongerThanTheGatewayDoes) { EXPECT_GT(HttpRequest().wait_sec, budget::kOpen.count()); }

TEST(HttpClient, ACancelledCallEndsAndTheGatewaySeesIt) {
  const TemporaryDirectory directory;
  FakeGateway gateway([](const std::string&) { return std::string(); }, directory.path() + "/s");
  gateway.hold = true;
  CancelHandle cancel;
  HttpRequest request = get("/x");
  request.cancel = &cancel;
  const std::jthread canceller([&] {
    EXPECT_TRUE(test::eventually(20, [&] { return !gateway.requests().empty(); }));
    cancel.cancel();
  });
  for (int i = 0; i < 2; ++i) {  // also a call that begins later
    auto answer = client_of(gateway).call(request);
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().status, ISOGATE_CANCELLED) << answer.error().message;
  }
  EXPECT_EQ(gateway.requests().size(), 1U);
  EXPECT_TRUE(test::eventually(20, [&] { return gateway.closed_by_client > 0; }));
}

// Between the head and the body, and within the body, which never ends.
TEST(HttpClient, AStreamMayBeginLateButNotFallSilent) {
  for (const char* body : {"", "3\r\nabc\r\n"}) {
    FakeGateway gateway([body](const std::string&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      return std::string(
                 "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: "
                 "chunked\r\n\r\n") +
             body;
    });
    gateway.hold = true;
    HttpRequest request = get("/x");
    request.wait_sec = 20;
    request.body_wait_sec = 0.3;
    std::string got;
    const auto began = std::chrono::steady_clock::now();
    auto answer = client_of(gateway).call(request, [&](std::string_view bytes) {
      got += bytes;
      return Result<void>();
    });
    EXPECT_LT(test::since(began), 10);
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.error().message.find("sent nothing for 300 ms"), std::string::npos)
        << answer.error().message;
    EXPECT_EQ(got, *body == '\0' ? "" : "abc");
  }
}

TEST(HttpClient, AnUnknownLengthIsSentInChunks) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{}"); });
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  ASSERT_EQ(::write(pipe->write.get(), "hello", 5), 5);
  pipe->write.reset();
  HttpRequest request = post("");
  request.body_fd = pipe->read.get();
  auto answer = client_of(gateway).call(request);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  std::string sent = gateway.requests().at(0);
  EXPECT_NE(sent.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_NE(sent.find("hello"), std::string::npos);
}

TEST(HttpClient, ABodyThatBecameShorterIsNeverCompleted) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{}"); });
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  ASSERT_EQ(::write(pipe->write.get(), "hello", 5), 5);
  pipe->write.reset();
  HttpRequest request = post("");
  request.body_fd = pipe->read.get();
  request.body_bytes = 10;
  auto answer = client_of(gateway).call(request);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().status, ISOGATE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace isogate::cli
