#include "gateway/host/host_main.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "gateway/base/budgets.h"
#include "gateway/base/privileges.h"
#include "gateway/config/plugin_place.h"
#include "gateway/host/capacity.h"
#include "gateway/host/orders.h"
#include "gateway/host/plugin/describe.h"
#include "gateway/host/plugin/plugin_loader.h"
#include "gateway/host/server.h"
#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"
#include "lib/log.h"
#include "lib/text.h"
#include "runner/exec/kept_capabilities.h"

namespace isogate {
namespace {

using nlohmann::json;

constexpr int kControl = 3;
constexpr int kExitFailed = 3;  // permanent until a reload
constexpr int kExitPasses = 1;  // as a crash: it is tried again, and where another serves that one stays

struct Start : HostOrder {
  Fd front, log;  // none: stderr
};

void ignore(int) {}

// Handlers, not SIG_IGN: a program that is started from here gets the default back by itself. The
// supervisor is the one to end this process; a Ctrl-C reaches the whole group.
void settle_signals() {
  struct sigaction action {};
  action.sa_handler = &ignore;
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    ::sigaction(signal, &action, nullptr);
}

Result<void> settle_process() {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null || ::dup2(null.get(), 0) != 0 || ::dup2(null.get(), 1) != 1)
    return os_error("cannot open /dev/null", errno);
  null.reset();
  if (::syscall(SYS_close_range, kControl + 1, ~0U, 0) != 0) return os_error("close_range", errno);
  ::fcntl(kControl, F_SETFD, FD_CLOEXEC);
  if (::chdir("/") != 0) return os_error("cannot change to /", errno);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return os_error("RLIMIT_NOFILE", errno);
  files.rlim_cur = files.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return os_error("RLIMIT_NOFILE", errno);
  rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return os_error("RLIMIT_CORE", errno);
  settle_signals();
  return {};
}

Result<Start> receive_start() {
  auto received = ipc::receive_record(kControl, ipc::Wait::kBlock);
  if (!received) return received.error();
  auto& fds = received->fds;
  if (fds.empty() || fds.size() > 2)
    return invalid("the supervisor's start message brings no socket to the front");
  auto order = parse_start(received->bytes);
  if (!order) return order.error();
  return Start{std::move(*order), std::move(fds[0]), fds.size() == 2 ? std::move(fds[1]) : Fd()};
}

Result<void> drop_privileges(const Description& description, const BackendConfig& backend) {
  if (!started_by_root()) return stay_same_user();
  if ((description.flags & ISOGATE_PLUGIN_RUNS_AS_ROOT) != 0) {
    if (!backend.groups.empty() || backend.run_as != BackendConfig().run_as)
      log::warn("setting_without_effect",
                {{"backend", backend.name},
                 {"setting", backend.groups.empty() ? "run_as" : "groups"},
                 {"reason", "the backend host of plugin `" + description.id + "` stays root"}});
    return keep_capabilities(description.linux_capabilities);
  }
  return become_user(backend.run_as, backend.groups);
}

// Its descriptor, read in quarantine, decided the privileges; the same file must give the same one again.
bool says_the_same(const Description& a, const Description& b) {
  return a.id == b.id && a.version == b.version && a.flags == b.flags && a.isolation == b.isolation &&
         a.locality == b.locality && a.capabilities == b.capabilities &&
         a.linux_capabilities == b.linux_capabilities && a.config_schema_json == b.config_schema_json;
}

// Why there is no backend, and its setting that an operator must correct; none if this host only cannot do it
// now. `passes`: for a shortage, of which the next start may see nothing.
struct Failure {
  Error error;
  std::optional<std::string> setting;
  bool passes = false;
};

// Refused by our own check, not by an error of the kernel.
bool is_refusal(const Error& error) {
  return error.status == ISOGATE_INVALID_ARGUMENT ||
         (error.os_errno == 0 &&
          (error.status == ISOGATE_PERMISSION_DENIED || error.status == ISOGATE_NOT_FOUND));
}

bool is_shortage(const Error& error) {
  return error.status == ISOGATE_RESOURCE_EXHAUSTED || error.os_errno == ENOSPC || error.os_errno == EDQUOT;
}

Failure blame(const char* setting, Error error) {
  const bool mistake = is_refusal(error), passes = is_shortage(error);
  return {std::move(error), mistake ? std::optional<std::string>(setting) : std::nullopt, passes};
}

// A file that cannot be reached is as wrong as one that is refused.
Failure blame_plugin(Error error) {
  const bool out_of_something = error.os_errno == EMFILE || error.os_errno == ENFILE ||
                                error.os_errno == ENOMEM || error.os_errno == EIO;
  return {std::move(error), out_of_something ? std::nullopt : std::optional<std::string>("plugin"),
          out_of_something};
}

// What every backend host needs of root's privileges, whatever its plugin keeps.
constexpr Kept kNeeded[] = {{6, "SETGID", "drop groups"},
                            {7, "SETUID", "look at a plugin as nobody, and become its user"},
                            {8, "SETPCAP", "empty the bounding set"}};

std::optional<Failure> prepare(const Start& start, std::unique_ptr<Instance>& instance) {
  if (const std::string lacking = started_by_root() ? missing_capabilities(kNeeded) : ""; !lacking.empty())
    return Failure{{ISOGATE_UNAVAILABLE, 0,
                    "root without " + lacking + ": grant these to the gateway's unit or container"},
                   std::nullopt};
  if (auto there = check_plugin_there(start.config, start.backend); !there)
    return blame_plugin(there.error());
  auto image = inspect_plugin(plugin_file(start.config, start.backend), start.backend.sha256);
  if (!image) return blame_plugin(image.error());
  auto copy = make_copy(*image, start.copy_dir);
  if (!copy) return Failure{copy.error(), std::nullopt, copy.error().os_errno != 0};
  auto described = describe_copy(*image, *copy);
  if (!described) {  // its errno was not passed on: a refusal by the kernel is no INVALID_ARGUMENT
    const bool broken = described.error().status == ISOGATE_INVALID_ARGUMENT;
    return Failure{described.error(), broken ? std::optional<std::string>("plugin") : std::nullopt,
                   described.error().os_errno != 0};
  }
  for (const std::string& warning : described->warnings)
    log::warn("plugin_warning", {{"plugin", described->id}, {"message", warning}});
  if (auto dropped = drop_privileges(*described, start.backend); !dropped)
    return blame("run_as", dropped.error());
  image->bytes = {};
  auto loaded = load_plugin(copy->directory(), start.backend.plugin);
  if (!loaded) return blame("plugin", loaded.error());
  if (!says_the_same(*described, loaded->description))
    return blame("plugin", invalid("plugin `" + described->id + "` describes itself differently each time"));
  if (auto checked = check_users(*described, start.backend); !checked) return blame("users", checked.error());
  auto made = Instance::create(std::move(*loaded), start.config, start.backend, start.places);
  if (!made) {
    const bool policy =
        Instance::forbidden(*described, start.config) && made.error().status == ISOGATE_PERMISSION_DENIED;
    if (policy) return Failure{made.error(), std::nullopt};
    return blame(start.backend.config_json == "{}" ? "" : "config", made.error());
  }
  instance = std::move(*made);
  return std::nullopt;
}

void tell_supervisor(const json& message) {
  auto text = message.dump(-1, ' ', false, json::error_handler_t::replace);
  auto sent = ipc::send_record(kControl, text, {}, ipc::Wait::kBlock);
  if (!sent) log::warn("supervisor_unreachable", {{"reason", sent.error().message}});
}

// The supervisor takes small records only, and a plugin's schema may list what it expects without end.
std::string reported(const std::string& reason) {
  constexpr size_t kMost = 4096;
  const std::string_view begin = utf8_prefix(reason, kMost);
  if (begin.size() == reason.size()) return reason;
  return std::string(begin) + "… (cut: it has " + std::to_string(reason.size()) + " bytes)";
}

int fail(const std::string& backend, const Failure& failure) {
  const std::string reason = reported(failure.error.message);
  log::info("backend_start_failed", {{"backend", backend}, {"reason", reason}});
  json message = {{"type", "failed"}, {"message", reason}};
  if (failure.setting) message["setting"] = *failure.setting;
  tell_supervisor(message);
  return failure.passes ? kExitPasses : kExitFailed;
}

// How much this backend host accepts, by its limit of open files.
Capacity capacity_for(const LimitsConfig& limits, uint32_t isolation) {
  const Capacity wanted = wanted_capacity(limits);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return wanted;
  const Capacity most = capacity_of(limits, isolation, files.rlim_cur);
  const auto level =
      files.rlim_cur < kMostFiles ? log::Level::kWarn : log::Level::kInfo;  // can it be raised?
  if (most.calls < wanted.calls || most.sandboxes < wanted.sandboxes)
    log::write(level, "open_files_limit_too_low",
               {{"calls", most.calls},
                {"wanted", wanted.calls},
                {"sandboxes", most.sandboxes},
                {"wanted_sandboxes", wanted.sandboxes},
                {"open_files", static_cast<uint64_t>(files.rlim_cur)},
                {"remedy",
                 "raise the limit of open files (LimitNOFILE= of the service, ulimit -n -H), or lower "
                 "limits.max_execs and limits.max_sandboxes"}});
  return most;
}

ipc::Hello hello_of(const Instance& instance, const Capacity& capacity) {
  ipc::Hello hello = instance.hello();
  hello.max_file_calls = static_cast<uint32_t>(std::min(kFileCalls, capacity.calls / 4));
  hello.max_watches = static_cast<uint32_t>(std::min(kWatches, capacity.calls / 16));
  hello.max_connections = static_cast<uint32_t>(std::min(kConnections, capacity.calls / 8));
  hello.max_execs = static_cast<uint32_t>(capacity.calls - kReserve) - hello.max_file_calls -
                    hello.max_watches - hello.max_connections;
  hello.max_sandboxes = static_cast<uint32_t>(capacity.sandboxes);
  return hello;
}

int serve(Start start) {
  std::unique_ptr<Instance> instance;
  if (const auto failure = prepare(start, instance)) return fail(start.backend.name, *failure);
  const Description& plugin = instance->description();
  const Capacity capacity = capacity_for(start.config.limits, plugin.isolation);
  auto greeted = ipc::send_record(start.front.get(), ipc::encode(hello_of(*instance, capacity)).bytes, {},
                                  ipc::Wait::kBlock);
  if (!greeted) log::warn("front_unreachable", {{"reason", greeted.error().message}});
  tell_supervisor({{"type", "ready"}});
  log::info("backend_ready", {{"backend", start.backend.name},
                              {"plugin", plugin.id},
                              {"version", plugin.version},
                              {"generation", start.generation}});
  Server server(*instance, std::move(start.front), kControl, capacity.calls);
  int code = server.run();
  // A plugin that hangs in destroy() would keep this process for ever, where it is replaced or the supervisor
  // is gone.
  (void)::signal(SIGALRM, SIG_DFL);
  ::alarm(static_cast<unsigned>(budget::kDestroy.count()));
  log::info("backend_host_exiting", {{"backend", start.backend.name}, {"code", code}});
  if (server.left_open()) {  // destroy() would free a backend whose sandboxes are still there
    log::flush();
    ::_exit(code);
  }
  return code;
}

}  // namespace

int host_main() {
  if (auto settled = settle_process(); !settled) {
    log::error("backend_host_start_failed", {{"reason", settled.error().message}});
    return 1;
  }
  auto start = receive_start();
  if (!start) {
    log::error("backend_host_start_failed", {{"reason", start.error().message}});
    return 1;
  }
  ::prctl(PR_SET_NAME, ("host:" + start->backend.name).substr(0, 15).c_str());
  auto logging = log::start("host " + start->backend.name, start->config.log.level, std::move(start->log));
  if (!logging) return fail(start->backend.name, {logging.error(), std::nullopt});
  return serve(std::move(*start));
}

}  // namespace isogate
