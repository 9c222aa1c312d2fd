#include "gateway/supervisor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gateway/supervisor/backends/backend_set.h"
#include "gateway/supervisor/context.h"
#include "gateway/supervisor/front_process.h"
#include "gateway/supervisor/listeners.h"
#include "gateway/supervisor/local_key.h"
#include "gateway/supervisor/process_setup.h"
#include "gateway/supervisor/tls_files.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/text.h"
#include "runner/cgroup/cgroup_base.h"

namespace isogate::supervisor {
namespace {

constexpr std::chrono::seconds kAnswerLeast{1};      // for the answer to a reload, also when stopping
constexpr std::chrono::milliseconds kWaitAgain{10};  // after a poll(2) that failed
constexpr int kLogPipeBytes = 1 << 20;               // of lines that one turn of the loop may write

std::string monotonic_usec() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::to_string(now.tv_sec * 1000000LL + now.tv_nsec / 1000);
}

// sd_notify(3): "READY=1", "STOPPING=1", "RELOADING=1". Does nothing without NOTIFY_SOCKET in the
// environment, or without a listener there.
void notify_service_manager(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = path == nullptr ? 0 : std::strlen(path);
  if (length < 2 || length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract address
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  std::string text = state;
  if (state == "RELOADING=1") text += "\nMONOTONIC_USEC=" + monotonic_usec();
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  (void)::sendto(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&address), size);
}

// Empty: keys or client certificates are configured.
Result<std::string> read_local_key(const Config& config, const StateDir& state) {
  if (config.names_callers()) return std::string();
  return local_key_sha256(state.root.get(), state.path);
}

// The other inputs of this configuration, or why a gateway with these listeners must not adopt it.
Result<Secrets> check_reload(const Config& config, const Context& context,
                             const std::vector<Listener>& listeners) {
  if (auto served = check_listener_keys(listeners, config); !served) return served.error();
  if (auto accounts = find_accounts(config); !accounts) return accounts.error();
  if (config.tls.enabled() != context.config.tls.enabled())
    return invalid("tls: it can be switched on or off only at a start; restart the gateway");
  auto tls = read_tls_files(config.tls);
  if (!tls) return tls.error();
  auto key = read_local_key(config, context.state);
  if (!key) return key.error();
  return Secrets{std::move(*key), std::move(*tls)};
}

// `config`, with the settings of `running` that only a start can change.
Config with_start_settings(Config config, const Config& running) {
  for (const std::string& path : keep_start_settings(config, running))
    log::warn("setting_needs_restart", {{"setting", path}});
  return config;
}

enum class Phase {
  kRunning,
  kDraining,  // the front lets calls finish
  kStopping,  // the hosts close their sandboxes; the front still holds their sockets
  kClosing,   // the front ends
  kDone,
};

class Supervisor {
 public:
  Supervisor(const Config& config, const ServeOptions& options);
  int run();

 private:
  Result<void> prepare();
  Result<void> start_log();
  void end_log();
  void log_start();
  void turn();
  void cannot_wait(int code);
  void attend(int fd);
  void handle(int signal_number);
  void advance(TimePoint now);
  [[nodiscard]] int poll_timeout() const;
  void terminate();
  void stop_hosts();
  void not_drained(const std::string& reason);
  void give_up(const std::string& reason, const char* event = "gave_up");
  void kill_everything();
  void settle_start(TimePoint now);
  void reload();
  void settle_reload(TimePoint now);
  void offer_reload(TimePoint now);
  void adopt_reload();
  void drop_reload(const std::string& reason);
  void refuse_reload(const std::string& reason);
  void go_on();
  [[nodiscard]] bool is_offered() const;  // to the front, which has not answered
  void apply(const Config& config);
  [[nodiscard]] std::string addresses() const;
  FrontProcess::Events front_events();

  struct PendingReload {
    Config config;
    Secrets secrets;
    SettingPlaces places;
    uint64_t number = 0;                     // once the front was offered it
    TimePoint answer_by = TimePoint::max();  // if it is ready; else counted from then on
  };

