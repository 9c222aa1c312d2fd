// What the tests of the runner share: a Runner of each kind, one run of a program with its output, and a
// check of what is left of it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runner/exec/command.h"
#include "tests/eventually.h"

namespace isogate::test {

enum class Kind { leaf, reaper };
std::string name_of(const testing::TestParamInfo<Kind>& info);

// One per kind for the whole binary. Notices are collected.
Runner& shared_runner(Kind kind);
std::vector<std::string> notices();
bool leaves_work();  // why not: shared_runner(Kind::leaf).abilities().missing

struct Output {
  Result<Ending> ending = Error{};
  std::string out, err;
};

// A mark in the environment of everything a command starts, and the processes that still have it.
std::string new_mark();
std::vector<int> marked(const std::string& mark);
bool gone_within(const std::string& mark, double seconds);
bool there_within(const std::string& mark, size_t count, double seconds);

Command shell(const std::string& script, const std::string& mark = "");
// Runs it with stdout and stderr captured.
Output run_captured(Runner& runner, Command command);

bool is_root();
size_t open_descriptors();

// Each test runs with a leaf and with a reaper.
class RunnerTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override;
  [[nodiscard]] Runner& runner() const { return shared_runner(GetParam()); }
  Output run(const std::string& script, const std::string& mark = "") const;
};

}  // namespace isogate::test
