#include "tests/local/plugin.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include "tests_dirs.h"

#ifndef ISOGATE_TESTED_PLUGIN  // tests of another folder may drive their plugin with this
#define ISOGATE_TESTED_PLUGIN "local"
#endif

namespace isogate::test {
namespace {

const isogate_plugin* load() {
  static void* library =
      ::dlopen(ISOGATE_BUILD_DIR "/plugins/" ISOGATE_TESTED_PLUGIN ".so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto entry = reinterpret_cast<isogate_plugin_entry_fn>(::dlsym(library, ISOGATE_PLUGIN_ENTRY_NAME));
  return entry(ISOGATE_ABI_MAJOR, ISOGATE_ABI_MINOR);
}

// Collects the bytes of a pipe, readable while they arrive.
class Collector {
 public:
  explicit Collector(Fd fd)
      : fd_(std::move(fd)), thread_([this] {
          char buffer[65536];
          for (ssize_t got; (got = ::read(fd_.get(), buffer, sizeof buffer)) > 0;) {
            const std::lock_guard<std::mutex> one(mutex_);
            text_.append(buffer, static_cast<size_t>(got));
          }
        }) {}
  std::string so_far() {
    const std::lock_guard<std::mutex> one(mutex_);
    return text_;
  }
  std::string finish() {
    thread_.join();
    return text_;
  }

 private:
  Fd fd_;
  std::mutex mutex_;
  std::string text_;
  std::thread thread_;
};

Pipe pipe_or_throw() {
  auto pipe = make_pipe();
  if (!pipe) throw std::runtime_error(pipe.error().message);
  return std::move(*pipe);
}

}  // namespace

std::vector<isogate_shared_dir> Backend::shared_dirs;
std::string Backend::toolchain, Backend::instance;

std::string sandbox_id(int number) {
  static const pid_t process = ::getpid();  // others of these tests use the same engine
  std::string id = "isg-aaaaaaaaaaaaaaaaaaaaaaaaaa";
  for (size_t i = id.size(); number > 0; number /= 26) id[--i] = static_cast<char>('a' + number % 26);
  size_t i = 12;
  for (pid_t rest = process; rest > 0; rest /= 26) id[--i] = static_cast<char>('a' + rest % 26);
  return id;
}

isogate_str str(const std::string& text) { return {text.data(), text.size()}; }

isogate_error no_error() {
  isogate_error error{};
  error.struct_size = sizeof error;
  return error;
}

isogate_call call_with(int cancel_fd) {
  isogate_call call{};
  call.struct_size = sizeof call;
  call.cancel_fd = cancel_fd;
  call.deadline_ns = INT64_MAX;
  return call;
}

Backend::Backend(std::string state, std::string name, std::string config, uint32_t flags)
    : plugin(load()),
      api(plugin->api),
      name_(std::move(name)),
      sandboxes_(state + "/sandboxes"),
      uids_(state + "/uids") {
  host.struct_size = sizeof host;
  host.flags = flags;
  host.log = [](void*, uint32_t, isogate_str) {};
  host.get_extension = [](void*, const char*) -> const void* { return nullptr; };
  host.instance = str(instance);
  host.backend_name = str(name_);
  host.sandboxes_dir = str(sandboxes_);
  host.uids_dir = str(uids_);
  host.shell = str(shell_);
  host.toolchain_path = str(toolchain);
  host.shared_dirs = shared_dirs.data();
  host.shared_dir_count = shared_dirs.size();
  isogate_error reason = no_error();
  status = api->create(&host, str(config), &it, &reason);
  error = reason.message;
}

Backend::~Backend() {
  if (it != nullptr) api->destroy(it);
}

Box::Box(Backend& on, int number, const std::string& name)
    : backend(on), id(sandbox_id(number)), agent(name) {
  open(spec());
}

Box::Box(Backend& on, Deferred) : backend(on), id(sandbox_id(1)), agent("agent") {}

Box::~Box() {
  if (it == nullptr) return;
  EXPECT_EQ(close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << error;
}

isogate_sandbox_spec Box::spec(uint32_t flags) const {
  static const std::string tenant = "tenant";
  isogate_sandbox_spec spec{};
  spec.struct_size = sizeof spec;
  spec.flags = flags;
  spec.sandbox_id = str(id);
  spec.tenant = str(tenant);
  spec.agent_id = str(agent);
  return spec;
}

bool Box::open(isogate_sandbox_spec spec, int cancel_fd) {
  isogate_error reason = no_error();
  const isogate_call call = call_with(cancel_fd);
  info = {};
  info.struct_size = sizeof info;
  it = nullptr;
  status = backend.api->open(backend.it, &call, &spec, &it, &info, &reason);
  error = reason.message;
  return status == ISOGATE_OK;
}

isogate_status Box::evidence(isogate_evidence* found, int cancel_fd) {
  isogate_evidence unused{};
  isogate_evidence& out = found != nullptr ? *found : unused;
  out = {};
  out.struct_size = sizeof out;
  isogate_evidence_request request{};
  request.struct_size = sizeof request;
  isogate_error reason = no_error();
  const isogate_call call = call_with(cancel_fd);
  status = backend.api->evidence(it, &call, &request, &out, &reason);
  error = reason.message;
  return status;
}

isogate_status Box::close(uint32_t mode, int cancel_fd) {
  isogate_error reason = no_error();
  const isogate_call call = call_with(cancel_fd);
  status = backend.api->close(it, &call, mode, &reason);
  error = reason.message;
  if (status == ISOGATE_OK) it = nullptr;
  return status;
}

Ran Box::sh(const std::string& script) {
  Exec exec;
  exec.argv = {"/bin/bash", "-c", script};
  return run(exec);
}

Ran Box::run(const Exec& exec) {
  Pipe in = pipe_or_throw(), out = pipe_or_throw(), err = pipe_or_throw(), control = pipe_or_throw();
  auto cancel = make_event();
  std::vector<isogate_str> argv;
  std::vector<isogate_pair> env;
  for (const auto& argument : exec.argv) argv.push_back(str(argument));
  for (const auto& [key, value] : exec.env) env.push_back({str(key), str(value)});
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.flags = exec.pty ? ISOGATE_EXEC_PTY : 0;
  request.argv = argv.data();
  request.argc = argv.size();
  request.env = env.data();
  request.envc = env.size();
  request.cwd = str(exec.cwd);
  request.user = str(exec.user);
  request.stdin_fd = in.read.get();
  request.stdout_fd = out.write.get();
  request.stderr_fd = exec.pty ? -1 : err.write.get();
  request.control_fd = control.read.get();
  const LimitList limits = exec.limits.list();
  request.limits = limits.items.data();
  request.limit_count = limits.count;
  request.rows = exec.rows;
  request.cols = exec.cols;

  Collector outs(std::move(out.read)), errs(std::move(err.read));
  std::thread beside([&] {
    if (exec.beside) exec.beside(in.write, control.write.get(), cancel->get(), [&] { return outs.so_far(); });
    for (size_t at = 0; at < exec.stdin_text.size();) {
      const ssize_t done = ::write(in.write.get(), exec.stdin_text.data() + at, exec.stdin_text.size() - at);
      if (done <= 0) break;
      at += static_cast<size_t>(done);
    }
    in.write.reset();
  });
  Ran ran;
  isogate_error reason = no_error();
  const isogate_call call = call_with(exec.cancel_fd >= 0 ? exec.cancel_fd : cancel->get());
  ran.result.struct_size = sizeof ran.result;
  ran.status = backend.api->exec(it, &call, &request, &ran.result, &reason);
  ran.error = reason.message;
  out.write.reset();
  err.write.reset();
  beside.join();
  ran.out = outs.finish();
  ran.err = errs.finish();
  return ran;
}

isogate_status Box::write(const std::string& path, const std::string& content, const std::string& user,
                          uint32_t flags) {
  Pipe body = pipe_or_throw();
  EXPECT_EQ(::write(body.write.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  body.write.reset();
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.flags = flags;
  request.path = str(path);
  request.user = str(user);
  request.fd = body.read.get();
  request.complete_fd = -1;
  isogate_error reason = no_error();
  const isogate_call call = call_with();
  uint64_t written = 0;
  status = backend.api->write(it, &call, &request, &written, &reason);
  error = reason.message;
  EXPECT_TRUE(status != ISOGATE_OK || written == content.size());
  return status;
}

std::pair<isogate_status, std::string> Box::read(const std::string& path, uint32_t scope,
                                                 const std::string& user) {
  Pipe body = pipe_or_throw();
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.scope = scope;
  request.path = str(path);
  request.user = str(user);
  request.limit = UINT64_MAX;
  request.fd = body.write.get();
  isogate_error reason = no_error();
  const isogate_call call = call_with();
  isogate_entry entry{};
  entry.struct_size = sizeof entry;
  Collector content(std::move(body.read));
  status = backend.api->read(it, &call, &request, &entry, &reason);
  error = reason.message;
  body.write.reset();
  return {status, content.finish()};
}

std::string registered_uids(const std::string& state_dir) {
  std::string all;
  for (const auto& each : std::filesystem::directory_iterator(state_dir + "/uids")) {
    if (each.path().filename() == "key") continue;
    std::string owner;
    std::getline(std::ifstream(each.path()), owner);
    all += each.path().filename().string() + " " + owner + "\n";
  }
  return all;
}

Local::Local() {
  std::string pattern = "/tmp/isogate-local-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  state_ = pattern;
  ::chmod(state_.c_str(), 0711);
  ::mkdir((state_ + "/sandboxes").c_str(), 0711);
  ::mkdir((state_ + "/uids").c_str(), 0700);
}

Local::~Local() {
  Backend::shared_dirs.clear();
  Backend::toolchain.clear();
  EXPECT_EQ(registered_uids(state_), "") << "not released";
  std::error_code ignored;
  std::filesystem::remove_all(state_, ignored);
}

}  // namespace isogate::test
