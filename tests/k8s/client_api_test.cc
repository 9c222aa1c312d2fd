// Calls of the API against a server that misbehaves.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "lib/fd.h"
#include "lib/net/transport.h"
#include "tests/k8s/fake_cluster.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

const Resource kPod{"v1", "box", "pods", "one"};
const Resource kPods{"v1", "box", "pods"};

// The responses in turn, the last one forever; "" closes the connection.
FakeCluster::Handler in_turn(std::vector<std::string> answers) {
  return [answers = std::move(answers), next = std::make_shared<std::atomic<size_t>>(0)](Peer& peer,
                                                                                         const Heard&) {
    const std::string& answer = answers[std::min(next->fetch_add(1), answers.size() - 1)];
    peer.write(answer);
    return !answer.empty();
  };
}

const std::string kFine = FakeCluster::json(R"({"kind":"Pod"})");

TEST(K8sApi, SaysWhatItIsAskedTo) {
  FakeCluster cluster(in_turn({kFine}));
  ClusterAccess access = cluster.access();
  access.path = "/prefix";
  access.headers = {{"Impersonate-Group", "a"}, {"Impersonate-Group", "b"}};
  CredentialFiles files;
  files.token.text = "t";
  access.credentials = file_credentials(files);
  Api api(access);
  EXPECT_EQ(api.get(kPod, usual())["kind"], "Pod");
  api.create(kPods, {{"a", 1}}, usual(), {{"dryRun", "All"}});
  api.replace({"apps/v1", "box", "deployments", "d", "scale"}, {{"b", 2}}, usual());
  api.remove(kPod, {{"gracePeriodSeconds", 0}}, usual());
  const auto heard = cluster.heard();
  ASSERT_EQ(heard.size(), 4u);
  EXPECT_EQ(heard[0].method + " " + heard[0].target, "GET /prefix/api/v1/namespaces/box/pods/one");
  EXPECT_EQ(heard[0].header("Authorization"), "Bearer t");
  EXPECT_NE(heard[0].head.find("Impersonate-Group: a\r\nImpersonate-Group: b\r\n"), std::string::npos);
  EXPECT_EQ(heard[1].method + " " + heard[1].target, "POST /prefix/api/v1/namespaces/box/pods?dryRun=All");
  EXPECT_EQ(heard[1].body, R"({"a":1})");
  EXPECT_EQ(heard[2].method + " " + heard[2].target,
            "PUT /prefix/apis/apps/v1/namespaces/box/deployments/d/scale");
  EXPECT_EQ(heard[2].header("Content-Type"), "application/json");
  EXPECT_EQ(heard[3].body, R"({"gracePeriodSeconds":0})");
  EXPECT_EQ(cluster.connections(), 1u);
}

TEST(K8sApi, NamesThatLeadElsewhereAreRefused) {
  for (const char* name : {"a/b", "..", ".", "a?b", "a b", "a%2fb", "a\r\nb"})
    EXPECT_EQ(failure_of([&] {
                (void)Resource{"v1", "box", "pods", name}.path();
              }).status,
              ISOGATE_INVALID_ARGUMENT)
        << name;
  EXPECT_EQ((Resource{"v1", "", "nodes", "n.example"}.path()), "/api/v1/nodes/n.example");
}

TEST(K8sApi, AStatusIsOneError) {
  const struct {
    int code;
    const char* reason;
    isogate_status status;
  } table[] = {{404, "NotFound", ISOGATE_NOT_FOUND},
               {409, "AlreadyExists", ISOGATE_ALREADY_EXISTS},
               {409, "Conflict", ISOGATE_UNAVAILABLE},
               {403, "Forbidden", ISOGATE_PERMISSION_DENIED},
               {422, "Invalid", ISOGATE_INVALID_ARGUMENT},
               {500, "InternalError", ISOGATE_UNAVAILABLE},
               {410, "Expired", ISOGATE_UNAVAILABLE},
               {503, "ServiceUnavailable", ISOGATE_UNAVAILABLE},
               {401, "Unauthorized", ISOGATE_PERMISSION_DENIED}};
  for (const auto& row : table) {
    FakeCluster cluster(in_turn({FakeCluster::status(row.code, row.reason)}));
    Api api(cluster.access());
    const Failure failure = failure_of([&] { api.get(kPod, usual()); });
    EXPECT_EQ(failure.status, row.status) << row.reason;
    EXPECT_EQ(failure.http_status, row.code);
    EXPECT_EQ(failure.reason, row.reason);
    EXPECT_NE(failure.message.find("cannot get pods `box/one`: the API server answered " +
                                   std::to_string(row.code)),
              std::string::npos)
        << failure.message;
    EXPECT_FALSE(failure.maybe_done);
  }
}

