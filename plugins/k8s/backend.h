// The backend `k8s`: a pod per agent, with isogate-runner in it as pid 1 and one long-lived exec to another.
// Threads: as backend.h of the SDK says for each function.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "plugins/k8s/pod/pool.h"
#include "plugins/k8s/requirements.h"
#include "plugins/k8s/sandbox.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// What it can do whatever its configuration is.
inline constexpr uint64_t kAlways = ISOGATE_CAP_PTY | ISOGATE_CAP_MERGE_STDERR | ISOGATE_CAP_SCOPE_SANDBOX |
                                    ISOGATE_CAP_EVIDENCE | sdk::kSampledLimits |
                                    ISOGATE_CAP_SANDBOX_DISK_ADVISORY;

class Backend : public sdk::Backend {
 public:
  Backend(sdk::Host host, std::string_view config_json);

  void probe(const sdk::Call& call, isogate_probe& out) override;
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override;
  std::unique_ptr<sdk::Sandbox> attach(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                       isogate_sandbox_info& info) override {
    return open(call, spec, info);
  }
  void enumerate(const sdk::Call& call, const sdk::RecordSink& sink) override;

 private:
  // Reads the credentials; throws while there are none.
  Services& services();
  Limits check_asked(const isogate_sandbox_spec& spec) const;
  std::string detail_of(Services& services) const;

  const sdk::Host host_;
  const Config config_;
  Requirements requirements_;
  std::mutex mutex_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Pool> pool_;  // null: none is wanted; ends before what it uses
};

}  // namespace isogate::k8s
