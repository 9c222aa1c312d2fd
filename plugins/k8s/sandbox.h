// One open sandbox: every verb goes through the runner in its pod. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/k8s/sandbox_pod.h"

namespace isogate::k8s {

class Sandbox : public sdk::Sandbox {
 public:
  // `stranger`: it was there, and this gateway's front did not know it: other gateways may have it. What its
  // front refuses before it has used it is not another one's to lose.
  Sandbox(const Config& config, std::unique_ptr<SandboxPod> pod, bool stranger)
      : config_(config), pod_(std::move(pod)), stranger_(stranger) {}

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
  template <typename Verb>
  void with_runner(const sdk::Call& call, Verb verb);

  const Config& config_;
  std::unique_ptr<SandboxPod> pod_;
  std::atomic<bool> stranger_;
};

}  // namespace isogate::k8s
