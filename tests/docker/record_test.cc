#include "plugins/docker/container/record.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "lib/fd.h"
#include "lib/limits.h"
#include "tests/support/program.h"

namespace isogate::docker {
namespace {

struct RecordTest : testing::Test {
  test::TemporaryDirectory place;
  Fd directory{::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
};

TEST_F(RecordTest, KeepsAllThatWasMeasured) {
  EXPECT_FALSE(read_record(directory.get()));
  Record record{.name = "isg-x.0123",
                .id = "abc",
                .profile = "digest",
                .socket = true,
                .started_at = "2026-01-01T00:00:00.1Z",
                .pid = 4711,
                .shape = "shape",
                .proof = Proof{{}, {"127.0.0.1", 9090, "127.0.0.1:9090 [::1]:9090"}}};
  record.proof->evidence.struct_size = sizeof(isogate_evidence);
  record.proof->evidence.flags = ISOGATE_EVIDENCE_MEASURED | ISOGATE_EVIDENCE_NETWORK;
  record.proof->evidence.uid = 12345;
  record.proof->evidence.ns_net = 4026531840;
  record.proof->evidence.cap_bounding = UINT64_MAX;
  Limits{{ISOGATE_LIMIT_MEMORY_BYTES, 1u << 29}}.put(record.proof->evidence);
  write_record(directory.get(), record);
  const auto read = read_record(directory.get());
  ASSERT_TRUE(read && read->proof);
  EXPECT_EQ(read->name, record.name);
  EXPECT_EQ(read->id, record.id);
  EXPECT_TRUE(read->socket);
  EXPECT_EQ(read->started_at, record.started_at);
  EXPECT_EQ(read->pid, record.pid);
  EXPECT_EQ(read->shape, record.shape);
  EXPECT_EQ(read->proof->gateway, record.proof->gateway);
  EXPECT_EQ(std::memcmp(&read->proof->evidence, &record.proof->evidence, sizeof(isogate_evidence)), 0);
  remove_record(directory.get());
  remove_record(directory.get());
  EXPECT_FALSE(read_record(directory.get()));
}

TEST_F(RecordTest, ADamagedOneIsNotAnAbsentOne) {
  for (const char* text : {"", "{", "[]", R"({"name": 1})", R"({"name": "a", "id": "b"})"}) {
    std::ofstream(place.path() + "/container") << text;
    EXPECT_THROW((void)read_record(directory.get()), sdk::Error) << text;
  }
}

TEST_F(RecordTest, OneThatLacksAMemberIsDamaged) {
  write_record(directory.get(), {.name = "isg-x.0123", .id = "abc", .proof = Proof{}});
  const std::string path = place.path() + "/container";
  const nlohmann::json whole = nlohmann::json::parse(std::ifstream(path));
  ASSERT_TRUE(read_record(directory.get()));
  for (const auto& [name, value] : whole.items()) {
    if (name == "evidence") continue;  // nothing was measured
    nlohmann::json json = whole;
    json.erase(name);
    std::ofstream(path) << json;
    EXPECT_THROW((void)read_record(directory.get()), sdk::Error) << name;
  }
}

TEST_F(RecordTest, OneThatIsTooLargeIsRefusedNotCut) {
  write_record(directory.get(), {.name = "isg-x.0123", .id = "abc"});
  std::ofstream(place.path() + "/container", std::ios::app) << std::string(65536, ' ');
  EXPECT_THROW((void)read_record(directory.get()), sdk::Error);
}

TEST_F(RecordTest, ALinkIsNotFollowed) {
  ASSERT_EQ(::symlinkat("/etc/hostname", directory.get(), "container"), 0);
  EXPECT_THROW((void)read_record(directory.get()), sdk::Error);
}

}  // namespace
}  // namespace isogate::docker
