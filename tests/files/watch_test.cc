#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>

#include "lib/changes.h"
#include "runner/files/workspace_watch.h"
#include "tests/eventually.h"
#include "tests/files/box.h"

namespace isogate::test {
namespace {

struct Seen {
  uint32_t type;
  bool directory;
  std::string path, from;
};

// A watch in its own thread, and what it has reported.
class Watching {
 public:
  Watching(Workspace& files, const std::string& path, uint32_t flags = ISOGATE_FILE_RECURSIVE)
      : pipe_(std::move(*make_pipe())), cancel_(std::move(*make_event())) {
    ::fcntl(pipe_.read.get(), F_SETFL, O_NONBLOCK);
    thread_ = std::thread([this, &files, path, flags] {
      auto request = request_for(path);
      request.flags = flags;
      request.fd = pipe_.write.get();
      ended_.emplace(files.watch(request, cancel_.get()));
      over_ = true;
    });
  }
  ~Watching() { (void)end().ok(); }

  Result<void> end() {
    if (thread_.joinable()) {
      signal_event(cancel_.get());
      thread_.join();
    }
    return *ended_;
  }
  // Until it ends by itself.
  std::optional<Result<void>> ended() {
    if (!eventually(60, [&] { return over_.load(); })) return std::nullopt;
    return end();
  }

  bool ready() { return reports(ISOGATE_CHANGE_READY, ""); }
  // `or_lost`: or reports an overflow.
  bool reports(uint32_t type, const std::string& path, bool or_lost = false) {
    return eventually(30, [&] {
      read();
      return std::any_of(seen_.begin(), seen_.end(), [&](const Seen& one) {
        return (one.type == type && one.path == path) || (or_lost && one.type == ISOGATE_CHANGE_OVERFLOW);
      });
    });
  }
  [[nodiscard]] size_t count(uint32_t type, const std::string& path) const {
    return static_cast<size_t>(std::count_if(
        seen_.begin(), seen_.end(), [&](const Seen& one) { return one.type == type && one.path == path; }));
  }
  [[nodiscard]] const std::vector<Seen>& seen() const { return seen_; }
  // Nothing new is reported for a moment.
  bool settled() {
    const size_t before = seen_.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    read();
    return seen_.size() == before;
  }
  void forget() {
    read();
    seen_.clear();
  }
  void read() {
    char chunk[65536];
    for (ssize_t got; (got = ::read(pipe_.read.get(), chunk, sizeof chunk)) > 0;)
      bytes_.append(chunk, static_cast<size_t>(got));
    std::string_view rest = bytes_;
    for (;;) {
      const auto change = take_change(rest);
      ASSERT_OK(change);
      if (!change->has_value()) break;
      seen_.push_back({(*change)->type, (*change)->directory, std::string((*change)->path),
                       std::string((*change)->from)});
    }
    bytes_.erase(0, bytes_.size() - rest.size());
  }
  void leave() { pipe_.read.reset(); }
  // The watch has taken all events from the kernel.
  static bool has_taken_all() {
    return eventually(60, [] {
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        int bytes = 0;
        if (std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:inotify" &&
            (::ioctl(std::stoi(entry.path().filename()), FIONREAD, &bytes) != 0 || bytes != 0))
          return false;
      }
      return true;
    });
  }

 private:
  Pipe pipe_;
  Fd cancel_;
  std::string bytes_;
  std::vector<Seen> seen_;
  std::atomic<bool> over_{false};
  std::optional<Result<void>> ended_;
  std::thread thread_;
};

class Watches : public Box {
 protected:
  // Something new is reported; missed changes are reported first.
  bool goes_on(Watching& watch, const std::string& name) {
    for (int tries = 0; tries < 20; ++tries) {
      const std::string each = name + std::to_string(tries);
      watch.forget();
      plant(each, "");
      if (!watch.reports(ISOGATE_CHANGE_CREATED, each, true)) return false;
      if (watch.count(ISOGATE_CHANGE_CREATED, each) > 0) return true;
    }
    return false;
  }
  // What a watch that does not begin ends with.
  Result<void> refusal(const std::string& path) {
    auto ended = Watching(files(), path).ended();
    if (ended) return *ended;
    return Error{ISOGATE_INTERNAL, 0, "it goes on"};
  }
  void rename(const std::string& from, const std::string& to) {
    ASSERT_EQ(::rename(inside(from).c_str(), inside(to).c_str()), 0);
  }
};

TEST_F(Watches, EveryKindOfChangeIsReported) {
  open();
  directory("dir");
  Watching watch(files(), "");
  ASSERT_TRUE(watch.ready());
  plant("file", "text");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "file"));
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_WRITTEN, "file"));
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_ATTRIBUTES, "file"));
  rename("file", "dir/file");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_RENAMED, "dir/file"));
  EXPECT_EQ(watch.seen().back().from, "file");
  rename("dir", "other");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_RENAMED, "other"));
  EXPECT_TRUE(watch.seen().back().directory);
  spill(inside("other/file"), "more");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_WRITTEN, "other/file"));
  ASSERT_EQ(::unlink(inside("other/file").c_str()), 0);
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_REMOVED, "other/file"));
  ASSERT_EQ(::rmdir(inside("other").c_str()), 0);
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_REMOVED, "other"));
  EXPECT_EQ(watch.count(ISOGATE_CHANGE_REMOVED, "file"), 0u) << "a rename is one change";
  EXPECT_STATUS(watch.end(), ISOGATE_CANCELLED);
}