TEST(K8sApi, AMalformedStatusLineEndsItsConnection) {
  FakeCluster cluster(in_turn({"HTTP/1.1 7 OK\r\nContent-Length: 0\r\n\r\n", kFine}));
  Api api(cluster.access());
  EXPECT_EQ(failure_of([&] { api.get(kPod, usual()); }).status, ISOGATE_UNAVAILABLE);
  EXPECT_EQ(api.get(kPod, usual())["kind"], "Pod");
  EXPECT_EQ(cluster.connections(), 2u);
}

TEST(K8sApi, ACollectionIsNeverDeleted) {
  FakeCluster cluster(in_turn({kFine}));
  Api api(cluster.access());
  EXPECT_EQ(failure_of([&] {
              api.remove(kPods, {{"gracePeriodSeconds", 0}}, usual());
            }).status,
            ISOGATE_INVALID_ARGUMENT);
  EXPECT_TRUE(cluster.heard().empty());
}

// Credentials whose token changes once it is refused.
class Renewed : public Credentials {
 public:
  Identity current(const Budget&) override { return {"Bearer " + std::to_string(number_), "", ""}; }
  void refused(const Identity&) override { ++number_; }

 private:
  std::atomic<int> number_{1};
};

TEST(K8sApi, A401IsAnsweredWithNewerCredentialsOnce) {
  FakeCluster cluster([](Peer& peer, const Heard& heard) {
    const bool good = heard.header("Authorization") == "Bearer 2";
    peer.write(good ? kFine : FakeCluster::status(401, "Unauthorized"));
    return true;
  });
  ClusterAccess access = cluster.access();
  access.credentials = std::make_shared<Renewed>();
  Api api(access);
  api.create(kPods, {}, usual());
  EXPECT_EQ(cluster.heard().size(), 2u);

  FakeCluster never(in_turn({FakeCluster::status(401, "Unauthorized")}));
  access = never.access();
  access.credentials = std::make_shared<Renewed>();
  Api refused(access);
  EXPECT_EQ(failure_of([&] { refused.get(kPod, usual()); }).http_status, 401);
  EXPECT_EQ(never.heard().size(), 2u);
  Api anonymous(never.access());
  EXPECT_EQ(failure_of([&] { anonymous.get(kPod, usual()); }).http_status, 401);
  EXPECT_EQ(never.heard().size(), 3u);
}

TEST(K8sApi, A429IsTriedAgainWhenItSaysWhateverTheMethod) {
  FakeCluster cluster(in_turn({FakeCluster::status(429, "TooManyRequests", "Retry-After: 1\r\n"), kFine}));
  Api api(cluster.access());
  const auto begin = Clock::now();
  api.create(kPods, {}, usual());
  EXPECT_GE(Clock::now() - begin, seconds(1));
  EXPECT_EQ(cluster.heard().size(), 2u);
}

TEST(K8sApi, ARetryBeyondTheDeadlineIsNotWaitedFor) {
  FakeCluster cluster(in_turn({FakeCluster::status(429, "TooManyRequests", "Retry-After: 60\r\n")}));
  Api api(cluster.access());
  const auto begin = Clock::now();
  EXPECT_EQ(failure_of([&] { api.get(kPod, Budget(seconds(5))); }).http_status, 429);
  EXPECT_LT(Clock::now() - begin, seconds(4));
}

TEST(K8sApi, AServerThatIsAlwaysBusyIsAskedAFewTimes) {
  const auto asked = [](int code, const char* reason, auto call) {
    FakeCluster cluster(in_turn({FakeCluster::status(code, reason, "Retry-After: 0\r\n")}));
    Api api(cluster.access());
    EXPECT_EQ(failure_of([&] { call(api); }).http_status, code);
    return cluster.heard().size();
  };
  const auto get = [](Api& api) { api.get(kPod, usual()); };
  const auto create = [](Api& api) { api.create(kPods, {}, usual()); };
  const auto remove = [](Api& api) { api.remove(kPod, Json::object(), usual()); };
  EXPECT_EQ(asked(429, "TooManyRequests", get), 6u);
  EXPECT_EQ(asked(429, "TooManyRequests", create), 6u);
  EXPECT_EQ(asked(429, "TooManyRequests", remove), 6u);
  EXPECT_EQ(asked(503, "ServiceUnavailable", remove), 6u);
  EXPECT_EQ(asked(503, "ServiceUnavailable", create), 1u);
}

