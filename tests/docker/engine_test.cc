// The calls about containers, against a real Engine.
#include "plugins/docker/client/engine.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <thread>

#include "lib/fd.h"
#include "tests/docker/engines.h"

namespace isogate::docker {
namespace {

TEST_F(SharedEngine, SaysWhatItIs) {
  engine_->ping(usual());
  const EngineInfo info = engine_->info(usual());
  EXPECT_FALSE(info.version.empty());
  EXPECT_TRUE(info.api_version.starts_with("1."));
  EXPECT_TRUE(info.cgroup_version == "1" || info.cgroup_version == "2");
  EXPECT_FALSE(info.podman);
  EXPECT_NE(std::find(info.runtimes.begin(), info.runtimes.end(), "runc"), info.runtimes.end());
  EXPECT_FALSE(info.security_options.empty());
}

TEST_F(SharedEngine, AContainerLivesAndDies) {
  const std::string id = create();
  EXPECT_EQ(engine_->inspect(id, usual())["State"]["Status"], "created");
  engine_->start(id, usual());
  engine_->start(id, usual());
  Json now = engine_->inspect(id, usual());
  EXPECT_EQ(now["State"]["Running"], true);
  EXPECT_EQ(now["Id"], id);

  const std::string name = new_name();
  engine_->rename(id, name, usual());
  EXPECT_EQ(engine_->inspect(name, usual())["Id"], id);
  const Json taken{{"Image", "isogate-test:small"}, {"Cmd", {"true"}}};
  EXPECT_EQ(failure_of([&] { engine_->create_container(name, taken, usual()); }).http_status, 409);

  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(200));
    engine_->kill(id, "KILL", usual());
  });
  EXPECT_EQ(engine_->wait(id, usual()), 137);
  killer.join();
  engine_->remove(id, usual());
  const Failure gone = failure_of([&] { engine_->inspect(id, usual()); });
  EXPECT_EQ(gone.status, ISOGATE_NOT_FOUND);
  EXPECT_EQ(gone.http_status, 404);
  EXPECT_FALSE(gone.maybe_done);
  EXPECT_TRUE(gone.message.starts_with("cannot inspect container `")) << gone.message;
}

TEST_F(SharedEngine, AStateThatDoesNotAllowItIsUnavailable) {
  const std::string id = create();
  const Failure stopped = failure_of([&] { engine_->kill(id, "TERM", usual()); });
  EXPECT_EQ(stopped.status, ISOGATE_UNAVAILABLE) << stopped.message;
  EXPECT_EQ(stopped.http_status, 409);
  EXPECT_EQ(failure_of([&] { engine_->exec_create(id, Json{{"Cmd", {"true"}}}, usual()); }).http_status, 409);
}

TEST_F(SharedEngine, ListsByLabelWhatRunsAndWhatDoesNot) {
  const std::string mark = new_name();
  const std::string running = run({{"Labels", {{"mark", mark}, {"kind", "a"}}}});
  const std::string stopped = create({{"Labels", {{"mark", mark}, {"kind", "b"}}}});
  create({{"Labels", {{"mark", "other"}}}});
  const auto ids = [&](const std::vector<LabelFilter>& labels) {
    std::vector<std::string> found;
    for (const Json& one : engine_->list(labels, usual())) found.push_back(one["Id"]);
    std::sort(found.begin(), found.end());
    return found;
  };
  std::vector<std::string> both{running, stopped};
  std::sort(both.begin(), both.end());
  EXPECT_EQ(ids({{"mark", mark}}), both);
  EXPECT_EQ(ids({{"mark", mark}, {"kind", "b"}}), std::vector<std::string>{stopped});
  EXPECT_TRUE(ids({{"mark", "none"}}).empty());
}