TEST_F(Watches, WhatIsMovedInIsReportedAndWatched) {
  open();
  ASSERT_EQ(::mkdir((outside_ + "/tree").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir((outside_ + "/tree/sub").c_str(), 0755), 0);
  spill(outside_ + "/tree/sub/file", "text");
  directory("dir");
  Watching watch(files(), "dir");
  ASSERT_TRUE(watch.ready());
  ASSERT_EQ(::rename((outside_ + "/tree").c_str(), inside("dir/tree").c_str()), 0);
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "tree"));
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "tree/sub"));
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "tree/sub/file"));
  spill(inside("dir/tree/sub/file"), "more");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_WRITTEN, "tree/sub/file"));
  ASSERT_EQ(::rename(inside("dir/tree").c_str(), (outside_ + "/tree").c_str()), 0);
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_REMOVED, "tree"));
  watch.forget();
  spill(outside_ + "/tree/sub/file", "elsewhere");
  plant("dir/last", "");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "last"));
  for (const Seen& one : watch.seen()) EXPECT_EQ(one.path, "last") << "what was moved out is not watched";
}

TEST_F(Watches, ManyNewDirectoriesAreAllFound) {
  open();
  Watching watch(files(), "");
  ASSERT_TRUE(watch.ready());
  std::set<std::string> made;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "d" + std::to_string(i);
    directory(name);
    directory(name + "/sub");
    spill(inside(name + "/sub/file"), "");
    for (const char* each : {"", "/sub", "/sub/file"}) made.insert(name + each);
    if (i % 100 == 0) watch.read();
  }
  EXPECT_TRUE(eventually(20,
                         [&] {
                           watch.read();
                           for (const Seen& one : watch.seen())
                             if (one.type == ISOGATE_CHANGE_CREATED) made.erase(one.path);
                           return made.empty();
                         }))
      << made.size() << " are missing, such as " << *made.begin();
}

TEST_F(Watches, StagedFilesAreNotReported) {
  open();
  Watching watch(files(), "");
  ASSERT_TRUE(watch.ready());
  const std::string staged = inside(".isogate-0123456789abcdef.part");
  spill(staged, "text");
  ASSERT_EQ(::rename(staged.c_str(), inside("file").c_str()), 0);
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "file"));
  plant(".isogate-is-no-such-name.part", "");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, ".isogate-is-no-such-name.part"));
  for (const Seen& one : watch.seen()) EXPECT_EQ(one.path.find("0123456789"), std::string::npos) << one.path;
}

TEST_F(Watches, AWatchEndsWithItsDirectory) {
  open();
  for (const char* name : {"removed", "moved", "swapped"}) directory(name);
  directory("above");
  directory("above/below");
  Watching removed(files(), "removed"), moved(files(), "moved"), below(files(), "above/below"),
      swapped(files(), "swapped", 0);
  ASSERT_TRUE(removed.ready() && moved.ready() && below.ready() && swapped.ready());
  const Fd inside_of_it(::open(inside("removed").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::rmdir(inside("removed").c_str()), 0);
  rename("moved", "elsewhere");
  rename("above", "beside");
  directory("another");  // complete, before it is moved there
  rename("swapped", "away");
  rename("another", "swapped");
  for (Watching* each : {&removed, &moved, &below, &swapped}) {
    const auto ended = each->ended();
    ASSERT_TRUE(ended);
    EXPECT_OK(*ended);
  }
}

TEST_F(Watches, WhatMayNotBeListedIsNotWatched) {
  open();
  directory("secret");
  directory("secret/sub");
  if (is_root()) {
    ASSERT_EQ(::chown(inside("secret").c_str(), 0, 0), 0);
  }
  ASSERT_EQ(::chmod(inside("secret").c_str(), is_root() ? 0700 : 0), 0);
  EXPECT_STATUS(refusal("secret"), ISOGATE_PERMISSION_DENIED);
  Watching watch(files(), "");
  ASSERT_TRUE(watch.ready());
  if (is_root()) spill(inside("secret/hidden"), "");
  plant("probe", "");
  ASSERT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "probe"));
  EXPECT_EQ(watch.count(ISOGATE_CHANGE_CREATED, "secret/hidden"), 0u);
  // Once its user may list it, its content is reported.
  ASSERT_EQ(::chmod(inside("secret").c_str(), 0755), 0);
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "secret/sub"));
  spill(inside("secret/open"), "");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "secret/open"));
  ASSERT_EQ(::chmod(inside("secret").c_str(), is_root() ? 0700 : 0300), 0);
  plant("probe2", "");
  ASSERT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "probe2"));
  spill(inside("secret/closed"), "");
  plant("probe3", "");
  ASSERT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "probe3"));
  EXPECT_EQ(watch.count(ISOGATE_CHANGE_CREATED, "secret/closed"), 0u);
  ASSERT_EQ(::chmod(inside("secret").c_str(), 0755), 0);
}

