// The backend `local`: runs programs of this host beside the gateway, without isolation. For
// development.
//
// Started by root, each sandbox has its own uid (uid_registry.h) and its programs have no capability; started
// by an ordinary user, every program runs as that user, with all its rights. Threads: as backend.h says of
// each function.
#include <unistd.h>

#include <memory>
#include <string>

#include "plugins/common/config_checks.h"
#include "plugins/common/host_backend.h"
#include "plugins/common/host_sandbox.h"
#include "plugins/common/plugin_open.h"
#include "runner/exec/abi_exec.h"
#include "runner/exec/environment.h"
#include "runner/files/workspace_resolve.h"
#include "runner/uid/uid_leftovers.h"
#include "runner/uid/users.h"

namespace isogate::local {

struct Config {
  RunnerOptions runner;
  DiskPolicy disk;
};

namespace {

// What this backend keeps of root, and why.
constexpr Kept kKept[] = {
    {0, "CHOWN", "give a new workspace to its sandbox's uid"},
    {1, "DAC_OVERRIDE", "purge what a tenant closed to everybody else"},
    {3, "FOWNER", "purge from directories with the sticky bit"},
    {5, "KILL", "end programs that have another uid"},
    {6, "SETGID", "run programs and reach files with the sandbox's gid and no groups"},
    {7, "SETUID", "run programs, reach files and remove kernel objects with the sandbox's uid"},
    {8, "SETPCAP", "empty a program's bounding set"},
};

// What it can do without: then the disk of a sandbox is only counted, and /dev/mqueue must be mounted.
constexpr Kept kOptional[] = {
    {21, "SYS_ADMIN", "set project quotas, mount a file system of a sandbox's own, list message queues"}};

constexpr const char* kConfigSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "title": "Configuration of the backend `local`",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "cgroups": {"type": "string", "enum": ["auto", "never"], "default": "auto",
      "description": "auto: limits and killing by control groups, if root started the gateway and this host lets it have them; never: no limits, process trees are killed by a reaper"},
    "disk_mb": {"type": "integer", "minimum": 0, "maximum": 1073741824, "default": 1024,
      "description": "MiB of one workspace, at least 8, with a file for each 8 KiB, unless `limits.disk_mb` says otherwise; 0: no limit. Where it is written here and could only be counted, the backend is unavailable, unless limits.mode is best_effort"},
    "workspace_fs": {"type": "string", "enum": ["directory", "loop", "tmpfs"], "default": "directory",
      "description": "where the files of a sandbox are. directory: on the file system of the state directory, where they are counted; loop: in a sparse ext4 image of its own; tmpfs: in memory, until this host ends"}
  }
})";

Config taken_from(const nlohmann::json& json) {
  Config config;
  config.runner.use_cgroups = json.value("cgroups", "auto") == "auto";
  take_disk(json, config.disk);
  return config;
}

Config parse_config(sdk::Host host, std::string_view json) {
  if ((host.abi().flags & ISOGATE_HOST_ALLOW_UNISOLATED) == 0)
    fail_with(denied(
        "backend `local` runs commands on this host without any isolation: write allow_unisolated: true to "
        "accept that for development, or configure another backend"));
  Config config = config_from("local", json, taken_from);
  if (::geteuid() != 0) config.runner.use_cgroups = false;  // a program of its own user can leave its cgroup
  check_disk("`local`", config.disk);
  return config;
}

constexpr uint32_t kLimited[] = {ISOGATE_LIMIT_DISK_BYTES};  // of a sandbox
constexpr uint32_t kLimitedExec[] = {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS,
                                     ISOGATE_LIMIT_PIDS};

Result<Limits> check_asked(const isogate_sandbox_spec& spec) {
  if (spec.egress == ISOGATE_EGRESS_DENY || spec.egress == ISOGATE_EGRESS_PROXY)
    return unsupported(
        "backend `local` cannot restrict the network: choose another backend, or egress: allow");
  if (auto none = refuse_options(spec, "local"); !none) return none.error();
  return take_limits(spec, "local", kLimited);
}

// What it cannot find it cannot end or remove; empty: it can.
std::string why_purge_fails() {
  const std::string hidden = why_processes_are_hidden();
  return hidden.empty() ? why_leftovers_are_hidden() : hidden;
}

