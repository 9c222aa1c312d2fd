// Watches, and what a server may do to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <nlohmann/json.hpp>

#include "plugins/k8s/client/watch.h"
#include "tests/eventually.h"
#include "tests/k8s/fake_cluster.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Resource kWatchedPods{"v1", "box", "pods"};

std::string pod(const std::string& name, int version, const std::string& uid = "") {
  return R"({"metadata":{"name":")" + name + R"(","namespace":"box","uid":")" + (uid.empty() ? name : uid) +
         R"(","resourceVersion":")" + std::to_string(version) + R"("}})";
}

std::string list(int version, const std::vector<std::string>& items) {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : ",") + item;
  return FakeCluster::json(R"({"metadata":{"resourceVersion":")" + std::to_string(version) +
                           R"("},"items":[)" + all + "]}");
}

std::string event(const std::string& type, const std::string& object) {
  const std::string line = R"({"type":")" + type + R"(","object":)" + object + "}\n";
  std::array<char, 16> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", line.size());
  return size.data() + line + "\r\n";
}

const std::string kStream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const std::string kEnd = "0\r\n\r\n";

// What a Watch reports, one word for each change.
class Told {
 public:
  WatchEvents events() {
    return {.changed =
                [this](const Json& object, bool deleted) {
                  add((deleted ? "-" : "+") + object["metadata"]["name"].get<std::string>() +
                      object["metadata"]["resourceVersion"].get<std::string>());
                },
            .lost = [this](const std::string& why) { add("lost", why); },
            .restored = [this] { add("restored"); }};
  }
  std::vector<std::string> wait(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, seconds(10), [&] { return all_.size() >= count; });
    return all_;
  }
  std::string why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  void add(const std::string& word, const std::string& why = {}) {
    const std::lock_guard lock(mutex_);
    all_.push_back(word);
    if (!why.empty()) why_ = why;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> all_;
  std::string why_;
};

using Words = std::vector<std::string>;

const WatchOptions kQuick{.stream_time = seconds(30), .first_pause = milliseconds(10)};

// Lists and watches in turn; a watch without a script stays silent.
struct Script {
  std::vector<std::string> lists, watches;
  std::atomic<size_t> listed{0}, watched{0};
  FakeCluster::Handler handler() {
    return [this](Peer& peer, const Heard& heard) {
      if (heard.target.find("watch=true") == std::string::npos) {
        peer.write(lists[std::min(listed++, lists.size() - 1)]);
        return true;
      }
      const size_t number = watched++;
      if (number >= watches.size()) {
        peer.write(kStream);
        return !peer.read(1).empty();
      }
      peer.write(watches[number]);
      return watches[number].ends_with(kEnd);
    };
  }
};

// A Watch of a server with a script.
struct Watched {
  Watched(std::vector<std::string> lists, std::vector<std::string> watches,
          const WatchOptions& options = kQuick)
      : script{std::move(lists), std::move(watches)}, watch(api, kWatchedPods, {}, told.events(), options) {}
  Script script;
  FakeCluster cluster{script.handler()};
  Api api{cluster.access()};
  Told told;
  const Watch watch;
};

TEST(K8sWatch, ReportsWhatThereIsAndWhatChanges) {
  Script script{{list(5, {pod("a", 1), pod("b", 2)})},
                {kStream + event("MODIFIED", pod("a", 6)) + event("BOOKMARK", pod("", 9)) +
                 event("DELETED", pod("b", 10)) + event("ADDED", pod("c", 11)) + kEnd}};
  FakeCluster cluster(script.handler());
  Api api(cluster.access());
  Told told;
  {
    const Watch watch(api, kWatchedPods, {.labels = "x=y"}, told.events(), kQuick);
    EXPECT_EQ(told.wait(5), (Words{"+a1", "+b2", "+a6", "-b10", "+c11"}));
    for (int i = 0; i < 200 && script.watched < 2; ++i) std::this_thread::sleep_for(milliseconds(10));
  }
  const auto heard = cluster.heard();
  EXPECT_EQ(script.listed, 1u);
  EXPECT_NE(heard[1].target.find("resourceVersion=5&timeoutSeconds=30&labelSelector=x%3Dy"),
            std::string::npos);
  EXPECT_NE(heard[1].target.find("allowWatchBookmarks=true"), std::string::npos);
  EXPECT_NE(heard[2].target.find("resourceVersion=11&"), std::string::npos);
}

