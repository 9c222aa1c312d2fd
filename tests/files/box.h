// A sandbox's files in their own directory, and short calls for them. As root the sandbox has its own uid,
// otherwise that of the test.
#pragma once

#include <gtest/gtest.h>

#include <atomic>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runner/files/workspace.h"
#include "runner/files/workspace_identity.h"

namespace isogate::test {

inline constexpr const char* kId = "isg-abcdefghijklmnopqrstuvwxyz";
inline constexpr const char* kOtherId = "isg-zyxwvutsrqponmlkjihgfedcba";

bool is_root();
Identity tenant();

std::string slurp(const std::string& path);
void spill(const std::string& path, const std::string& content);
bool exists(const std::string& path);

struct Listed {
  std::vector<std::string> names;
  std::vector<isogate_entry> entries;
  [[nodiscard]] bool has(const std::string& name) const;
};

class Box : public ::testing::Test {
 protected:
  Box();
  ~Box() override;

  void open(bool host_view = false, std::vector<SharedDir>* shared = nullptr);
  Workspace& files() { return *workspace_; }
  [[nodiscard]] std::string inside(const std::string& name = "") const;  // host path of a workspace path
  [[nodiscard]] std::string sandbox() const { return sandboxes_ + "/" + kId; }
  [[nodiscard]] std::vector<std::string> staged() const;  // what is left in staging

  // Changes as the tenant would make them itself.
  void plant(const std::string& name, const std::string& content, int mode = 0644);
  void link(const std::string& target, const std::string& name);
  void directory(const std::string& name, int mode = 0755);

  Result<std::string> read(const std::string& path, uint64_t offset = 0, uint64_t limit = UINT64_MAX,
                           uint32_t scope = ISOGATE_SCOPE_WORKSPACE);
  Result<uint64_t> write(const std::string& path, const std::string& content, uint32_t flags = 0,
                         uint32_t mode = 0, uint32_t scope = ISOGATE_SCOPE_WORKSPACE);
  Result<Listed> list(const std::string& path, uint32_t flags = 0, uint64_t limit = 0,
                      uint32_t scope = ISOGATE_SCOPE_WORKSPACE);
  Result<isogate_entry> stat(const std::string& path, uint32_t scope = ISOGATE_SCOPE_WORKSPACE);
  Result<void> mkdir(const std::string& path, uint32_t flags = 0, uint32_t mode = 0);
  Result<void> move(const std::string& from, const std::string& to, uint32_t flags = 0);
  Result<void> remove(const std::string& path, uint32_t flags = 0, uint32_t scope = ISOGATE_SCOPE_WORKSPACE);

  std::string top_;        // everything, world-searchable
  std::string sandboxes_;  // top_/sandboxes
  std::string outside_;    // top_/outside: writable by the tenant, so that only the paths keep it away
  std::unique_ptr<Workspace> workspace_;
};

isogate_file_request request_for(std::string_view path);

// Exchanges two names for as long as it lives, as fast as it can.
class Swapper {
 public:
  Swapper(std::string directory, std::string one, std::string other);
  ~Swapper();
  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> count_{0};
  std::thread thread_;
};

template <typename T>
::testing::AssertionResult succeeded(const Result<T>& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "status " << result.error().status << ": " << result.error().message;
}

template <typename T>
::testing::AssertionResult failed_with(const Result<T>& result, isogate_status expected) {
  if (result.ok()) return ::testing::AssertionFailure() << "it succeeded";
  if (result.error().status == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "status " << result.error().status << ": " << result.error().message;
}

#define EXPECT_STATUS(result, expected) EXPECT_TRUE(::isogate::test::failed_with(result, expected))
#define EXPECT_OK(result) EXPECT_TRUE(::isogate::test::succeeded(result))
#define ASSERT_OK(result) ASSERT_TRUE(::isogate::test::succeeded(result))

}  // namespace isogate::test
