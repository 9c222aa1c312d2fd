#include "gateway/supervisor/control.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "gateway/config/load.h"
#include "gateway/ipc/channel.h"
#include "lib/json.h"
#include "lib/log.h"

namespace isogate::supervisor {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

Json tls_of(const TlsMaterial& tls) {
  return {{"certificate", tls.certificate},
          {"key", tls.key},
          {"client_ca", tls.client_ca},
          {"client_required", tls.client_required}};
}

// The socket may have room, and poll(2) return at once: without a pause the supervisor would spin.
constexpr std::chrono::milliseconds kShortagePause{10};

uint64_t unsigned_member(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace

Result<FromChild> parse_from_child(const std::string& record) {
  const Json json = Json::parse(record, nullptr, false);
  if (!json.is_object()) return invalid("a control record that is no JSON object");
  FromChild parsed{text_at(json, "type"),
                   text_at(json, "message"),
                   text_at(json, "reason").substr(0, 256),
                   unsigned_member(json, "generation"),
                   unsigned_member(json, "number"),
                   std::nullopt,
                   json.contains("probed") && json["probed"] == true};
  if (json.contains("setting")) parsed.setting = text_at(json, "setting");
  if (parsed.type != "ready" && parsed.type != "drained" && parsed.type != "fatal" &&
      parsed.type != "failed" && parsed.type != "stuck" && parsed.type != "reloaded" &&
      parsed.type != "reload_refused" && parsed.type != "violation" && parsed.type != "serving")
    return invalid("a control record of unknown type `" + parsed.type.substr(0, 32) + "`");
  return parsed;
}

std::string front_document(const Config& config) {
  Config part = config;
  part.log.file.clear();  // its stderr goes there
  for (BackendConfig& backend : part.backends) backend.config_json = "{}";
  return config_to_json(part);
}

std::string host_document(const Config& config, const BackendConfig& backend) {
  const Config defaults;
  Config part = config;
  part.log.file.clear();
  part.keys.clear();
  part.tls = defaults.tls;
  part.cors = defaults.cors;
  part.metrics = defaults.metrics;
  part.e2b = defaults.e2b;
  part.listen = defaults.listen;
  part.backends = {backend};
  return config_to_json(part);
}

std::string front_start_message(const FrontStart& start) {
  return text_of({{"type", "start"},
                  {"config", Json::parse(front_document(*start.config))},
                  {"local_key_sha256", start.local_key_sha256},
                  {"peer_uids", start.peer_uids},
                  {"listeners", start.listeners},
                  {"kinds", start.kinds},
                  {"tls", tls_of(*start.tls)},
                  {"state_dir", start.state_dir}});
}

std::string front_reload_message(uint64_t number, const Config& config, const std::string& local_key_sha256,
                                 const TlsMaterial& tls) {
  return text_of({{"type", "reload"},
                  {"number", number},
                  {"config", Json::parse(front_document(config))},
                  {"local_key_sha256", local_key_sha256},
                  {"tls", tls_of(tls)}});
}

std::string backend_up_message(const std::string& name, uint64_t generation, uint64_t settings) {
  return text_of({{"type", "backend"},
                  {"name", name},
                  {"generation", generation},
                  {"settings", settings},
                  {"state", "up"}});
}

std::string backend_down_message(const BackendDown& down) {
  return text_of({{"type", "backend"},
                  {"name", down.name},
                  {"generation", down.generation},
                  {"state", "down"},
                  {"reason", down.reason},
                  {"quarantined", down.quarantined},
                  {"restarting", down.restarting}});
}

std::string drain_message(uint32_t deadline_sec) {
  return text_of({{"type", "drain"}, {"deadline_sec", deadline_sec}});
}

std::string host_start_message(const HostStart& start) {
  return text_of({{"type", "start"},
                  {"config", Json::parse(host_document(*start.config, *start.backend))},
                  {"backend", start.backend->name},
                  {"generation", start.generation},
                  {"sandboxes_dir", start.sandboxes_dir},
                  {"uids_dir", start.uids_dir},
                  {"plugin_copy_dir", start.plugin_copy_dir},
                  {"probe_only", start.probe_only},
                  {"many_tenants", has_many_tenants(*start.config)}});
}

std::string host_stop_message(bool keep_sandboxes) {
  return text_of({{"type", "stop"}, {"mode", keep_sandboxes ? "detach" : "stop"}});
}

std::string host_drain_message() { return text_of({{"type", "mode"}, {"mode", "stop"}}); }

void ControlChannel::send(std::string record, std::vector<int> borrowed, std::vector<Fd> owned) {
  if (!socket_) return;
  for (const Fd& fd : owned) borrowed.push_back(fd.get());
  queue_.push_back({std::move(record), std::move(borrowed), std::move(owned)});
  flush();
}

void ControlChannel::flush() {
  while (socket_ && !queue_.empty()) {
    Outgoing& next = queue_.front();
    auto sent = ipc::send_record(socket_.get(), next.record, next.fds, ipc::Wait::kDont);
    const int code = sent ? 0 : sent.error().os_errno;
    if (code == EAGAIN) return;
    const bool again = ipc::is_shortage(code);
    const bool reported = std::exchange(next.delayed, again);
    // A child that is gone has ended or is ending: its end reports the rest.
    if (!sent && code != EPIPE && code != ECONNRESET && !reported)
      log::warn("control_send_failed", {{"reason", sent.error().message}, {"again", again}});
    if (again) return std::this_thread::sleep_for(kShortagePause);
    queue_.pop_front();
  }
}

Result<std::optional<FromChild>> ControlChannel::receive() {
  if (!socket_) return os_error("the control socket is closed", ECONNRESET);
  auto received = ipc::receive_bytes(socket_.get(), ipc::Wait::kDont);
  if (!received && received.error().os_errno == EAGAIN) return std::optional<FromChild>();
  if (received && is_over_rate()) received = invalid("it sends records too fast");
  auto record = received ? parse_from_child(*received) : Result<FromChild>(received.error());
  if (!record) {
    close();
    return record.error();
  }
  return std::optional<FromChild>(std::move(*record));
}

bool ControlChannel::is_over_rate() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(counted_, now);
  allowance_ = std::min<double>(kBurst, allowance_ + passed.count() * kPerSecond) - 1;
  return allowance_ < 0;
}

// A process that is killed closes its sockets one after the other, perhaps with a pause between them.
constexpr int kHangUpMs = 50;

bool ControlChannel::hung_up() const {
  pollfd entry{socket_.get(), POLLRDHUP, 0};
  return !socket_ ||
         (::poll(&entry, 1, kHangUpMs) == 1 && (entry.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0);
}

void ControlChannel::close() {
  socket_.reset();
  queue_.clear();
}

}  // namespace isogate::supervisor
