// Invalid responses of a server: an error with its reason, never half a response.
#include "lib/net/http.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "tests/net/scripted.h"

namespace isogate::net {
namespace {

constexpr size_t kBodyMost = size_t{1} << 20;

// The body of the response in these bytes, or "error: …"; an error if the request may have had an effect.
std::string body_of(std::string_view bytes, size_t piece = kBodyMost) {
  const Budget budget(std::chrono::seconds(5));
  HttpConnection connection(std::make_unique<test::Scripted>(bytes, piece), "host", "the server");
  try {
    connection.exchange({"GET", "/", "", {}}, budget);
    return connection.read_body(kBodyMost, budget);
  } catch (const NetError& error) {
    EXPECT_EQ(error.status(), ISOGATE_UNAVAILABLE) << bytes;
    EXPECT_TRUE(error.maybe_done()) << bytes;
    EXPECT_FALSE(connection.reusable());
    return std::string("error: ") + error.what();
  }
}

const std::string kOk = "HTTP/1.1 200 OK\r\n", kChunked = kOk + "Transfer-Encoding: chunked\r\n\r\n";

TEST(HttpAnswers, WholeOnesAreTaken) {
  for (const size_t piece : {size_t{1}, size_t{7}, kBodyMost}) {
    EXPECT_EQ(body_of(kOk + "Content-Length: 2\r\n\r\n{}", piece), "{}");
    EXPECT_EQ(body_of(kChunked + "5\r\n{\"Id\"\r\n6;x=y\r\n: \"b\"}\r\n0\r\n\r\n", piece), "{\"Id\": \"b\"}");
    EXPECT_EQ(body_of("HTTP/1.0 200 OK\r\n\r\n{\"Id\": \"c\"}", piece), "{\"Id\": \"c\"}");
    EXPECT_EQ(body_of("HTTP/1.1 204 No Content\r\n\r\n", piece), "");
  }
}

TEST(HttpLines, AreTheSameHoweverTheyAreCut) {
  const Budget budget(std::chrono::seconds(5));
  for (const size_t piece : {size_t{1}, size_t{7}, kBodyMost}) {
    const auto lines_of = [&](const std::string& answer) {
      auto connection = std::make_unique<HttpConnection>(std::make_unique<test::Scripted>(answer, piece),
                                                         "host", "the server");
      connection->exchange({"GET", "/", "", {}}, budget);
      HttpLines lines(std::move(connection), 5, "too long");
      std::string all;
      try {
        while (const auto line = lines.next(budget)) all += "<" + *line + ">";
      } catch (const NetError& error) {
        all += error.what();
      }
      return all;
    };
    EXPECT_EQ(lines_of(kOk + "\r\none\n\n12345\nrest"), "<one><><12345>");
    EXPECT_EQ(lines_of(kOk + "\r\none\n123456\nrest\n"), "<one>too long");
    EXPECT_EQ(lines_of(kOk + "\r\n123456"), "too long");
  }
}

TEST(HttpAnswers, TruncatedOrInvalidOnesAreRefused) {
  const struct {
    std::string answer;
    const char* reason;
  } table[] = {
      {"", "broke off"},
      {kOk, "broke off"},
      {kOk + "Content-Length: 20\r\n\r\n{\"Id\": \"a\"}", "broke off"},
      {kChunked, "broke off"},
      {kChunked + "b", "broke off"},
      {kChunked + "b\r\n{\"Id\": \"a\"}", "broke off"},
      {kChunked + "b\r\n{\"Id\": \"a\"}\r\n", "broke off"},
      {kChunked + "b\r\n{\"Id\": \"a\"}\r\n0\r\n", "broke off"},
      {kChunked + "c\r\n{\"Id\": \"a\"}", "broke off"},
      {kChunked + "zz\r\n{\"Id\": \"a\"}\r\n0\r\n\r\n", ""},
      {kChunked + "b\r\n{\"Id\": \"a\"}\r\nxx\r\n", ""},
      {kChunked + "00000000b\r\n{\"Id\": \"a\"}\r\n0\r\n\r\n", ""},
      {kChunked + "b\r\n{\"Id\": \"a\"}\r\n0\r\nTrailer: x\r\n\r\n", ""},
      {kOk + "Content-Length: x\r\n\r\n{}", "no HTTP"},
      {kOk + "Content-Length: -1\r\n\r\n{}", ""},
      {kOk + "Content-Length: 0x2\r\n\r\n{}", ""},
      {kOk + "Content-Length: 99999999999\r\n\r\n", "more than 1 MiB"},
      {kOk + "Content-Length: 2\r\nContent-Length: 1\r\n\r\n{}", "unclear"},
      {kOk + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "unclear"},
      {kOk + std::string(100'000, 'a') + "\r\n\r\n", ""},
      {std::string(5000, '\0'), ""},
      {"\1\2\3\4 garbage\r\n\r\n", "no HTTP"},
      {"garbage\r\n\r\n", ""},
      {"SSH-2.0-OpenSSH_9.2\r\n", ""},
      {"SSH-2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "no HTTP"},
      {"PTTH/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "no HTTP"},
      {"HTTP/1.1 200000 OK\r\nContent-Length: 2\r\n\r\n{}", "no HTTP"},
      {"HTTP/1.1 20x OK\r\nContent-Length: 2\r\n\r\n{}", "no HTTP"},
      {"HTTP/1.1 -1 OK\r\nContent-Length: 2\r\n\r\n{}", "an invalid status"},
      {"HTTP/1.1 +99 OK\r\nContent-Length: 2\r\n\r\n{}", "an invalid status"},
      {"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}", "an invalid status"},
      {"HTTP/1.1 600 OK\r\nContent-Length: 2\r\n\r\n{}", "an invalid status"},
      {"HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\n{}", "an invalid status"},
  };
  for (const auto& row : table)
    for (const size_t piece : {size_t{1}, kBodyMost}) {
      const std::string message = body_of(row.answer, piece);
      EXPECT_EQ(message.rfind("error: the server ", 0), 0u) << row.answer.substr(0, 200) << message;
      EXPECT_NE(message.find(row.reason), std::string::npos) << message;
    }
}

// To a request of which the server takes the head, and nothing of the body.
TEST(HttpAnswers, OnlyARefusalMayComeBeforeTheEndOfTheRequest) {
  const Budget budget(std::chrono::seconds(5));
  const auto ask = [&](const std::string& answer) {
    HttpConnection connection(std::make_unique<test::Scripted>(answer, kBodyMost, nullptr, 1), "host",
                              "the server");
    const HttpHead head = connection.exchange({"PUT", "/", std::string(100'000, 'x'), {}}, budget);
    return std::to_string(head.status) + " " + connection.read_body(kBodyMost, budget);
  };
  EXPECT_EQ(ask("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}"), "413 {}");
  EXPECT_THROW(ask(kOk + "Content-Length: 2\r\n\r\n{}"), NetError);
  EXPECT_THROW(ask(""), NetError);
}

// The end of a chunked request is sent later than its pieces.
TEST(HttpAnswers, ARefusalMayComeBeforeTheLastChunk) {
  const Budget budget(std::chrono::seconds(5));
  for (const int takes : {0, 1, 2}) {
    HttpConnection connection(
        std::make_unique<test::Scripted>("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}", kBodyMost,
                                         nullptr, takes),
        "host", "the server");
    int written = 0;
    const auto produce = [&](const auto& write) {
      for (int i = 0; i < 2 + 1000 * (takes == 0); ++i, ++written) write("piece");
    };
    EXPECT_EQ(connection.exchange({"PUT", "/", "", {}, produce}, budget).status, 413) << takes;
    EXPECT_EQ(connection.read_body(kBodyMost, budget), "{}") << takes;
    EXPECT_LT(written, 1000);
  }
}

// The limit is that of each wait: a peer that goes on is not late, one that neither reads nor sends is.
TEST(HttpAnswers, ASilenceThatIsTooLongSaysWhoseItIs) {
  const auto ask = [](const std::string& body) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    const Fd peer(ends[1]);
    HttpConnection connection(Transport::adopt(Fd(ends[0])), "host", "the server");
    try {
      connection.exchange({"PUT", "/", body, {}}, Budget::of_each_wait(std::chrono::milliseconds(50)));
    } catch (const NetError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(ask("{}"), "the server sent nothing for 50 ms");
  EXPECT_EQ(ask(std::string(8 << 20, 'x')), "the server read nothing for 50 ms");
}

TEST(HttpAnswers, HeadsAndBodiesAreBounded) {
  std::string head = kOk, chunks = kChunked;
  for (int i = 0; i < 5000; ++i) head += "X-" + std::to_string(i) + ": y\r\n";
  EXPECT_NE(body_of(head + "Content-Length: 2\r\n\r\n{}").find("error: "), std::string::npos);
  for (int i = 0; i < 2; ++i) chunks += "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  EXPECT_NE(body_of(chunks + "0\r\n\r\n").find("more than 1 MiB"), std::string::npos);
}

}  // namespace
}  // namespace isogate::net