  const ServeOptions& options_;
  Context context_;
  std::vector<Listener> listeners_;
  Fd signals_;
  FrontProcess front_;
  BackendSet backends_{context_, front_};
  Phase phase_ = Phase::kRunning;
  TimePoint phase_deadline_ = TimePoint::max();
  bool starting_ = true;  // until every first host has settled
  bool front_started_ = false;
  bool front_lost_ = false;                      // and none was ready since
  TimePoint front_deadline_ = TimePoint::max();  // it starts then, whoever has not settled
  std::optional<PendingReload> pending_;         // its hosts are on trial, then the front is asked
  uint64_t reloads_ = 0;                         // that a front was offered
  bool reload_again_ = false;
  std::optional<TimePoint> stop_asked_;  // when; it waits for the end of an offered reload
  int exit_code_ = 0;
};

Supervisor::Supervisor(const Config& config, const ServeOptions& options)
    : options_(options),
      context_{.config = config, .timings = options.timings},
      front_(context_, listeners_, front_events()) {}

FrontProcess::Events Supervisor::front_events() {
  FrontProcess::Events events;
  events.started = [this] { backends_.each(&BackendSlot::announce); };
  events.ready = [this] {
    front_lost_ = false;
    if (is_offered()) pending_->answer_by = Clock::now() + context_.timings.reload;
    log::info("ready", {{"listen", addresses()}});
    notify_service_manager("READY=1");
  };
  events.lost = [this] {
    front_lost_ = true;
    if (phase_ == Phase::kDraining) {
      not_drained("the front ended before it had drained");
      return stop_hosts();
    }
    if (phase_ == Phase::kRunning) backends_.each(&BackendSlot::front_lost);
    if (is_offered()) adopt_reload();  // the next front starts with it
  };
  events.drained = [this] {
    if (phase_ == Phase::kDraining) stop_hosts();
  };
  events.stuck = [this](const FromChild& record) { backends_.stuck(record); };
  events.reloaded = [this](uint64_t number) {
    if (is_offered() && pending_->number == number) adopt_reload();
  };
  events.reload_refused = [this](uint64_t number, const std::string& why) {
    if (is_offered() && pending_->number == number) drop_reload(why);
  };
  events.hopeless = [this](const std::string& reason) { give_up(reason); };
  return events;
}

Result<void> Supervisor::prepare() {
  if (auto prepared = prepare_process(); !prepared) return prepared;
  context_.executable.reset(::open(options_.child_executable.c_str(), O_PATH | O_CLOEXEC));
  if (!context_.executable) return os_error("cannot open `" + options_.child_executable + "`", errno);
  auto signals = take_signals();
  if (!signals) return signals.error();
  signals_ = std::move(*signals);
  if (auto opened = context_.log.open(context_.config.log.file); !opened) return opened;
  if (auto started = start_log(); !started) return started;
  if (const auto left = leave_delegated_cgroup(); !left)
    log::warn("cgroup_not_left", {{"reason", left.error().message}});
  auto accounts = find_accounts(context_.config);
  if (!accounts) return accounts.error();
  context_.accounts = *accounts;
  auto state = prepare_state_dir(context_.config, context_.accounts);
  if (!state) return state.error();
  context_.state = std::move(*state);
  auto tls = read_tls_files(context_.config.tls);
  if (!tls) return tls.error();
  auto listeners = open_listeners(context_.config, context_.state.path);
  if (!listeners) return listeners.error();
  listeners_ = std::move(*listeners);
  auto key = read_local_key(context_.config, context_.state);
  if (!key) return key.error();
  context_.secrets = {std::move(*key), std::move(*tls)};
  return {};
}

// Its own lines take the same path as its children's: the loop never waits for the file.
Result<void> Supervisor::start_log() {
  if (!context_.log.relays()) return log::start("supervisor", context_.config.log.level, "");
  auto writer = context_.log.new_writer();
  if (!writer) return writer.error();
  ::fcntl(writer->get(), F_SETPIPE_SZ, kLogPipeBytes);
  return log::start("supervisor", context_.config.log.level, std::move(*writer));
}

void Supervisor::end_log() {
  log::flush();
  context_.log.drain();
  (void)context_.log.flush();
}

void Supervisor::log_start() {
  log::info("listening", {{"listen", addresses()},
                          {"config", options_.config_path},
                          {"state_dir", context_.state.path},
                          {"root", context_.accounts.root}});
  for (const std::string& text : options_.warnings) log::warn("warning", {{"text", text}});
  for (const std::string& text : options_.relaxations) log::warn("relaxation", {{"text", text}});
}

int Supervisor::run() {
  if (auto prepared = prepare(); !prepared) {
    remove_socket_files(listeners_);
    log::error("start_failed", {{"reason", prepared.error().message}});
    end_log();
    if (!context_.config.log.file.empty())
      std::fprintf(stderr, "isogate: cannot start: %s\n", prepared.error().message.c_str());
    return 1;
  }
  log_start();
  front_deadline_ = Clock::now() + context_.timings.first_hosts;
  for (const BackendConfig& backend : context_.config.backends) backends_.start(backend);
  settle_start(Clock::now());
  while (phase_ != Phase::kDone) turn();
  const int orphans = end_orphans();
  if (orphans > 0) log::error("leftover_processes_killed", {{"count", orphans}});
  remove_socket_files(listeners_);
  if (exit_code_ == 0 && (context_.had_to_kill || orphans > 0)) exit_code_ = 1;
  log::info("stopped", {{"exit_code", exit_code_}});
  end_log();
  return exit_code_;
}

void Supervisor::turn() {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  const auto add = [&fds](const ControlChannel& channel) {
    if (channel.fd() < 0) return;
    fds.push_back(
        {channel.fd(), static_cast<short>(channel.wants_to_write() ? POLLIN | POLLOUT : POLLIN), 0});
  };
  add(front_.control());
  for (const ControlChannel* control : backends_.controls()) add(*control);
  const size_t controls = fds.size();
  for (const auto& source : context_.log.sources()) fds.push_back({source.pipe.get(), POLLIN, 0});
  const int ready = ::poll(fds.data(), fds.size(), poll_timeout());
  if (ready < 0 && errno != EINTR) cannot_wait(errno);
  for (size_t i = 1; i < controls; ++i)
    if (fds[i].revents != 0) attend(fds[i].fd);
  if (std::any_of(fds.begin() + static_cast<long>(controls), fds.end(),
                  [](const pollfd& fd) { return fd.revents != 0; }))
    context_.log.drain();
  if (fds[0].revents != 0 || ready < 0)
    for (const int number : pending_signals(signals_.get())) handle(number);
  advance(Clock::now());
}

// turn() goes on with signals and deadlines: so the children can end, and then this process.
void Supervisor::cannot_wait(int code) {
  const bool passes = code == ENOMEM || code == EAGAIN;
  if (!passes && phase_ < Phase::kStopping) give_up(os_error("cannot wait for events", code).message);
  std::this_thread::sleep_for(kWaitAgain);
}

void Supervisor::attend(int fd) {
  if (front_.control().fd() == fd) return front_.attend();
  backends_.each(&BackendSlot::attend, fd);
}

void Supervisor::handle(int signal_number) {
  switch (signal_number) {
    case SIGCHLD:
      // The front first: backend hosts end because their front did.
      for (const std::vector<Ended> all = reap(); const bool front_turn : {true, false})
        for (const Ended& end : all)
          if (front_turn && front_.is(end.pid))
            front_.ended(end.wait_status);
          else if (!front_turn)
            backends_.ended(end.pid, end.wait_status);
      return;
    case SIGHUP:
      return reload();
    case SIGUSR1:
      if (const auto reopened = context_.log.reopen(); !reopened)
        log::error("log_reopen_failed", {{"reason", reopened.error().message}});
      else if (context_.log.relays())
        log::info("log_reopened", {});
      return;
    default:
      return terminate();
  }
}

// Handles deadlines and moves to the next phase once the processes of this one have ended.
void Supervisor::advance(TimePoint now) {
  front_.tick(now);
  backends_.tick(now);
  if (phase_ == Phase::kRunning && starting_) settle_start(now);
  if (phase_ == Phase::kRunning && pending_) settle_reload(now);
  if (phase_ == Phase::kDraining && now >= phase_deadline_) {
    log::warn("front_drain_timed_out", {});
    stop_hosts();
  }
  if (phase_ == Phase::kStopping && backends_.hosts_gone()) {
    phase_ = Phase::kClosing;
    front_.close();
  }
  if (phase_ == Phase::kClosing && !front_.running()) phase_ = Phase::kDone;
}

int Supervisor::poll_timeout() const {
  const bool waits = !front_started_ && phase_ == Phase::kRunning;
  const TimePoint front = waits ? front_deadline_ : front_.next_deadline();
  const TimePoint answer = is_offered() && front_.ready() ? pending_->answer_by : TimePoint::max();
  const TimePoint next = std::min({front, backends_.next_deadline(), phase_deadline_, answer});
  if (next == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 60000));
}

