// An isogate-runner of this build, as a child, with a link to it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "isogate/runner_link.hpp"

namespace isogate::testing {

class AgentProcess {
 public:
  explicit AgentProcess(bool descriptors);
  ~AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  void kill();  // -9
  [[nodiscard]] sdk::RunnerLink& link() const { return *link_; }
  [[nodiscard]] const std::string& workspace() const { return workspace_; }

 private:
  std::string workspace_;
  pid_t child_ = -1;
  std::shared_ptr<sdk::RunnerLink> link_;
};

}  // namespace isogate::testing
