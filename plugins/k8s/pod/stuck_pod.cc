#include "plugins/k8s/pod/stuck_pod.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "plugins/k8s/client/exec_channel.h"
#include "plugins/k8s/record.h"

namespace isogate::k8s {
namespace {

using Found = Liveness::Found;
using Ended = std::optional<ExecEnd>;

// A stream that records how it had ended before this side ended it.
class Tried : public sdk::RunnerStream {
 public:
  Tried(std::unique_ptr<ExecChannel> channel, Ended& before)
      : channel_(std::move(channel)), before_(before) {}
  [[nodiscard]] int fd() const override { return channel_->fd(); }
  ssize_t read_some(char* to, size_t size) override { return channel_->read_some(to, size); }
  ssize_t write_some(const char* from, size_t size) override { return channel_->write_some(from, size); }
  void shutdown() override {
    if (!before_) before_ = channel_->ended();
    channel_->shutdown();
  }

 private:
  const std::unique_ptr<ExecChannel> channel_;
  Ended& before_;
};

// Does only what SandboxPod::connect() does.
Found say_hello(Services& services, const ExecRequest& request, const sdk::Call& call) {
  const auto patience = services.liveness.patience();
  Ended before;
  try {
    auto channel = ExecChannel::open(services.api, request, Budget(call, patience));
    auto stream = std::make_unique<Tried>(std::move(channel), before);
    sdk::RunnerLink::connect(std::move(stream), patience, call)->close("it was only tried");
    return Found::kSpeaks;
  } catch (const NetError&) {
    return Found::kUnknown;
  } catch (const sdk::Error& error) {
    const bool broke_off = before && !before->has_status;
    return error.status() == ISOGATE_CANCELLED || broke_off ? Found::kUnknown : Found::kSilent;
  }
}

// An API server may accept an exec before it has reached the kubelet, but a log comes from the kubelet
// itself. Throws if there is none.
void reach_kubelet(Services& services, const ExecRequest& exec, const sdk::Call& call) {
  const Resource log{"v1", exec.name_space, "pods", exec.pod, "log"};
  const ApiRequest request{.method = "GET",
                           .path = log.path(),
                           .query = {{"container", exec.container}, {"limitBytes", "1"}},
                           .attempt = "read " + log.text(),
                           .name = log.name};
  services.api.open(request, {}, Budget(call, services.liveness.patience()));
}

Found try_another(Services& services, const ExecRequest& request, const std::string& pod_uid,
                  const sdk::Call& call) try {
  const Found found = say_hello(services, request, call);
  if (found != Found::kSilent) return found;
  reach_kubelet(services, request, call);
  const PodState state = services.pods.look(request.pod, Budget(call, services.liveness.patience()));
  return state.running && state.ready && state.uid == pod_uid ? Found::kSilent : Found::kUnknown;
} catch (const sdk::Error&) {
  return Found::kUnknown;
}

bool is_used_elsewhere(Services& services, const std::string& sandbox_id, const Budget& budget) {
  const auto lease = services.api.find(services.leases(sandbox_id), budget);
  if (!lease) return false;
  for (const std::string& each : read_record(*lease).users)
    if (each != services.holder && services.presence.lives(each, budget)) return true;
  return false;
}

}  // namespace

void PodUse::belong_to(const std::string& sandbox_id) {
  const std::lock_guard lock(mutex_);
  sandbox_id_ = sandbox_id;
}

std::string PodUse::sandbox_id() const {
  const std::lock_guard lock(mutex_);
  return sandbox_id_;
}

bool is_stuck(Services& services, const Parts& parts, const std::string& pod_uid, const sdk::Call& call) {
  const ExecRequest request = exec_request(services, parts.pod, stdio_command(parts));
  for (int tries = 0; tries < 2; ++tries) {
    call.check();
    if (try_another(services, request, pod_uid, call) != Found::kSilent) return false;
  }
  return true;
}

void watch_liveness(Services& services, const Parts& parts, const std::string& pod_uid,
                    const std::shared_ptr<sdk::RunnerLink>& link, std::shared_ptr<const PodUse> use) {
  const ExecRequest request = exec_request(services, parts.pod, stdio_command(parts));
  Liveness::Way way;
  way.try_another = [&services, request, pod_uid](const sdk::Call& call) {
    return try_another(services, request, pod_uid, call);
  };
  way.is_busy = [use] { return use->calls > 0; };
  way.is_shared = [&services, use](const sdk::Call& call) {
    return is_used_elsewhere(services, use->sandbox_id(), Budget(call, services.liveness.patience()));
  };
  way.remove = [&services, pod = request.pod, pod_uid](const sdk::Call& call) {
    services.warn("the pod " + pod + " of a sandbox is stuck, and removed: no runner does its work in it");
    remove_object(services, services.pod(pod), pod_uid, call);
  };
  services.liveness.watch(link, std::move(way));
}

}  // namespace isogate::k8s
