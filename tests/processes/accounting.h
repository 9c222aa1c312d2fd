// Process accounting (acct(2)): the kernel's own record of every process that ended.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace isogate::test {

struct EndedProcess {
  pid_t pid = 0, parent = 0;
  std::string command;
};

// Accounting of this whole machine, from construction to stop(). One at a time.
class Accounting {
 public:
  Accounting();
  Accounting(const Accounting&) = delete;
  Accounting& operator=(const Accounting&) = delete;
  ~Accounting();
  [[nodiscard]] const std::string& obstacle() const { return obstacle_; }  // empty: it runs
  // Ends the accounting; returns the records.
  std::vector<EndedProcess> stop();

 private:
  TemporaryDirectory directory_;
  std::string path_, obstacle_;
  bool running_ = false;
};

}  // namespace isogate::test
