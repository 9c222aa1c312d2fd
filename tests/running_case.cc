// Part of every suite: in addition to its report, it writes what the report does not have for
// tests/reports.py. PID.running has the name of the last case of a suite that did not end; PID.outside has
// failures outside of cases, for example while a fixture is torn down.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

class RunningCase : public testing::EmptyTestEventListener {
 public:
  explicit RunningCase(const std::filesystem::path& directory)
      : directory_(directory), stem_(directory / std::to_string(::getpid())) {}

  void OnTestProgramStart(const testing::UnitTest&) override {
    std::error_code ignored;
    std::filesystem::create_directories(directory_, ignored);
  }
  void OnTestStart(const testing::TestInfo& test) override {
    in_case_ = true;
    std::ofstream(file(".running")) << test.test_suite_name() << '.' << test.name() << '\n';
  }
  void OnTestEnd(const testing::TestInfo&) override { in_case_ = false; }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!in_case_ && result.failed())
      std::ofstream(file(".outside"), std::ios::app)
          << (result.file_name() == nullptr ? "" : result.file_name()) << ':' << result.line_number() << '\n'
          << result.message() << '\n';
  }
  void OnTestProgramEnd(const testing::UnitTest&) override {
    std::error_code ignored;
    std::filesystem::remove(file(".running"), ignored);
  }

 private:
  [[nodiscard]] std::string file(const char* ending) const { return stem_.string() + ending; }

  std::filesystem::path directory_, stem_;
  bool in_case_ = false;
};

// GTEST_OUTPUT=xml:DIRECTORY/
[[maybe_unused]] const bool added = [] {
  const char* output = std::getenv("GTEST_OUTPUT");
  const std::string directory = output == nullptr ? "" : output;
  if (directory.starts_with("xml:") && directory.ends_with("/"))
    testing::UnitTest::GetInstance()->listeners().Append(new RunningCase(directory.substr(4)));
  return true;
}();

}  // namespace
