#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "plugins/local/local.h"
#include "plugins/local/privileges.h"
#include "runner/plugin_abi.h"
#include "runner/plugin_open.h"
#include "runner/workspace_resolve.h"
#include "runner/workspace_state.h"

namespace isogate::local {
namespace {

void log(const isogate_host& host, uint32_t level, const std::string& line) {
  if (host.log != nullptr) host.log(host.ctx, level, str(line));
}

std::unique_ptr<Runner> make_runner(const isogate_host& host, const Config& config) {
  RunnerOptions options;
  options.use_cgroups = config.use_cgroups;
  options.notice = [host](const std::string& line) { log(host, ISOGATE_LOG_WARN, line); };
  return Runner::make(std::move(options));
}

std::string asked_of_sandbox(const isogate_limits& limits) {
  std::string names;
  const auto add = [&](uint64_t value, const char* name) {
    if (value != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(limits.memory_bytes, "memory");
  add(limits.cpu_millis, "cpu");
  add(limits.pids, "pids");
  add(limits.disk_bytes, "disk");
  return names;
}

Result<void> check_asked(const isogate_sandbox_spec& spec) {
  if (spec.egress == ISOGATE_EGRESS_DENY || spec.egress == ISOGATE_EGRESS_PROXY)
    return unsupported(
        "backend `local` cannot restrict the network: choose another backend, or egress: allow");
  const std::string asked = asked_of_sandbox(spec.limits);
  if (!asked.empty() && (spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) == 0)
    return unsupported(
        "backend `local` can limit each exec but not a whole sandbox (asked for: " + asked +
        "): leave the sandbox's limits out, write limits: best_effort, or choose another backend");
  return {};
}

std::string limits_of(uint64_t capabilities) {
  std::string text;
  const auto add = [&](uint64_t bit, const char* name) {
    if ((capabilities & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add(ISOGATE_CAP_LIMIT_MEMORY, "memory");
  add(ISOGATE_CAP_LIMIT_CPU, "cpu");
  add(ISOGATE_CAP_LIMIT_PIDS, "pids");
  return text.empty() ? "none" : text;
}

}  // namespace

Backend::Backend(const isogate_host& host, const Config& config)
    : host_(host),
      as_root_(::geteuid() == 0),
      name_(view(host.backend_name)),
      sandboxes_dir_(view(host.sandboxes_dir)),
      shell_(view(host.shell)),
      toolchain_(view(host.toolchain_path)),
      own_name_(own_name()),
      registry_({.uids_dir = std::string(view(host.uids_dir)), .sandboxes_dir = sandboxes_dir_}),
      runner_(make_runner(host, config)) {}

Result<std::unique_ptr<Backend>> Backend::create(const isogate_host& host, std::string_view config_json) {
  if ((host.flags & ISOGATE_HOST_ALLOW_UNISOLATED) == 0)
    return Error{
        ISOGATE_PERMISSION_DENIED, 0,
        "backend `local` runs commands on this host without any isolation: write allow_unisolated: true to "
        "accept that for development, or configure another backend"};
  auto config = parse_config(config_json);
  if (!config) return config.error();
  if (host.sandboxes_dir.len == 0 || host.backend_name.len == 0)
    return invalid("the host gave no state directory");
  std::unique_ptr<Backend> backend(new Backend(host, *config));
  if (auto shared = backend->open_shared_dirs(); !shared) return mistaken_path(shared.error());
  if ((host.flags & ISOGATE_HOST_PROBE_ONLY) == 0)
    backend->sweeper_ = std::make_unique<TrashSweeper>(
        backend->sandboxes_dir_, [host](const std::string& line) { log(host, ISOGATE_LOG_WARN, line); });
  return backend;
}

Result<void> Backend::open_shared_dirs() {
  for (uint64_t i = 0; i < host_.shared_dir_count; ++i) {
    const std::string prefix(view(host_.shared_dirs[i].prefix)), path(view(host_.shared_dirs[i].path));
    Fd root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root) return os_error("cannot open `" + path + "`, the shared directory `" + prefix + "`", errno);
    shared_dirs_.push_back({prefix, std::move(root)});
  }
  return {};
}

isogate_probe Backend::probe() const {
  isogate_probe result{};
  const auto& abilities = runner_->abilities();
  result.verdict = ISOGATE_PROBE_AVAILABLE;
  result.isolation = ISOGATE_ISOLATION_NONE;
  result.locality = ISOGATE_LOCALITY_PROCESS;
  result.capabilities =
      abilities.capabilities | ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE;
  if (as_root_) result.capabilities |= ISOGATE_CAP_USER | ISOGATE_CAP_UID_PER_SANDBOX;
  std::string detail = "no isolation; ends process trees by " + abilities.tree_kill +
                       "; limits for each exec: " + limits_of(abilities.capabilities);
  if (!abilities.missing.empty()) detail += " (" + abilities.missing + ")";
  if (!have_openat2()) detail += "; this kernel has no openat2, so that file calls refuse every symlink";
  if (!as_root_) detail += "; not started by root: all agents share uid " + std::to_string(::geteuid());
  const std::string lacking = as_root_ ? missing_capabilities(kKept) : "";
  if (!lacking.empty()) {
    result.verdict = ISOGATE_PROBE_UNAVAILABLE;
    detail = "root without " + lacking + ": grant these, or start the gateway as an ordinary user";
  } else if (const auto state = open_state_directory(sandboxes_dir_); !state) {
    result.verdict = ISOGATE_PROBE_UNAVAILABLE;
    detail = state.error().message;
  }
  set_text(result.detail, detail);
  return result;
}

Result<User> Backend::user_of(const isogate_sandbox_spec& spec) const {
  if (!as_root_) return User{{}, own_name_};
  auto uid = registry_.assign(std::string(view(spec.sandbox_id)), uid_seed(host_, spec));
  if (!uid) return uid.error();
  return User{{true, *uid, *uid}, "agent"};
}

Result<std::unique_ptr<Sandbox>> Backend::open(const isogate_sandbox_spec& spec, isogate_sandbox_info& info) {
  const auto call = check_open(spec, sandboxes_dir_);
  if (!call) return call.error();
  if (auto checked = check_asked(spec); !checked) return checked.error();
  const std::string& id = call->id;
  auto user = user_of(spec);
  if (!user) return user.error();
  auto workspace =
      Workspace::open({sandboxes_dir_, id, user->identity, &shared_dirs_, true, name_}, call->attach_only);
  if (!workspace) {
    if (as_root_) (void)registry_.release(id, user->identity.uid).ok();  // refused once there are files
    return workspace.error();
  }
  info.isolation = ISOGATE_ISOLATION_NONE;
  info.flags = (*workspace)->attached() ? ISOGATE_SANDBOX_ATTACHED : 0;
  info.uid = user->identity.change ? user->identity.uid : ::geteuid();
  set_text(info.handle, id);
  return std::make_unique<Sandbox>(*this, id, std::move(*user), std::move(*workspace));
}

Result<void> Backend::enumerate(const isogate_record_sink& sink) const {
  auto found = Workspace::enumerate(sandboxes_dir_, name_);
  if (!found) return found.error();
  for (const std::string& id : *found) {
    const isogate_record record{sizeof record, 0, str(id), str(id)};
    if (const isogate_status status = sink.add(sink.ctx, &record); status != ISOGATE_OK)
      return Error{status, 0, "the enumeration was stopped by its receiver"};
  }
  return {};
}

}  // namespace isogate::local
