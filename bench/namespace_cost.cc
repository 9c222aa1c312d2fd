// What one exec of a program costs on the backend `namespace`, against posix_spawn with two pipes and a wait,
// and against bubblewrap and crun where they are installed: one process, random order. Prints medians, p99
// and ratios.
//
//   namespace_cost PLUGIN.so [rounds] [agents] [program…]
//
// `inits ahead` has 1 ms between its runs, like a caller that reads a response before its next call.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "isogate/backend.h"
#include "lib/fd.h"

namespace {

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "namespace_cost: %s\n", why.c_str());
  std::exit(1);
}

isogate_str str(const std::string& text) { return {text.data(), text.size()}; }

isogate::Pipe pipe_or_die() {
  auto pipe = isogate::make_pipe();
  if (!pipe) fail(pipe.error().message);
  return std::move(*pipe);
}

void spawn(const std::vector<std::string>& words) {
  const auto out = pipe_or_die(), err = pipe_or_die();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  int status = -1;
  if (::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ) != 0) fail("posix_spawn failed");
  posix_spawn_file_actions_destroy(&actions);
  if (::waitpid(pid, &status, 0) != pid || status != 0) fail(words[0] + " failed");
}

bool works(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += "'" + word + "' ";
  return std::system((line + ">/dev/null 2>&1").c_str()) == 0;
}

class Plugin {
 public:
  Plugin(const std::string& file, const std::string& state, const char* config) : config_(config) {
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(::dlerror());
    const auto entry = reinterpret_cast<isogate_plugin_entry_fn>(::dlsym(library, ISOGATE_PLUGIN_ENTRY_NAME));
    api_ = entry(ISOGATE_ABI_MAJOR, ISOGATE_ABI_MINOR)->api;
    sandboxes_ = state + "/sandboxes";
    uids_ = state + "/uids";
    ::mkdir(state.c_str(), 0711);
    ::mkdir(sandboxes_.c_str(), 0711);
    ::mkdir(uids_.c_str(), 0700);
    host_.struct_size = sizeof host_;
    host_.backend_name = str(name_);
    host_.sandboxes_dir = str(sandboxes_);
    host_.uids_dir = str(uids_);
    host_.shell = str(shell_);
    check(api_->create(&host_, str(config_), &backend_, &error_), "create");
  }
  isogate_sandbox* open(int number) {
    std::string id = "isg-aaaaaaaaaaaaaaaaaaaaaaaaaa";
    for (size_t i = id.size(); number > 0; number /= 26) id[--i] = static_cast<char>('a' + number % 26);
    const std::string agent = "bench";
    isogate_sandbox_spec spec{};
    spec.struct_size = sizeof spec;
    spec.sandbox_id = str(id);
    spec.agent_id = str(agent);
    isogate_sandbox* sandbox = nullptr;
    isogate_sandbox_info info{};
    info.struct_size = sizeof info;
    check(api_->open(backend_, &call_, &spec, &sandbox, &info, &error_), "open");
    return sandbox;
  }
  void run(isogate_sandbox* sandbox, const std::vector<std::string>& words) {
    const auto out = pipe_or_die(), err = pipe_or_die();
    std::vector<isogate_str> argv;
    for (const auto& word : words) argv.push_back(str(word));
    isogate_exec_request request{};
    request.struct_size = sizeof request;
    request.argv = argv.data();
    request.argc = argv.size();
    request.stdin_fd = request.control_fd = -1;
    request.stdout_fd = out.write.get();
    request.stderr_fd = err.write.get();
    isogate_exec_result result{};
    result.struct_size = sizeof result;
    check(api_->exec(sandbox, &call_, &request, &result, &error_), "exec");
    if (result.exit_code != 0 || result.term_signal != 0) fail(words[0] + " failed");
  }
  void purge(isogate_sandbox* sandbox) {
    check(api_->close(sandbox, &call_, ISOGATE_CLOSE_PURGE, &error_), "close");
  }
  ~Plugin() { api_->destroy(backend_); }

 private:
  void check(isogate_status status, const char* verb) {
    if (status != ISOGATE_OK) fail(std::string(verb) + ": " + error_.message);
  }
  std::string config_, name_ = "namespace", shell_ = "/bin/bash", sandboxes_, uids_;
  const isogate_backend_api* api_ = nullptr;
  isogate_host host_{};
  isogate_backend* backend_ = nullptr;
  isogate_error error_{sizeof(isogate_error), 0, {}};
  isogate_call call_{sizeof(isogate_call), -1, INT64_MAX, {}};
};

struct Variant {
  std::string name;
  std::function<void()> run;
  int pause_us = 0;
  std::vector<double> micros;
};

