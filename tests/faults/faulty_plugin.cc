// A backend that runs nothing and fails as argv[0] or its configuration says. It isolates nothing, and
// reports that.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "isogate/backend.hpp"

namespace sdk = isogate::sdk;

namespace {

void spin() {
  while (::getpid() > 0) {
  }
}

// In any call.
void hang(unsigned seconds) {
  while (seconds > 0) seconds = ::sleep(seconds);
}

// If the file `of` contains `how`, and as long as it does.
void hang_while(const std::string& of, std::string_view how, unsigned seconds) {
  for (unsigned tenth = 0; tenth < 10 * seconds; ++tenth) {
    char now[32];
    const int fd = ::open(of.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : ::read(fd, now, sizeof now);
    if (fd >= 0) ::close(fd);
    if (n <= 0 || std::string_view(now, static_cast<size_t>(n)) != how) return;
    ::usleep(100'000);
  }
}

void fail_as_told(std::string_view how) {
  if (how == "segv") ::raise(SIGSEGV);
  if (how == "abort") std::abort();
  if (how == "exit") ::_exit(0);
  if (how == "spin") spin();
  if (how == "hang") hang(600);
  if (how.starts_with("slow45")) hang(45);
  if (how == "fork_segv") {
    if (::fork() == 0) {
      ::alarm(30);
      for (;;) ::pause();
    }
    ::raise(SIGSEGV);
  }
  if (how == "thread_throws") std::thread([] { throw 1; }).join();
}

// As std::filesystem does, with a path of the host.
[[noreturn]] void fail_on_host(int os_errno) {
  throw std::filesystem::filesystem_error("cannot read", "/srv/of-the-host",
                                          std::error_code(os_errno, std::generic_category()));
}

// Until it is cancelled.
void wait_if_told(const sdk::Call& call, std::string_view how) {
  if (how != "wait") return;
  [[maybe_unused]] const bool ready = call.wait(call.cancel_fd(), POLLIN);
}

class FaultySandbox final : public sdk::Sandbox {
 public:
  void exec(const sdk::Call& call, const isogate_exec_request& request,
            isogate_exec_result& result) override {
    const std::string_view how = sdk::view(request.argv[0]);
    if (how == "throw") throw 1;
    if (how == "unavailable") throw sdk::Error(ISOGATE_UNAVAILABLE, "the machine is away");
    if (how == "denied") throw sdk::Error(ISOGATE_PERMISSION_DENIED, "this user may not run it");
    if (!call.write_all(request.stdout_fd, "half\n")) return;
    fail_as_told(how);
    if (how == "half_unavailable") throw sdk::Error(ISOGATE_UNAVAILABLE, "the machine went away");
    if (how == "wait") {
      [[maybe_unused]] const bool ready = call.wait(call.cancel_fd(), POLLIN);
      result.flags = ISOGATE_RESULT_KILLED;
      result.term_signal = SIGKILL;
    }
  }
  void read(const sdk::Call& call, const isogate_file_request& request, isogate_entry&) override {
    wait_if_told(call, sdk::view(request.path));
    fail_as_told(sdk::view(request.path));
    if (sdk::view(request.path) == "broken") fail_on_host(EIO);
    if (sdk::view(request.path) == "absent") fail_on_host(ENOENT);
  }
  // Of its last byte it reports nothing.
  uint64_t write(const sdk::Call& call, const isogate_file_request& request) override {
    uint64_t bytes = 0;
    char buffer[4096];
    while (const size_t n = call.read_body(request, buffer, sizeof buffer)) bytes += n;
    return bytes - 1;
  }
  void list(const sdk::Call& call, const isogate_file_request& request, const sdk::EntrySink&) override {
    wait_if_told(call, sdk::view(request.path));
  }
  // Begins, and fails.
  void watch(const sdk::Call& call, const isogate_file_request& request) override {
    const isogate_change ready{sizeof ready, ISOGATE_CHANGE_READY, 0, 0, 0};
    [[maybe_unused]] const bool said =
        call.write_all(request.fd, {reinterpret_cast<const char*>(&ready), sizeof ready});
    if (sdk::view(request.path) == "broken") fail_on_host(EIO);
    throw sdk::Error(ISOGATE_IO, R"(the share \\server\files is "away")");
  }
};

class FaultyBackend final : public sdk::Backend {
 public:
  FaultyBackend(sdk::Host, std::string_view config) {
    const size_t at = config.find("\"probe_file\":\"");
    if (at != config.npos) probe_file_ = config.substr(at + 14, config.find('"', at + 14) - at - 14);
    opens_nothing_ = config.find("\"open\":\"unavailable\"") != config.npos;
    if (config.find("\"create\":\"segv\"") != config.npos) ::raise(SIGSEGV);
    if (config.find("\"create\":\"hang\"") != config.npos) hang(60);
  }
  // Fails as long as a file says so.
  void probe(const sdk::Call& call, isogate_probe& probe) override {
    probe.verdict = ISOGATE_PROBE_AVAILABLE;
    probe.locality = ISOGATE_LOCALITY_PROCESS;
    probe.capabilities = ISOGATE_CAP_WATCH;
    char how[64];
    const int fd = probe_file_.empty() ? -1 : ::open(probe_file_.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : ::read(fd, how, sizeof how);
    if (fd >= 0) ::close(fd);
    if (n <= 0) return;
    const std::string_view told(how, static_cast<size_t>(n));
    if (told.starts_with("gone")) {
      probe.verdict = ISOGATE_PROBE_UNAVAILABLE;
      sdk::set_text(probe.detail, told.substr(4));
    }
    if (told == "slow") {
      pollfd cancelled{call.cancel_fd(), POLLIN, 0};
      ::poll(&cancelled, 1, 8000);
    }
    if (told == "slow45") return hang_while(probe_file_, told, 45);
    fail_as_told(told);
  }
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call&, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info&) override {
    fail_as_told(sdk::view(spec.agent_id));
    if (opens_nothing_) throw sdk::Error(ISOGATE_UNAVAILABLE, "there is no such image");
    return std::make_unique<FaultySandbox>();
  }

 private:
  std::string probe_file_;
  bool opens_nothing_ = false;
};

}  // namespace

ISOGATE_EXPORT_BACKEND(
    FaultyBackend, FaultySandbox, .id = "com.example.faulty", .version = "1.0.0", .summary = "fails as told",
    .capabilities = ISOGATE_CAP_WATCH,
    .config_schema_json =
        R"({"type":"object","additionalProperties":false,"properties":)"
        R"({"probe_file":{"type":"string"},"create":{"type":"string"},"open":{"type":"string"}}})")
