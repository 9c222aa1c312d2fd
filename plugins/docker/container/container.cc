#include "plugins/docker/container/container.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isogate/runner_link.hpp"
#include "lib/fd.h"
#include "lib/hash.h"
#include "lib/text.h"
#include "plugins/common/bounded_call.h"
#include "plugins/common/or_throw.h"
#include "plugins/common/run_own.h"
#include "plugins/common/wait_for.h"
#include "plugins/docker/await_late.h"
#include "plugins/docker/container/network.h"
#include "plugins/docker/container/profile.h"
#include "plugins/docker/container/seccomp.h"
#include "plugins/docker/files/copies.h"
#include "plugins/docker/files/host_paths.h"
#include "plugins/docker/files/volumes.h"
#include "runner/files/workspace_state.h"

namespace isogate::docker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDialIn{5'000}, kHello{10'000}, kRedial{10'000}, kAlive{3'000}, kChecked{10'000};
constexpr milliseconds kContainerPatience{2'000}, kRemoval{20'000};

// How long a cancelled exec may take to end before the container is killed from outside. For a remote Engine
// the round trip counts.
constexpr milliseconds kAnswersKill{150}, kAnswersKillFarAway{1'000};

milliseconds killed_within(const Services& services) {
  return services.engine.address().unix_path.empty() ? kAnswersKillFarAway : kAnswersKill;
}

[[noreturn]] void not_usable(const std::string& why) { throw sdk::Error(ISOGATE_UNAVAILABLE, why); }

// Whether a text contains exactly this path, not one below or next to it.
bool names(const std::string& text, const std::string& path) {
  for (size_t at = text.find(path); at != std::string::npos; at = text.find(path, at + 1)) {
    const char next = at + path.size() < text.size() ? text[at + path.size()] : ' ';
    if (!is_alnum_or({&next, 1}, "/_-")) return true;
  }
  return false;
}

bool names_own_paths(const Parts& parts, const NetError& error) {
  return names(error.what(), parts.workspace) || names(error.what(), parts.runner) ||
         (!parts.gate.empty() && names(error.what(), parts.gate)) ||
         (!parts.passwd.empty() && names(error.what(), parts.passwd)) ||
         (!parts.group.empty() && names(error.what(), parts.group));
}

std::string why_spent(const sdk::RunnerLink& link) {
  return link.alive() ? "what an exec of it started could not be ended" : link.why();
}

// An Engine names the source of a mount that it cannot create: only the log may have that.
void hide_mount_sources(const Services& services, const Parts& parts, const NetError& error) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Mount& each : services.config.mounts) all.emplace_back(each.source, each.target);
  for (const auto& [prefix, path] : parts.shared) all.emplace_back(path, "/mnt/" + prefix);
  if (parts.bind && names_own_paths(parts, error)) all.emplace_back("/", "/workspace or /run/isogate");
  for (const auto& [source, target] : all) {
    if (source != "/" && !names(error.what(), source)) continue;
    services.warn(error.what());
    not_usable("the Engine cannot mount what belongs at `" + target + "`: the gateway's log has the reason");
  }
}

}  // namespace

Container::Container(Services& services, Parts parts, const Limits& limits, Fd directory, Fd gate)
    : services_(services),
      parts_(std::move(parts)),
      limits_(limits),
      directory_(std::move(directory)),
      gate_(std::move(gate)),
      workspace_path_(parts_.workspace),
      gate_path_(parts_.gate) {}

Container::~Container() { detach(); }

Container::State Container::state_of(const std::string& which, const sdk::Call& call) const {
  State state = look_at(services_.engine, parts_.owner, which, call);
  state.ours = state.ours && (record_.id.empty() ? state.name == record_.name : state.id == record_.id);
  return state;
}

Container::State Container::state_of_recorded(const sdk::Call& call) const {
  const std::string& which = record_.id.empty() ? record_.name : record_.id;
  State state;
  await_late(unsure_, Budget(call, kMadeLate), [&] {
    state = state_of(which, call);
    return state.exists;
  });
  return state;
}

std::string Container::why_changed(const State& state) const {
  if (state.started_at != record_.started_at || state.pid != record_.pid)
    return "it was started again from outside";
  return state.shape != record_.shape ? "its settings were changed from outside" : "";
}

