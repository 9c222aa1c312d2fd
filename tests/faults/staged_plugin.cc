// A backend whose steps fail when a file says so. It claims isolation and has none; its execs print whether
// the gateway had measured and accepted what they run in.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "isogate/backend.hpp"

namespace sdk = isogate::sdk;

namespace {

// The directory of the configuration: `fail` names the steps that fail, <id>.workspace and <id>.place are
// what outlives a host, and so is <id>.kept, a program that has written kWritten and runs until there is
// `over`.
class Stage {
 public:
  explicit Stage(std::string directory) : directory_(std::move(directory)) {}

  [[nodiscard]] bool fails(const std::string& step) const {
    char text[256];
    const int fd = ::open((directory_ + "/fail").c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : ::read(fd, text, sizeof text);
    if (fd >= 0) ::close(fd);
    const std::string told = " " + std::string(text, n > 0 ? static_cast<size_t>(n) : 0) + " ";
    return told.find(" " + step + " ") != std::string::npos;
  }
  void check(const std::string& step) const {
    if (fails("die-" + step)) ::_exit(1);
    if (fails(step)) throw sdk::Error(ISOGATE_IO, "the step `" + step + "` fails");
  }
  // While the file names the step, and the call is not cancelled.
  void wait(const std::string& step, const sdk::Call& call) const {
    while (fails("stuck-" + step) || (fails("slow-" + step) && !call.cancelled())) ::usleep(10'000);
  }
  void hang(const std::string& step, const sdk::Call& call) const {
    wait(step, call);
    call.check();
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return ::access((directory_ + "/" + name).c_str(), F_OK) == 0;
  }
  void make(const std::string& name) const {
    ::close(::open((directory_ + "/" + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  }
  void remove(const std::string& name) const { ::unlink((directory_ + "/" + name).c_str()); }
  // The ids of what has such a file.
  [[nodiscard]] std::vector<std::string> ids_of(const std::string& suffix) const {
    std::vector<std::string> ids;
    DIR* const all = ::opendir(directory_.c_str());
    while (const dirent* each = all != nullptr ? ::readdir(all) : nullptr)
      if (const std::string name = each->d_name; name.ends_with(suffix))
        ids.push_back(name.substr(0, name.size() - suffix.size()));
    if (all != nullptr) ::closedir(all);
    return ids;
  }

 private:
  std::string directory_;
};

constexpr std::string_view kWritten = "0123456789";

class StagedSandbox final : public sdk::Sandbox {
 public:
  StagedSandbox(const Stage& stage, std::string id) : stage_(stage), id_(std::move(id)) {}

  void close(const sdk::Call& call, uint32_t mode) override {
    closing_ = true;
    if (mode != ISOGATE_CLOSE_DETACH) stage_.hang("stop", call);
    if (mode != ISOGATE_CLOSE_DETACH) stage_.check(mode == ISOGATE_CLOSE_PURGE ? "purge" : "stop");
    const auto is_gone = [&](const char* step) {
      if (mode == ISOGATE_CLOSE_PURGE && stage_.fails(step))
        throw sdk::Error(ISOGATE_NO_SANDBOX, "there is no such sandbox");
    };
    is_gone("purge-denied");
    if (mode != ISOGATE_CLOSE_DETACH) stage_.remove(id_ + ".place");
    if (mode == ISOGATE_CLOSE_PURGE) stage_.remove(id_ + ".workspace");
    is_gone("purge-gone");
  }
  void exec(const sdk::Call& call, const isogate_exec_request& request,
            isogate_exec_result& result) override {
    stage_.make("ran");
    stage_.hang("exec", call);
    if (stage_.fails("lost")) throw sdk::Error(ISOGATE_SANDBOX_LOST, "its workspace is gone");
    if (stage_.fails("late-refusal")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      throw sdk::Error(ISOGATE_PERMISSION_DENIED, "there is no such user");
    }
    const char* answer = stage_.has("home") ? "/home/user\n" : "sound\n";
    [[maybe_unused]] const bool said =
        call.write_all(request.stdout_fd, sound_ && !closing_ ? answer : "UNSOUND\n");
    if (stage_.fails("unproven")) return;
    result.flags = ISOGATE_RESULT_PROVEN;
    result.isolation = stage_.fails("weaker") ? ISOGATE_ISOLATION_NONE : ISOGATE_ISOLATION_NAMESPACE;
  }
  void start_kept(const sdk::Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
                  isogate_exec_result& result) override {
    stage_.make(id_ + ".kept");
    run_on(call, request, kept, 0, result);
  }
  void rejoin(const sdk::Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
              isogate_exec_result& result) override {
    stage_.wait("rejoin", call);
    if (!stage_.has(id_ + ".kept")) throw sdk::Error(ISOGATE_NOT_FOUND, "there is no such exec");
    const isogate_kept_state state{stage_.fails("cut") ? 5u : 0u, 0, 0, 0};
    [[maybe_unused]] const bool said =
        call.write_all(kept.state_fd, {reinterpret_cast<const char*>(&state), sizeof state});
    stage_.wait("replay", call);
    run_on(call, request, kept, state.stdout_offset, result);
  }
  void read(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) override {
    entry.type = ISOGATE_ENTRY_REGULAR;
    [[maybe_unused]] const bool said =
        call.write_all(request.fd, sound_ && !closing_ ? "sound\n" : "UNSOUND\n");
  }
  void stat(const sdk::Call&, const isogate_file_request&, isogate_entry& entry) override {
    stage_.check("stat");
    entry.type = ISOGATE_ENTRY_REGULAR;
  }
  void list(const sdk::Call& call, const isogate_file_request&, const sdk::EntrySink&) override {
    stage_.make("listing");
    const Listing until_here{stage_};
    stage_.hang("list", call);
    if (stage_.has("ran")) stage_.hang("second-list", call);
  }
  void evidence(const sdk::Call&, const isogate_evidence_request&, isogate_evidence& found) override {
    stage_.check("evidence");
    const bool bad = stage_.fails("mismatch");
    found.flags = ISOGATE_EVIDENCE_MEASURED;
    found.uid = 1000;
    found.no_new_privs = bad ? 0 : 1;
    found.seccomp_mode = 2;
    found.ns_mnt = found.ns_pid = found.ns_net = found.ns_ipc = found.ns_uts = 1;
    sound_ = !bad;
  }

 private:
  void run_on(const sdk::Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
              size_t from, isogate_exec_result& result) {
    [[maybe_unused]] const bool said = call.write_all(request.stdout_fd, kWritten.substr(from));
    pollfd detach{kept.detach_fd, POLLIN, 0};
    while (!stage_.has("over") && !call.cancelled())
      if (::poll(&detach, 1, 10) > 0) throw sdk::Error(ISOGATE_LOST, "it goes on without its host");
    result.flags = ISOGATE_RESULT_PROVEN | (call.cancelled() ? ISOGATE_RESULT_KILLED : 0u);
    result.isolation = ISOGATE_ISOLATION_NAMESPACE;
    stage_.remove(id_ + ".kept");
  }

  struct Listing {
    ~Listing() { stage.remove("listing"); }
    const Stage& stage;
  };
  const Stage& stage_;
  std::string id_;
  bool sound_ = false, closing_ = false;
};

class StagedBackend final : public sdk::Backend {
 public:
  StagedBackend(sdk::Host, std::string_view config)
      : stage_(directory_of(config)),
        runs_(config.find("\"runs\":true") != config.npos),
        keeps_(config.find("\"keeps\":true") != config.npos) {}

  void probe(const sdk::Call& call, isogate_probe& probe) override {
    stage_.hang("probe", call);
    probe.verdict = ISOGATE_PROBE_AVAILABLE;
    probe.isolation = ISOGATE_ISOLATION_NAMESPACE;
    probe.locality = ISOGATE_LOCALITY_HOST;
    probe.capabilities = ISOGATE_CAP_EVIDENCE | ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_PROVEN_EXECS;
    if (keeps_) probe.capabilities |= ISOGATE_CAP_KEPT_EXECS;
  }
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override {
    const std::string id(sdk::view(spec.sandbox_id));
    const bool there = stage_.has(id + ".workspace"), runs = stage_.has(id + ".place");
    const bool attach_only = (spec.flags & ISOGATE_OPEN_ATTACH_ONLY) != 0;
    if ((spec.flags & ISOGATE_OPEN_RUNNING_ONLY) != 0) stage_.check("re-attach");
    if (!attach_only) stage_.check("open");
    if (!there && attach_only) throw sdk::Error(ISOGATE_NO_SANDBOX, "there is no such sandbox");
    if (!there && (spec.flags & ISOGATE_OPEN_KNOWN) != 0 && !stage_.fails("forget"))
      throw sdk::Error(ISOGATE_SANDBOX_LOST, "its workspace is gone");
    stage_.make(id + ".workspace");
    stage_.make(id + ".place");
    if (!attach_only) stage_.hang("made", call);
    if (!attach_only) stage_.check("made");
    info.isolation = ISOGATE_ISOLATION_NAMESPACE;
    info.flags = (there ? ISOGATE_SANDBOX_ATTACHED : 0u) | (runs ? 0u : ISOGATE_SANDBOX_FRESH) |
                 (runs_ ? ISOGATE_SANDBOX_RUNS : 0u);
    return std::make_unique<StagedSandbox>(stage_, id);
  }
  std::unique_ptr<sdk::Sandbox> attach(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                       isogate_sandbox_info& info) override {
    return open(call, spec, info);
  }
  void enumerate(const sdk::Call&, const sdk::RecordSink& sink) override {
    stage_.check("enumerate");
    for (const std::string& id : stage_.ids_of(".workspace"))
      sink.add(id, "", runs_ && stage_.has(id + ".place") ? ISOGATE_SANDBOX_RUNS : 0u);
  }

 private:
  static std::string directory_of(std::string_view config) {
    const size_t at = config.find("\"stage\":\"");
    return at == config.npos ? "" : std::string(config.substr(at + 9, config.find('"', at + 9) - at - 9));
  }
  Stage stage_;
  bool runs_;   // what it opens outlives its host
  bool keeps_;  // so do long-lived execs
};

}  // namespace

ISOGATE_EXPORT_BACKEND(StagedBackend, StagedSandbox, .id = "com.example.staged", .version = "1.0.0",
                       .summary = "fails where it is told to", .isolation = ISOGATE_ISOLATION_NAMESPACE,
                       .locality = ISOGATE_LOCALITY_HOST,
                       .capabilities = ISOGATE_CAP_EVIDENCE | ISOGATE_CAP_PERSISTENT |
                                       ISOGATE_CAP_PROVEN_EXECS | ISOGATE_CAP_KEPT_EXECS,
                       .config_schema_json = R"({"type":"object","additionalProperties":false,
                                                "properties":{"stage":{"type":"string"},
                                                              "runs":{"type":"boolean"},
                                                              "keeps":{"type":"boolean"}}})")
