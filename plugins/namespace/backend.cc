#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lib/fd.h"
#include "lib/text.h"
#include "plugins/common/plugin_open.h"
#include "plugins/namespace/landlock.h"
#include "plugins/namespace/namespace.h"
#include "plugins/namespace/operator_paths.h"
#include "plugins/namespace/privileges.h"
#include "plugins/namespace/profile.h"
#include "runner/cgroup/cgroup_detect.h"
#include "runner/files/workspace_resolve.h"

namespace isogate::ns {
namespace {

constexpr uint32_t kTrialUser = 65533;  // not 65534: whatever runs as nobody would count
constexpr const char* kIdentity = "identity";

RunnerOptions runner_options() {
  RunnerOptions options;
  options.use_leaf = false;  // an init's end is the end of its tree
  return options;
}

Result<Limits> check_asked(const isogate_sandbox_spec& spec) {
  if (spec.egress == ISOGATE_EGRESS_ALLOW || spec.egress == ISOGATE_EGRESS_PROXY)
    return unsupported(
        "backend `namespace` gives a sandbox no network but its own loopback: choose another backend, or "
        "egress: deny");
  if (auto none = refuse_options(spec, "namespace"); !none) return none.error();
  return take_limits(spec, "namespace", kLimited);
}

Result<void> write_identity(const Fd& directory, const Identity& identity) {
  const std::string uid = std::to_string(identity.change ? identity.uid : ::geteuid());
  const std::string gid = std::to_string(identity.change ? identity.gid : ::getegid());
  const std::string ids = ":x:" + uid + ":" + gid;
  const std::pair<const char*, std::string> files[] = {
      {"passwd", "root:x:0:0:root:/:/usr/sbin/nologin\nagent" + ids + ":agent:/workspace:/bin/bash\nuser" +
                     ids + ":agent:/home/user:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"},
      {"group", "root:x:0:\ntty:x:5:\nagent:x:" + gid + ":\nnogroup:x:65534:\n"}};
  for (const auto& [name, text] : files) {
    const Fd file(
        ::openat(directory.get(), name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file || ::fchmod(file.get(), 0644) != 0 || !write_all(file.get(), text))
      return os_error(std::string("cannot write the sandbox's ") + name, errno);
  }
  return {};
}

}  // namespace

Backend::Backend(sdk::Host host, std::string_view config_json) : Backend(host, parse_config(config_json)) {}

Backend::Backend(sdk::Host host, const Config& config)
    : HostBackend(host, runner_options(), false), config_(config), profile_(or_throw(make_profile(config))) {
  DiskPolicy disk = config.disk;
  disk.projects_out_of_reach = true;  // by kRefusedIoctls
  disks_.set_policy(disk);
  if (const auto taken = take_places(); !taken) fail_with(mistaken_path(taken.error()));
  for (const std::string& each : relaxations_of(config)) log(ISOGATE_LOG_WARN, "relaxation: " + each);
  start_sweeper();
}

Result<void> Backend::take_places() {
  if (auto checked = check_root(); !checked) return checked;
  if (auto shared = check_shared_dirs(); !shared) return shared;
  if (auto shared = open_shared_dirs(); !shared) return shared;
  return take_toolchain();
}

// The gateway's directories; the state directory is the one above that of the uids.
std::vector<std::string> Backend::own_places() const {
  const std::string uids(sdk::view(host_.uids_dir));
  std::vector<std::string> own = {sandboxes_dir_};
  if (const size_t slash = uids.rfind('/'); slash != std::string::npos && slash > 0)
    own.push_back(uids.substr(0, slash));
  return own;
}

namespace {

// Nobody but root and this process's own user can put something else in its place, or into it.
Result<void> check_kept(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return os_error("cannot find `" + path + "` of `root`", errno);
  if ((info.st_uid != 0 && info.st_uid != ::geteuid()) || (info.st_mode & 022) != 0)
    return invalid("`" + path + "` of `root` can be changed by others: give it to root, mode 0755");
  return {};
}

}  // namespace

Result<void> Backend::check_root() const {
  const std::string& root = config_.root;
  if (root.empty()) return {};
  struct stat info {
  }, usr{};
  if (::stat(root.c_str(), &info) != 0) return os_error("cannot find `" + root + "` (`root`)", errno);
  if (::lstat((root + "/usr").c_str(), &usr) != 0 || !S_ISDIR(usr.st_mode))
    return invalid("`" + root + "` (`root`) has no directory /usr: is it the root of a file system?");
  if (auto apart = check_apart(root, own_places(), "`root`"); !apart) return apart;
  if (auto kept = check_kept(root); !kept) return kept;
  for (std::string above = root.substr(0, root.rfind('/')); !above.empty(); above.resize(above.rfind('/'))) {
    if (check_kept(above)) continue;
    return invalid("`" + root + "` (`root`) lies in `" + above +
                   "`, where others can put something else in its place: move it below a directory that only "
                   "root can write, such as /srv");
  }
  for (const std::string& path : shown_of(root)) {
    if (auto kept = check_kept(path); !kept) return kept;
    if (auto checked = check_no_socket(path, "`" + path + "` of `root`"); !checked) return checked;
  }
  return {};
}

Result<void> Backend::check_shared_dirs() const {
  for (uint64_t i = 0; i < host_.shared_dir_count; ++i) {
    const std::string prefix(sdk::view(host_.shared_dirs[i].prefix)),
        path(sdk::view(host_.shared_dirs[i].path));
    if (auto checked =
            check_shown(path, own_places(), "`" + path + "`, the shared directory `" + prefix + "`,");
        !checked)
      return checked;
  }
  return {};
}

Result<void> Backend::take_toolchain() {
  for (std::string_view rest = toolchain_; !rest.empty();) {
    const std::string path(next_part(rest, ':'));
    if (path.empty()) continue;
    if (auto checked = check_in_place(path, own_places(), "`" + path + "` of toolchain_path"); !checked)
      return checked;
    if (!config_.root.empty() && is_of_system(path, true) &&
        ::access((config_.root + path).c_str(), X_OK) != 0)
      return invalid("`" + path +
                     "` of toolchain_path is not in `root`, which stands in for this host's /usr, /opt, /srv "
                     "and /var/lib");
    toolchain_dirs_.push_back(path);
  }
  return {};
}

Result<const Base*> Backend::base() {
  const std::lock_guard lock(mutex_);
  if (base_) return &*base_;
  auto made = make_base({sandboxes_dir_, &shared_dirs_, toolchain_dirs_, config_.root, !as_root_});
  if (!made) return made.error();
  base_ = std::move(*made);
  return &*base_;
}

std::string Backend::why_not_limited() const {
  if (limits_best_effort()) return "";
  const std::string lacking = limits_missing(config_, sandbox_limits_like(runner_->abilities().capabilities));
  if (lacking.empty()) return "";
  return "this host cannot limit " + lacking + " of a sandbox (" + runner_->abilities().missing +
         "): give the gateway the cgroup controllers, set these to 0 in `config`, or write "
         "limits.mode: best_effort";
}

Backend::Bounds Backend::bounds_of(const isogate_sandbox_spec& spec, const Limits& asked) const {
  Limits limits = asked;
  limits.set(ISOGATE_LIMIT_DISK_BYTES, 0);
  return Bounds{limits_from(config_).overridden_by(limits), asked.get(ISOGATE_LIMIT_DISK_BYTES),
                limits_best_effort() || (spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0};
}

Result<Site> Backend::make_enclosure(TemplateParts parts, const Identity& identity, const Bounds& bounds,
                                     Fd* root) {
  auto from = base();
  if (!from) return from.error();
  parts.tmp = in_memory(tmp_mb_beside(config_.tmp_mb, bounds.limits));
  auto made = make_template(**from, parts);
  if (!made) return made.error();
  *root = std::move(made->root);
  EnclosureOptions options;
  options.profile = profile_;
  options.identity = identity;
  if ((*from)->user) {
    auto user = copy_of((*from)->user.get());
    if (!user) return user.error();
    options.user = std::move(*user);
  }
  options.mounts = std::move(made->mounts);
  options.network = std::move(made->network);
  options.landlock = std::move(made->landlock);
  const auto top = mark_of(root->get(), ""), workspace = mark_of(root->get(), "workspace");
  if (!top || !workspace) return top ? workspace.error() : top.error();
  options.root = *top;
  options.workspace = *workspace;
  options.null = Fd(::openat(root->get(), "dev/null", O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!options.null) return os_error("cannot open the sandbox's /dev/null", errno);
  options.limits = bounds.limits;
  options.limits_best_effort = bounds.best_effort;
  return runner_->enclose(std::move(options));
}

// A real program of ours in a real enclosure, once; after a failure again at the next probe.
Result<void> Backend::prove() {
  {
    const std::lock_guard lock(mutex_);
    if (proven_) return {};
  }
  Fd root;
  const Identity trial{as_root_, kTrialUser, kTrialUser};
  auto site = make_enclosure({-1, -1, ""}, trial, bounds_of({}, {}), &root);
  if (!site) return site.error();
  auto evidence = runner_->measure(*site, trial, {});
  if (auto released = runner_->release(*site); !released) return released;
  if (!evidence) return evidence.error();
  const std::lock_guard lock(mutex_);
  proven_ = true;
  return {};
}

namespace {

// What an operator can do about it, where that is known.
std::string advice(const Error& error) {
  if (::geteuid() == 0 || (error.os_errno != EPERM && error.os_errno != EACCES && error.os_errno != ENOSPC))
    return "";
  if (read_small_file(AT_FDCWD, "/proc/sys/kernel/unprivileged_userns_clone") == "0\n")
    return " (user namespaces are closed to ordinary users: sysctl kernel.unprivileged_userns_clone=1, or "
           "start the "
           "gateway by root)";
  if (read_small_file(AT_FDCWD, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1\n")
    return " (AppArmor closes user namespaces to programs without a profile: sysctl "
           "kernel.apparmor_restrict_unprivileged_userns=0, or start the gateway by root)";
  if (read_small_file(AT_FDCWD, "/proc/sys/user/max_user_namespaces") == "0\n")
    return " (there are no user namespaces: sysctl user.max_user_namespaces=15000, or start the gateway by "
           "root)";
  return " (start the gateway by root where ordinary users may not do this)";
}

}  // namespace

void Backend::probe(const sdk::Call&, isogate_probe& result) {
  const auto& abilities = runner_->abilities();
  result.verdict = ISOGATE_PROBE_AVAILABLE;
  result.isolation = ISOGATE_ISOLATION_NAMESPACE;
  result.locality = ISOGATE_LOCALITY_HOST;
  const uint64_t own = abilities.capabilities & ~kSampledLimits;  // none is only sampled here
  result.capabilities = own | sandbox_limits_like(own) | ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_WATCH |
                        ISOGATE_CAP_PORTS | ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE |
                        ISOGATE_CAP_EGRESS_DENY | ISOGATE_CAP_PROVEN_EXECS;
  if (as_root_) result.capabilities |= ISOGATE_CAP_USER | ISOGATE_CAP_UID_PER_SANDBOX;
  std::string detail =
      std::string(as_root_ ? "a Linux user, " : "") +
      "a root file system and a network for each sandbox; namespaces and an init for each exec";
  if (landlock_version() < 2) detail += "; this kernel has no Landlock";
  if (!abilities.missing.empty()) detail += "; limits lack " + abilities.missing;
  const SandboxDisks::Means disk = disks_.look(limits_best_effort());
  detail += "; " + disk.words;
  result.capabilities |= disk.capabilities();
  if (const std::string relaxed = join(relaxations_of(config_), "; "); !relaxed.empty())
    detail += "; relaxed: " + relaxed;
  const auto lack = [&](const std::string& why) {
    result.verdict = ISOGATE_PROBE_UNAVAILABLE;
    detail = why;
  };
  if (!as_root_)
    detail += "; not started by root: all sandboxes share uid " + std::to_string(::geteuid()) +
              " and only their namespaces separate them";
  if (!have_openat2()) {
    lack("this kernel, or a filter around the gateway, has no openat2");
  } else if (const auto why = why_unavailable(kKept, "grant these to the gateway's unit or container")) {
    lack(*why);
  } else if (const std::string unlimited = why_not_limited(); !unlimited.empty()) {
    lack(unlimited);
  } else if (!disk.obstacle.empty()) {
    lack(disk.obstacle);
  } else if (const auto proven = prove(); !proven) {
    lack("a trial sandbox failed: " + proven.error().message + advice(proven.error()));
  }
  sdk::set_text(result.detail, detail);
}

Result<Site> Backend::enclosure_of(const std::string& id, const Identity& identity, const Bounds& bounds,
                                   Workspace& workspace) {
  auto own = Workspace::beside(sandboxes_dir_, id, kIdentity, {}, 0755);
  if (!own) return own.error();
  if (auto written = write_identity(*own, identity); !written) return written.error();
  Fd root;
  auto site = make_enclosure({workspace.fd(), own->get(), ""}, identity, bounds, &root);
  if (!site) return site;
  workspace.set_view(std::move(root));
  workspace.set_own_path("/workspace");
  return site;
}

std::unique_ptr<sdk::Sandbox> Backend::open(const sdk::Call&, const isogate_sandbox_spec& spec,
                                            isogate_sandbox_info& info) {
  const OpenCall call = or_throw(check_open(spec, sandboxes_dir_));
  Asked asked = or_throw(asked_of(spec, check_asked(spec), kLimited));
  const Bounds bounds = bounds_of(spec, asked.limits);
  const bool to_close = (spec.flags & ISOGATE_OPEN_ATTACH_ONLY) != 0;
  const std::string& id = call.id;
  or_throw(check_ended(id));
  const Identity identity = or_throw(identity_of(spec));
  DiskWorkspace opened = or_throw(open_workspace({.id = id,
                                                  .identity = identity,
                                                  .asked_bytes = bounds.disk_bytes,
                                                  .best_effort = bounds.best_effort,
                                                  .attach_only = call.attach_only,
                                                  .to_close = to_close}));
  auto& [disk, workspace] = opened;
  std::optional<Site> site;
  if (!asked.refusal) {
    if (const auto made = enclosure_of(id, identity, bounds, *workspace)) {
      site = *made;
    } else if (to_close) {
      asked.refusal = made.error();
    } else {
      const bool fresh = !workspace->attached();
      workspace.reset();
      if (fresh) (void)purge(id, identity, *disk, -1).ok();
      fail_with(own_error(made.error()));
    }
  }
  info.isolation = ISOGATE_ISOLATION_NAMESPACE;
  info.flags = ISOGATE_SANDBOX_FRESH | (workspace->attached() ? ISOGATE_SANDBOX_ATTACHED : 0);
  info.uid = as_root_ ? identity.uid : ::geteuid();
  sdk::set_text(info.handle, id);
  return std::make_unique<Sandbox>(*this, id, identity, std::move(opened), std::move(site),
                                   std::move(asked.refusal));
}

// No second enclosure beside one whose processes may live.
Result<void> Backend::check_ended(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (!ending_.contains(id)) return {};
  return Error{ISOGATE_UNAVAILABLE, 0, "the sandbox could not be closed: something of it may still run"};
}

void Backend::mark_ending(const std::string& id, bool ending) {
  const std::lock_guard lock(mutex_);
  if (ending) {
    ending_.insert(id);
  } else {
    ending_.erase(id);
  }
}

}  // namespace isogate::ns