std::string Container::why_unlimited(const State& state) const {
  if (services_.limits_best_effort()) return "";
  return difference_of(limits_, state.limits, services_.has_no_swap());
}

std::string Container::why_exposed() const {
  try {
    for (const Mount& each : services_.config.mounts) check_no_socket(services_, each.source, each.target);
    for (const auto& [prefix, path] : parts_.shared) check_shared_source(services_, path, "/mnt/" + prefix);
    return "";
  } catch (const HostPathError& error) {
    return error.what();
  }
}

std::string Container::why_unfit(const State& state) const {
  if (record_.profile != profile_digest(services_.config, parts_, limits_))
    return "its settings have changed";
  if (std::string why = why_exposed(); !why.empty()) return why;
  if (!record_.proof) return "it was not measured before its first command";
  if (!state.running && !state.paused) return "it has ended";
  if (std::string why = why_unlimited(state); !why.empty()) return "its limits are not in force: " + why;
  return why_changed(state);
}

// The recorded container, if it runs and is exactly the one that we created and measured.
bool Container::adopt(const sdk::Call& call, bool to_close) {
  const auto record = read_record(directory_.get());
  if (!record) return false;
  record_ = *record;
  unsure_ = record_.id.empty();
  parts_.gate = record_.socket ? gate_path_ : "";
  const State state = state_of_recorded(call);
  if (!state.exists) return false;
  if (!state.ours) {
    services_.warn("the recorded container of " + parts_.sandbox_id +
                   " was not created by this gateway: it is not used");
    record_ = {};
    return false;
  }
  if (const std::string why = why_unfit(state); !why.empty()) {
    services_.info("the container " + record_.name + " is recreated: " + why);
    discard(call);
    return false;
  }
  if (state.paused && to_close) return false;
  if (state.paused) not_usable("the sandbox's container is paused: unpause it, or DELETE the sandbox");
  proven_ = record_.proof;
  link_ = reconnect(state, call);
  if (link_ == nullptr) {
    services_.warn("the runner of " + record_.name + " does not answer: the container is recreated");
    discard(call);
    return false;
  }
  watch();
  begin_companions(call);
  return true;
}

void Container::prepare(const sdk::Call& call) {
  const EngineKind kind = services_.kind(call);
  parts_.podman = kind.podman;
  if (kind.podman) parts_.processes = processes_for(limits_);
  if (kind.rootless && parts_.uid == ::geteuid()) fit_rootless(parts_, kind.podman);
  if (services_.config.own_seccomp)
    parts_.seccomp = kind.podman ? services_.seccomp_file() : seccomp_profile();
  choose();
}

