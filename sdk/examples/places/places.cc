// A backend on a runner: programs of a sandbox see its processes alone, and its files are kept. It isolates
// nothing else. `isogate-runner stdio` is the first process of a pid namespace, with a /proc of its own. A
// gateway of an ordinary user needs user namespaces for that; one of root runs programs as nobody.
#include <fcntl.h>
#include <linux/capability.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "isogate/runner_link.hpp"

namespace fs = std::filesystem;
namespace sdk = isogate::sdk;

namespace {

constexpr uint64_t kCapabilities = ISOGATE_CAP_PTY | ISOGATE_CAP_MERGE_STDERR | ISOGATE_CAP_SCOPE_SANDBOX |
                                   ISOGATE_CAP_WATCH | ISOGATE_CAP_PERSISTENT | sdk::kSampledLimits;
constexpr uint64_t kLinuxCapabilities = 1ull << CAP_SYS_ADMIN | 1ull << CAP_CHOWN | 1ull << CAP_KILL |
                                        1ull << CAP_SETUID | 1ull << CAP_SETGID | 1ull << CAP_SETPCAP;
constexpr uid_t kNobody = 65534;
// Of root's gateway: nobody sees the workspace at /mnt, and has no way to those of other sandboxes.
constexpr const char* kBecomeNobody =
    R"(mount --bind "$0" /mnt && cd / && exec setpriv --reuid=65534 --regid=65534 --clear-groups)"
    R"( --inh-caps=-all --bounding-set=-all --pdeathsig=KILL "$@")";
// As the sandbox's own user, who may have made directories that it cannot read.
constexpr const char* kSweep = R"(chmod -R u+rwx "$0"; exec find "$0" -mindepth 1 -delete)";

bool is_root() { return ::geteuid() == 0; }
uid_t programs_user() { return is_root() ? kNobody : ::geteuid(); }

// For the log: the wrapper gives callers the text of the errno alone.
[[noreturn]] void fail(const std::string& attempt, int os_errno = errno) {
  throw std::system_error(os_errno, std::generic_category(), attempt);
}

struct Fd {
  explicit Fd(int number) : fd(number) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }
  void reset() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }
  int fd;
};

// <sandbox_id>/places in the directory that all backends share: no other backend has a `places` there.
struct Place {
  explicit Place(const fs::path& directory) : path(directory), files(directory / "places") {}
  // Where its programs see the files.
  [[nodiscard]] std::string inside() const { return is_root() ? "/mnt" : files.string(); }