TEST(K8sApi, TheServersTextOfAFailureIsCut) {
  for (const std::string& body :
       {std::string(60'000, 'x'), R"({"kind":"Status","reason":")" + std::string(30'000, 'r') +
                                      R"(","message":")" + std::string(30'000, 'm') + R"("})"}) {
    FakeCluster cluster(in_turn({FakeCluster::json(body, 500)}));
    Api api(cluster.access());
    const Failure failure = failure_of([&] { api.get(kPod, usual()); });
    EXPECT_EQ(failure.http_status, 500);
    EXPECT_LT(failure.message.size(), 600u);
    EXPECT_LT(failure.reason.size(), 100u);
  }
}

TEST(K8sApi, A503IsTriedAgainOnlyWhereItMayBeDoneTwice) {
  const std::string busy = FakeCluster::status(503, "ServiceUnavailable", "Retry-After: 0\r\n");
  FakeCluster reads(in_turn({busy, kFine}));
  Api(reads.access()).get(kPod, usual());
  FakeCluster writes(in_turn({busy, kFine}));
  Api api(writes.access());
  EXPECT_EQ(failure_of([&] { api.create(kPods, {}, usual()); }).http_status, 503);
  EXPECT_EQ(writes.heard().size(), 1u);
}

TEST(K8sApi, ADeadKeptConnectionIsNoticedOnlyForReads) {
  // Reads the second request of each connection, and closes it.
  const auto handler = [](Peer& peer, const Heard&) {
    static thread_local int count = 0;
    static thread_local int socket = -1;
    if (std::exchange(socket, peer.socket()) != peer.socket()) count = 0;
    if (++count == 2) return false;
    peer.write(kFine);
    return true;
  };
  FakeCluster cluster(handler);
  Api api(cluster.access());
  api.get(kPod, usual());
  api.get(kPod, usual());
  EXPECT_EQ(cluster.heard().size(), 3u);
  const Failure failure = failure_of([&] { api.create(kPods, {}, usual()); });
  EXPECT_EQ(failure.status, ISOGATE_UNAVAILABLE);
  EXPECT_TRUE(failure.maybe_done);
  EXPECT_EQ(cluster.heard().size(), 4u);
}

TEST(K8sApi, ASilentServerBlocksNobody) {
  FakeCluster cluster([](Peer& peer, const Heard&) { return !peer.read(1).empty(); });
  Api api(cluster.access());
  const auto begin = Clock::now();
  const Failure late = failure_of([&] { api.create(kPods, {}, Budget(milliseconds(200))); });
  EXPECT_EQ(late.status, ISOGATE_UNAVAILABLE);
  EXPECT_TRUE(late.maybe_done);
  const Fd cancel = std::move(*make_event());
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(200));
    signal_event(cancel.get());
  });
  EXPECT_EQ(failure_of([&] { api.get(kPod, Budget(seconds(60), cancel.get())); }).status, ISOGATE_CANCELLED);
  canceller.join();
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

TEST(K8sApi, TruncatedOrInvalidAnswersAreRefused) {
  const struct {
    std::string answer;
    const char* said;
  } table[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "broke off"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "more than"},
      {"HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\n{}", "an invalid status"},
      {"HTTP/1.1 302 Found\r\nLocation: https://evil/\r\nContent-Length: 0\r\n\r\n", "302"},
      {FakeCluster::json("{\"a\":"), "no JSON"},
      {"", "broke off"},
  };
  for (const auto& row : table) {
    FakeCluster cluster([&](Peer& peer, const Heard&) {
      peer.write(row.answer);
      return false;
    });
    Api api(cluster.access());
    const Failure failure = failure_of([&] { api.create(kPods, {}, usual()); });
    EXPECT_EQ(failure.status, ISOGATE_UNAVAILABLE);
    EXPECT_TRUE(failure.maybe_done) << row.answer;
    EXPECT_NE(failure.message.find(row.said), std::string::npos) << failure.message;
  }
}

