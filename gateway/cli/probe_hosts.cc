#include "gateway/cli/probe_hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "gateway/base/budgets.h"
#include "gateway/cli/output.h"
#include "gateway/cli/scratch_dir.h"
#include "gateway/config/plugin_place.h"
#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"
#include "gateway/supervisor/backends/host_process.h"
#include "gateway/supervisor/child.h"
#include "gateway/supervisor/control.h"
#include "gateway/supervisor/process_setup.h"
#include "gateway/supervisor/state_dir.h"
#include "lib/fd.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kReadyLimit = 30s;
constexpr auto kProbeLimit = budget::kProbe;
constexpr auto kEndLimit = 5s;
constexpr auto kBetweenAttempts = 2s;

int stop_event = -1;  // readable once it is interrupted; never closed

Result<void> catch_signals() {
  if (stop_event < 0) {
    auto made = make_event();
    if (!made.ok()) return made.error();
    stop_event = made->release();
  }
  struct sigaction action {};
  action.sa_handler = [](int) { signal_event(stop_event); };
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(number)) ::sigaction(number, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
  return {};
}

// False: nothing to read in that time, of `fd` or of `other`, or Ctrl-C.
bool readable(int fd, Clock::time_point limit, int other = -1) {
  pollfd waiting[3] = {{fd, POLLIN, 0}, {stop_event, POLLIN, 0}, {other, POLLIN, 0}};
  int found = -1;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()).count();
    found = ::poll(waiting, 3, static_cast<int>(std::max<int64_t>(left, 0)));
  } while (found < 0 && errno == EINTR);
  return found > 0 && waiting[1].revents == 0;
}

// A state directory as the supervisor makes it, removed at the end.
struct Scratch {
  Result<void> make(Config config) {
    auto accounts = supervisor::find_accounts(config);
    if (!accounts.ok()) return accounts.error();
    return directory.make(config.state_dir, [&](const std::string& path) -> Result<void> {
      if (accounts->root) ::chmod(path.c_str(), 0711);
      config.state_dir = path + "/state";
      config.workdir.clear();
      auto made = supervisor::prepare_state_dir(config, *accounts);
      if (!made.ok()) return made.error();
      state = std::move(*made);
      return {};
    });
  }

  ScratchDir directory;
  supervisor::StateDir state;
};

class Host {
 public:
  Host(supervisor::Child child, Fd front, Fd errors)
      : child_(std::move(child)), front_(std::move(front)), errors_(std::move(errors)) {}
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() { end(); }

