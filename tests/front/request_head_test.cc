#include "gateway/front/http/request_head.h"

#include <gtest/gtest.h>

namespace isogate::front {
namespace {

HeadVerdict judge(const std::string& fields, const std::string& line = "GET / HTTP/1.1") {
  return judge_head(line + "\r\n" + fields + "\r\n", HeadLimits{});
}

TEST(RequestHead, SaysHowLongTheBodyIs) {
  EXPECT_EQ(judge("Host: a\r\n").body.length, std::nullopt);
  EXPECT_FALSE(judge("Host: a\r\n").body.chunked);
  EXPECT_EQ(judge("Host: a\r\nContent-Length: 0\r\n").body.length, 0u);
  EXPECT_EQ(judge("Host: a\r\ncontent-length:999999999999999999\r\n").body.length, 999999999999999999u);
  EXPECT_TRUE(judge("Host: a\r\ntransfer-ENCODING:\tchunked \r\n").body.chunked);
}

TEST(RequestHead, NeedsAHostOnlyInHttp11) {
  EXPECT_NE(judge("X: y\r\n").problem, "");
  EXPECT_EQ(judge("X: y\r\n", "GET / HTTP/1.0").problem, "");
  EXPECT_EQ(judge("Host:\r\n").problem, "");
}

TEST(RequestHead, ReportsTheFirstProblem) {
  EXPECT_NE(judge("Host: a\r\nHost: b\r\n").problem.find("`host` occurs twice"), std::string::npos);
  EXPECT_NE(judge("Host: a\r\n b\r\n").problem.find("folded"), std::string::npos);
  EXPECT_NE(judge("Host : a\r\n").problem.find("name"), std::string::npos);
}

TEST(RequestHead, RefusesAHeaderThatBeastCannotHold) {
  const auto of = [](size_t size) { return "Host: a\r\nX:" + std::string(size - 2, 'x') + "\r\n"; };
  EXPECT_EQ(judge(of(kMostOfLine)).problem, "");
  EXPECT_NE(judge(of(kMostOfLine + 1)).problem.find("over 65533 bytes"), std::string::npos);
}

TEST(RequestHead, EndsAtItsEmptyLineHoweverItIsCut) {
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", behind = "GET";
  for (size_t cut = 0; cut <= head.size(); ++cut) {
    HeadScanner scanner(1000);
    const auto early = scanner.scan((head + behind).substr(0, cut));
    if (cut < head.size()) {
      EXPECT_EQ(early, std::nullopt) << cut;
      EXPECT_EQ(scanner.scan(head + behind), head.size()) << cut;
    } else {
      EXPECT_EQ(early, head.size());
    }
    EXPECT_EQ(scanner.problem(), "");
  }
}

TEST(RequestHead, RefusesAtTheFirstByteThatCannotBe) {
  for (const std::string bad :
       {"\n", "\r\n", "\x16", "GET / HTTP/1.1\n", "GET\rX", "GET / HTTP/1.1\r\nA: \x7f"}) {
    HeadScanner scanner(1000);
    EXPECT_EQ(scanner.scan(bad), std::nullopt);
    EXPECT_NE(scanner.problem(), "") << bad;
  }
  HeadScanner small(10);
  EXPECT_EQ(small.scan("GET /abcdef"), std::nullopt);
  EXPECT_NE(small.problem().find("over 10 bytes"), std::string::npos);
}

TEST(RequestHead, ATrailerDecidesNothing) {
  EXPECT_TRUE(may_be_trailer("X-Sum: abc"));
  for (const char* bad : {"Content-Length: 1", "HOST: a", "x y: z", "nothing", " X: y", ": y"})
    EXPECT_FALSE(may_be_trailer(bad)) << bad;
}

}  // namespace
}  // namespace isogate::front
