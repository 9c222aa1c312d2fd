// One open sandbox: every verb goes through the runner in its container. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "plugins/common/runner_sandbox.h"
#include "plugins/docker/container/container.h"
#include "runner/files/workspace_trash.h"
#include "runner/uid/uid_registry.h"

namespace isogate::docker {

// The workspace of a sandbox on this host, and its owner.
struct Home {
  std::string sandboxes_dir, sandbox_id;
  std::shared_ptr<SandboxDisk> disk;      // null: it was not opened
  const UidRegistry* registry = nullptr;  // null: no uid of its own
  uint32_t uid = 0;
  TrashSweeper* sweeper = nullptr;  // removes what a purge leaves; null: there is none

  // Ends and removes the container, unless it is null, then its disk and all its files, and releases its uid.
  // Throws sdk::Error.
  void remove(Container* container, const sdk::Call& call) const;
};

class Sandbox : public RunnerSandbox {
 public:
  Sandbox(Surroundings surroundings, Home home, std::shared_ptr<Container> container)
      : RunnerSandbox(std::move(surroundings)), home_(std::move(home)), container_(std::move(container)) {}

  void close(const sdk::Call& call, uint32_t mode) override;
  void evidence(const sdk::Call& call, const isogate_evidence_request& request,
                isogate_evidence& out) override {
    out = container_->evidence(call, request);
  }

 private:
  // Contact was lost; `ended`: the Engine reports that nothing it ran is left.
  struct LostContact : sdk::Error {
    LostContact(const sdk::Error& error, const std::string& how, bool ended_)
        : Error(ISOGATE_LOST, error.what() + (how.empty() ? "" : "; " + how), error.os_errno()),
          ended(ended_) {}
    bool ended;
  };
  void with_runner(const sdk::Call& call, const Verb& verb) override;
  // An exec that is known to have ended with its container is killed, not lost.
  void with_program(const sdk::Call& call, isogate_exec_result& result, const Verb& verb) override;
  std::shared_ptr<sdk::RunnerLink> runner_if_connected() override { return container_->link_if_connected(); }
  [[noreturn]] void tell_loss(const Container::Way& way, const sdk::Error& error, const sdk::Call& call);

  Home home_;  // outlives what uses its disk
  std::shared_ptr<Container> container_;
};

}  // namespace isogate::docker
