#include "plugins/k8s/sandbox.h"

#include <algorithm>

namespace isogate::k8s {

// What finds its runner gone before anything was sent is tried once more, in a recreated pod; what was lost
// on the way is reported as lost, with what became of the pod. Where nobody knows what still runs in that, it
// is replaced.
template <typename Verb>
void Sandbox::with_runner(const sdk::Call& call, Verb verb) {
  stranger_ = false;
  const SandboxPod::Running running(*pod_);
  for (int tries = 0;; ++tries) {
    const auto link = pod_->link(call);
    try {
      return verb(*link);
    } catch (const sdk::Error& error) {
      if (link->alive() || error.status() == ISOGATE_CANCELLED) throw;
      if (error.status() == ISOGATE_UNAVAILABLE && tries == 0) continue;
      if (error.status() != ISOGATE_LOST) throw;
      const std::string text = error.what();
      const bool told =
          text.find("its pod") != std::string::npos || text.find("its container") != std::string::npos;
      const std::string how = told ? "" : pod_->how_it_ended(call);
      pod_->distrust(text, !told && how.empty());
      throw sdk::Error(ISOGATE_LOST, text + (how.empty() ? "" : "; " + how), error.os_errno());
    }
  }
}

void Sandbox::exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) {
  std::vector<isogate_pair> env(request.env, request.env + request.envc);
  for (const auto& [key, value] : config_.env) {
    const bool given = std::any_of(env.begin(), env.end(), [&key = key](const isogate_pair& each) {
      return sdk::view(each.key) == key;
    });
    if (!given) env.push_back({sdk::str(key), sdk::str(value)});
  }
  isogate_exec_request whole = request;
  whole.env = env.data();
  whole.envc = env.size();
  with_runner(call, [&](sdk::RunnerLink& link) {
    try {
      link.exec(call, whole, result);
    } catch (const sdk::Error& error) {
      if (error.status() == ISOGATE_RESOURCE_EXHAUSTED && link.alive() && pod_->is_alone())
        pod_->distrust("its runner lacks what it needs to start a program, and nothing runs in it", false);
      throw;
    }
  });
}

void Sandbox::read(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.read(call, request, entry); });
}

uint64_t Sandbox::write(const sdk::Call& call, const isogate_file_request& request) {
  uint64_t written = 0;
  with_runner(call, [&](sdk::RunnerLink& link) { written = link.write(call, request); });
  return written;
}

void Sandbox::list(const sdk::Call& call, const isogate_file_request& request, const sdk::EntrySink& sink) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.list(call, request, sink); });
}

void Sandbox::stat(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.stat(call, request, entry); });
}

void Sandbox::mkdir(const sdk::Call& call, const isogate_file_request& request) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.mkdir(call, request); });
}

void Sandbox::move(const sdk::Call& call, const isogate_file_request& request) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.move(call, request); });
}

void Sandbox::remove(const sdk::Call& call, const isogate_file_request& request) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.remove(call, request); });
}

void Sandbox::evidence(const sdk::Call& call, const isogate_evidence_request& request,
                       isogate_evidence& out) {
  const uint32_t size = out.struct_size;
  out = pod_->evidence(call, request);
  out.struct_size = size;
}

void Sandbox::close(const sdk::Call& call, uint32_t mode) {
  if (mode > ISOGATE_CLOSE_PURGE) throw sdk::Error(ISOGATE_INVALID_ARGUMENT, "the close mode is unknown");
  if (mode == ISOGATE_CLOSE_DETACH) return pod_->detach();
  if (mode == ISOGATE_CLOSE_STOP) return pod_->end(call);
  pod_->purge(call, stranger_);
}

}  // namespace isogate::k8s
