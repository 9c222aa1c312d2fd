// Runs a function in a forked child, because its effect on the process cannot be undone.
#pragma once

#include <functional>
#include <string>

#include "lib/error.h"

namespace isogate::test {

struct ChildEnd {
  std::string said;    // what the function returned; empty if the child died first
  int exit_code = -1;  // 0 when it returned
  int term_signal = 0;
};

ChildEnd in_child(const std::function<std::string()>& body);

// As in_child, with uid and gid 65534 and no groups when the tests run as root.
ChildEnd in_ordinary_child(const std::function<std::string()>& body);

// A line of /proc/self/status without its key and leading blanks.
std::string status_line(const std::string& key);

inline std::string told(const Result<void>& result) { return result ? "ok" : result.error().message; }

}  // namespace isogate::test