bool Container::open(const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  prepare(call);
  if (adopt(call)) return true;
  make(call);
  return false;
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

bool Container::attach(const std::optional<sdk::Error>& refusal, const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  refusal_ = refusal;
  prepare(call);
  return adopt(call, true);
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

void Container::re_attach(const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  prepare(call);
  if (adopt(call)) return;
  discard(call);  // its companions are there
  remove_network(services_, parts_.owner, directory_.get(), call);
  throw sdk::Error(ISOGATE_NO_SANDBOX, "no container of this sandbox runs that its next call could use");
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

// Where the workspace is and how the runner is reached, as far as that is known by now.
void Container::choose() {
  const Config& config = services_.config;
  Place place = config.workspace != Place::kAuto ? config.workspace : services_.place();
  RunnerTransport transport =
      config.transport != RunnerTransport::kAuto ? config.transport : services_.transport();
  // A sandbox keeps the kind of workspace it began with.
  if (config.workspace == Place::kAuto && is_volume(directory_.get())) place = Place::kVolume;
  if (place == Place::kAuto && services_.engine.address().unix_path.empty()) {
    place = Place::kVolume;
    services_.settle(place, "the Engine is reached over TCP");
  }
  if (place == Place::kVolume && transport == RunnerTransport::kAuto) {
    transport = RunnerTransport::kStream;
    services_.settle(transport, "a socket cannot be mounted where workspaces are volumes");
  }
  parts_.bind = place != Place::kVolume;
  parts_.gate =
      transport == RunnerTransport::kAuto || transport == RunnerTransport::kSocket ? gate_path_ : "";
  parts_.workspace = parts_.bind ? workspace_path_ : parts_.owner.sandbox_id;
  parts_.runner = parts_.bind ? services_.runner : runner_volume(services_);
}

std::string Container::create(const sdk::Call& call) {
  if (parts_.bind && ::faccessat(AT_FDCWD, workspace_path_.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) fail_with_io("cannot look at the workspace of this sandbox", errno);
    throw sdk::Error(ISOGATE_SANDBOX_LOST,
                     "the workspace of this sandbox is gone; DELETE the sandbox to begin with an empty one");
  }
  if (parts_.bind && is_volume(directory_.get()))
    not_usable("the workspace of this sandbox is a volume of the Engine: set `workspace` to volume");
  parts_.copies = with_paths_hidden(services_, "what is to be copied into the sandbox cannot be",
                                    [&] { return places_of_copies(services_.config); });
  for (const Mount& each : services_.config.mounts)
    with_paths_hidden(services_, "what belongs at `" + each.target + "` cannot be mounted",
                      [&] { check_mount_source(services_, each); });
  for (const auto& [prefix, path] : parts_.shared)
    with_paths_hidden(
        services_, "what belongs at `/mnt/" + prefix + "` cannot be mounted",
        [&, &path = path, &prefix = prefix] { check_shared_source(services_, path, "/mnt/" + prefix); });
  if (services_.config.network)
    parts_.network = prepare_network(services_, parts_.owner, directory_.get(), call);
  if (!parts_.bind) prepare_volumes(services_, parts_, directory_.get(), call);
  prepare_names(services_, parts_, directory_.get(), gate_path_.substr(0, gate_path_.rfind('/')), call);
  const Json body = container_of(services_.config, parts_, limits_);
  std::unique_lock<Semaphore> turn;
  if (!parts_.user_namespace.empty()) turn = lock_for(services_.creating, call);
  try {
    return services_.engine.create_container(record_.name, body, call, services_.config.platform);
  } catch (const NetError& error) {
    unsure_ = error.maybe_done();
    // Its own directories are there: this one made them.
    const bool elsewhere = error.http_status() == 400 && names_own_paths(parts_, error) &&
                           std::string(error.what()).find("bind") != std::string::npos;
    if (!elsewhere || !parts_.bind || services_.place() == Place::kBind ||
        services_.config.workspace == Place::kBind) {
      hide_mount_sources(services_, parts_, error);
      throw;
    }
    services_.settle(Place::kVolume,
                     std::string("the Engine does not see this host's directories: ") + error.what());
    return {};
  }
}

// Null: one of the two choices was wrong, and the other one is chosen now.
std::shared_ptr<sdk::RunnerLink> Container::try_make(const sdk::Call& call) {
  choose();
  remove_companions(services_, parts_.owner, directory_.get(), call);  // of a container that is gone
  record_ = {};
  record_.name = parts_.sandbox_id + "." + random_hex(8);
  record_.profile = profile_digest(services_.config, parts_, limits_);
  record_.socket = !parts_.gate.empty();
  write_record(directory_.get(), record_);
  unsure_ = false;
  auto gate = parts_.gate.empty() ? nullptr : std::make_unique<Gate>(gate_.get());
  record_.id = create(call);
  if (record_.id.empty()) return nullptr;
  write_record(directory_.get(), record_);
  fill_copies(services_, parts_, record_.name, record_.id, call);
  fill_names(services_, parts_, record_.id, call);
  begin_companions(call);
  try {
    services_.engine.start(record_.id, call);
  } catch (const NetError& error) {
    hide_mount_sources(services_, parts_, error);
    throw;
  }
  const State state = state_of(record_.id, call);
  if (!state.running) {
    not_usable("the sandbox's container ended at once with exit code " + std::to_string(state.exit_code) +
               ": can the image `" + image_of(services_.config, parts_) +
               "` run programs of this machine's kind?");
  }
  if (const std::string why = why_unlimited(state); !why.empty())
    not_usable("the Engine does not put the limits of the sandbox's container in force (" + why +
               "): use an Engine whose kernel has them, or write `limits.mode: best_effort`");
  record_.started_at = state.started_at;
  record_.pid = state.pid;
  record_.shape = state.shape;
  fresh_ = true;
  parts_.known = true;
  if (parts_.bind) services_.settle(Place::kBind, "the Engine mounts this host's directories");
  auto link = gate ? connect_socket(*gate, state.pid, kDialIn, call, true) : connect_stream(call);
  if (!link && !state_of(record_.id, call).running)
    not_usable("the sandbox's container ended before its runner came: " + how_it_ended(record_.id, call));
  if (link) return link;
  if (services_.config.transport == RunnerTransport::kSocket || parts_.gate.empty() ||
      services_.transport() == RunnerTransport::kSocket) {
    not_usable("the runner in the sandbox's container did not come over its socket within 5 s");
  }
  services_.settle(RunnerTransport::kStream, "the runner did not come over its socket within 5 s");
  return nullptr;
}

void Container::make(const sdk::Call& call) {
  const auto turn = lock_for(services_.making, call);
  for (int tries = 0; tries < 3; ++tries) {
    try {
      link_ = try_make(call);
      watch();
    } catch (const NetError& error) {
      discard_soon();
      const bool discarded = record_.name.empty();
      // An Engine sometimes fails to start a container, for its own reasons.
      if (tries == 0 && discarded && error.http_status() >= 500) continue;
      rethrow_as_ours(services_, error);
    } catch (...) {
      discard_soon();
      throw;
    }
    if (link_) return;
    discard(call);
  }
  not_usable("no way to reach a runner in a container was found");
}

// On the container's network. The sandbox serves even without them.
void Container::begin_companions(const sdk::Call& call) {
  if (services_.config.companions.empty()) return;
  try {
    if (parts_.network.empty())
      parts_.network = prepare_network(services_, parts_.owner, directory_.get(), call);
    companions_ = std::make_unique<Companions>(services_, parts_, directory_.get(),
                                               [this](const sdk::Call& its) { return measured_link(its); });
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    services_.warn("the companions of " + parts_.sandbox_id + " are not there: " + error.what());
  }
}

// For hooks of companions, which create no container and run nothing before it is measured.
std::shared_ptr<sdk::RunnerLink> Container::measured_link(const sdk::Call& call) {
  const auto lock = lock_for(mutex_, call);
  if (!record_.proof || !link_ || !link_->alive()) return nullptr;
  return link_;
}

void Container::watch() {
  if (link_) services_.watch.add(record_.id, record_.name, record_.shape, link_);
}

void Container::disconnect() {
  services_.watch.forget(record_.id);
  if (link_) link_->close("the container is removed");
  link_.reset();
}

void Container::discard_soon() noexcept {
  disconnect();  // whatever comes: it is not used
  try {
    const BoundedCall soon(kContainerPatience);
    discard(soon.call());
  } catch (const std::exception& error) {
    services_.warn("a container that could not be used stays for now: " + std::string(error.what()));
  }
}

// It is removed when the Engine no longer knows it. The request may need repetition.
void Container::remove_surely(const std::string& which, const sdk::Call& call) {
  const Budget budget(call, kRemoval);
  for (milliseconds pause{50};; pause = std::min(pause * 2, milliseconds(1'000))) {
    std::string why = "it is still there";
    try {
      services_.engine.remove(which, budget);
    } catch (const NetError& error) {
      if (error.status() == ISOGATE_NOT_FOUND) return;
      if (error.http_status() == 0) throw;
      why = error.what();
    }
    if (!state_of(which, call).exists) return;
    if (budget.wait(-1, 0, pause) == Budget::Outcome::kCancelled) call.check();
    if (budget.over()) not_usable("the Engine does not end the sandbox's container: " + why);
  }
}

// Removes what is recorded, if it is ours.
void Container::discard(const sdk::Call& call) {
  companions_.reset();
  disconnect();
  const std::string which = record_.id.empty() ? record_.name : record_.id;
  if (!which.empty()) {
    remove_filler(services_, parts_.owner, record_.name, call);
    const State state = state_of_recorded(call);
    if (state.exists && state.ours) remove_surely(which, call);
  }
  remove_companions(services_, parts_.owner, directory_.get(), call);
  record_ = {};
  unsure_ = false;
  remove_record(directory_.get());
}

std::shared_ptr<sdk::RunnerLink> Container::connect_socket(Gate& gate, int pid, milliseconds patience,
                                                           const sdk::Call& call, bool settles) {
  Fd peer = gate.accept(pid, patience, call);
  if (gate.strangers() > 0)
    services_.warn("others than the runner connected to the socket of " + record_.name + ": " +
                   std::to_string(gate.strangers()));
  if (!peer) return nullptr;
  if (settles) services_.settle(RunnerTransport::kSocket, "the runner dials in over a mounted socket");
  return sdk::RunnerLink::connect(sdk::socket_stream(peer.release(), true), kHello, call,
                                  killed_within(services_));
}

std::shared_ptr<sdk::RunnerLink> Container::connect_stream(const sdk::Call& call) {
  const bool alone = services_.config.transport != RunnerTransport::kExec;
  const Json body = {{"AttachStdin", true},
                     {"AttachStdout", true},
                     {"AttachStderr", true},
                     {"Tty", false},
                     {"User", std::to_string(parts_.uid) + ":" + std::to_string(parts_.gid)},
                     {"WorkingDir", kWorkspace},
                     {"Cmd", stdio_command(parts_, limits_, alone)}};
  const std::string exec = services_.engine.exec_create(record_.id, body, call);
  auto stream = services_.engine.exec_start(exec, call);
  try {
    return sdk::RunnerLink::connect(std::move(stream), kHello, call, killed_within(services_));
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    not_usable(std::string("the runner does not answer: ") + error.what());
  }
}

// The connection to the runner of a container that runs and is the recorded one, before and after; null if
// there is none. An Engine that does not answer is an error, not the end of the container.
std::shared_ptr<sdk::RunnerLink> Container::reconnect(const State& state, const sdk::Call& call) {
  try {
    std::shared_ptr<sdk::RunnerLink> link;
    if (parts_.gate.empty()) {
      link = connect_stream(call);
    } else {
      Gate gate(gate_.get());
      link = connect_socket(gate, state.pid, kRedial, call, false);
    }
    if (!link || !link->prove(kAlive)) return nullptr;
    const State now = state_of(record_.id, call);
    return now.running && now.ours && why_changed(now).empty() ? link : nullptr;
  } catch (const NetError& error) {
    if (error.status() == ISOGATE_CANCELLED || error.http_status() == 0) throw;
    services_.warn("cannot reach the runner of " + record_.name + ": " + error.what());
    return nullptr;
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    services_.warn("cannot reach the runner of " + record_.name + ": " + error.what());
    services_.engine.ping(Budget(call, kAlive));
    return nullptr;
  }
}

// A runner with which contact was lost is not used again: what runs there is not known.
Container::Way Container::link(const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  if (refusal_) throw sdk::Error(*refusal_);
  if (link_ && link_->alive() && !link_->spent()) {
    if (services_.config.transport == RunnerTransport::kExec)
      return {connect_stream(call), link_, record_.id, record_.name};
    return {link_, link_, record_.id, record_.name};
  }
  if (!record_.name.empty())
    services_.warn("the container " + record_.name + " of a sandbox is recreated (" +
                   (link_ ? why_spent(*link_) : "it was released") + ")");
  discard(call);
  make(call);
  if (proven_) prove_again(call);
  return {link_, link_, record_.id, record_.name};
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

bool Container::lose(const Way& way, std::chrono::milliseconds patience) {
  const std::string why = why_spent(*way.link);
  services_.warn("the container " + way.name + " of a sandbox is killed (" + why + ")");
  way.first->close(why);
  return services_.kill(way.id, way.name, patience);
}

bool Container::is_unproven() {
  const std::lock_guard lock(mutex_);
  return !record_.name.empty() && !record_.proof;
}

std::shared_ptr<sdk::RunnerLink> Container::link_if_connected() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && link_ && link_->alive() ? link_ : nullptr;
}

bool Container::seems_connected() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return !lock || (link_ && link_->alive());
}

// The name is for people: what counts is the id.
void Container::take_over(const Parts& parts, const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  parts_.sandbox_id = parts.sandbox_id;
  parts_.tenant = parts.tenant;
  parts_.agent_id = parts.agent_id;
  workspace_path_ = parts.workspace;
  gate_path_ = parts.gate;
  choose();
  const State state = state_of(record_.id, call);
  if (!state.running || !why_changed(state).empty()) {
    services_.warn("the container " + record_.name +
                   " made ahead is recreated: " + (state.running ? why_changed(state) : "it has ended"));
    discard(call);
    return make(call);
  }
  record_.profile = profile_digest(services_.config, parts_, limits_);
  const std::string name = parts_.sandbox_id + record_.name.substr(record_.name.find('.'));
  try {
    services_.engine.rename(record_.id, name, call);
    record_.name = name;
  } catch (const NetError& error) {
    services_.warn("the container " + record_.name + " keeps its name: " + error.what());
  }
  write_record(directory_.get(), record_);
  watch();
  if (companions_) companions_->belong_to(parts_.sandbox_id);
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

void Container::detach() {
  const std::lock_guard lock(mutex_);
  companions_.reset();
  services_.watch.forget(record_.id);
  if (link_) link_->close("the sandbox is closed");
  link_.reset();
}

void Container::end(const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  try {
    if (record_.name.empty()) {
      if (const auto record = read_record(directory_.get())) record_ = *record;
      unsure_ = record_.id.empty();
    }
    discard(call);
    remove_network(services_, parts_.owner, directory_.get(), call);
  } catch (const sdk::Error& error) {
    services_.host.log(ISOGATE_LOG_ERROR, "what runs of the sandbox " + parts_.sandbox_id +
                                              " could not be ended: " + error.what());
    throw;
  }
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

void Container::purge(const sdk::Call& call) try {
  remove_workspace_volume(services_, parts_.owner, directory_.get(), call);
  remove_copies(services_, parts_.owner, call);
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

std::string Container::how_it_ended(const std::string& id, const sdk::Call& call) const try {
  return docker::how_it_ended(look_at(services_.engine, parts_.owner, id, call));
} catch (const sdk::Error&) {
  return "the Engine does not know what happened to its container";
}

isogate_evidence Container::evidence(const sdk::Call& call, const isogate_evidence_request& request) try {
  const auto lock = lock_for(mutex_, call);
  if (refusal_) throw sdk::Error(*refusal_);
  if (record_.proof) {
    isogate_evidence found = record_.proof->evidence;
    // With its own network, only the listeners that were tried then are known to be unreachable; without one,
    // all are.
    const bool tried = record_.proof->gateway == GatewayAddresses::of(request);
    if (services_.config.network && !tried) found.flags &= ~ISOGATE_EVIDENCE_NETWORK;
    return found;
  }
  if (!link_ || !link_->alive()) {
    discard(call);
    make(call);
  }
  if (!fresh_)
    throw sdk::Error(ISOGATE_UNAVAILABLE, "nothing was measured before the first command of this sandbox");
  try {
    const isogate_evidence found = measure(call, request);
    proven_ = {found, GatewayAddresses::of(request)};
    keep_proof(found);
    return found;
  } catch (...) {
    discard_soon();
    throw;
  }
} catch (const NetError& error) {
  rethrow_as_ours(services_, error);
}

isogate_evidence Container::measure(const sdk::Call& call, const isogate_evidence_request& request) {
  const isogate_evidence found = measure_in(*link_, request, call);
  if (services_.config.own_seccomp) check_syscalls(call);
  return found;
}

// The kernel reports that its programs run under a filter, not under which one.
void Container::check_syscalls(const sdk::Call& call) {
  const BoundedCall bounded(kChecked, call.cancel_fd());
  const Ran ran = run_own(*link_, {kRunner, "syscalls"}, bounded.call());
  call.check();
  if (ran.exit_code == 0) return;
  if (ran.exit_code < 0) not_usable("the runner in the sandbox's container runs nothing");
  std::string open = one_line(ran.out, 200);
  if (open.empty()) open = "exit code " + std::to_string(ran.exit_code);
  services_.warn("the container " + record_.name + " serves system calls that its profile refuses: " + open);
  throw sdk::Error(ISOGATE_UNAVAILABLE,
                   "the seccomp profile that was asked for is not in force in the sandbox's container (" +
                       open +
                       "): use an Engine and a runtime that apply it, or set `seccomp_profile: engine`");
}

// A replacement container must isolate in the same way.
void Container::prove_again(const sdk::Call& call) {
  try {
    const isogate_evidence found = measure(call, proven_->gateway.request());
    if (!isolates_alike(found, proven_->evidence))
      throw sdk::Error(ISOGATE_UNAVAILABLE,
                       "the container that was recreated does not isolate as the first one did: refused");
    keep_proof(found);
  } catch (...) {
    discard_soon();
    throw;
  }
}

void Container::keep_proof(const isogate_evidence& found) {
  record_.proof = {found, proven_->gateway};
  own_or_throw(replace_state_file(directory_.get(), kMeasuredFile, "yes"));
  write_record(directory_.get(), record_);
  fresh_ = false;
}

}  // namespace isogate::docker
