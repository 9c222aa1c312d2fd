// Faults that a gateway may meet, and ways to check the consequences.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/processes.h"

namespace isogate::test {

inline constexpr const char* kLocal = "allow_unisolated: true\nbackends: [{name: local}]\n";

// Skips with a reason where root's gateway cannot be started. A plain function, for SetUp().
#define SKIP_UNLESS_STARTABLE() \
  if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle()

std::unique_ptr<Gateway> start(const std::string& yaml, const std::string& state_dir = {});

// The journal of a gateway that has stopped: by the command that ran.
struct JournalRow {
  std::string outcome, reason;
  bool ended = false;
};
std::map<std::string, JournalRow> journal_of(const std::string& state_dir);

// The supervisor, the front and every host.
std::vector<pid_t> processes_of(const Gateway& gateway);

// The first line of the log that has all of these; null: there is none within 5 s.
Json logged(const Gateway& gateway, const std::vector<std::string>& parts);

Json backend_row(const Caller& caller, const std::string& backend);
// Runs `echo works` until it does; false: not in that time. Anything but 200 and 503 meanwhile fails.
bool works_within(double seconds, const Caller& caller);

}  // namespace isogate::test