TEST_F(Watches, AClosedTopEndsIt) {
  open();
  directory("top");
  Watching watch(files(), "top");
  ASSERT_TRUE(watch.ready());
  ASSERT_EQ(::chmod(inside("top").c_str(), 0), 0);
  const auto ended = watch.ended();
  ASSERT_TRUE(ended);
  EXPECT_STATUS(*ended, ISOGATE_PERMISSION_DENIED);
}

TEST_F(Watches, NothingLeadsOutOfTheTree) {
  open();
  link(outside_, "way-out");
  directory("dir");
  link("../way-out", "dir/link");
  plant("file", "");
  EXPECT_STATUS(refusal("way-out"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(refusal("../up"), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(refusal("missing"), ISOGATE_NOT_FOUND);
  EXPECT_FALSE(refusal("file").ok());
  Watching watch(files(), "dir");
  ASSERT_TRUE(watch.ready());
  spill(outside_ + "/other", "");
  plant("dir/last", "");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "last"));
  for (const Seen& one : watch.seen()) EXPECT_EQ(one.path.find("other"), std::string::npos);
}

TEST_F(Watches, ASlowReaderLosesChangesAndLearnsOfIt) {
  open();
  const std::string name(200, 'n');
  Watching watch(files(), "", 0);
  ASSERT_TRUE(watch.ready());
  for (int i = 0; i < 1500; ++i) spill(inside(name + std::to_string(i)), "text");
  ASSERT_TRUE(Watching::has_taken_all());
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_OVERFLOW, ""));
  EXPECT_LT(watch.seen().size(), 3000u);
  EXPECT_TRUE(goes_on(watch, "last"));
}

// More events than the kernel keeps: the tree is listed again.
TEST_F(Watches, AFloodIsSurvived) {
  open();
  Watching watch(files(), "");
  ASSERT_TRUE(watch.ready());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> renames{0};
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      const std::string one = inside("a" + std::to_string(w)), other = inside("b" + std::to_string(w));
      spill(one, "");
      while (!stop) {
        ::rename(one.c_str(), other.c_str());
        ::rename(other.c_str(), one.c_str());
        renames += 2;
      }
    });
  directory("amid");
  // Nobody reads meanwhile: that many events overflow the pipe, or the kernel's queue.
  const bool enough = eventually(60, [&] { return renames > 40'000; });
  stop = true;
  for (auto& writer : writers) writer.join();
  EXPECT_TRUE(enough);
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_OVERFLOW, "")) << "a flood of events was buffered somewhere";
  EXPECT_TRUE(goes_on(watch, "amid/after"));
}

TEST_F(Watches, AReaderThatLeavesEndsIt) {
  open();
  Watching watch(files(), "");
  ASSERT_TRUE(watch.ready());
  watch.leave();
  const auto ended = watch.ended();
  ASSERT_TRUE(ended);
  EXPECT_STATUS(*ended, ISOGATE_CANCELLED);
}

TEST_F(Watches, DirectoriesAreBounded) {
  open();
  directory("many");
  {
    const FsIdentity as_tenant(tenant());
    for (size_t i = 0; i <= kMostWatched; ++i)
      ASSERT_EQ(::mkdir(inside("many/" + std::to_string(i)).c_str(), 0700), 0);
  }
  const auto refused = refusal("many");
  EXPECT_STATUS(refused, ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.error().message.find("directories"), std::string::npos) << refused.error().message;
  Watching flat(files(), "many", 0);
  EXPECT_TRUE(flat.ready()) << "without what is below it";
}

// Neither the stack nor the records can hold unbounded paths.
TEST_F(Watches, DepthIsBounded) {
  open();
  directory("deep");
  Watching watch(files(), "");
  ASSERT_TRUE(watch.ready());
  {
    Fd dir(::open(inside("deep").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const FsIdentity as_tenant(tenant());
    for (int i = 0; i < 2500; ++i) {
      ASSERT_EQ(::mkdirat(dir.get(), "d", 0700), 0);
      dir = Fd(::openat(dir.get(), "d", O_PATH | O_DIRECTORY | O_CLOEXEC));
      ASSERT_TRUE(dir);
    }
  }
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_CREATED, "deep/d/d/d/d/d/d/d/d"));
  rename("deep", "other");
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_RENAMED, "other", true));
  ASSERT_OK(remove("other", ISOGATE_FILE_RECURSIVE));
  EXPECT_TRUE(watch.reports(ISOGATE_CHANGE_REMOVED, "other", true));
  EXPECT_TRUE(eventually(30, [&] { return watch.settled(); }));
  EXPECT_TRUE(goes_on(watch, "after")) << "the watch continues";
  EXPECT_STATUS(watch.end(), ISOGATE_CANCELLED);
}

}  // namespace
}  // namespace isogate::test