TEST(K8sApi, AnAnswersSizeIsBounded) {
  FakeCluster cluster([](Peer& peer, const Heard&) {
    peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 64; ++i) peer.write("4000\r\n" + std::string(0x4000, ' ') + "\r\n");
    return false;
  });
  Api api(cluster.access(), {.answer_most = 100'000});
  EXPECT_NE(failure_of([&] { api.get(kPod, usual()); }).message.find("more than"), std::string::npos);
}

TEST(K8sApi, PagesBecomeOneList) {
  FakeCluster cluster([](Peer& peer, const Heard& heard) {
    const bool second = heard.target.find("continue=next%26") != std::string::npos;
    peer.write(FakeCluster::json(
        second ? R"({"metadata":{"resourceVersion":"7"},"items":[{"n":2}]})"
               : R"({"metadata":{"resourceVersion":"6","continue":"next&"},"items":[{"n":1}]})"));
    return true;
  });
  Api api(cluster.access());
  const Json list = api.list(kPods, {.labels = "a=b,c", .page = 1}, usual());
  EXPECT_EQ(list, Json::parse(R"({"metadata":{"resourceVersion":"7"},"items":[{"n":1},{"n":2}]})"));
  EXPECT_NE(cluster.heard()[0].target.find("labelSelector=a%3Db%2Cc&limit=1"), std::string::npos);
  FakeCluster endless(in_turn({FakeCluster::json(R"({"metadata":{"continue":"x"},"items":[]})")}));
  Api other(endless.access());
  EXPECT_NE(failure_of([&] { other.list(kPods, {}, usual()); }).message.find("does not end"),
            std::string::npos);
}

TEST(K8sApi, RequestsHaveARate) {
  FakeCluster cluster(in_turn({kFine}));
  Api api(cluster.access(), {.qps = 20, .burst = 2});
  const auto begin = Clock::now();
  for (int i = 0; i < 8; ++i) api.get(kPod, usual());
  EXPECT_GE(Clock::now() - begin, milliseconds(280));
  Api slow(cluster.access(), {.qps = 0.01, .burst = 1});
  slow.get(kPod, usual());
  EXPECT_NE(failure_of([&] { slow.get(kPod, Budget(milliseconds(100))); }).message.find("turn"),
            std::string::npos);
}

class K8sTls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    authority = new test::Authority;
    other = new test::Authority("another");
    authority->sign("server", "IP:127.0.0.1,DNS:cluster.example");
    authority->sign("late", "IP:127.0.0.1", -1);
    authority->sign("client", "DNS:client");
    other->sign("client", "DNS:client");
  }
  static void TearDownTestSuite() {
    delete authority;
    delete other;
  }
  static std::string message(const ClusterAccess& access) {
    Api api(access);
    return failure_of([&] { api.get(kPod, usual()); }).message;
  }
  static std::shared_ptr<Credentials> shown(const test::Authority& by) {
    CredentialFiles files;
    files.certificate.file = by.file("client.pem");
    files.key.file = by.file("client.key");
    return file_credentials(files);
  }
  static test::Authority *authority, *other;
};
test::Authority* K8sTls::authority = nullptr;
test::Authority* K8sTls::other = nullptr;

TEST_F(K8sTls, TheServerHasToBeWhoItIsMeantToBe) {
  FakeCluster cluster(in_turn({kFine}), authority);
  ClusterAccess access = cluster.access();
  EXPECT_EQ(message(access), "");
  access.server_name = "cluster.example";
  EXPECT_EQ(message(access), "");
  access.server_name = "other.example";
  EXPECT_NE(message(access).find("not to be trusted"), std::string::npos);
  access = cluster.access();
  access.authority.file = other->certificate();
  EXPECT_NE(message(access).find("not to be trusted"), std::string::npos);
  access.verify = false;
  EXPECT_EQ(message(access), "");
  access = cluster.access();
  access.authority = {"-----BEGIN CERTIFICATE-----\nnonsense", ""};
  EXPECT_NE(message(access).find("is no certificate"), std::string::npos);
  FakeCluster late(in_turn({kFine}), authority, "late");
  EXPECT_NE(message(late.access()).find("expired"), std::string::npos);
}

TEST_F(K8sTls, TheClientShowsItsCertificate) {
  FakeCluster cluster(in_turn({kFine}), authority, "server", true);
  ClusterAccess access = cluster.access();
  EXPECT_NE(message(access), "");
  access.credentials = shown(*other);
  EXPECT_NE(message(access), "");
  access.credentials = shown(*authority);
  EXPECT_EQ(message(access), "");
  CredentialFiles wrong;
  wrong.certificate.file = authority->file("client.pem");
  wrong.key.file = other->file("client.key");
  access.credentials = file_credentials(wrong);
  EXPECT_NE(message(access).find("does not belong"), std::string::npos);
}

