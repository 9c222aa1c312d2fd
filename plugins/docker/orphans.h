// Objects of this backend on the Engine that no sandbox directory claims: containers, networks and volumes
// whose records are lost, and the container that a sandbox had before it lost its record. They are listed
// and removed only for an operator. Any thread.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "plugins/docker/services.h"

namespace isogate::docker {

// By the ids that the directories of this backend's sandboxes here, also of those made ahead, stand for
// (their own, and the one that their objects are labelled with): the id of the recorded container; empty: it
// is being made, and not known yet; kNoContainer: there is none. Throws sdk::Error where any of them cannot
// be read.
inline constexpr const char* kNoContainer = "-";
std::unordered_map<std::string, std::string> claims_in(const std::string& sandboxes_dir,
                                                       const std::string& backend, const sdk::Call& call);

class EngineOrphans final : public sdk::Orphans {
 public:
  // `services` finds the Engine, and throws while there is none.
  EngineOrphans(std::function<Services&()> services, std::string instance, std::string backend,
                std::string sandboxes_dir)
      : services_(std::move(services)),
        instance_(std::move(instance)),
        backend_(std::move(backend)),
        sandboxes_dir_(std::move(sandboxes_dir)) {}

  void list(const sdk::Call& call, const sdk::RecordSink& sink) override;
  void remove(const sdk::Call& call, std::string_view sandbox_id, uint32_t flags) override;

 private:
  struct Object {
    ObjectKind kind = ObjectKind::kContainer;
    std::string id, sandbox, role;
    bool runs = false;
    [[nodiscard]] std::string name() const { return std::string(name_of(kind)) + " " + id; }
  };
  std::vector<Object> find(const sdk::Call& call) const;

  const std::function<Services&()> services_;
  const std::string instance_, backend_, sandboxes_dir_;
  Semaphore removing_;
};

}  // namespace isogate::docker