TEST_F(SharedEngine, VolumesAndNetworksComeAndGo) {
  const std::string name = new_name();
  engine_->create_volume(name, Json{{"Labels", {{"mark", name}}}}, usual());
  EXPECT_EQ(engine_->inspect(name, usual(), ObjectKind::kVolume)["Labels"]["mark"], name);
  EXPECT_EQ(engine_->list({{"mark", name}}, usual(), ObjectKind::kVolume).size(), 1u);
  const std::string user = create({{"HostConfig", {{"Binds", {name + ":/workspace"}}}}});
  EXPECT_EQ(failure_of([&] { engine_->remove(name, usual(), ObjectKind::kVolume); }).http_status, 409);
  engine_->remove(user, usual());
  engine_->remove(name, usual(), ObjectKind::kVolume);
  EXPECT_EQ(failure_of([&] { engine_->inspect(name, usual(), ObjectKind::kVolume); }).status,
            ISOGATE_NOT_FOUND);

  const std::string id = engine_->create_network(name, Json{{"Internal", true}}, usual());
  EXPECT_EQ(engine_->inspect(name, usual(), ObjectKind::kNetwork)["Id"], id);
  EXPECT_EQ(failure_of([&] { engine_->create_network(name, Json::object(), usual()); }).http_status, 409);
  const std::string box = create({{"HostConfig", {{"NetworkMode", name}}}});
  engine_->remove(box, usual());
  engine_->remove(name, usual(), ObjectKind::kNetwork);
  EXPECT_EQ(failure_of([&] { engine_->remove(name, usual(), ObjectKind::kNetwork); }).status,
            ISOGATE_NOT_FOUND);
}

TEST_F(SharedEngine, KnowsItsImages) {
  EXPECT_TRUE(engine_->inspect_image("isogate-test:small", usual())["Id"].is_string());
  EXPECT_EQ(failure_of([&] { engine_->inspect_image("isogate-test:none", usual()); }).status,
            ISOGATE_NOT_FOUND);
  EXPECT_EQ(failure_of([&] { engine_->inspect_image("../containers/json", usual()); }).status,
            ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(failure_of([&] {
              engine_->create_container(new_name(), Json{{"Image", "isogate-test:none"}}, usual());
            }).status,
            ISOGATE_NOT_FOUND);
}

TEST_F(SharedEngine, NoNameLeadsElsewhere) {
  for (const char* name : {"", "..", "a/b", "a?force=1", "a b", "%2e", "-a", "a\n"})
    EXPECT_EQ(failure_of([&] { engine_->inspect(name, usual()); }).status, ISOGATE_INVALID_ARGUMENT) << name;
  EXPECT_EQ(failure_of([&] {
              engine_->create_container(new_name(), Json{{"Image", "\xff"}}, usual());
            }).status,
            ISOGATE_INVALID_ARGUMENT);
}

TEST_F(SharedEngine, TellsWhatHappens) {
  const std::string mark = new_name();
  const Json filters{{"type", {"container"}}, {"event", {"start", "die"}}, {"label", {"mark=" + mark}}};
  const auto events = engine_->events(filters, "", usual());
  const std::string id = run({{"Labels", {{"mark", mark}}}});
  EXPECT_EQ(events->next(usual())["status"], "start");
  engine_->kill(id, "KILL", usual());
  const Json died = events->next(usual());
  EXPECT_EQ(died["status"], "die");
  EXPECT_EQ(died["id"], id);
  EXPECT_EQ(died["Actor"]["Attributes"]["exitCode"], "137");

  Fd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(100));
    signal_event(cancel.get());
  });
  EXPECT_EQ(failure_of([&] { events->next(Budget::endless(cancel.get())); }).status, ISOGATE_CANCELLED);
  canceller.join();
  // Missed events are reported again.
  const auto later = engine_->events(filters, "1", usual());
  EXPECT_EQ(later->next(usual())["status"], "start");
  EXPECT_EQ(later->next(usual())["status"], "die");
}

TEST_F(SharedEngine, TakesManyCallsAtOnce) {
  const std::string id = run();
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k)
        if (engine_->inspect(id, usual())["Id"] == id) ++good;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 16 * 20);
}

}  // namespace
}  // namespace isogate::docker
