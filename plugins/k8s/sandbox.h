// One open sandbox: every verb goes through the runner in its pod. Any thread.
#pragma once

#include <memory>
#include <utility>

#include "plugins/common/runner_sandbox.h"
#include "plugins/k8s/pod/sandbox_pod.h"

namespace isogate::k8s {

class Sandbox : public RunnerSandbox {
 public:
  Sandbox(const Config& config, std::unique_ptr<SandboxPod> pod)
      : RunnerSandbox(config.env), pod_(std::move(pod)) {}

  void close(const sdk::Call& call, uint32_t mode) override;
  void rejoin(const sdk::Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
              isogate_exec_result& result) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.rejoin(call, request, kept, result); });
  }
  void watch(const sdk::Call& call, const isogate_file_request& request) override;
  void connect(const sdk::Call& call, const isogate_connect_request& request) override;
  void evidence(const sdk::Call& call, const isogate_evidence_request& request,
                isogate_evidence& out) override {
    out = pod_->evidence(call, request);
  }

 private:
  using Use = SandboxPod::Use;

  void with_runner(const sdk::Call& call, const Verb& verb) override { serve(Use::kCall, call, verb); }
  void with_program(const sdk::Call& call, isogate_exec_result&, const Verb& verb) override {
    serve(Use::kStart, call, verb);
  }
  void serve(Use use, const sdk::Call& call, const Verb& verb);
  void beside_programs(const sdk::Call& call, const Verb& verb);
  std::shared_ptr<sdk::RunnerLink> runner_if_connected() override { return pod_->link_if_connected(); }

  std::unique_ptr<SandboxPod> pod_;
};

}  // namespace isogate::k8s
