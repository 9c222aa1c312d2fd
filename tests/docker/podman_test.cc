// The same client with podman, where that differs from Docker.
#include <thread>

#include "lib/tar/tar_writer.h"
#include "tests/docker/engines.h"

namespace isogate::docker {
namespace {

class Podman : public SharedEngine {
 protected:
  Podman() : SharedEngine("ISOGATE_TEST_PODMAN", "podman.sh") {}
};

TEST_F(Podman, IsKnownAsWhatItIs) {
  const EngineInfo info = engine_->info(usual());
  EXPECT_TRUE(info.podman);
  EXPECT_FALSE(info.version.empty());
  EXPECT_FALSE(info.rootless);
}

TEST_F(Podman, RunsContainersAndPrograms) {
  const std::string id = run();
  const std::string bytes(8 << 20, 'b');
  EXPECT_TRUE(exec(id, {"head", "-c", std::to_string(bytes.size())}, bytes) == bytes);
  EXPECT_EQ(exec(id, {"sh", "-c", "head -c 5; echo error >&2"}, "12345"), "12345");
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(200));
    engine_->kill(id, "KILL", usual());
  });
  EXPECT_EQ(engine_->wait(id, usual()), 137);
  killer.join();
  engine_->remove(id, usual());
  EXPECT_EQ(failure_of([&] { engine_->inspect(id, usual()); }).status, ISOGATE_NOT_FOUND);
}

TEST_F(Podman, TakesFiles) {
  const std::string id = create();
  const auto produce = [](const ByteSink& sink) {
    TarWriter tar(sink);
    tar.file({"tool", 0555, 0, 0, 0}, "content");
    tar.finish();
  };
  engine_->put_archive(id, "/", produce, usual());
  engine_->start(id, usual());
  EXPECT_EQ(exec(id, {"sh", "-c", "stat -c %a /tool; cat /tool"}), "555\ncontent");
}

// It shows what carries any of several labels.
TEST_F(Podman, ListsWhatCarriesAllLabels) {
  const std::string both = new_name(), one = new_name();
  engine_->create_volume(both, Json{{"Labels", {{"mark", both}, {"kind", "b"}}}}, usual());
  engine_->create_volume(one, Json{{"Labels", {{"mark", one}, {"kind", "b"}}}}, usual());
  const auto found = engine_->list({{"mark", both}, {"kind", "b"}}, usual(), ObjectKind::kVolume);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].value("Name", ""), both);
  engine_->remove(both, usual(), ObjectKind::kVolume);
  engine_->remove(one, usual(), ObjectKind::kVolume);
}

TEST_F(Podman, AnswersConflictsWith500) {
  const std::string id = create(), name = new_name();
  engine_->rename(id, name, usual());
  const Json taken{{"Image", "isogate-test:small"}, {"Cmd", {"true"}}};
  const Failure again = failure_of([&] { engine_->create_container(name, taken, usual()); });
  EXPECT_EQ(again.status, ISOGATE_UNAVAILABLE) << again.message;
  EXPECT_EQ(failure_of([&] { engine_->kill(id, "TERM", usual()); }).status, ISOGATE_UNAVAILABLE);
  EXPECT_EQ(failure_of([&] {
              engine_->exec_create(id, Json{{"Cmd", {"true"}}}, usual());
            }).status,
            ISOGATE_UNAVAILABLE);
}

}  // namespace
}  // namespace isogate::docker