std::string limits_of(uint64_t capabilities) {
  std::string text;
  for (const LimitKind& kind : kLimitKinds)
    if ((capabilities & kind.exec) != 0) text += (text.empty() ? "" : ", ") + std::string(kind.word);
  return text.empty() ? "none" : text;
}

}  // namespace

class Backend : public HostBackend {
 public:
  // ISOGATE_PERMISSION_DENIED unless the operator wrote allow_unisolated. Empty text is an empty object.
  Backend(sdk::Host host, std::string_view config_json);

  void probe(const sdk::Call& call, isogate_probe& out) override;
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override;

 private:
  friend class Sandbox;
  Backend(sdk::Host host, Config config);
};

class Sandbox : public HostSandbox {
 public:
  Sandbox(Backend& backend, std::string id, User user, DiskWorkspace files, std::optional<Error> refusal)
      : HostSandbox(std::move(id), std::move(files), std::move(refusal)),
        backend_(backend),
        user_(std::move(user)) {}

  void exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) override;
  void evidence(const sdk::Call& call, const isogate_evidence_request& request,
                isogate_evidence& out) override;

 private:
  Result<void> end(uint32_t mode, int cancel_fd) override;
  [[nodiscard]] Result<User> user_named(const isogate_str& name) const override;

  Backend& backend_;
  const User user_;
};

Backend::Backend(sdk::Host host, std::string_view config_json)
    : Backend(host, parse_config(host, config_json)) {}

Backend::Backend(sdk::Host host, Config config) : HostBackend(host, std::move(config.runner), true) {
  disks_.set_policy(config.disk);
  if (const auto shared = open_shared_dirs(); !shared) fail_with(mistaken_path(shared.error()));
  start_sweeper();
}

void Backend::probe(const sdk::Call&, isogate_probe& result) {
  const auto& abilities = runner_->abilities();
  result.verdict = ISOGATE_PROBE_AVAILABLE;
  result.isolation = ISOGATE_ISOLATION_NONE;
  result.locality = ISOGATE_LOCALITY_PROCESS;
  result.capabilities = abilities.capabilities | ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_WATCH |
                        ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE;
  if (as_root_) result.capabilities |= ISOGATE_CAP_USER | ISOGATE_CAP_UID_PER_SANDBOX;
  std::string detail = "no isolation; ends process trees by " + abilities.tree_kill +
                       "; limits for each exec: " + limits_of(abilities.capabilities);
  if (!abilities.missing.empty()) detail += " (" + abilities.missing + ")";
  if (!have_openat2()) detail += "; this kernel has no openat2, so that file calls refuse every symlink";
  if (!as_root_)
    detail += "; not started by root: all agents share uid " + std::to_string(::geteuid()) +
              ", and could leave a cgroup, so that none limits them";
  const SandboxDisks::Means disk = disks_.look(limits_best_effort());
  detail += "; " + disk.words;
  result.capabilities |= disk.capabilities();
  if (!disk.obstacle.empty()) {
    result.verdict = ISOGATE_PROBE_UNAVAILABLE;
    detail = disk.obstacle;
  }
  if (const auto why = why_unavailable(kKept, "grant these, or start the gateway as an ordinary user")) {
    result.verdict = ISOGATE_PROBE_UNAVAILABLE;
    detail = *why;
  } else if (!abilities.broken.empty()) {
    result.verdict = ISOGATE_PROBE_UNAVAILABLE;
    detail = abilities.broken;
  } else if (const std::string hidden = as_root_ ? why_purge_fails() : ""; !hidden.empty()) {
    result.verdict = ISOGATE_PROBE_UNAVAILABLE;
    detail = hidden;
  }
  sdk::set_text(result.detail, detail);
}