TEST(K8sWatch, ListsAgainWhenItsVersionIsTooOld) {
  const std::string gone =
      R"({"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410})";
  for (const std::string& answer : {FakeCluster::json(gone, 410), kStream + event("ERROR", gone) + kEnd}) {
    // A plain response is not chunked: it ends with its connection.
    Watched watched({list(5, {pod("a", 1), pod("b", 2), pod("c", 3)}),
                     list(20, {pod("a", 1), pod("b", 9), pod("c", 9, "new")})},
                    {answer});
    EXPECT_EQ(watched.told.wait(6), (Words{"+a1", "+b2", "+c3", "+b9", "-c3", "+c9"}));
    EXPECT_EQ(watched.script.listed, 2u);
  }
}

TEST(K8sWatch, WhatWentAwayUnseenIsDeleted) {
  Watched watched({list(5, {pod("a", 1), pod("b", 2)}), list(20, {pod("b", 2)})},
                  {FakeCluster::status(410, "Expired")});
  EXPECT_EQ(watched.told.wait(3), (Words{"+a1", "+b2", "-a1"}));
}

TEST(K8sWatch, ABrokenStreamIsFollowedAgainFromWhereItWas) {
  Watched watched({list(5, {})},
                  {kStream + event("ADDED", pod("a", 6)), kStream + event("ADDED", pod("b", 7)) + kEnd});
  EXPECT_EQ(watched.told.wait(4), (Words{"+a6", "lost", "restored", "+b7"}));
  EXPECT_EQ(watched.script.listed, 1u);
}

TEST(K8sWatch, AServerThatIsAwayIsAskedUntilItIsBack) {
  Watched watched(
      {FakeCluster::status(500, "InternalError"), FakeCluster::status(500, "InternalError"), list(5, {})},
      {});
  EXPECT_EQ(watched.told.wait(2), (Words{"lost", "restored"}));
  EXPECT_NE(watched.told.why().find("500"), std::string::npos);
}

TEST(K8sWatch, ASilentConnectionIsGivenUp) {
  WatchOptions options = kQuick;
  options.stream_time = seconds(0);
  options.slack = seconds(1);
  Watched watched({list(5, {})}, {}, options);
  EXPECT_EQ(watched.told.wait(2), (Words{"lost", "restored"}));
}

TEST(K8sWatch, NonsenseIsReportedAndDoesNotEndTheWatch) {
  for (const std::string& nonsense :
       {std::string("5\r\nxyz\n\n\r\n"), event("ADDED", "3"), event("ADDED", "{}"),
        event("ADDED", pod("b", 2)) + "zz", event("ADDED", R"({"metadata":{"name":"b"}})"),
        event("DELETED", R"({"metadata":{"name":"a","uid":7}})"),
        event("DELETED", R"({"metadata":["a"]})")}) {
    Watched watched({list(5, {pod("a", 1)})}, {kStream + nonsense + kEnd});
    EXPECT_TRUE(test::eventually(10, [&] { return watched.script.watched >= 2; })) << nonsense;
    EXPECT_NE(watched.told.why(), "") << nonsense;
  }
}

TEST(K8sWatch, AnErrorIsOneWhateverItsCode) {
  for (const char* code : {"200", "-1", "4294967706", "1e99", R"("410")", "null"}) {
    const std::string error = R"({"kind":"Status","message":"oh no","code":)" + std::string(code) + "}";
    Watched watched({list(5, {pod("a", 1)})}, {kStream + event("ERROR", error) + kEnd});
    EXPECT_EQ(watched.told.wait(2)[1], "lost") << code;
    EXPECT_NE(watched.told.why().find("500: oh no"), std::string::npos) << watched.told.why();
  }
}

TEST(K8sWatch, EndsAtOnceWhateverTheServerDoes) {
  FakeCluster mute([](Peer& peer, const Heard&) { return !peer.read(1).empty(); });
  Api api(mute.access());
  const auto begin = std::chrono::steady_clock::now();
  {
    const Watch watch(api, kWatchedPods, {}, {}, kQuick);
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(2));
}

}  // namespace
}  // namespace isogate::k8s
