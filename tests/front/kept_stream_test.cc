#include "gateway/front/exec/kept_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <random>

#include "tests/eventually.h"

namespace isogate::front {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

constexpr uint64_t kMuch = 64 << 20;

std::string noise(size_t bytes) {
  std::mt19937 random(7);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// The disk space of the files without a name.
uint64_t disk_of_files() {
  uint64_t bytes = 0;
  for (const auto& each : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    struct stat file {};
    if (fs::read_symlink(each.path(), ignored).string().ends_with("output.tmp (deleted)") &&
        ::stat(each.path().c_str(), &file) == 0)
      bytes += static_cast<uint64_t>(file.st_blocks) * 512;
  }
  return bytes;
}

class KeptStreamTest : public testing::Test {
 protected:
  KeptStreamTest() {
    ::mkdtemp(directory_.data());
    disk_.directory.reset(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    disk_.quota.set_limits(64 << 20, 64 << 20);
  }
  ~KeptStreamTest() override { fs::remove_all(directory_); }

  template <typename T>
  T get(asio::awaitable<T> task) {
    std::optional<T> got;
    asio::co_spawn(io_, std::move(task), [&](const std::exception_ptr& failure, T value) {
      EXPECT_FALSE(failure);
      got = std::move(value);
    });
    io_.restart();
    io_.run();
    return std::move(*got);
  }
  // Once more after the disk has failed.
  void append(KeptStream& stream, std::string_view data) {
    const bool appended = get(stream.append(data)) || get(stream.append(data));
    EXPECT_TRUE(appended);
  }
  void append_in_parts(KeptStream& stream, std::string_view data) {
    for (size_t at = 0, size = 1; at < data.size(); at += size, size = size * 7 % 30011 + 1)
      append(stream, data.substr(at, size));
  }
  std::string rest(KeptStream& stream, uint64_t offset) {
    std::string all;
    KeptStream::Piece piece;
    for (;;) {
      const std::string_view part = get(stream.read(offset + all.size(), piece));
      if (part.empty()) return all;
      all += part;
    }
  }

  std::string directory_ = fs::temp_directory_path() / "isogate-spool-XXXXXX";
  asio::io_context io_;
  SpoolDisk disk_{io_.get_executor()};
};

TEST_F(KeptStreamTest, OlderBytesComeFromTheDisk) {
  const std::string all = noise(3 << 20);
  for (const size_t memory : {1, 1000, 131072}) {
    KeptStream stream(disk_, "a", memory, kMuch);
    append_in_parts(stream, std::string_view(all).substr(0, memory == 1 ? 100000 : all.size()));
    const size_t size = stream.next();
    EXPECT_EQ(stream.first(), 0u) << memory;
    for (const uint64_t offset :
         {uint64_t{0}, uint64_t{77777}, stream.end().first() - 1, stream.end().first()})
      EXPECT_TRUE(rest(stream, offset) == all.substr(offset, size - offset)) << memory << " from " << offset;
    EXPECT_TRUE(stream.end().text() == all.substr(size - memory, memory));
    EXPECT_TRUE(fs::is_empty(directory_));
  }
  EXPECT_EQ(disk_.quota.held(), 0u);
  EXPECT_TRUE(test::eventually(30, [this] {  // their thread closes them
    io_.restart();
    io_.poll();
    return disk_of_files() == 0;
  }));
}

TEST_F(KeptStreamTest, BeyondTheLimitTheOldestBytesAndTheirDiskGo) {
  constexpr uint64_t kInAll = 2 << 20;
  const std::string all = noise(16 << 20);
  KeptStream stream(disk_, "a", 65536, kInAll);
  append_in_parts(stream, all);
  EXPECT_GE(all.size() - stream.first(), kInAll);
  EXPECT_LE(all.size() - stream.first(), kInAll + 65536);
  EXPECT_EQ(disk_.quota.held(), kInAll);
  EXPECT_TRUE(rest(stream, stream.first()) == all.substr(stream.first()));
  EXPECT_LE(disk_of_files(), kInAll + 262144);
}

TEST_F(KeptStreamTest, WithoutAPlaceInTheQuotaTheMemoryIsAll) {
  disk_.quota.set_limits(1 << 20, 1 << 20);
  const std::string all = noise(4 << 20);
  KeptStream first(disk_, "a", 65536, kMuch);
  append_in_parts(first, all);
  EXPECT_GE(all.size() - first.first(), 1u << 20);
  EXPECT_EQ(first.on_disk(), 1u << 20);
  KeptStream second(disk_, "a", 65536, kMuch);
  append_in_parts(second, all);
  EXPECT_EQ(all.size() - second.first(), 65536u);
  EXPECT_EQ(second.on_disk(), 0u);
  EXPECT_TRUE(rest(second, second.first()) == all.substr(second.first()));
  EXPECT_TRUE(rest(first, first.first()) == all.substr(first.first()));
}

TEST_F(KeptStreamTest, WhereTheQuotaIsSmallerTheDiskIsGivenBackToo) {
  disk_.quota.set_limits(1 << 20, 1 << 20);
  const std::string all = noise(16 << 20);
  for (const uint64_t in_all : {uint64_t{2 << 20}, uint64_t{5'000'000}, kMuch}) {
    KeptStream stream(disk_, "a", 65536, in_all);
    append_in_parts(stream, all);
    EXPECT_GE(all.size() - stream.first(), 1u << 20);
    EXPECT_TRUE(rest(stream, stream.first()) == all.substr(stream.first())) << in_all;
    EXPECT_LE(disk_of_files(), (1u << 20) + KeptStream::kAtATime + 262144) << in_all;
    stream.skip_to(all.size());
    EXPECT_TRUE(test::eventually(30, [this] {
      io_.restart();
      io_.poll();
      return disk_of_files() == 0;
    }));
  }
}

TEST_F(KeptStreamTest, ItTakesThePlaceOfWhatCanBeForgotten) {
  disk_.quota.set_limits(1 << 20, 1 << 20);
  const std::string all = noise(1 << 20);
  auto ended = std::make_unique<KeptStream>(disk_, "a", 65536, kMuch);
  append_in_parts(*ended, all);
  disk_.quota.set_reclaim(
      [&](const std::string&, uint64_t) { return std::exchange(ended, nullptr) != nullptr; });
  KeptStream stream(disk_, "a", 65536, kMuch);
  append_in_parts(stream, all);
  EXPECT_FALSE(ended);
  EXPECT_EQ(stream.first(), 0u);
}

TEST_F(KeptStreamTest, WithoutAPlaceForAFileTheMemoryIsAll) {
  disk_.files.set_limits(1, 1);
  const std::string all = noise(1 << 20);
  auto first = std::make_unique<KeptStream>(disk_, "a", 65536, kMuch);
  append_in_parts(*first, all);
  EXPECT_EQ(first->first(), 0u);
  EXPECT_EQ(first->files(), 1u);
  KeptStream second(disk_, "a", 65536, kMuch);
  append_in_parts(second, std::string_view(all).substr(0, 500000));
  EXPECT_EQ(second.first(), 500000u - 65536);
  EXPECT_EQ(second.files() + second.on_disk(), 0u);
  EXPECT_EQ(second.room(second.next()), 65536u);
  first.reset();
  EXPECT_EQ(disk_.files.held(), 0u);
  append_in_parts(second, std::string_view(all).substr(500000));
  EXPECT_EQ(second.files(), 1u) << "the place is free";
  EXPECT_EQ(second.first(), 500000u - 65536);
  EXPECT_TRUE(rest(second, second.first()) == all.substr(second.first()));
}

TEST_F(KeptStreamTest, ItTakesTheFileOfWhatCanBeForgotten) {
  disk_.files.set_limits(1, 1);
  const std::string all = noise(1 << 20);
  auto ended = std::make_unique<KeptStream>(disk_, "a", 65536, kMuch);
  append_in_parts(*ended, all);
  disk_.files.set_reclaim(
      [&](const std::string&, uint64_t) { return std::exchange(ended, nullptr) != nullptr; });
  KeptStream stream(disk_, "a", 65536, kMuch);
  append_in_parts(stream, all);
  EXPECT_FALSE(ended);
  EXPECT_EQ(stream.first(), 0u);
}

TEST_F(KeptStreamTest, ADiskThatFailsLeavesTheMemory) {
  fs::remove(directory_);
  const std::string all = noise(1 << 20);
  KeptStream stream(disk_, "a", 65536, kMuch);
  append_in_parts(stream, all);
  EXPECT_EQ(all.size() - stream.first(), 65536u);
  EXPECT_TRUE(rest(stream, stream.first()) == all.substr(stream.first()));
  EXPECT_EQ(disk_.quota.held(), 0u);
  EXPECT_EQ(disk_.files.held(), 0u);
  EXPECT_EQ(stream.room(stream.next()), 65536u);
}

TEST_F(KeptStreamTest, TheLastOfTheDiskIsLeftToTheJournal) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root mounts a small file system";
  constexpr uint64_t kRoom = 8 << 20;
  const std::string size = "size=" + std::to_string(SpoolFile::kLeftFree + kRoom);
  if (::mount("none", directory_.c_str(), "tmpfs", 0, size.c_str()) != 0)
    GTEST_SKIP() << "no tmpfs can be mounted: " << std::strerror(errno);
  disk_.directory.reset(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string all = noise(2 * kRoom);
  {
    KeptStream stream(disk_, "a", 65536, kMuch);
    while (const size_t room = stream.room(0)) {
      get(stream.append(std::string_view(all).substr(stream.next(), std::min<size_t>(room, 20000))));
      ASSERT_EQ(stream.first(), 0u);
    }
    const uint64_t failed_at = stream.next();
    EXPECT_GE(failed_at, kRoom - (1 << 20));
    EXPECT_TRUE(rest(stream, 0) == all.substr(0, failed_at)) << "what is on the disk can still be read";
    append_in_parts(stream, std::string_view(all).substr(failed_at));
    EXPECT_EQ(all.size() - stream.first(), 65536u);
    EXPECT_TRUE(rest(stream, stream.first()) == all.substr(stream.first()));
  }
  EXPECT_EQ(disk_.quota.held(), 0u);
  disk_.directory.reset();
  EXPECT_EQ(::umount2(directory_.c_str(), MNT_DETACH), 0);
}

TEST_F(KeptStreamTest, AnAppendCanLeaveADiskThatHangs) {
  const std::string all = noise(1 << 20);
  KeptStream stream(disk_, "a", 65536, kMuch);
  append_in_parts(stream, std::string_view(all).substr(0, all.size() / 2));
  std::promise<void> go;
  disk_.thread.post("b", [held = go.get_future().share()] { held.wait(); });
  std::optional<bool> appended;
  const std::string_view more = std::string_view(all).substr(stream.next(), 100000);
  asio::co_spawn(io_, stream.append(more), [&](const std::exception_ptr&, bool done) { appended = done; });
  io_.restart();
  io_.poll();
  EXPECT_FALSE(appended.has_value());
  stream.leave_disk();
  io_.restart();
  io_.poll();
  EXPECT_EQ(appended, false);
  append_in_parts(stream, std::string_view(all).substr(stream.next()));
  EXPECT_TRUE(stream.end().text() == all.substr(all.size() - 65536));
  go.set_value();
}

TEST_F(KeptStreamTest, AWidenedOneDropsNothing) {
  const std::string all = noise((1 << 20) + 50000);
  for (const uint64_t disk : {0u, 1u << 20}) {
    KeptStream stream(disk_, "a", 65536, disk);
    append_in_parts(stream, std::string_view(all).substr(0, 1 << 20));
    const uint64_t first = stream.first(), last = stream.next();
    EXPECT_EQ(stream.room(first), 0u);
    stream.widen(all.size() - last);
    append(stream, std::string_view(all).substr(last));
    EXPECT_EQ(stream.first(), first);
    EXPECT_TRUE(rest(stream, first) == all.substr(first));
  }
}

TEST_F(KeptStreamTest, AWidenedOneKeepsASmallerFileForItsReaders) {
  disk_.quota.set_limits(150000, 150000);
  const std::string all = noise(300000);
  KeptStream stream(disk_, "a", 65536, kMuch);
  append(stream, std::string_view(all).substr(0, 100000));
  append(stream, std::string_view(all).substr(100000, 50000));
  EXPECT_EQ(stream.room(0), 0u);
  stream.widen(100000);
  const uint64_t reader = 65536;
  while (const size_t room = std::min({stream.room(reader), all.size() - stream.next(), size_t{20000}})) {
    append(stream, std::string_view(all).substr(stream.next(), room));
    ASSERT_LE(stream.first(), reader);
    ASSERT_TRUE(rest(stream, reader) == all.substr(reader, stream.next() - reader));
  }
  EXPECT_GE(stream.next(), reader + 150000);
}

TEST_F(KeptStreamTest, WhatIsSkippedEndsWhatWasBefore) {
  const std::string all = noise(1 << 20);
  KeptStream stream(disk_, "a", 65536, kMuch);
  append_in_parts(stream, all);
  stream.skip_to(5 << 20);
  EXPECT_EQ(stream.first(), 5u << 20);
  append_in_parts(stream, all);
  EXPECT_EQ(stream.first(), 5u << 20);
  EXPECT_TRUE(rest(stream, stream.first()) == all);
}

TEST_F(KeptStreamTest, AsMuchAsRoomSaysDropsNothingFromThatOffsetOn) {
  std::mt19937 random(11);
  disk_.quota.set_limits(900000, 900000);
  disk_.files.set_limits(1, 1);
  const std::string all = noise(8 << 20);
  for (const size_t memory : {500, 40000, 300000}) {
    KeptStream stream(disk_, "a", memory, 700000);
    uint64_t reader = 0;
    KeptStream::Piece piece;
    while (stream.next() < all.size()) {
      ByteShare other(disk_.quota, "b");
      if (random() % 4 == 0) other.add(random() % (disk_.quota.held() < 800000 ? 100000 : 1));
      ByteShare file(disk_.files, "b");
      if (random() % 4 == 0 && disk_.files.held() == 0) file.add(1);
      const size_t size = std::min({stream.room(reader), all.size() - stream.next(), random() % 60000});
      append(stream, std::string_view(all).substr(stream.next(), size));
      ASSERT_GE(reader, stream.first());
      const std::string part(get(stream.read(reader, piece)).substr(0, random() % 90000));
      ASSERT_TRUE(part == all.substr(reader, part.size())) << reader;
      reader += part.size();
    }
  }
}

}  // namespace
}  // namespace isogate::front