std::unique_ptr<sdk::Sandbox> Backend::open(const sdk::Call&, const isogate_sandbox_spec& spec,
                                            isogate_sandbox_info& info) {
  const OpenCall call = or_throw(check_open(spec, sandboxes_dir_));
  Asked asked = or_throw(asked_of(spec, check_asked(spec), kLimited));
  const Identity identity = or_throw(identity_of(spec));
  const bool best_effort = limits_best_effort() || (spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0;
  DiskWorkspace opened = or_throw(open_workspace({.id = call.id,
                                                  .identity = identity,
                                                  .asked_bytes = asked.limits.get(ISOGATE_LIMIT_DISK_BYTES),
                                                  .best_effort = best_effort,
                                                  .attach_only = call.attach_only,
                                                  .to_close = (spec.flags & ISOGATE_OPEN_ATTACH_ONLY) != 0}));
  opened.workspace->set_own_path(opened.disk->path() + "/workspace");
  info.isolation = ISOGATE_ISOLATION_NONE;
  info.flags = opened.workspace->attached() ? ISOGATE_SANDBOX_ATTACHED : 0;
  info.uid = as_root_ ? identity.uid : ::geteuid();
  sdk::set_text(info.handle, call.id);
  return std::make_unique<Sandbox>(*this, call.id, User{identity, as_root_ ? "agent" : own_name()},
                                   std::move(opened), std::move(asked.refusal));
}

Result<User> Sandbox::user_named(const isogate_str& name) const {
  if (name.len == 0) return user_;
  return find_user(sdk::view(name));
}

void Sandbox::exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) {
  check_usable();
  Command command = or_throw(command_of(request, Site::host(), call.cancel_fd()));
  const User user = or_throw(user_named(request.user));
  const std::string workspace = disk_->path() + "/workspace";
  command.env = or_throw(
      complete(environment_of(request), {workspace, user.name, backend_.shell_, backend_.toolchain_}));
  const Fd cwd = or_throw(workspace_->as(user.identity)->directory(sdk::view(request.cwd)));
  command.cwd_fd = cwd.get();
  command.identity = user.identity;
  const auto ending = backend_.runner_->run(command);
  if (disk_->quota() != nullptr) disk_->quota()->changed();
  result = result_of(or_throw(ending));
}

void Sandbox::evidence(const sdk::Call&, const isogate_evidence_request& request, isogate_evidence& out) {
  check_usable();
  out = or_throw(backend_.runner_->measure(Site::host(), user_.identity, request));
  disk_->add_to(out);
}

// Execs end themselves; what escaped from one still has the sandbox's uid, where it has one of its own.
Result<void> Sandbox::end(uint32_t mode, int cancel_fd) {
  if (mode == ISOGATE_CLOSE_DETACH) return {};
  if (user_.identity.change) {
    if (auto ended = end_processes(user_.identity.uid); !ended) return ended;
  }
  if (mode == ISOGATE_CLOSE_STOP) return {};
  if (user_.identity.change) {
    if (auto removed = remove_leftovers_of(user_.identity.uid, cancel_fd); !removed) {
      backend_.log(ISOGATE_LOG_WARN,
                   id_ + " keeps its uid until it can be purged: " + removed.error().message);
      return removed;
    }
  }
  return backend_.purge(id_, user_.identity, *disk_, cancel_fd);
}

}  // namespace isogate::local

ISOGATE_EXPORT_BACKEND(
    isogate::local::Backend, isogate::local::Sandbox, .id = "local", .version = ISOGATE_VERSION,
    .summary = "programs of this host, without isolation: for development", .vendor = "isogate",
    .license = "Apache-2.0", .isolation = ISOGATE_ISOLATION_NONE, .locality = ISOGATE_LOCALITY_PROCESS,
    .capabilities = ISOGATE_CAP_PTY | ISOGATE_CAP_MERGE_STDERR | ISOGATE_CAP_WATCH | ISOGATE_CAP_USER |
                    isogate::exec_limits(isogate::local::kLimitedExec) | isogate::kSampledLimits |
                    isogate::sandbox_limits(isogate::local::kLimited) | ISOGATE_CAP_SANDBOX_DISK_ADVISORY |
                    ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_UID_PER_SANDBOX | ISOGATE_CAP_PERSISTENT |
                    ISOGATE_CAP_EVIDENCE,
    .flags = ISOGATE_PLUGIN_RUNS_AS_ROOT,
    .linux_capabilities = isogate::bits_of(isogate::local::kKept) |
                          isogate::bits_of(isogate::local::kOptional),
    .config_schema_json = isogate::local::kConfigSchema)