  static Result<std::unique_ptr<Host>> start(const Config& config, const BackendConfig& backend,
                                             Scratch& scratch) {
    auto copies = supervisor::make_plugin_copy_dir(scratch.state, backend.name);
    if (!copies.ok()) return copies.error();
    auto pair = ipc::make_socket_pair();
    if (!pair.ok()) return pair.error();
    Fd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)),
        silence(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    auto errors = make_pipe();
    if (!errors.ok()) return errors.error();
    // Nobody reads before it has ended: it must not wait.
    for (const int fd : {errors->read.get(), errors->write.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    auto child = supervisor::start_child({self.get(), {"isogate", "_host"}, errors->write.get()});
    if (!child.ok()) return child.error();
    std::string message = supervisor::host_start_message(
        {&config, &backend, 1, scratch.state.sandboxes, scratch.state.uids, *copies, true});
    auto sent = ipc::send_record(child->control.get(), message, {pair->theirs.get(), silence.get()},
                                 ipc::Wait::kBlock);
    auto host = std::make_unique<Host>(std::move(*child), std::move(pair->own), std::move(errors->read));
    if (!sent.ok()) return sent.error();
    return host;
  }

  // Waits for ready; an error is its message, or how it ended.
  Result<void> await_ready() {
    if (!readable(child_.control.get(), Clock::now() + kReadyLimit, child_.pidfd.get()))
      return Error{ISOGATE_UNAVAILABLE, 0, "its host does not get ready"};
    auto record = ipc::receive_record(child_.control.get(), ipc::Wait::kDont);
    if (!record.ok())
      return Error{ISOGATE_UNAVAILABLE, 0, "its host ended at the start (" + end() + ")" + last_line()};
    auto sent = supervisor::parse_from_child(record->bytes);
    if (!sent.ok()) return sent.error();
    if (sent->type == "ready") return {};
    setting_ = sent->setting;
    permanent_ = end() == "exit code " + std::to_string(supervisor::kPermanent);
    return Error{ISOGATE_UNAVAILABLE, 0, sent->message};
  }

  Result<ipc::Hello> hello() {
    auto record = receive(Clock::now() + kProbeLimit);
    if (!record.ok()) return record.error();
    if (auto* hello = std::get_if<ipc::Hello>(&*record)) return *hello;
    return Error{ISOGATE_INTERNAL, 0, "its backend host answers before it sends hello"};
  }

  Result<ipc::Probe> probe() {
    auto cancel = make_event();
    if (!cancel.ok()) return cancel.error();
    const Clock::time_point limit = Clock::now() + kProbeLimit;
    ipc::ProbeCall probe;
    probe.call = {++last_id_, std::chrono::nanoseconds(limit.time_since_epoch()).count(), "probe",
                  std::move(*cancel)};
    ipc::Call call = std::move(probe);
    ipc::Encoded encoded = ipc::encode(call);
    auto sent = ipc::send_record(front_.get(), encoded.bytes, encoded.fds, ipc::Wait::kBlock);
    if (!sent.ok()) return sent.error();
    auto record = receive(limit);
    if (!record.ok()) return record.error();
    auto* reply = std::get_if<ipc::Reply>(&*record);
    if (reply == nullptr || reply->id != last_id_)
      return Error{ISOGATE_INTERNAL, 0, "its backend host sent an unexpected reply"};
    if (reply->status != ISOGATE_OK) return reply->error();
    auto* found = std::get_if<ipc::Probe>(&reply->value);
    if (found == nullptr)
      return Error{ISOGATE_INTERNAL, 0, "its backend host sent a reply that is no probe result"};
    return *found;
  }

  [[nodiscard]] const std::optional<std::string>& setting() const { return setting_; }  // sent with a failure

  [[nodiscard]] bool permanent() const { return permanent_; }  // the failure: until a reload

  // Stops it, and kills it when it does not end. How it ended.
  std::string end() {
    if (child_.pid < 0) return "";
    front_.reset();
    child_.control.reset();
    if (!readable(child_.pidfd.get(), Clock::now() + kEndLimit)) supervisor::kill_child(child_);
    int status = 0;
    while (::waitpid(child_.pid, &status, 0) < 0 && errno == EINTR) {
    }
    child_.pid = -1;
    return supervisor::describe_end(status);
  }

 private:
  Result<ipc::FromHost> receive(Clock::time_point limit) {
    if (!readable(front_.get(), limit, child_.pidfd.get()))  // what it forked may keep the socket
      return Error{ISOGATE_UNAVAILABLE, 0, "its host does not answer"};
    auto record = ipc::receive_record(front_.get(), ipc::Wait::kDont);
    if (!record.ok()) return Error{ISOGATE_UNAVAILABLE, 0, "its host ended (" + end() + ")" + last_line()};
    return ipc::decode_from_host(record->bytes);
  }

  // ": " and what it printed last; empty: nothing.
  [[nodiscard]] std::string last_line() const {
    std::string all, chunk(4096, '\0');
    for (ssize_t n = 0; (n = ::read(errors_.get(), chunk.data(), chunk.size())) > 0;)
      all.append(chunk, 0, static_cast<size_t>(n));
    while (all.ends_with('\n')) all.pop_back();
    if (all.empty()) return "";
    return ": " + printable(std::string_view(all).substr(all.rfind('\n') + 1), 200);
  }

  supervisor::Child child_;
  Fd front_, errors_;
  uint64_t last_id_ = 0;
  std::optional<std::string> setting_;
  bool permanent_ = false;
};

// Probes until the backend can serve, at most `attempts` times.
Result<ipc::Probe> ask(Host& host, int attempts) {
  for (;;) {
    auto probe = host.probe();
    bool serves = probe.ok() && probe->verdict != ISOGATE_PROBE_UNAVAILABLE;
    if (serves || --attempts == 0 || is_signalled(stop_event, kBetweenAttempts)) return probe;
  }
}

Result<void> look_at(Host& host, int attempts, ProbedBackend& backend) {
  if (auto ready = host.await_ready(); !ready.ok()) {
    backend.setting = host.setting();
    if (host.permanent()) backend.candidate.state = front::BackendState::kFailed;
    return ready;
  }
  auto hello = host.hello();
  if (!hello.ok()) return hello.error();
  backend.hello = *hello;
  backend.candidate.hello_seen = true;
  auto probe = ask(host, attempts);
  if (!probe.ok()) return probe.error();
  backend.candidate.probe = *probe;
  backend.candidate.state = front::BackendState::kUp;
  return {};
}

Result<std::unique_ptr<Host>> start_host(const Config& config, Scratch& scratch, ProbedBackend& backend) {
  if (auto there = check_plugin_there(config, backend.config); !there.ok()) {
    backend.candidate.state = front::BackendState::kFailed;
    if (there.error().status == ISOGATE_INVALID_ARGUMENT) backend.setting = "plugin";
    return there.error();
  }
  return Host::start(config, backend.config, scratch);
}

ProbedBackend not_asked_yet(const BackendConfig& config) {
  ProbedBackend backend{config, {}, {}, {}};
  backend.candidate.name = config.name;
  backend.candidate.wanted = front::standing_of(config);
  backend.candidate.state = front::BackendState::kDown;
  return backend;
}

// What plugins have forked, and nothing else: a shell that became this command may have left its own
// children.
class Leftovers {
 public:
  Leftovers() : before_(supervisor::children()) { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;
  ~Leftovers() {
    const int killed = supervisor::end_orphans(before_);
    if (killed > 0) complain("processes that the backends had left were killed: " + std::to_string(killed));
  }

 private:
  std::vector<pid_t> before_;
};

}  // namespace

Result<std::vector<ProbedBackend>> probe_backends(const Config& config, int attempts) {
  if (auto caught = catch_signals(); !caught.ok()) return caught.error();
  const Leftovers leftovers;
  Scratch scratch;
  if (auto made = scratch.make(config); !made.ok()) return made.error();
  std::vector<ProbedBackend> probed;
  std::vector<Result<std::unique_ptr<Host>>> hosts;
  for (const BackendConfig& backend : config.backends) {
    probed.push_back(not_asked_yet(backend));
    hosts.push_back(start_host(config, scratch, probed.back()));
  }
  for (size_t i = 0; i < hosts.size(); ++i) {
    Result<void> seen =
        hosts[i].ok() ? look_at(**hosts[i], attempts, probed[i]) : Result<void>(hosts[i].error());
    if (!seen.ok()) probed[i].candidate.reason = seen.error().message;
  }
  hosts.clear();
  if (is_signalled(stop_event)) return Error{ISOGATE_CANCELLED, EINTR, "interrupted"};
  return probed;
}

front::Decision choose(const Config& config, const std::vector<ProbedBackend>& backends) {
  std::vector<front::Candidate> candidates;
  for (const ProbedBackend& backend : backends) candidates.push_back(backend.candidate);
  return front::select(candidates, front::policy_of(config), {});
}

}  // namespace isogate::cli
