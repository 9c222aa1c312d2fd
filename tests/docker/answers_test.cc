// Invalid responses of an Engine: the call fails with a reason, and never returns half a response.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "plugins/docker/client/engine.h"
#include "tests/docker/engines.h"
#include "tests/docker/fake_engine.h"

namespace isogate::docker {
namespace {

using Clock = std::chrono::steady_clock;

class Answers : public testing::Test {
 protected:
  Failure inspect(const Budget& budget = Budget(seconds(5))) {
    return failure_of([&] { engine_.inspect("box", budget); });
  }
  void answer(const std::string& bytes, bool cut = false) { fake_.say("/containers/box/json", bytes, cut); }

  FakeEngine fake_;
  Engine engine_{parse_address(fake_.address(), "the test")};
};

const std::string kChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST_F(Answers, WholeOnesAreTaken) {
  answer(FakeEngine::json(R"({"Id": "a"})"));
  EXPECT_EQ(engine_.inspect("box", usual())["Id"], "a");
  answer("HTTP/1.0 200 OK\r\n\r\n{\"Id\": \"c\"}", true);
  EXPECT_EQ(engine_.inspect("box", usual())["Id"], "c");
}

// What podman reports of a container that is being removed: only its next response says that it is gone.
TEST_F(Answers, AContainerThatGoesWhileItIsLookedAtIsLookedAtOnceMore) {
  answer(FakeEngine::json(
      R"({"cause": "no such container", "message": "container 1 does not exist in database: no such container"})",
      "", 500));
  EXPECT_EQ(inspect().status, ISOGATE_UNAVAILABLE) << "it always says so: that is no proof";
  const auto looks = [&] {
    const auto all = fake_.requests();
    return std::count_if(all.begin(), all.end(), [](const std::string& line) {
      return line.find("/containers/box/json") != std::string::npos;
    });
  };
  EXPECT_EQ(looks(), 2);
  answer(FakeEngine::json(R"({"message": "the disk is full"})", "", 500));
  EXPECT_EQ(inspect().status, ISOGATE_UNAVAILABLE);
  EXPECT_EQ(looks(), 3) << "any other failure is reported at once";
}

TEST_F(Answers, ThoseThatBreakOffAreNot) {
  const std::string answers[] = {
      "",
      kChunked + "b\r\n{\"Id\": \"a\"}\r\n",
  };
  for (const std::string& bytes : answers) {
    answer(bytes, true);
    const Failure failure = inspect();
    EXPECT_EQ(failure.status, ISOGATE_UNAVAILABLE) << bytes << failure.message;
    EXPECT_TRUE(failure.maybe_done) << bytes;
  }
}

TEST_F(Answers, NonsenseIsNot) {
  const std::string answers[] = {
      "garbage\r\n\r\n",
      FakeEngine::json("{\"Id\": "),
      FakeEngine::json("7"),
      FakeEngine::json("{\"Id\": \"\xff\"}"),
      FakeEngine::json("<html>a proxy</html>"),
      FakeEngine::json("", "Location: /elsewhere\r\n", 302),
      "HTTP/1.1 204 No Content\r\n\r\n",
  };
  for (const std::string& bytes : answers) {
    answer(bytes, true);
    EXPECT_EQ(inspect().status, ISOGATE_UNAVAILABLE) << bytes.substr(0, 200);
  }
  answer(FakeEngine::json(R"({"Id": "a"})"));
  EXPECT_EQ(inspect().status, ISOGATE_OK);
}

TEST_F(Answers, LargeOnesAreRefusedBeforeTheyAreKept) {
  answer("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
  EXPECT_EQ(inspect().status, ISOGATE_UNAVAILABLE);
  std::string chunks = kChunked;
  for (int i = 0; i < 17; ++i) chunks += "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  answer(chunks + "0\r\n\r\n");
  const Failure large = inspect();
  EXPECT_EQ(large.status, ISOGATE_UNAVAILABLE);
  EXPECT_NE(large.message.find("more than 16 MiB"), std::string::npos) << large.message;
}

TEST_F(Answers, ReasonsAreOnePrintableLine) {
  answer(FakeEngine::json(R"({"message": "no \u001b[31mred\n\u0000 box\u202e"})", "", 500));
  const Failure failure = inspect();
  EXPECT_EQ(failure.status, ISOGATE_UNAVAILABLE);
  EXPECT_EQ(failure.http_status, 500);
  for (const char c : failure.message) EXPECT_TRUE(c >= ' ' && c <= '~') << failure.message;
  answer(FakeEngine::json(std::string(60'000, 'x'), "", 500));
  EXPECT_LT(inspect().message.size(), 500u);
}

TEST_F(Answers, ALongReasonHidesNoStatus) {
  for (const size_t size : {size_t{65'536}, size_t{65'537}, size_t{1} << 20}) {
    answer(FakeEngine::json(std::string(size, 'x'), "", 404));
    const Failure failure = inspect();
    EXPECT_EQ(failure.status, ISOGATE_NOT_FOUND) << failure.message;
    EXPECT_EQ(failure.http_status, 404);
    answer(FakeEngine::json(R"({"Id": "a"})"));
    EXPECT_EQ(inspect().status, ISOGATE_OK) << size;
  }
}

TEST_F(Answers, TheVersionIsTheNewestThatBothSpeak) {
  const auto version = [&](const std::string& newest, const std::string& oldest) {
    fake_.be(newest, oldest);
    return engine_.info(usual()).api_version;
  };
  EXPECT_EQ(version("1.41", "1.12"), "1.41");
  EXPECT_EQ(version("1.52", "1.44"), "1.47");
  EXPECT_EQ(version("1.40", "1.40"), "1.40");
  EXPECT_TRUE(fake_.requests().back().starts_with("GET /v1.40/info "));
}

TEST_F(Answers, PodmanIsAskedForNoVersionThatWaitsForItsContainers) {
  fake_.be("1.41", "1.12");
  fake_.say("/_ping", FakeEngine::json("OK", "Api-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\n"));
  EXPECT_EQ(engine_.info(usual()).api_version, "1.41");
  for (const std::string& request : fake_.requests())
    EXPECT_EQ(request.find("/version"), std::string::npos) << request;
}

TEST_F(Answers, AnEngineTooOldOrTooNewIsNamedWithBothVersions) {
  const auto refused = [&](const std::string& newest, const std::string& oldest) {
    fake_.be(newest, oldest);
    const Failure failure = inspect();
    EXPECT_EQ(failure.status, ISOGATE_UNSUPPORTED) << failure.message;
    return failure.message;
  };
  EXPECT_NE(refused("1.39", "1.12").find("up to 1.39, isogate speaks 1.40 to 1.47"), std::string::npos);
  EXPECT_NE(refused("1.60", "1.50").find("from 1.50 on, isogate speaks 1.40 to 1.47"), std::string::npos);
  EXPECT_NE(refused("", "1.12").find("names no version"), std::string::npos);
  fake_.be("newest", "1.12");
  EXPECT_EQ(inspect().status, ISOGATE_UNAVAILABLE);
}

TEST_F(Answers, TheVersionIsAskedForAgainWhenTheEngineIsAnotherOne) {
  EXPECT_EQ(inspect().status, ISOGATE_OK);
  fake_.be("1.45", "1.44");
  answer(FakeEngine::json(
      R"({"message": "client version 1.41 is too old. Minimum supported API version is 1.44"})", "", 400));
  EXPECT_EQ(inspect().status, ISOGATE_UNAVAILABLE);
  answer(FakeEngine::json("{}"));
  EXPECT_EQ(inspect().status, ISOGATE_OK);
  EXPECT_TRUE(fake_.requests().back().starts_with("GET /v1.45/")) << fake_.requests().back();
}

TEST_F(Answers, AConnectionThatWasClosedMeanwhileIsNotUsed) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(inspect().status, ISOGATE_OK);
    fake_.hang_up();
    EXPECT_EQ(failure_of([&] { engine_.start("box", usual()); }).message.find("204"), std::string::npos);
    fake_.hang_up();
  }
}

// The last one on a kept connection is cut without a byte: a GET may be repeated, a POST may not.
TEST_F(Answers, OnlyAGetIsRepeated) {
  EXPECT_EQ(inspect().status, ISOGATE_OK);
  const size_t before = fake_.requests().size();
  answer("", true);
  EXPECT_EQ(inspect().status, ISOGATE_UNAVAILABLE);
  const auto lines = fake_.requests();
  EXPECT_EQ(
      std::count_if(lines.begin() + static_cast<long>(before), lines.end(),
                    [](const std::string& line) { return line.find("/containers/box/json") != line.npos; }),
      2);
  engine_.ping(usual());
  fake_.say("/containers/box/start", "", true);
  const Failure failure = failure_of([&] { engine_.start("box", usual()); });
  EXPECT_EQ(failure.status, ISOGATE_UNAVAILABLE);
  EXPECT_TRUE(failure.maybe_done);
  const auto after = fake_.requests();
  EXPECT_EQ(std::count_if(after.begin(), after.end(),
                          [](const std::string& line) { return line.find("/box/start") != line.npos; }),
            1);
}

TEST_F(Answers, AnAnswerThatDoesNotComeIsWaitedForNoLongerThanAllowed) {
  answer("HTTP/1.1 200 OK\r\nContent-Le");
  const auto begin = Clock::now();
  const Failure late = inspect(Budget(milliseconds(300)));
  EXPECT_EQ(late.status, ISOGATE_UNAVAILABLE);
  EXPECT_NE(late.message.find("within 300 ms"), std::string::npos) << late.message;
  EXPECT_LT(Clock::now() - begin, seconds(15));
  Fd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(100));
    signal_event(cancel.get());
  });
  EXPECT_EQ(inspect(Budget(seconds(30), cancel.get())).status, ISOGATE_CANCELLED);
  canceller.join();
  EXPECT_LT(Clock::now() - begin, seconds(25));
}

TEST_F(Answers, AnExecNeedsTheBareConnection) {
  fake_.say("/exec/0a/start", FakeEngine::json(""));
  EXPECT_EQ(failure_of([&] { engine_.exec_start("0a", usual()); }).status, ISOGATE_UNAVAILABLE);
  for (const char* head :
       {"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\n"}) {
    fake_.say("/exec/0a/start", head + std::string("\1\0\0\0\0\0\0\5early", 13), true);
    EXPECT_EQ(read_all(*engine_.exec_start("0a", usual())), "early");
  }
}

TEST(EngineCalls, AnEngineThatIsNotThereIsSaidToBe) {
  Engine nowhere(parse_address("unix:///nonexistent/engine.sock", "the test"));
  const Failure failure = failure_of([&] { nowhere.ping(usual()); });
  EXPECT_EQ(failure.status, ISOGATE_UNAVAILABLE);
  EXPECT_FALSE(failure.maybe_done);
  EXPECT_NE(failure.message.find("unix:///nonexistent/engine.sock: No such file"), std::string::npos)
      << failure.message;
  Engine refused(parse_address("tcp://127.0.0.1:1", "the test"));
  EXPECT_NE(failure_of([&] { refused.ping(usual()); }).message.find("Connection refused"), std::string::npos);
  Engine unknown(parse_address("tcp://engine.invalid:1", "the test"));
  EXPECT_EQ(failure_of([&] { unknown.ping(Budget(seconds(10))); }).status, ISOGATE_UNAVAILABLE);
}

// A listener that accepts nothing: the first connections wait in its queue, the kernel drops the rest.
TEST(EngineCalls, ASilentPeerIsWaitedForNoLongerThanAllowed) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::string text = "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  EngineAddress tls = parse_address(text, "the test");
  tls.tls = TlsFiles{};
  const auto begin = Clock::now();
  const auto ping = [](const EngineAddress& address) {
    return failure_of([&] { Engine(address).ping(Budget(milliseconds(300))); }).message;
  };
  EXPECT_NE(ping(tls).find("the handshake was not done in time"), std::string::npos);
  std::vector<std::unique_ptr<net::Transport>> queued;
  const Failure full = failure_of([&] {
    for (int i = 0; i < 100; ++i)
      queued.push_back(
          net::Transport::connect(target_of(parse_address(text, "the test")), Budget(milliseconds(300))));
  });
  EXPECT_NE(full.message.find("did not take the connection in time"), std::string::npos) << full.message;
  EXPECT_LT(Clock::now() - begin, seconds(20));
}

}  // namespace
}  // namespace isogate::docker