// The front starts once no backend is known to be configured wrongly: a later backend in the order may
// isolate less. A slow backend delays the start until front_deadline_ at most.
void Supervisor::settle_start(TimePoint now) {
  if (const auto mistake = backends_.mistake(context_.config.backends)) {
    const std::string reason = setting_prefix(options_.places, mistake->setting) + mistake->reason;
    return give_up(reason, "start_failed");
  }
  starting_ = !backends_.settled();
  if (!front_started_ && (!starting_ || now >= front_deadline_)) {
    front_started_ = true;
    front_.start();
  }
  if (!starting_ && std::exchange(reload_again_, false)) reload();
}

void Supervisor::terminate() {
  const TimePoint now = Clock::now();
  if (phase_ != Phase::kRunning || (is_offered() && stop_asked_)) return kill_everything();
  if (!stop_asked_) stop_asked_ = now;
  const TimePoint deadline = *stop_asked_ + std::chrono::seconds(context_.config.drain_timeout_sec);
  if (is_offered() && front_.ready()) {  // its answer says which configuration the gateway stops with
    pending_->answer_by = std::min(pending_->answer_by, std::max(deadline, now + kAnswerLeast));
    return;
  }
  if (std::exchange(pending_, std::nullopt))
    log::warn("reload_refused", {{"reason", "the gateway stops before it is decided"}});
  const auto drain = std::chrono::ceil<std::chrono::seconds>(std::max(deadline - now, Clock::duration()));
  notify_service_manager("STOPPING=1");
  log::info("draining", {{"deadline_sec", drain.count()}});
  front_.retire();
  if (!front_.serves()) {
    if (front_lost_ && !context_.config.keep_on_shutdown)
      not_drained("the front had ended, and the next one was not ready");
    return stop_hosts();
  }
  // A host that crashes meanwhile comes back, and ends what it left running.
  backends_.each(context_.config.keep_on_shutdown ? &BackendSlot::retire : &BackendSlot::drain);
  phase_ = Phase::kDraining;
  phase_deadline_ = now + drain + context_.timings.drain_extra;
  front_.send(drain_message(static_cast<uint32_t>(drain.count())), {});
}