double at(std::vector<double>& values, double quantile) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(quantile * static_cast<double>(values.size() - 1))];
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A bundle for crun with similar isolation: its own namespaces, /usr read-only, no capability.
std::string crun_bundle(const std::string& state, const std::vector<std::string>& program) {
  const std::string bundle = state + "/crun";
  std::filesystem::create_directories(bundle + "/rootfs/usr");
  for (const char* link : {"bin", "lib", "lib64", "sbin"})
    std::filesystem::create_symlink(std::string("usr/") + link, bundle + "/rootfs/" + link);
  for (const char* place : {"proc", "dev", "tmp"})
    std::filesystem::create_directories(bundle + "/rootfs/" + place);
  std::string args;
  for (const auto& word : program) args += (args.empty() ? "\"" : ",\"") + word + "\"";
  std::ofstream(bundle + "/config.json")
      << R"({"ociVersion":"1.0.0","process":{"terminal":false,"user":{"uid":61999,"gid":61999},"args":[)"
      << args
      << R"(],"env":["PATH=/usr/bin"],"cwd":"/","noNewPrivileges":true},"root":{"path":"rootfs","readonly":true},)"
      << R"("mounts":[{"destination":"/proc","type":"proc","source":"proc"},)"
      << R"({"destination":"/usr","type":"bind","source":"/usr","options":["rbind","ro"]},)"
      << R"({"destination":"/dev","type":"tmpfs","source":"tmpfs"}],)"
      << R"("linux":{"namespaces":[{"type":"pid"},{"type":"mount"},{"type":"ipc"},{"type":"uts"},{"type":"network"}]}})";
  return bundle;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || ::geteuid() != 0)
    fail("usage, as root: namespace_cost PLUGIN.so [rounds] [agents] [program…]");
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1000, agents = argc > 3 ? std::atoi(argv[3]) : 1;
  std::vector<std::string> program(argv + std::min(argc, 4), argv + argc);
  if (program.empty()) program = {"/bin/true"};
  std::string state = "/var/tmp/isogate-bench-XXXXXX";
  if (::mkdtemp(state.data()) == nullptr || ::chmod(state.c_str(), 0711) != 0) fail("no directory");
  {
    Plugin ahead(argv[1], state + "/ahead", "{}"),
        fresh(argv[1], state + "/fresh", R"({"inits_ahead": false})");
    std::vector<isogate_sandbox*> boxes;
    std::vector<double> opening;
    for (int i = 0; i < agents; ++i) {
      const auto start = std::chrono::steady_clock::now();
      boxes.push_back(ahead.open(i));
      ahead.run(boxes.back(), program);
      opening.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    isogate_sandbox* const one = fresh.open(1);
    size_t next = 0;
    std::vector<Variant> variants;
    variants.push_back({"posix_spawn, 2 pipes, wait", [&] { spawn(program); }, 0, {}});
    variants.push_back(
        {"namespace, inits ahead", [&] { ahead.run(boxes[next++ % boxes.size()], program); }, 1000, {}});
    variants.push_back({"namespace, init on demand", [&] { fresh.run(one, program); }, 0, {}});
    const auto bwrap = joined({"bwrap",        "--unshare-all", "--cap-drop",
                               "ALL",          "--uid",         "61999",
                               "--gid",        "61999",         "--ro-bind",
                               "/usr",         "/usr",          "--symlink",
                               "usr/bin",      "/bin",          "--symlink",
                               "usr/lib",      "/lib",          "--symlink",
                               "usr/lib64",    "/lib64",        "--proc",
                               "/proc",        "--dev",         "/dev",
                               "--tmpfs",      "/tmp",          "--die-with-parent",
                               "--new-session"},
                              program);
    if (works(bwrap)) variants.push_back({"bubblewrap", [&] { spawn(bwrap); }, 0, {}});
    const std::string bundle = crun_bundle(state, program);
    const std::vector<std::string> crun = {
        "crun", "--root", state + "/crun-state", "--cgroup-manager=disabled", "run", "-b", bundle, "bench"};
    if (works(crun)) variants.push_back({"crun, no cgroups", [&] { spawn(crun); }, 0, {}});
    std::mt19937 random(42);
    std::vector<size_t> order(variants.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = 0; round < rounds + 20; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        if (variants[i].pause_us > 0) ::usleep(static_cast<useconds_t>(variants[i].pause_us));
        const auto start = std::chrono::steady_clock::now();
        variants[i].run();
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        if (round >= 20) variants[i].micros.push_back(took.count());  // the first warm up
      }
    }
    const double p50 = at(variants[0].micros, 0.5), p99 = at(variants[0].micros, 0.99);
    std::printf("%-28s %10s %7s %10s %7s\n", program[0].c_str(), "p50 us", "ratio", "p99 us", "ratio");
    for (auto& each : variants) {
      const double middle = at(each.micros, 0.5), tail = at(each.micros, 0.99);
      std::printf("%-28s %10.1f %7.3f %10.1f %7.3f\n", each.name.c_str(), middle, middle / p50, tail,
                  tail / p99);
    }
    std::printf("first exec of a new agent: p50 %.1f us, p99 %.1f us of %d\n", at(opening, 0.5),
                at(opening, 0.99), agents);
    for (isogate_sandbox* box : boxes) ahead.purge(box);
    fresh.purge(one);
  }
  std::filesystem::remove_all(state);
}
