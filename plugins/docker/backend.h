// The backend `docker`: a container per agent, with isogate-runner in it as pid 1 (or as an exec that stays).
// Threads: as backend.h of the SDK says of each function.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "plugins/docker/sandbox.h"

namespace isogate::docker {

class Backend : public sdk::Backend {
 public:
  Backend(sdk::Host host, std::string_view config_json);
  ~Backend() override;

  void probe(const sdk::Call& call, isogate_probe& out) override;
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override;
  void enumerate(const sdk::Call& call, const sdk::RecordSink& sink) override;

 private:
  // Finds the Engine; throws while there is none.
  Services& services();
  std::string detail_of(const EngineInfo& info, Services& services) const;
  void check_asked(const isogate_sandbox_spec& spec) const;
  Parts parts_of(const isogate_sandbox_spec& spec, const std::string& id, uint32_t uid) const;
  const Surroundings& surroundings(const sdk::Call& call);

  const sdk::Host host_;
  const Config config_;
  const bool as_root_;
  const std::string instance_, name_, sandboxes_dir_, shell_, toolchain_;
  const UidRegistry registry_;
  std::mutex mutex_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Surroundings> surroundings_;
};

}  // namespace isogate::docker