void Supervisor::stop_hosts() {
  phase_ = Phase::kStopping;
  phase_deadline_ = TimePoint::max();  // each process has its own
  backends_.each(&BackendSlot::stop, context_.config.keep_on_shutdown);
}

// Calls were cut off, and what no backend host has may run: only a front knows of it.
void Supervisor::not_drained(const std::string& reason) {
  log::error("not_drained", {{"reason", reason}});
  context_.had_to_kill = true;
}

void Supervisor::give_up(const std::string& reason, const char* event) {
  log::error(event, {{"reason", reason}});
  if (!context_.config.log.file.empty()) std::fprintf(stderr, "isogate: %s: %s\n", event, reason.c_str());
  exit_code_ = 1;
  front_.retire();
  if (phase_ < Phase::kStopping) stop_hosts();
}

void Supervisor::kill_everything() {
  log::warn("stopping_at_once", {});
  context_.had_to_kill = true;
  front_.retire();
  backends_.each(&BackendSlot::kill_all);
  front_.kill("killed for an immediate stop");
  if (phase_ < Phase::kStopping) stop_hosts();
}

void Supervisor::reload() {
  if (phase_ != Phase::kRunning) return;
  if (!options_.reload)
    return log::warn("reload_refused",
                     {{"reason", "this gateway was started without a configuration to reload"}});
  reload_again_ = starting_ || pending_;
  if (reload_again_) return;
  notify_service_manager("RELOADING=1");
  auto loaded = options_.reload();
  if (!loaded) return refuse_reload(loaded.error().message);
  auto secrets = check_reload(loaded->config, context_, listeners_);
  if (!secrets) return refuse_reload(secrets.error().message);
  for (const std::string& text : loaded->warnings) log::warn("warning", {{"text", text}});
  for (const std::string& text : loaded->relaxations) log::warn("relaxation", {{"text", text}});
  Config merged = with_start_settings(loaded->config, context_.config);
  if (auto valid = config_from_json(config_to_json(merged), true); !valid)
    return refuse_reload("with the settings that only a restart changes: " + valid.error().message);
  pending_ = PendingReload{std::move(merged), std::move(*secrets), std::move(loaded->places)};
  backends_.try_out(pending_->config);
  settle_reload(Clock::now());
}