TEST_F(K8sTls, ACertificateThatIsBeingReplacedIsReadAgain) {
  FakeCluster cluster(in_turn({kFine}), authority, "server", true);
  const test::TemporaryDirectory place;
  const auto put = [&](const char* name, const test::Authority& of) {
    return place.file(name, test::read_whole(of.file(name)), 0600);
  };
  CredentialFiles files;
  files.certificate.file = put("client.pem", *authority);
  files.key.file = put("client.key", *other);
  ClusterAccess access = cluster.access();
  access.credentials = file_credentials(files);
  EXPECT_NE(message(access).find("does not belong"), std::string::npos);
  put("client.key", *authority);
  EXPECT_EQ(message(access), "");
}

TEST_F(K8sTls, ASlowHandshakeBlocksNobody) {
  FakeCluster cluster(in_turn({kFine}), authority);
  cluster.stop_shaking_hands();
  Api api(cluster.access());
  const auto begin = Clock::now();
  EXPECT_NE(failure_of([&] { api.get(kPod, Budget(milliseconds(200))); }).message.find("in time"),
            std::string::npos);
  const Fd cancel = std::move(*make_event());
  signal_event(cancel.get());
  EXPECT_EQ(failure_of([&] { api.get(kPod, Budget(seconds(60), cancel.get())); }).status, ISOGATE_CANCELLED);
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

TEST_F(K8sTls, AProxyIsAskedForTheWay) {
  FakeCluster cluster(in_turn({kFine}), authority);
  // Copies bytes between both sockets until one ends.
  FakeCluster proxy([&](Peer& peer, const Heard& heard) {
    if (heard.method != "CONNECT" || heard.target != "127.0.0.1:" + std::to_string(cluster.port()))
      return false;
    if (heard.header("Proxy-Authorization") != "Basic secret") {
      peer.write("HTTP/1.1 407 Who are you\r\n\r\n");
      return false;
    }
    const auto onward = net::Transport::connect(
        {.name = "", .address = "", .unix_path = "", .host = "127.0.0.1", .port = cluster.port()}, usual());
    peer.write("HTTP/1.1 200 Connection established\r\n\r\n");
    pollfd both[2] = {{peer.socket(), POLLIN, 0}, {onward->fd(), POLLIN, 0}};
    std::array<char, 4096> buffer{};
    for (;;) {
      if (::poll(both, 2, 5000) <= 0) return false;
      const int from = both[0].revents != 0 ? 0 : 1;
      const ssize_t n = ::recv(both[from].fd, buffer.data(), buffer.size(), 0);
      if (n <= 0) return false;
      (void)::send(both[1 - from].fd, buffer.data(), static_cast<size_t>(n), MSG_NOSIGNAL);
    }
  });
  ClusterAccess access = cluster.access();
  access.proxy = net::Proxy{"127.0.0.1", proxy.port(), "Basic secret"};
  EXPECT_EQ(message(access), "");
  access.proxy->authorization = "Basic wrong";
  const std::string refused = message(access);
  EXPECT_NE(refused.find("407 Who are you"), std::string::npos);
  EXPECT_EQ(refused.find("wrong"), std::string::npos);
}

TEST(ApiAnswers, OnlyTheApiServersOwnWordProvesThatSomethingIsGone) {
  EXPECT_EQ(refusal("get it", 404, R"({"kind": "Status", "reason": "NotFound"})").status(),
            ISOGATE_NOT_FOUND);
  EXPECT_EQ(refusal("get it", 404, R"({"kind": "Status", "reason": "NotFound"})", "it").status(),
            ISOGATE_UNAVAILABLE);
  const char* const of_space = R"({"kind": "Status", "reason": "NotFound", "details": {"name": "box"}})";
  EXPECT_EQ(refusal("get it", 404, of_space, "it").status(), ISOGATE_UNAVAILABLE);
  EXPECT_EQ(refusal("get it", 404, of_space, "box").status(), ISOGATE_NOT_FOUND);
  EXPECT_EQ(refusal("get it", 404, "<html>404 page not found</html>").status(), ISOGATE_UNAVAILABLE);
  EXPECT_EQ(refusal("get it", 404, "").status(), ISOGATE_UNAVAILABLE);
  EXPECT_EQ(refusal("get it", 410, "").status(), ISOGATE_UNAVAILABLE);
}

TEST(ApiAnswers, NestingIsBounded) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(refusal("get it", 404, deep, "it").status(), ISOGATE_UNAVAILABLE);
  FakeCluster cluster(in_turn({FakeCluster::json(deep)}));
  Api api(cluster.access());
  EXPECT_NE(failure_of([&] { api.get(kPod, usual()); }).message.find("no JSON"), std::string::npos);
}

}  // namespace
}  // namespace isogate::k8s
