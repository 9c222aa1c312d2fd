#include "plugins/docker/backend.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "lib/fd.h"
#include "lib/text.h"
#include "plugins/common/bounded_call.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/companions/companion_config.h"
#include "plugins/docker/files/volumes.h"
#include "plugins/docker/requirements.h"
#include "runner/files/workspace.h"
#include "runner/files/workspace_state.h"
#include "runner/files/workspace_tree.h"

namespace isogate::docker {
namespace {

// What another try does not change.
bool is_final(isogate_status status) {
  return status == ISOGATE_UNSUPPORTED || status == ISOGATE_INVALID_ARGUMENT ||
         status == ISOGATE_SANDBOX_LOST;
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
  const auto program = read_link(AT_FDCWD, "/proc/self/exe", "");
  const std::string here = program ? program->substr(0, program->rfind('/')) : "";
  for (const char* place : {"/isogate-runner", "/../lib/isogate/isogate-runner"}) {
    char whole[PATH_MAX];
    if (::realpath((here + place).c_str(), whole) == nullptr) continue;
    check_runner(whole);
    return whole;
  }
  throw sdk::Error(ISOGATE_UNAVAILABLE, "the program isogate-runner is neither in " + here + " nor in " +
                                            here + "/../lib/isogate: name it as `runner`");
}

bool is_empty(int directory, const char* name) {
  const Fd inner(::openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inner) return errno == ENOENT;
  DirReader reader;
  std::vector<DirReader::Name> names;
  const int code = reader.next(inner.get(), names);
  return code >= 0 && names.empty();
}

constexpr std::chrono::milliseconds kBackendPatience{2'000};

std::string undo_key(const std::string& id) { return "undo " + id; }

DiskPolicy disk_policy_of(const Config& config) {
  DiskPolicy policy = config.disk;
  policy.projects_out_of_reach = config.own_seccomp;  // it refuses the calls that change a file's project
  return policy;
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
      registry_({.uids_dir = std::string(sdk::view(host.abi().uids_dir)), .sandboxes_dir = sandboxes_dir_}),
      disks_(sandboxes_dir_, as_root_, disk_policy_of(config_)),
      orphans_([this]() -> Services& { return services(); }, instance_, name_, sandboxes_dir_) {
  for (uint64_t i = 0; i < host_.abi().shared_dir_count; ++i)
    check_shared(config_, std::string(sdk::view(host_.abi().shared_dirs[i].prefix)));
  for (const std::string& relaxed : relaxations_of(config_))
    host_.log(ISOGATE_LOG_WARN, "relaxation: " + relaxed);
  if (!as_root_)
    host_.log(ISOGATE_LOG_WARN, "relaxation: not started by root, all sandboxes share uid " +
                                    std::to_string(::geteuid()) + " and only their containers separate them");
  if ((host_.abi().flags & ISOGATE_HOST_PROBE_ONLY) == 0) {
    const std::string records(sdk::view(host_.abi().uids_dir));
    if (const std::string warning = disks_.warning(records);
        !warning.empty() && config_.workspace != Place::kVolume)
      host_.log(ISOGATE_LOG_WARN, warning);
    sweeper_ = std::make_unique<TrashSweeper>(
        sandboxes_dir_, [host](const std::string& line) { host.log(ISOGATE_LOG_WARN, line); });
  }
  pool_ = make_pool();
}

Backend::~Backend() = default;

// Also if none is wanted any more: an earlier gateway may have been killed.
std::unique_ptr<Pool> Backend::make_pool() {
  if ((host_.abi().flags & ISOGATE_HOST_PROBE_ONLY) != 0) return nullptr;
  if (config_.warm_pool == 0 && !Pool::left_anything(sandboxes_dir_, name_)) return nullptr;
  Pool::Options options{.host = host_, .size = config_.warm_pool};
  options.sandboxes_dir = sandboxes_dir_;
  options.uids_dir = sdk::view(host_.abi().uids_dir);
  options.backend = name_;
  options.own_uids = as_root_;
  options.limits = limits_of(config_, {});
  options.disk = disk_policy_of(config_);
  options.services = [this]() -> Services& { return services(); };
  options.parts = [this](const std::string& id, const std::string& directory, const SandboxDisk* disk,
                         uint32_t uid) { return parts_of(id, id, directory, disk, uid); };
  return std::make_unique<Pool>(std::move(options));
}

Services& Backend::services() {
  const std::lock_guard lock(mutex_);
  if (services_) return *services_;
  const std::string runner = find_runner(config_.runner);
  EngineAddress address = resolve_address(config_.host, config_.tls, variables_of_process());
  if (const std::string relaxed = address.relaxation(); !relaxed.empty())
    host_.log(ISOGATE_LOG_WARN, "relaxation: " + relaxed);
  auto made = std::make_unique<Services>(host_, config_, std::move(address));
  made->runner = runner;
  services_ = std::move(made);
  return *services_;
}

void Backend::check_asked(const isogate_sandbox_spec& spec) const {
  const auto refuse = [](const std::string& why) { throw sdk::Error(ISOGATE_UNSUPPORTED, why); };
  if (spec.egress == ISOGATE_EGRESS_PROXY)
    refuse("backend `docker` has no egress proxy: egress: deny or allow");
  const bool way_out = config_.network && !config_.internal;
  if (spec.egress == ISOGATE_EGRESS_DENY && way_out)
    refuse(
        "egress is to be denied, and `network: dedicated` has a way out: set `network` to none or internal");
  if (spec.egress == ISOGATE_EGRESS_ALLOW && !way_out)
    refuse("egress is to be allowed, and this `network` has no way out: set `network: dedicated`");
  (void)or_throw(take_limits(spec, "docker", kLimited));
}

Parts Backend::parts_of(const std::string& id, const std::string& made_as, const std::string& directory,
                        const SandboxDisk* disk, uint32_t uid) const {
  Parts parts;
  parts.owner = {instance_, name_, made_as};
  parts.sandbox_id = id;
  parts.uid = uid;
  parts.gid = as_root_ ? uid : ::getegid();
  parts.workspace = (disk == nullptr ? directory : disk->path()) + "/workspace";
  parts.disk_bound = disk != nullptr && disk->enforced_bytes() != 0;
  parts.gate = directory + "/" + kGateDirectory;
  for (uint64_t i = 0; i < host_.abi().shared_dir_count; ++i) {
    const isogate_shared_dir& each = host_.abi().shared_dirs[i];
    parts.shared.emplace_back(sdk::view(each.prefix), sdk::view(each.path));
  }
  parts.shell = shell_;
  parts.toolchain = toolchain_;
  return parts;
}

Parts Backend::parts_of(const isogate_sandbox_spec& spec, const std::string& id, int directory,
                        const SandboxDisk& disk, uint32_t uid) const {
  const auto made_as = own_or_throw(read_state_file(directory, kMadeAsFile));
  Parts parts = parts_of(id, made_as.value_or(id), sandboxes_dir_ + "/" + id, &disk, uid);
  parts.tenant = sdk::view(spec.tenant);
  parts.agent_id = sdk::view(spec.agent_id);
  parts.known = (spec.flags & ISOGATE_OPEN_KNOWN) != 0;
  return parts;
}

// The image's own environment, overridden by the configuration's. Empty: the configuration's image.
Surroundings Backend::surroundings(const std::string& own_image, const sdk::Call& call) try {
  Services& use = services();
  const Json image =
      own_image.empty() ? use.engine.inspect_image(config_.image, call) : require_image(use, own_image, call);
  Surroundings made(config_.env);
  const Json config = image.value("Config", Json::object());
  if (config.is_object() && config.contains("Env") && config["Env"].is_array()) {
    for (const Json& line : config["Env"]) {
      if (!line.is_string()) continue;
      const std::string text = line.get<std::string>();
      const size_t equals = text.find('=');
      if (equals == 0 || equals == std::string::npos) continue;
      const std::string key = text.substr(0, equals);
      const bool set =
          std::any_of(made.begin(), made.end(), [&](const auto& each) { return each.first == key; });
      if (!set) made.emplace_back(key, text.substr(equals + 1));
    }
  }
  return made;
} catch (const NetError& error) {
  rethrow_as_ours(services(), error);
}

Home Backend::home_of(const std::string& id, uint32_t uid, std::shared_ptr<SandboxDisk> disk) {
  return {sandboxes_dir_, id, std::move(disk), as_root_ ? &registry_ : nullptr, uid, sweeper_.get()};
}

std::unique_ptr<sdk::Sandbox> Backend::sandbox_of(Surroundings around, Home home,
                                                  std::shared_ptr<Container> container,
                                                  isogate_sandbox_info& info) {
  info.flags |= ISOGATE_SANDBOX_RUNS;
  info.isolation = ISOGATE_ISOLATION_CONTAINER;
  info.uid = home.uid;
  sdk::set_text(info.handle, home.sandbox_id);
  return std::make_unique<Sandbox>(std::move(around), std::move(home), std::move(container));
}

void Backend::undo(const Home& home, std::shared_ptr<Container> container, bool all) noexcept {
  const std::string& id = home.sandbox_id;
  const auto work = [home, container, all](const sdk::Call& call) {
    if (all) return home.remove(container.get(), call);
    container->end(call);
  };
  try {
    const BoundedCall soon(kBackendPatience);
    work(soon.call());
    return;
  } catch (const std::exception&) {  // later, then
  }
  services().background.begin(undo_key(id), "what was made of " + id + " is removed", work);
}

void Backend::remove_unfinished(const std::string& id, const sdk::Call& call) {
  if (!own_or_throw(Workspace::exists(sandboxes_dir_, id))) return;
  const Fd sandboxes = own_or_throw(open_state_directory(sandboxes_dir_));
  Fd directory = own_or_throw(open_sandbox_directory(sandboxes.get(), id));
  const auto has = [&](const char* file) { return own_or_throw(read_state_file(directory.get(), file)); };
  if (has(kBackendFile) != name_ || has(kMeasuredFile) || !is_empty(directory.get(), "workspace")) return;
  host_.log(ISOGATE_LOG_INFO, "the sandbox " + id + " was never finished: it is recreated");
  const uint32_t uid = as_root_ ? own_or_throw(registry_.assign(id, id)) : ::geteuid();
  Container unfinished = recorded_container(id, uid);
  home_of(id, uid, nullptr).remove(&unfinished, call);
}

Container Backend::recorded_container(const std::string& id, uint32_t uid) {
  const Fd sandboxes = own_or_throw(open_state_directory(sandboxes_dir_));
  Fd directory = own_or_throw(open_sandbox_directory(sandboxes.get(), id));
  const auto made_as = own_or_throw(read_state_file(directory.get(), kMadeAsFile));
  Parts parts = parts_of(id, made_as.value_or(id), sandboxes_dir_ + "/" + id, nullptr, uid);
  Fd gate = own_or_throw(Workspace::beside(sandboxes_dir_, id, kGateDirectory, {}, 0755));
  return Container(services(), std::move(parts), limits_of(config_, {}), std::move(directory),
                   std::move(gate));
}

DiskWorkspace Backend::open_workspace(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                      const OpenCall& asked, bool to_close, const Identity& identity) {
  const uint64_t flags = host_.abi().flags;
  SandboxDisks::Wanted wanted{.id = asked.id,
                              .identity = identity,
                              .attach_only = asked.attach_only,
                              .to_close = to_close,
                              .keep = true};
  wanted.asked_bytes = wanted_limits(spec, kLimited).get(ISOGATE_LIMIT_DISK_BYTES);
  wanted.best_effort =
      (flags & ISOGATE_HOST_LIMITS_BEST_EFFORT) != 0 || (spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0;
  const auto attempt = [&] {
    return open_disk_workspace(disks_, wanted, {sandboxes_dir_, asked.id, identity, nullptr, false, name_});
  };
  auto opened = attempt();
  if (!opened && opened.error().os_errno == ETXTBSY) {  // by a container that is unmounted
    recorded_container(asked.id, as_root_ ? identity.uid : ::geteuid()).end(call);
    opened = attempt();
  }
  if (!opened && as_root_)
    (void)registry_.release(asked.id, identity.uid).ok();  // refused once there are files
  return or_throw(std::move(opened));
}

void Backend::end_recorded(const std::string& id, const sdk::Call& call) {
  if (!own_or_throw(Workspace::exists(sandboxes_dir_, id))) return;
  const uint32_t uid = as_root_ ? own_or_throw(registry_.assign(id, id)) : ::geteuid();
  recorded_container(id, uid).end(call);
}

// An agent that has files already has its own workspace.
std::unique_ptr<sdk::Sandbox> Backend::open_ready(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                                  const OpenCall& asked, Surroundings& around,
                                                  isogate_sandbox_info& info) {
  if (!pool_ || asked.attach_only || spec.option_count != 0 ||
      own_or_throw(Workspace::exists(sandboxes_dir_, asked.id)))
    return nullptr;
  auto taken = pool_->take(asked.id, limits_of(config_, wanted_limits(spec, kLimited)));
  if (!taken) return nullptr;
  const Fd sandboxes = own_or_throw(open_state_directory(sandboxes_dir_));
  const Fd directory = own_or_throw(open_sandbox_directory(sandboxes.get(), asked.id));
  Home home = home_of(asked.id, taken->uid, taken->disk);
  try {
    check_disk_of(spec);
    taken->container->take_over(parts_of(spec, asked.id, directory.get(), *home.disk, taken->uid), call);
  } catch (...) {
    undo(home, std::move(taken->container), true);
    throw;
  }
  info.flags = ISOGATE_SANDBOX_FRESH;
  return sandbox_of(std::move(around), std::move(home), std::move(taken->container), info);
}

// The place of its workspace may be known only after its creation: a requested limit must be enforced there,
// or the sandbox ends.
bool Backend::open_enforced(Container& container, const isogate_sandbox_spec& spec, const sdk::Call& call) {
  const bool adopted = container.open(call);
  try {
    check_disk_of(spec);
  } catch (const sdk::Error&) {
    container.end(call);
    throw;
  }
  return adopted;
}

void Backend::check_disk_of(const isogate_sandbox_spec& spec) {
  if ((spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0) return;
  if (const std::string why = look_at_disks(services()).obstacle; !why.empty())
    throw sdk::Error(ISOGATE_UNSUPPORTED, why);
}

std::unique_ptr<sdk::Sandbox> Backend::open(const sdk::Call& call, const isogate_sandbox_spec& given,
                                            isogate_sandbox_info& info) {
  isogate_sandbox_spec spec = given;
  const bool as_it_is = (given.flags & ISOGATE_OPEN_RUNNING_ONLY) != 0;
  if (as_it_is) spec.flags = (given.flags & ~ISOGATE_OPEN_RUNNING_ONLY) | ISOGATE_OPEN_ATTACH_ONLY;
  const OpenCall asked = or_throw(check_open(spec, sandboxes_dir_));
  const std::string image = or_throw(take_image(spec, "docker"));
  Services& use = services();
  use.background.cancel(undo_key(asked.id), call);
  const bool to_close = !as_it_is && (spec.flags & ISOGATE_OPEN_ATTACH_ONLY) != 0;
  if (!as_it_is && !to_close) check_asked(spec);
  if (!asked.attach_only) remove_unfinished(asked.id, call);
  // A sandbox that would be refused now must not continue either.
  const auto or_end = [&](const auto& work) -> decltype(auto) {
    try {
      return work();
    } catch (const sdk::Error& error) {
      if (!as_it_is || !is_final(error.status())) throw;
      end_recorded(asked.id, call);
      throw sdk::Error(ISOGATE_NO_SANDBOX, std::string("what ran of it is refused now: ") + error.what());
    }
  };
  Surroundings around;
  std::optional<sdk::Error> refusal;  // of calls, for a caller that closes it
  try {
    if (to_close) check_asked(spec);
    or_end([&] { around = surroundings(image, call); });
  } catch (const sdk::Error& error) {
    if (!to_close || error.status() == ISOGATE_CANCELLED) throw;
    refusal = error;
  }
  if (auto ready = open_ready(call, spec, asked, around, info)) return ready;
  Identity identity;
  if (as_root_) {
    const uint32_t uid = own_or_throw(registry_.assign(asked.id, uid_seed(host_.abi(), spec)));
    identity = {true, uid, uid};
  }
  const uint32_t uid = as_root_ ? identity.uid : ::geteuid();
  auto [disk, workspace] = or_end([&] { return open_workspace(call, spec, asked, to_close, identity); });
  if (as_it_is) or_end([&] { check_asked(spec); });
  Fd gate = own_or_throw(Workspace::beside(sandboxes_dir_, asked.id, kGateDirectory, {}, 0755));
  Fd sandboxes = own_or_throw(open_state_directory(sandboxes_dir_));
  Fd directory = own_or_throw(open_sandbox_directory(sandboxes.get(), asked.id));
  Home home = home_of(asked.id, uid, std::move(disk));
  Parts parts = parts_of(spec, asked.id, directory.get(), *home.disk, uid);
  parts.image = image;
  auto container =
      std::make_shared<Container>(use, std::move(parts), limits_of(config_, wanted_limits(spec, kLimited)),
                                  std::move(directory), std::move(gate));
  bool adopted = as_it_is;
  try {
    if (as_it_is)
      container->re_attach(call);
    else if (to_close)
      adopted = container->attach(refusal, call);
    else
      adopted = open_enforced(*container, spec, call);
  } catch (...) {
    if (!workspace->attached() || container->is_unproven()) undo(home, container, !workspace->attached());
    throw;
  }
  home.disk->hold();
  info.flags = (workspace->attached() ? ISOGATE_SANDBOX_ATTACHED : 0) | (adopted ? 0 : ISOGATE_SANDBOX_FRESH);
  return sandbox_of(std::move(around), std::move(home), std::move(container), info);
}

namespace {

constexpr std::chrono::milliseconds kProbe{5'000}, kPing{3'000};
constexpr std::chrono::minutes kStands{10};

// ISOGATE_CAP_SANDBOX_LIMIT_*; `no_swap`: on the Engine's machine.
uint64_t enforceable(const EngineInfo& info, bool no_swap) {
  // podman claims that it can there, and silently ignores them.
  if (info.rootless && (info.cgroup_version == "1" || info.cgroup_driver == "none")) return 0;
  // podman looks for the files of cgroups v1 also on v2. What it leaves out is seen in the container.
  const bool says = !(info.podman && info.cgroup_version == "2");
  const bool memory = info.memory_limit && (info.swap_limit || no_swap || !says);
  return (memory ? ISOGATE_CAP_SANDBOX_LIMIT_MEMORY : 0) |
         (info.cpu_quota || !says ? ISOGATE_CAP_SANDBOX_LIMIT_CPU : 0) |
         (info.pids_limit ? ISOGATE_CAP_SANDBOX_LIMIT_PIDS : 0);
}

// Why this Engine cannot be used; empty: it can.
std::string obstacle(const EngineInfo& info, uint64_t limited, const Config& config, bool as_root) {
  if (info.rootless && as_root && config.workspace != Place::kVolume)
    return "this Engine is rootless and the gateway is root's: inside, no user but the Engine's own can "
           "write to "
           "a directory of this host; start the gateway as that user, or set `workspace: volume`";
  if (!info.podman && info.processors > 0 && config.cpus > static_cast<double>(info.processors))
    return "`cpus` is above the " + std::to_string(info.processors) +
           " processors of this Engine's machine, and it makes no such container: lower it, or set it to 0";
  const std::string missing = limits_missing(config, limited);
  if (missing.empty()) return {};
  if (info.rootless && info.cgroup_version == "1")
    return "this Engine is rootless on cgroups v1, where it cannot limit " + missing +
           ": use cgroups v2 or an Engine of root, or set these to 0";
  if (missing == "memory_mb" && info.memory_limit)
    return "memory_mb bounds memory and swap together, and this Engine cannot limit swap: boot its machine "
           "with swapaccount=1; or, if that is this machine, turn its swap off; or set memory_mb to 0";
  return "this Engine cannot limit " + missing + ": enable the cgroup controllers, or set these to 0";
}

}  // namespace

std::string Backend::detail_of(const EngineInfo& info, Services& services) const {
  std::string detail = std::string(info.rootless ? "rootless " : "") + (info.podman ? "podman " : "Engine ") +
                       info.version + " (API " + info.api_version + ") at " +
                       services.engine.address().text() + "; a container" + (as_root_ ? " and a uid" : "") +
                       " for each sandbox; " + services.choices();
  if (pool_) detail += "; " + pool_->text();
  auto relaxed = relaxations_of(config_);
  if (const std::string plain = services.engine.address().relaxation(); !plain.empty())
    relaxed.push_back(plain);
  if (!as_root_) relaxed.push_back("all sandboxes share uid " + std::to_string(::geteuid()));
  if (!relaxed.empty()) detail += "; relaxed: " + join(relaxed, "; ");
  return detail;
}

SandboxDisks::Means Backend::look_at_disks(const Services& services) const {
  const bool best_effort = (host_.abi().flags & ISOGATE_HOST_LIMITS_BEST_EFFORT) != 0;
  if (services.place() != Place::kVolume && config_.workspace != Place::kVolume)
    return disks_.look(best_effort);
  SandboxDisks::Means means;
  means.words = "disk: no limit";
  if (config_.disk.disk_mb == 0) return means;
  const std::string why = "workspaces are volumes of the Engine";
  means.words = "disk: a limit for each sandbox, advisory (" + why +
                "): file calls beyond it are refused, programs are not bounded";
  if (config_.disk.written && !best_effort)
    means.obstacle = "disk_mb would only be advisory (" + why +
                     "): leave disk_mb out, set `workspace` to bind, or write limits.mode: best_effort";
  return means;
}

std::string Backend::examine(const sdk::Call& call, std::string& detail) {
  Services& use = services();
  const EngineInfo info = use.engine.info(Budget(call, kProbe));
  use.learn(info);
  const SandboxDisks::Means disk = look_at_disks(use);
  const uint64_t limited = enforceable(info, use.has_no_swap());
  limits_ = limited | disk.capabilities();
  detail = detail_of(info, use) + "; " + disk.words;
  std::string why = obstacle(info, limited, config_, as_root_);
  if (why.empty()) why = disk.obstacle;
  return why.empty() ? why_not(use, info, Budget(call, kProbe)) : why;
}

// An Engine that creates many containers answers a ping, and for a while nothing else: it is still the one
// that was examined.
bool Backend::is_busy(const sdk::Call& call, std::string& detail) {
  {
    const std::lock_guard lock(mutex_);
    if (examined_.text.empty() || std::chrono::steady_clock::now() > examined_.at + kStands) return false;
    detail = examined_.text;
  }
  try {
    services().engine.ping(Budget(call, kPing));
    return true;
  } catch (const sdk::Error&) {
    return false;
  }
}

// Whether its runners can, as far as that is known by now: those that are not reached over a socket
// (Container::choose).
bool Backend::ends_with_this_host(const Services& services) const {
  const RunnerTransport how =
      config_.transport != RunnerTransport::kAuto ? config_.transport : services.transport();
  const Place place = config_.workspace != Place::kAuto ? config_.workspace : services.place();
  const bool in_volumes =
      place == Place::kVolume || (place == Place::kAuto && services.engine.address().unix_path.empty());
  return how == RunnerTransport::kStream || how == RunnerTransport::kExec ||
         (how == RunnerTransport::kAuto && in_volumes);
}

void Backend::probe(const sdk::Call& call, isogate_probe& out) {
  out.isolation = ISOGATE_ISOLATION_CONTAINER;
  out.locality = ISOGATE_LOCALITY_DAEMON;
  out.capabilities = kAlways | ISOGATE_CAP_KEPT_EXECS;
  if (!config_.network || config_.internal) out.capabilities |= ISOGATE_CAP_EGRESS_DENY;
  if (as_root_) out.capabilities |= ISOGATE_CAP_UID_PER_SANDBOX;
  out.verdict = ISOGATE_PROBE_UNAVAILABLE;
  std::string detail;
  try {
    const std::string why = examine(call, detail);
    if (why.empty()) out.verdict = ISOGATE_PROBE_AVAILABLE;
    if (ends_with_this_host(services())) out.capabilities &= ~ISOGATE_CAP_KEPT_EXECS;
    const std::lock_guard lock(mutex_);
    examined_ = {why.empty() ? detail : "", std::chrono::steady_clock::now()};
    if (!why.empty()) detail = why;
  } catch (const NetError& error) {
    const bool unanswered = error.status() == ISOGATE_UNAVAILABLE && error.http_status() == 0;
    if (unanswered && is_busy(call, detail)) {
      out.verdict = ISOGATE_PROBE_AVAILABLE;
      if (ends_with_this_host(services())) out.capabilities &= ~ISOGATE_CAP_KEPT_EXECS;
    } else {
      detail = error.what();
    }
  } catch (const sdk::Error& error) {
    detail = error.what();
  }
  out.capabilities |= limits_;
  sdk::set_text(out.detail, detail);
}

namespace {

// The recorded container of a sandbox: its id or, if it was about to be created, its name; empty: none.
// nullopt: the record cannot be read.
std::optional<std::string> recorded(const sdk::Host& host, int sandboxes, const std::string& id) {
  try {
    const Fd directory = or_throw(open_sandbox_directory(sandboxes, id));
    const auto record = read_record(directory.get());
    if (!record) return "";
    return record->id.empty() ? "/" + record->name : record->id;
  } catch (const sdk::Error& error) {
    host.log(ISOGATE_LOG_WARN, "whether anything runs in " + id + " is not known: " + error.what());
    return std::nullopt;
  }
}

std::unordered_set<std::string> containers_of(Engine& engine, const std::string& instance,
                                              const std::string& backend, const sdk::Call& call) {
  std::unordered_set<std::string> there;
  for (const Json& each :
       engine.list({{kLabelInstance, instance}, {kLabelBackend, backend}, {kLabelRole, "sandbox"}}, call)) {
    there.insert(each.value("Id", ""));
    for (const Json& name : each.value("Names", Json::array()))
      if (name.is_string()) there.insert(name.get<std::string>());
  }
  return there;
}

}  // namespace

// One request to the Engine, and none if nothing was recorded.
void Backend::enumerate(const sdk::Call& call, const sdk::RecordSink& sink) {
  const Fd sandboxes = or_throw(open_state_directory(sandboxes_dir_));
  std::vector<std::pair<std::string, std::optional<std::string>>> all;
  bool any = false;
  for (std::string& id : or_throw(Workspace::enumerate(sandboxes_dir_, name_))) {
    auto container = recorded(host_, sandboxes.get(), id);
    any = any || (container && !container->empty());
    all.emplace_back(std::move(id), std::move(container));
  }
  std::unordered_set<std::string> there;
  if (any) there = containers_of(services().engine, instance_, name_, call);
  for (const auto& [id, container] : all) {
    const bool may_run = !container || (!container->empty() && there.contains(*container));
    sink.add(id, id, may_run ? ISOGATE_SANDBOX_RUNS : 0);
  }
}

}  // namespace isogate::docker
