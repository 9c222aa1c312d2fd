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

#include "plugins/docker/companion_config.h"
#include "plugins/docker/or_throw.h"
#include "plugins/docker/volumes.h"
#include "runner/workspace.h"
#include "runner/workspace_state.h"
#include "runner/workspace_tree.h"

namespace isogate::docker {
namespace {

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

bool is_empty(int directory, const char* name) {
  const Fd inner(::openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inner) return errno == ENOENT;
  DirReader reader;
  std::vector<DirReader::Name> names;
  const int code = reader.next(inner.get(), names);
  return code >= 0 && names.empty();
}

std::optional<TlsFiles> tls_of(const Config& config) {
  if (config.ca.empty()) return std::nullopt;
  return TlsFiles{config.ca, config.certificate, config.key, true};
}

constexpr std::chrono::milliseconds kSoon{2'000};

std::string undo_key(const std::string& id) { return "undo " + id; }

// The same bounds as in the configuration.
void check_asked_limits(const isogate_limits& asked) {
  const auto check = [](const std::string& key, uint64_t value, uint64_t unit, uint64_t least) {
    if (value != 0 && value < least * unit)
      throw sdk::Error(ISOGATE_UNSUPPORTED, "`limits." + key +
                                                "` of backend `docker` must be 0 or at least " +
                                                std::to_string(least) + ": nothing runs in less");
  };
  check("memory_mb", asked.memory_bytes, 1 << 20, kLeastMemoryMb);
  check("max_pids", asked.pids, 1, kLeastPids);
  check("cpu_percent", asked.cpu_millis, 10, 1);
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
  for (uint64_t i = 0; i < host_.abi().shared_dir_count; ++i)
    check_shared(config_, std::string(sdk::view(host_.abi().shared_dirs[i].prefix)));
  for (const std::string& relaxed : relaxations_of(config_))
    host_.log(ISOGATE_LOG_WARN, "relaxation: " + relaxed);
  if (!as_root_)
    host_.log(ISOGATE_LOG_WARN, "relaxation: not started by root, all sandboxes share uid " +
                                    std::to_string(::geteuid()) + " and are apart by their containers alone");
  if ((host_.abi().flags & ISOGATE_HOST_PROBE_ONLY) == 0)
    sweeper_ = std::make_unique<TrashSweeper>(
        sandboxes_dir_, [host](const std::string& line) { host.log(ISOGATE_LOG_WARN, line); });
  pool_ = make_pool();
}

Backend::~Backend() = default;

// Also where none is wanted any more: an earlier one may have been killed.
std::unique_ptr<Pool> Backend::make_pool() {
  if ((host_.abi().flags & ISOGATE_HOST_PROBE_ONLY) != 0) return nullptr;
  if (config_.warm_pool == 0 && !Pool::left_anything(sandboxes_dir_, name_)) return nullptr;
  Pool::Options options{.host = host_, .size = config_.warm_pool};
  options.sandboxes_dir = sandboxes_dir_;
  options.uids_dir = sdk::view(host_.abi().uids_dir);
  options.backend = name_;
  options.own_uids = as_root_;
  options.limits = limits_of(config_, {});
  options.services = [this]() -> Services& { return services(); };
  options.parts = [this](const std::string& id, const std::string& directory, uint32_t uid) {
    return parts_of(id, id, directory, uid);
  };
  return std::make_unique<Pool>(std::move(options));
}

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

void Backend::check_asked(const isogate_sandbox_spec& spec) const {
  const auto refuse = [](const std::string& why) { throw sdk::Error(ISOGATE_UNSUPPORTED, why); };
  const bool best_effort = (spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0;
  if (spec.egress == ISOGATE_EGRESS_PROXY)
    refuse("backend `docker` has no egress proxy: egress: deny or allow");
  const bool way_out = config_.network && !config_.internal;
  if (spec.egress == ISOGATE_EGRESS_DENY && way_out)
    refuse(
        "egress is to be denied, and `network: dedicated` has a way out: set `network` to none or internal");
  if (spec.egress == ISOGATE_EGRESS_ALLOW && !way_out)
    refuse("egress is to be allowed, and this `network` has no way out: set `network: dedicated`");
  if (spec.limits.disk_bytes != 0 && !best_effort)
    refuse(
        "backend `docker` cannot limit the disk space of a sandbox: leave it out, or write limits: "
        "best_effort");
  check_asked_limits(spec.limits);
}

Parts Backend::parts_of(const std::string& id, const std::string& made_as, const std::string& directory,
                        uint32_t uid) const {
  Parts parts;
  parts.owner = {instance_, name_, made_as};
  parts.sandbox_id = id;
  parts.uid = uid;
  parts.gid = as_root_ ? uid : ::getegid();
  parts.workspace = directory + "/workspace";
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
                        uint32_t uid) const {
  const auto made_as = or_throw(read_state_file(directory, kMadeAsFile));
  Parts parts = parts_of(id, made_as.value_or(id), sandboxes_dir_ + "/" + id, uid);
  parts.tenant = sdk::view(spec.tenant);
  parts.agent_id = sdk::view(spec.agent_id);
  parts.known = (spec.flags & ISOGATE_OPEN_KNOWN) != 0;
  return parts;
}

// The image's own environment, and the configuration's above it.
const Surroundings& Backend::surroundings(const sdk::Call& call) {
  Services& use = services();
  {
    const std::lock_guard lock(mutex_);
    if (surroundings_) return *surroundings_;
  }
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
  const std::lock_guard lock(mutex_);
  if (!surroundings_) surroundings_ = std::move(made);
  return *surroundings_;
}

std::optional<sdk::Error> Backend::why_refused(const isogate_sandbox_spec& spec, const sdk::Call& call) {
  try {
    check_asked(spec);
    surroundings(call);
    return std::nullopt;
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    return error;
  }
}

std::unique_ptr<sdk::Sandbox> Backend::sandbox_of(const Surroundings& around, const std::string& id,
                                                  uint32_t uid, std::shared_ptr<Container> container,
                                                  isogate_sandbox_info& info) {
  info.flags |= ISOGATE_SANDBOX_RUNS;
  info.isolation = ISOGATE_ISOLATION_CONTAINER;
  info.uid = uid;
  sdk::set_text(info.handle, id);
  const Home home{sandboxes_dir_, id, as_root_ ? &registry_ : nullptr, uid, sweeper_.get()};
  return std::make_unique<Sandbox>(around, home, std::move(container));
}

void Backend::remove_all_of(const std::string& id, uint32_t uid, Container& container,
                            const sdk::Call& call) const {
  container.end(call);
  container.purge(call);
  or_throw(Workspace::purge(sandboxes_dir_, id, call.cancel_fd()));
  if (sweeper_ != nullptr) sweeper_->wake();
  if (as_root_) or_throw(registry_.release(id, uid));
}

void Backend::undo(const std::string& id, uint32_t uid, std::shared_ptr<Container> container,
                   bool all) noexcept {
  const auto work = [this, id, uid, container, all](const sdk::Call& call) {
    if (all) return remove_all_of(id, uid, *container, call);
    container->end(call);
  };
  try {
    const Bounded soon(kSoon);
    work(soon.call());
  } catch (const std::exception&) {
    services().background.begin(undo_key(id), "what was made of " + id + " is removed", work);
  }
}

void Backend::remove_unfinished(const std::string& id, const sdk::Call& call) {
  if (!or_throw(Workspace::exists(sandboxes_dir_, id))) return;
  const Fd sandboxes = or_throw(open_state_directory(sandboxes_dir_));
  Fd directory = or_throw(open_sandbox_directory(sandboxes.get(), id));
  const auto has = [&](const char* file) { return or_throw(read_state_file(directory.get(), file)); };
  if (has(kBackendFile) != name_ || has(kMeasuredFile) || !is_empty(directory.get(), "workspace")) return;
  host_.log(ISOGATE_LOG_INFO, "the sandbox " + id + " was never finished: it is recreated");
  const uint32_t uid = as_root_ ? or_throw(registry_.assign(id, id)) : ::geteuid();
  const auto made_as = has(kMadeAsFile);
  Container unfinished(services(), parts_of(id, made_as.value_or(id), sandboxes_dir_ + "/" + id, uid),
                       limits_of(config_, {}), std::move(directory),
                       or_throw(Workspace::beside(sandboxes_dir_, id, kGateDirectory, {}, 0755)));
  remove_all_of(id, uid, unfinished, call);
}

// An agent that has files has a workspace of its own already.
std::unique_ptr<sdk::Sandbox> Backend::open_ready(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                                  const OpenCall& asked, isogate_sandbox_info& info) {
  if (!pool_ || asked.attach_only || or_throw(Workspace::exists(sandboxes_dir_, asked.id))) return nullptr;
  const Surroundings& around = surroundings(call);
  auto taken = pool_->take(asked.id, limits_of(config_, spec.limits));
  if (!taken) return nullptr;
  const Fd sandboxes = or_throw(open_state_directory(sandboxes_dir_));
  const Fd directory = or_throw(open_sandbox_directory(sandboxes.get(), asked.id));
  try {
    taken->container->take_over(parts_of(spec, asked.id, directory.get(), taken->uid), call);
  } catch (...) {
    undo(asked.id, taken->uid, std::move(taken->container), true);
    throw;
  }
  info.flags = ISOGATE_SANDBOX_FRESH;
  return sandbox_of(around, asked.id, taken->uid, std::move(taken->container), info);
}

// What would be refused now is not to go on either.
void Backend::take_up(const sdk::Call& call, const isogate_sandbox_spec& spec, Container& container) const {
  try {
    check_asked(spec);
  } catch (const sdk::Error&) {
    container.end(call);
    throw;
  }
  container.take_up(call);
}

std::unique_ptr<sdk::Sandbox> Backend::open(const sdk::Call& call, const isogate_sandbox_spec& given,
                                            isogate_sandbox_info& info) {
  isogate_sandbox_spec spec = given;
  const bool as_it_is = (given.flags & ISOGATE_OPEN_AS_IT_IS) != 0;
  if (as_it_is) spec.flags = (given.flags & ~ISOGATE_OPEN_AS_IT_IS) | ISOGATE_OPEN_ATTACH_ONLY;
  const OpenCall asked = or_throw(check_open(spec, sandboxes_dir_));
  Services& use = services();
  use.background.cancel(undo_key(asked.id), call);
  const bool to_close = !as_it_is && (spec.flags & ISOGATE_OPEN_ATTACH_ONLY) != 0;
  if (!as_it_is && !to_close) check_asked(spec);
  if (!asked.attach_only) remove_unfinished(asked.id, call);
  if (auto ready = open_ready(call, spec, asked, info)) return ready;
  std::optional<sdk::Error> refusal;
  if (to_close) refusal = why_refused(spec, call);
  static const Surroundings kNone;
  const Surroundings& around = refusal ? kNone : surroundings(call);
  Identity identity;
  if (as_root_) {
    const uint32_t uid = or_throw(registry_.assign(asked.id, uid_seed(host_.abi(), spec)));
    identity = {true, uid, uid};
  }
  const uint32_t uid = as_root_ ? identity.uid : ::geteuid();
  const auto workspace = or_throw(
      Workspace::open({sandboxes_dir_, asked.id, identity, nullptr, false, name_}, asked.attach_only));
  Fd gate = or_throw(Workspace::beside(sandboxes_dir_, asked.id, kGateDirectory, {}, 0755));
  Fd sandboxes = or_throw(open_state_directory(sandboxes_dir_));
  Fd directory = or_throw(open_sandbox_directory(sandboxes.get(), asked.id));
  Parts parts = parts_of(spec, asked.id, directory.get(), uid);
  auto container = std::make_shared<Container>(use, std::move(parts), limits_of(config_, spec.limits),
                                               std::move(directory), std::move(gate));
  bool adopted = as_it_is;
  try {
    if (as_it_is)
      take_up(call, spec, *container);
    else if (to_close)
      adopted = container->attach(refusal, call);
    else
      adopted = container->open(call);
  } catch (...) {
    if (!workspace->attached() || container->is_unproven())
      undo(asked.id, uid, container, !workspace->attached());
    throw;
  }
  info.flags = (workspace->attached() ? ISOGATE_SANDBOX_ATTACHED : 0) | (adopted ? 0 : ISOGATE_SANDBOX_FRESH);
  return sandbox_of(around, asked.id, uid, std::move(container), info);
}

}  // namespace isogate::docker