void Supervisor::refuse_reload(const std::string& reason) {
  log::error("reload_refused", {{"reason", reason}});
  notify_service_manager("READY=1");
}

// Once every backend host on trial is decided, the front is asked. All of the new configuration is adopted,
// or none of it.
void Supervisor::settle_reload(TimePoint now) {
  if (is_offered()) {
    if (!front_.ready() || now < pending_->answer_by) return;
    pending_->answer_by = TimePoint::max();
    if (stop_asked_) context_.had_to_kill = true;
    front_.kill("did not adopt a new configuration in time");
  } else if (const auto mistake = backends_.mistake(pending_->config.backends)) {
    drop_reload(setting_prefix(pending_->places, mistake->setting) + mistake->reason);
  } else if (backends_.settled()) {
    offer_reload(now);
  }
}

void Supervisor::offer_reload(TimePoint now) {
  if (!front_.running()) return adopt_reload();  // the next front starts with it
  pending_->number = ++reloads_;
  pending_->answer_by = now + context_.timings.reload;
  const Secrets& secrets = pending_->secrets;
  front_.send(front_reload_message(pending_->number, pending_->config, secrets.local_key_sha256, secrets.tls),
              {});
}

bool Supervisor::is_offered() const { return phase_ == Phase::kRunning && pending_ && pending_->number != 0; }

void Supervisor::adopt_reload() {
  PendingReload taken = std::move(*pending_);
  pending_.reset();
  context_.secrets = std::move(taken.secrets);
  apply(taken.config);
  notify_service_manager("READY=1");
  go_on();
}

void Supervisor::drop_reload(const std::string& reason) {
  pending_.reset();
  backends_.each(&BackendSlot::drop_trial);
  refuse_reload(reason);
  go_on();
}

// With what waited for the end of a reload.
void Supervisor::go_on() {
  if (stop_asked_) return terminate();
  if (std::exchange(reload_again_, false)) reload();
}

void Supervisor::apply(const Config& config) {
  const std::string level = context_.config.log.level;
  context_.config = config;
  if (level != context_.config.log.level)
    if (auto started = start_log(); !started)
      log::error("log_level_change_failed", {{"reason", started.error().message}});
  backends_.take_over(context_.config.backends);
  log::info("reloaded", {{"backends", context_.config.backends.size()}});
}

std::string Supervisor::addresses() const { return join(listeners_, " ", &Listener::address); }

}  // namespace
}  // namespace isogate::supervisor

namespace isogate {

int supervisor_main(const Config& config, const ServeOptions& options) {
  return supervisor::Supervisor(config, options).run();
}

}  // namespace isogate
