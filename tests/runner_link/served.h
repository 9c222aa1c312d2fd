// An `isogate-runner serve` of this build, and streams to it that a test can cut.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "isogate/runner_link.hpp"
#include "sdk/runner_link/link.h"
#include "tests/eventually.h"

namespace isogate::testing {

using test::eventually;

class Served {
 public:
  Served();
  ~Served();
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  void start();
  void kill();  // -9
  [[nodiscard]] pid_t pid() const { return child_; }
  [[nodiscard]] const std::string& workspace() const { return workspace_; }

  // A stream to it, with its own `attach`, which is lost after a number of bytes, together with those still
  // in transit.
  std::unique_ptr<sdk::RunnerStream> dial(size_t bytes = SIZE_MAX);
  // A link with such streams, with the following limits.
  std::shared_ptr<sdk::RunnerLink> link(const sdk::ResumeOptions& options = {}, uint64_t seed = 1);

  size_t least = SIZE_MAX, most = SIZE_MAX;  // bytes until those streams are cut
  sdk::link::Patience patience;              // of a link's calls
  std::atomic<bool> reachable{true}, is_there{true};
  std::atomic<int> dialled{0};
  void cut();  // kills all current `attach` processes
  [[nodiscard]] const std::string& listener() const { return listener_; }

 private:
  friend class CutStream;
  const std::string listener_;
  std::string workspace_;
  std::atomic<pid_t> child_{-1};
  std::mutex mutex_;  // of the next
  std::set<pid_t> attached_;
};

// Starts the program with that input and output.
pid_t start(const std::vector<std::string>& arguments, int in, int out);

}  // namespace isogate::testing
