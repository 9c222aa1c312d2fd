#include "gateway/front/exec/long_execs.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "gateway/front/app.h"

namespace isogate::front {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

constexpr size_t kKept = 1000;  // bytes of each stream, in memory

size_t open_pipes() {
  size_t count = 0;
  for (const auto& each : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(each.path(), ignored).string().starts_with("pipe:")) ++count;
  }
  return count;
}

class LongExecsTest : public testing::Test {
 protected:
  LongExecsTest() {
    app_.spool.directory.reset(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    app_.spool.files.set_reclaim([this](const std::string& tenant, uint64_t files) {
      return execs_.forget_oldest(tenant, files, &LongExec::files);
    });
  }
  ~LongExecsTest() override { fs::remove_all(directory_); }

  static std::string make_directory() {
    std::string name = fs::temp_directory_path() / "isogate-execs-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    return name;
  }
  std::shared_ptr<LongExec> make(const std::string& tenant, const std::string& id) {
    ExecRow row;
    row.exec_id = id;
    row.tenant = tenant;
    row.kept = KeptTerms{.kept_bytes = kKept};
    return rejoined_exec(app_, row, SandboxRow());
  }
  // Writes to its stdout.
  void write(LongExec& exec, size_t bytes) {
    const std::string output(bytes, 'x');
    bool written = false;
    asio::co_spawn(io_, exec.bytes(false, output), [&](const std::exception_ptr& failure) {
      EXPECT_FALSE(failure);
      written = true;
    });
    io_.restart();
    while (!written) io_.run_one();
  }
  void end(const std::shared_ptr<LongExec>& exec) {
    execs_.add(exec, std::chrono::hours(1));
    exec->at_end().set();
    io_.restart();
    io_.poll();
  }
  void run_to_end(const std::string& tenant, const std::string& id) {
    const auto exec = make(tenant, id);
    write(*exec, 2 * kKept);
    EXPECT_EQ(exec->files(), 1u);
    end(exec);
  }
  [[nodiscard]] std::string kept() const {
    std::string ids;
    for (const char* tenant : {"a", "b", "c"})
      for (const auto& exec : execs_.of(tenant)) ids += exec->answer().exec_id + " ";
    return ids;
  }

  std::string directory_ = make_directory();
  asio::io_context io_;
  App app_{io_.get_executor(), Config(), std::move(*State::open(directory_ + "/front/state.db")),
           *Authenticator::make({}, "", {}), false};
  LongExecs execs_{io_.get_executor()};
};

TEST_F(LongExecsTest, WhatNeedsAFileTakesThatOfTheTenantWithTheMost) {
  app_.spool.files.set_limits(5, 4);
  run_to_end("b", "b1");
  for (const char* id : {"a1", "a2", "a3"}) run_to_end("a", id);
  run_to_end("b", "b2");
  ASSERT_EQ(kept(), "a1 a2 a3 b1 b2 ");
  run_to_end("c", "c1");
  EXPECT_EQ(kept(), "a2 a3 b1 b2 c1 ") << "b1 is older, but a has the most";
  EXPECT_EQ(app_.spool.files.held(), 5u);
}

TEST_F(LongExecsTest, BeyondItsShareATenantTakesItsOwnFiles) {
  app_.spool.files.set_limits(5, 2);
  run_to_end("b", "b1");
  for (const char* id : {"a1", "a2", "a3"}) run_to_end("a", id);
  EXPECT_EQ(kept(), "a2 a3 b1 ");
}

TEST_F(LongExecsTest, WhatHasNoFileStays) {
  app_.spool.files.set_limits(1, 1);
  const auto small = make("a", "a1");
  write(*small, kKept);
  EXPECT_EQ(small->files(), 0u);
  end(small);
  run_to_end("a", "a2");
  run_to_end("a", "a3");
  EXPECT_EQ(kept(), "a1 a3 ");
}

TEST_F(LongExecsTest, OfTooManyThatEndedATenantsFirstIsForgotten) {
  end(make("b", "b1"));
  for (size_t i = 0; i <= LongExecs::kMostEnded; ++i) end(make("a", "a" + std::to_string(i)));
  EXPECT_EQ(execs_.of("a").size(), LongExecs::kMostEnded);
  EXPECT_EQ(execs_.find("a", "a0"), nullptr);
  EXPECT_NE(execs_.find("a", "a1"), nullptr);
  EXPECT_NE(execs_.find("b", "b1"), nullptr) << "it is older, but of another tenant";
}

TEST_F(LongExecsTest, OneThatWaitsInTheQueueHoldsNoDescriptor) {
  const size_t before = open_pipes();
  ExecSpec spec;
  spec.tenant = "a";
  spec.terms = {.stdin_open = true, .kept_bytes = kKept};
  const auto exec = std::make_shared<LongExec>(app_, std::move(spec), ByteShare());
  EXPECT_EQ(open_pipes(), before);
  EXPECT_FALSE(exec->input_open());
  exec->admitted();
  EXPECT_EQ(open_pipes(), before + 4) << "both ends of its stdin and of its control";
  EXPECT_TRUE(exec->input_open());
}

}  // namespace
}  // namespace isogate::front
