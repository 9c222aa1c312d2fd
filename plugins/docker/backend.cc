#include "plugins/docker/backend.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "plugins/docker/or_throw.h"
#include "plugins/docker/volumes.h"
#include "runner/plugin_open.h"
#include "runner/workspace.h"
#include "runner/workspace_state.h"

namespace isogate::docker {
namespace {

constexpr const char* kGateDirectory = "gate";
constexpr std::chrono::milliseconds kProbe{5'000};

std::string directory_of_this_program() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, size > 0 ? static_cast<size_t>(size) : 0);
  return whole.substr(0, whole.rfind('/'));
}

// Nobody but root and this process's user may put another program in its place.
void check_runner(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw sdk::Error(ISOGATE_UNAVAILABLE, "there is no program isogate-runner at " + path, errno);
  if (!S_ISREG(info.st_mode) || (info.st_mode & 0111) != 0111)
    throw sdk::Error(ISOGATE_UNAVAILABLE, path + " is no program that everybody may run: chmod 0111");
  if ((info.st_uid != 0 && info.st_uid != ::geteuid()) || (info.st_mode & 022) != 0)
    throw sdk::Error(ISOGATE_UNAVAILABLE, path + " can be changed by others: give it to root, mode 0111");
}

std::string find_runner(const std::string& configured) {
  if (!configured.empty()) {
    check_runner(configured);
    return configured;
  }
  const std::string here = directory_of_this_program();
  for (const char* place : {"/isogate-runner", "/../lib/isogate/isogate-runner"}) {
    char whole[PATH_MAX];
    if (::realpath((here + place).c_str(), whole) == nullptr) continue;
    check_runner(whole);
    return whole;
  }
  throw sdk::Error(ISOGATE_UNAVAILABLE, "the program isogate-runner is neither in " + here + " nor in " +
                                            here + "/../lib/isogate: name it as `runner`");
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

std::string limits_missing(const EngineInfo& info, const Config& config) {
  // podman says that it can there, and leaves them out in silence.
  const bool none = info.rootless && (info.cgroup_version == "1" || info.cgroup_driver == "none");
  std::string missing;
  const auto check = [&](const char* name, bool wanted, bool can) {
    if (wanted && (none || !can)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  check("memory_mb", config.memory_mb != 0, info.memory_limit);
  check("cpus", config.cpus != 0, info.cpu_quota);
  check("pids", config.pids != 0, info.pids_limit);
  return missing;
}

// Why this Engine cannot be used; empty: it can.
std::string obstacle(const EngineInfo& info, const Config& config, bool as_root) {
  if (info.rootless && as_root && config.workspace != Place::kVolume)
    return "this Engine is rootless and the gateway is root's: inside, no user but the Engine's own can "
           "write to "
           "a directory of this host; start the gateway as that user, or set `workspace: volume`";
  const std::string missing = limits_missing(info, config);
  if (missing.empty()) return {};
  if (info.rootless && info.cgroup_version == "1")
    return "this Engine is rootless on cgroups v1, where it cannot limit " + missing +
           ": use cgroups v2 or an Engine of root, or set these to 0";
  return "this Engine cannot limit " + missing + ": enable the cgroup controllers, or set these to 0";
}

std::optional<TlsFiles> tls_of(const Config& config) {
  if (config.ca.empty()) return std::nullopt;
  return TlsFiles{config.ca, config.certificate, config.key, true};
}

}  // namespace

Backend::Backend(sdk::Host host, std::string_view config_json)
    : host_(host),
      config_(parse_config(config_json)),
      as_root_(::geteuid() == 0),
      instance_(sdk::view(host.abi().instance)),
      name_(sdk::view(host.abi().backend_name)),
      sandboxes_dir_(sdk::view(host.abi().sandboxes_dir)),
      shell_(sdk::view(host.abi().shell)),
      toolchain_(sdk::view(host.abi().toolchain_path)),
      registry_({.uids_dir = std::string(sdk::view(host.abi().uids_dir)), .sandboxes_dir = sandboxes_dir_}) {
  for (const std::string& relaxed : relaxations_of(config_))
    host_.log(ISOGATE_LOG_WARN, "relaxation: " + relaxed);
  if (!as_root_)
    host_.log(ISOGATE_LOG_WARN, "relaxation: not started by root, all sandboxes share uid " +
                                    std::to_string(::geteuid()) + " and are apart by their containers alone");
}

Backend::~Backend() = default;

namespace {

// A backend host has neither HOME nor XDG_RUNTIME_DIR in its environment: what they would be.
Environment environment() {
  return [given = process_environment()](const std::string& name) -> std::optional<std::string> {
    if (auto value = given(name)) return value;
    if (name == "XDG_RUNTIME_DIR") return "/run/user/" + std::to_string(::geteuid());
    if (name != "HOME") return std::nullopt;
    char text[4096];
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwuid_r(::geteuid(), &entry, text, sizeof text, &found) != 0 || found == nullptr)
      return std::nullopt;
    return std::string(found->pw_dir);
  };
}

}  // namespace

Services& Backend::services() {
  const std::lock_guard lock(mutex_);
  if (services_) return *services_;
  const std::string runner = find_runner(config_.runner);
  auto made = std::make_unique<Services>(host_, config_,
                                         resolve_address(config_.host, tls_of(config_), environment()));
  made->runner = runner;
  services_ = std::move(made);
  return *services_;
}

std::string Backend::detail_of(const EngineInfo& info, Services& services) const {
  std::string detail = std::string(info.rootless ? "rootless " : "") + (info.podman ? "podman " : "Engine ") +
                       info.version + " (API " + info.api_version + ") at " +
                       services.engine.address().text() + "; a container" + (as_root_ ? " and a uid" : "") +
                       " for each sandbox; " + services.choices();
  auto relaxed = relaxations_of(config_);
  if (!as_root_) relaxed.push_back("all sandboxes share uid " + std::to_string(::geteuid()));
  if (!relaxed.empty()) detail += "; relaxed: " + joined(relaxed);
  return detail;
}

void Backend::probe(const sdk::Call& call, isogate_probe& out) {
  out.isolation = ISOGATE_ISOLATION_CONTAINER;
  out.locality = ISOGATE_LOCALITY_DAEMON;
  out.capabilities =
      ISOGATE_CAP_PTY | ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE;
  if (!config_.network) out.capabilities |= ISOGATE_CAP_EGRESS_DENY;
  if (as_root_) out.capabilities |= ISOGATE_CAP_UID_PER_SANDBOX;
  out.verdict = ISOGATE_PROBE_UNAVAILABLE;
  std::string detail;
  try {
    Services& use = services();
    const EngineInfo info = use.engine.info(Budget(call, kProbe));
    use.learn(info);
    detail = detail_of(info, use);
    if (const std::string why = obstacle(info, config_, as_root_); !why.empty()) {
      detail = why;
    } else {
      use.engine.inspect_image(config_.image, Budget(call, kProbe));
      out.verdict = ISOGATE_PROBE_AVAILABLE;
    }
  } catch (const sdk::Error& error) {
    detail = error.what();
    if (error.status() == ISOGATE_NOT_FOUND)
      detail =
          "the image `" + config_.image +
          "` is not on this Engine: build it with deploy/sandbox-image/build.sh, pull it, or name another "
          "one as `image`";
  }
  sdk::set_text(out.detail, detail);
}

void Backend::check_asked(const isogate_sandbox_spec& spec) const {
  const auto refuse = [](const std::string& why) { throw sdk::Error(ISOGATE_UNSUPPORTED, why); };
  const bool best_effort = (spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0;
  if (spec.egress == ISOGATE_EGRESS_PROXY)
    refuse("backend `docker` has no egress proxy: egress: deny or allow");
  if (spec.egress == ISOGATE_EGRESS_DENY && config_.network)
    refuse("egress is to be denied, and `network: dedicated` has a way out: set `network: none`");
  if (spec.egress == ISOGATE_EGRESS_ALLOW && !config_.network)
    refuse("egress is to be allowed, and `network: none` has no way out: set `network: dedicated`");
  if (spec.limits.disk_bytes != 0 && !best_effort)
    refuse(
        "backend `docker` cannot limit the disk space of a sandbox: leave it out, or write limits: "
        "best_effort");
}

Parts Backend::parts_of(const isogate_sandbox_spec& spec, const std::string& id, uint32_t uid) const {
  Parts parts;
  parts.owner = {instance_, name_, id};
  parts.tenant = sdk::view(spec.tenant);
  parts.agent_id = sdk::view(spec.agent_id);
  parts.uid = uid;
  parts.gid = as_root_ ? uid : ::getegid();
  parts.known = (spec.flags & ISOGATE_OPEN_KNOWN) != 0;
  parts.workspace = sandboxes_dir_ + "/" + id + "/workspace";
  parts.gate = sandboxes_dir_ + "/" + id + "/" + kGateDirectory;
  for (uint64_t i = 0; i < host_.abi().shared_dir_count; ++i) {
    const isogate_shared_dir& each = host_.abi().shared_dirs[i];
    parts.shared.emplace_back(sdk::view(each.prefix), sdk::view(each.path));
  }
  parts.shell = shell_;
  parts.toolchain = toolchain_;
  return parts;
}

// The image's own environment, and the configuration's above it.
const Surroundings& Backend::surroundings(const sdk::Call& call) {
  Services& use = services();
  const std::lock_guard lock(mutex_);
  if (surroundings_) return *surroundings_;
  auto made = std::make_unique<Surroundings>(config_.env);
  const Json image = use.engine.inspect_image(config_.image, call);
  const Json config = image.value("Config", Json::object());
  if (config.is_object() && config.contains("Env") && config["Env"].is_array()) {
    for (const Json& line : config["Env"]) {
      if (!line.is_string()) continue;
      const std::string text = line.get<std::string>();
      const size_t equals = text.find('=');
      if (equals == 0 || equals == std::string::npos) continue;
      const std::string key = text.substr(0, equals);
      const bool set =
          std::any_of(made->begin(), made->end(), [&](const auto& each) { return each.first == key; });
      if (!set) made->emplace_back(key, text.substr(equals + 1));
    }
  }
  surroundings_ = std::move(made);
  return *surroundings_;
}

std::unique_ptr<sdk::Sandbox> Backend::open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                            isogate_sandbox_info& info) {
  const OpenCall asked = or_throw(check_open(spec, sandboxes_dir_));
  check_asked(spec);
  Services& use = services();
  const Surroundings& around = surroundings(call);
  Identity identity;
  if (as_root_) {
    const uint32_t uid = or_throw(registry_.assign(asked.id, sdk::view(spec.agent_id)));
    identity = {true, uid, uid};
  }
  const uint32_t uid = as_root_ ? identity.uid : ::geteuid();
  const auto workspace = or_throw(
      Workspace::open({sandboxes_dir_, asked.id, identity, nullptr, false, name_}, asked.attach_only));
  Fd gate = or_throw(Workspace::beside(sandboxes_dir_, asked.id, kGateDirectory, {}, 0755));
  Fd sandboxes = or_throw(open_state_directory(sandboxes_dir_));
  Fd directory = or_throw(open_sandbox_directory(sandboxes.get(), asked.id));
  Parts parts = parts_of(spec, asked.id, uid);
  auto container = std::make_unique<Container>(use, std::move(parts), limits_of(config_, spec.limits),
                                               std::move(directory), std::move(gate));
  bool adopted = false;
  try {
    adopted = container->open(call);
  } catch (const sdk::Error&) {
    if (!workspace->attached()) (void)Workspace::purge(sandboxes_dir_, asked.id).ok();
    if (!workspace->attached() && as_root_) (void)registry_.release(asked.id, uid).ok();
    throw;
  }
  info.isolation = ISOGATE_ISOLATION_CONTAINER;
  // A container that was made just now is measured, whatever the workspace holds.
  const bool known = (spec.flags & ISOGATE_OPEN_KNOWN) != 0;
  info.flags = adopted || (workspace->attached() && !known) ? ISOGATE_SANDBOX_ATTACHED : 0;
  info.uid = uid;
  sdk::set_text(info.handle, asked.id);
  const Home home{sandboxes_dir_, asked.id, as_root_ ? &registry_ : nullptr, uid};
  return std::make_unique<Sandbox>(around, home, std::move(container));
}

void Backend::enumerate(const sdk::Call&, const sdk::RecordSink& sink) {
  for (const std::string& id : or_throw(Workspace::enumerate(sandboxes_dir_, name_))) sink.add(id, id);
}

}  // namespace isogate::docker
