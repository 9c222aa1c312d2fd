#include "plugins/k8s/sandbox.h"

namespace isogate::k8s {

// If it is not known what still runs in the pod, it is removed: at once if the call was cancelled, otherwise
// after the API server had time to report how it ended.
void Sandbox::serve(Use use, const sdk::Call& call, const Verb& verb) {
  const SandboxPod::Running running(*pod_);
  for (int tries = 0;; ++tries) {
    const SandboxPod::Way way = pod_->link(use, call);
    try {
      verb(*way.link);
      if (way.link->spent()) pod_->note_left();
      return;
    } catch (const sdk::Error& error) {
      if (way.link->alive()) {
        if (way.link->spent()) pod_->note_left();
        if (use == Use::kStart && error.status() == ISOGATE_RESOURCE_EXHAUSTED && pod_->is_alone(use))
          pod_->distrust(way, "its runner lacks what it needs to start a program, and nothing runs in it",
                         false);
        throw;
      }
      if (error.status() == ISOGATE_CANCELLED) throw;
      if (is_repeatable(error) && tries == 0) continue;
      if (error.status() != ISOGATE_LOST) throw;
      const std::string text = error.what();
      const bool told =
          text.find("its pod") != std::string::npos || text.find("its container") != std::string::npos;
      pod_->distrust(way, text, false);  // before another call connects to it again
      const std::string how = told ? "" : pod_->how_it_ended(way, call);
      if (!told && how.empty()) pod_->distrust(way, text, true);
      throw sdk::Error(ISOGATE_LOST, text + (how.empty() ? "" : "; " + how), error.os_errno());
    }
  }
}

// A call that runs no program in the pod does not prevent the replacement of a distrusted pod.
void Sandbox::beside_programs(const sdk::Call& call, const Verb& verb) {
  for (int tries = 0;; ++tries) {
    const auto link = pod_->link(Use::kBeside, call).link;
    try {
      return verb(*link);
    } catch (const sdk::Error& error) {
      if (link->alive() || !is_repeatable(error) || tries > 0) throw;
    }
  }
}

void Sandbox::watch(const sdk::Call& call, const isogate_file_request& request) {
  beside_programs(call, [&](sdk::RunnerLink& link) { link.watch(call, request); });
}

void Sandbox::connect(const sdk::Call& call, const isogate_connect_request& request) {
  beside_programs(call, [&](sdk::RunnerLink& link) { link.connect_to_port(call, request); });
}

void Sandbox::close(const sdk::Call& call, uint32_t mode) {
  if (mode == ISOGATE_CLOSE_DETACH) return pod_->detach();
  if (mode == ISOGATE_CLOSE_STOP) return pod_->end(call);
  pod_->purge(call);
}

}  // namespace isogate::k8s
