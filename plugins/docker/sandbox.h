// One open sandbox: every verb goes through the runner in its container. Any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/docker/container.h"
#include "runner/uid_registry.h"
#include "runner/workspace_trash.h"

namespace isogate::docker {

using Surroundings = std::vector<std::pair<std::string, std::string>>;

// The workspace of a sandbox on this host, and whose it is.
struct Home {
  std::string sandboxes_dir, sandbox_id;
  const UidRegistry* registry = nullptr;  // null: no uid of its own
  uint32_t uid = 0;
  TrashSweeper* sweeper = nullptr;  // takes what a purge leaves; null: nobody does
};

class Sandbox : public sdk::Sandbox {
 public:
  // `surroundings`: of every program, below what a request says; of the backend, which outlives this.
  Sandbox(const Surroundings& surroundings, Home home, std::shared_ptr<Container> container)
      : surroundings_(surroundings), home_(std::move(home)), container_(std::move(container)) {}

  void close(const sdk::Call& call, uint32_t mode) override;
  void exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) override;
  void read(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) override;
  uint64_t write(const sdk::Call& call, const isogate_file_request& request) override;
  void list(const sdk::Call& call, const isogate_file_request& request, const sdk::EntrySink& sink) override;
  void stat(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) override;
  void mkdir(const sdk::Call& call, const isogate_file_request& request) override;
  void move(const sdk::Call& call, const isogate_file_request& request) override;
  void remove(const sdk::Call& call, const isogate_file_request& request) override;
  void evidence(const sdk::Call& call, const isogate_evidence_request& request,
                isogate_evidence& out) override;

 private:
  // Contact was lost; `ended`: the Engine says that nothing it ran is left.
  struct LostContact : sdk::Error {
    LostContact(const sdk::Error& error, const std::string& how, bool ended_)
        : Error(ISOGATE_LOST, error.what() + (how.empty() ? "" : "; " + how), error.os_errno()),
          ended(ended_) {}
    bool ended;
  };
  template <typename Verb>
  void with_runner(const sdk::Call& call, Verb verb);
  [[noreturn]] void tell_loss(const Container::Way& way, const sdk::Error& error, const sdk::Call& call);

  const Surroundings& surroundings_;
  Home home_;
  std::shared_ptr<Container> container_;
};

}  // namespace isogate::docker