  void make() const {
    for (const fs::path& each : {path, files})
      if (::mkdir(each.c_str(), 0700) != 0 && errno != EEXIST) fail("cannot create a workspace");
    if (is_root() && ::lchown(files.c_str(), kNobody, kNobody) != 0) fail("cannot give a workspace away");
  }
  void remove() const {
    fs::remove(files);
    fs::remove(path);
  }
  // What runs there keeps this lock, too: the runner of a backend host which crashed ends soon.
  int lock(const sdk::Call& call) {
    if (held.fd < 0) held.fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (held.fd < 0) fail("cannot open the workspace");
    for (int tries = 0; ::flock(held.fd, LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (errno != EWOULDBLOCK) fail("cannot lock the workspace");
      if (tries == 500) throw sdk::Error(ISOGATE_UNAVAILABLE, "an earlier runner of it has not ended");
      call.check();
      ::usleep(20'000);
    }
    return held.fd;
  }

  fs::path path, files;
  Fd held{-1};
};

// A command in namespaces of its own, as the user of sandboxes. `unshare`, its parent, ends once nothing runs
// there.
class Process {
 public:
  // `kept`: a descriptor that stays open as long as it runs, or -1. `tells`: the socket is its stderr, too.
  Process(const std::string& directory, std::vector<std::string> command, int kept, bool tells) {
    std::vector<std::string> words = {"/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc"};
    if (is_root())
      words.insert(words.end(), {"/bin/sh", "-c", kBecomeNobody, directory});
    else
      words.insert(words.end(), {"--user", "--map-current-user"});
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (std::string& each : words) argv.push_back(each.data());
    argv.push_back(nullptr);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("cannot create a socket");
    socket_.fd = ends[0];
    const Fd theirs(ends[1]);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    for (int number = 0; number < (tells ? 3 : 2); ++number)
      ::posix_spawn_file_actions_adddup2(&files, theirs.fd, number);
    if (kept >= 0) ::posix_spawn_file_actions_adddup2(&files, kept, kept);  // exec does not close it
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t signals;
    ::posix_spawnattr_setsigmask(&attributes, (::sigemptyset(&signals), &signals));
    ::posix_spawnattr_setsigdefault(&attributes, (::sigfillset(&signals), &signals));
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char* environment[] = {path, nullptr};
    const int problem = ::posix_spawn(&pid_, argv[0], &files, &attributes, argv.data(), environment);
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
    if (problem != 0) fail("cannot start " + words[0], problem);
  }
  ~Process() {
    kill();
    (void)ended(10'000);
  }

  [[nodiscard]] int socket() const { return socket_.fd; }
  int take_socket() { return std::exchange(socket_.fd, -1); }
  bool ended(int milliseconds) {
    for (; pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0; milliseconds -= 2) {
      if (milliseconds <= 0) return false;
      ::usleep(2'000);
    }
    pid_ = -1;
    return true;
  }
  // A runner ends by itself once its socket is closed, and then leaves no part of a file that it was writing.
  void end() {
    if (ended(2'000)) return;
    kill();
    if (!ended(10'000)) throw sdk::Error(ISOGATE_IO, "what runs in this sandbox cannot be ended");
  }

 private:
  // The first process of the namespace, with which the kernel kills all others. Once `unshare` has waited
  // for it, its number may be that of any process of this host, but then it is no child any more.
  void kill() const {
    const pid_t child = first();
    const Fd process(child > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, child, 0)) : -1);
    if (process.fd >= 0 && first() == child)
      ::syscall(SYS_pidfd_send_signal, process.fd, SIGKILL, nullptr, 0);
  }
  // 0: there is none.
  [[nodiscard]] pid_t first() const {
    const std::string pid = std::to_string(pid_);
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    pid_t child = 0;
    return children >> child ? child : 0;
  }

  Fd socket_{-1};
  pid_t pid_ = -1;
};

void purge(const Place& place, const sdk::Call& call) {
  // It outlives a backend host that crashes, and must not remove what is made there next.
  Process sweep(place.files, {"/bin/sh", "-c", kSweep, place.inside()}, place.held.fd, false);
  while (!sweep.ended(100)) call.check();
  place.remove();
}

class PlacesSandbox final : public sdk::Sandbox {
 public:
  PlacesSandbox(std::unique_ptr<Place> place, std::unique_ptr<Process> process,
                std::shared_ptr<sdk::RunnerLink> link)
      : place_(std::move(place)), process_(std::move(process)), link_(std::move(link)) {}

  void close(const sdk::Call& call, uint32_t mode) override {
    if (link_ != nullptr) link_->close("its sandbox was closed");
    if (process_ != nullptr) process_->end();
    if (!fs::exists(place_->path)) return;
    place_->lock(call);
    if (mode == ISOGATE_CLOSE_PURGE) purge(*place_, call);
  }
  void exec(const sdk::Call& call, const isogate_exec_request& request,
            isogate_exec_result& result) override {
    runner().exec(call, request, result);
  }
  void read(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) override {
    runner().read(call, request, entry);
  }
  uint64_t write(const sdk::Call& call, const isogate_file_request& request) override {
    return runner().write(call, request);
  }
  void list(const sdk::Call& call, const isogate_file_request& request, const sdk::EntrySink& sink) override {
    runner().list(call, request, sink);
  }
  void stat(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) override {
    runner().stat(call, request, entry);
  }
  void mkdir(const sdk::Call& call, const isogate_file_request& request) override {
    runner().mkdir(call, request);
  }
  void move(const sdk::Call& call, const isogate_file_request& request) override {
    runner().move(call, request);
  }
  void remove(const sdk::Call& call, const isogate_file_request& request) override {
    runner().remove(call, request);
  }
  void watch(const sdk::Call& call, const isogate_file_request& request) override {
    runner().watch(call, request);
  }

 private:
  // The gateway opens another sandbox after ISOGATE_NO_SANDBOX, and closes this one first.
  [[nodiscard]] sdk::RunnerLink& runner() const {
    if (link_ == nullptr) throw sdk::Error(ISOGATE_NO_SANDBOX, "it was attached to be closed");
    if (!link_->alive()) throw sdk::Error(ISOGATE_NO_SANDBOX, "its runner has ended: " + link_->why());
    if (link_->spent()) throw sdk::Error(ISOGATE_NO_SANDBOX, "an exec could not be ended in it");
    return *link_;
  }

  const std::unique_ptr<Place> place_;
  const std::unique_ptr<Process> process_;
  const std::shared_ptr<sdk::RunnerLink> link_;
};

class PlacesBackend final : public sdk::Backend {
 public:
  PlacesBackend(sdk::Host host, std::string_view config)
      : program_(nlohmann::json::parse(config).at("runner")),
        directory_(sdk::view(host.abi().sandboxes_dir)) {
    const isogate_host known = host.known();
    command_ = {program_, "stdio", "--shell", std::string(sdk::view(known.shell))};
    if (known.toolchain_path.len > 0)
      command_.insert(command_.end(), {"--toolchain", std::string(sdk::view(known.toolchain_path))});
    for (const isogate_shared_dir& each : std::span(known.shared_dirs, known.shared_dir_count)) {
      const std::string prefix(sdk::view(each.prefix));
      command_.insert(command_.end(), {"--shared", prefix + "=" + std::string(sdk::view(each.path))});
    }
  }

  void probe(const sdk::Call& call, isogate_probe& probe) override {
    probe.locality = ISOGATE_LOCALITY_PROCESS;
    probe.capabilities = kCapabilities;
    probe.verdict = ISOGATE_PROBE_UNAVAILABLE;
    try {
      Process trial("/mnt", {program_, "version"}, -1, true);
      char said[200];
      const std::string_view text(said, call.read_some(trial.socket(), said, sizeof said));
      if (text.starts_with("isogate-runner")) probe.verdict = ISOGATE_PROBE_AVAILABLE;
      sdk::set_text(probe.detail, text.substr(0, text.find('\n')));
    } catch (const std::exception& error) {
      sdk::set_text(probe.detail, error.what());
    }
  }
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override {
    if ((spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) == 0) sdk::check_limits(sdk::limits_of(spec), {});
    if (spec.option_count != 0)
      throw sdk::Error(ISOGATE_UNSUPPORTED, "it takes no options of a single sandbox");
    if (spec.egress == ISOGATE_EGRESS_DENY || spec.egress == ISOGATE_EGRESS_PROXY)
      throw sdk::Error(ISOGATE_UNSUPPORTED, "it cannot restrict the network: choose egress: allow");
    auto place = std::make_unique<Place>(directory_ / sdk::view(spec.sandbox_id));
    const bool is_new = !fs::exists(place->files);
    if (is_new && (spec.flags & ISOGATE_OPEN_KNOWN) != 0)
      throw sdk::Error(ISOGATE_SANDBOX_LOST, "its workspace is lost");
    try {
      place->make();
      std::vector<std::string> command = command_;
      command.insert(command.end(), {"--workspace", place->inside()});
      auto process = std::make_unique<Process>(place->files, std::move(command), place->lock(call), false);
      auto stream = sdk::socket_stream(process->take_socket(), true, programs_user());
      auto link = sdk::RunnerLink::connect(std::move(stream), std::chrono::seconds(10), call);
      info.flags = ISOGATE_SANDBOX_FRESH | (is_new ? 0 : ISOGATE_SANDBOX_ATTACHED);
      info.uid = programs_user();
      return std::make_unique<PlacesSandbox>(std::move(place), std::move(process), std::move(link));
    } catch (...) {
      if (is_new) place->remove();
      throw;
    }
  }
  // Every runner ends with its backend host, but the files remain: this is how they are purged.
  std::unique_ptr<sdk::Sandbox> attach(const sdk::Call&, const isogate_sandbox_spec& spec,
                                       isogate_sandbox_info& info) override {
    auto place = std::make_unique<Place>(directory_ / sdk::view(spec.sandbox_id));
    if (!fs::exists(place->files)) throw sdk::Error(ISOGATE_NO_SANDBOX, "it has no workspace");
    info.flags = ISOGATE_SANDBOX_ATTACHED;
    return std::make_unique<PlacesSandbox>(std::move(place), nullptr, nullptr);
  }
  void enumerate(const sdk::Call&, const sdk::RecordSink& sink) override {
    for (const auto& entry : fs::directory_iterator(directory_))
      if (fs::exists(Place(entry.path()).files)) sink.add(entry.path().filename().string(), {});
  }

 private:
  const std::string program_;
  const fs::path directory_;
  std::vector<std::string> command_;
};

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {"runner": {"type": "string", "pattern": "^/", "description": "the path of isogate-runner"}},
  "required": ["runner"],
  "additionalProperties": false
})";

}  // namespace

ISOGATE_EXPORT_BACKEND(PlacesBackend, PlacesSandbox, .id = "com.example.places", .version = "1.0.0",
                       .summary = "a pid namespace and a directory for each agent",
                       .capabilities = kCapabilities, .flags = ISOGATE_PLUGIN_RUNS_AS_ROOT,
                       .linux_capabilities = kLinuxCapabilities, .config_schema_json = kSchema)
