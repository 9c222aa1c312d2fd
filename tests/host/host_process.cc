#include "tests/host/host_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gateway/config/load.h"
#include "tests/eventually.h"

namespace isogate {
namespace {

using nlohmann::json;

bool readable(int fd, int ms) {
  pollfd watch{fd, POLLIN, 0};
  return ::poll(&watch, 1, ms) > 0;
}

pid_t start(int control) {
  pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::dup2(control, 3);
  ::execl("/proc/self/exe", "isogate", "_host", nullptr);
  ::_exit(127);
}

}  // namespace

BackendConfig fixture_backend(const std::string& name) {
  BackendConfig backend;
  backend.name = "tested";
  backend.plugin = fixture(name);
  backend.run_as = "nobody";
  backend.users = {"admitted"};
  backend.config_json = R"({"records":3,"trace":"@TRACE@"})";
  return backend;
}

HostProcess::HostProcess(BackendConfig backend, Config config) {
  std::string trace = place_.path() + "/trace";
  std::ofstream(trace).close();
  ::chmod(trace.c_str(), 0666);
  ::chmod(place_.path().c_str(), 0711);
  std::string copies = place_.path() + "/copies";
  ::mkdir(copies.c_str(), 0700);
  if (size_t at = backend.config_json.find("@TRACE@"); at != std::string::npos)
    backend.config_json.replace(at, 7, trace);
  config.log.level = "error";
  config.state_dir = place_.path();
  config.backends = {backend};
  auto control = ipc::make_socket_pair();
  auto front = ipc::make_socket_pair();
  pid_ = start(control->theirs.get());
  control_ = std::move(control->own);
  front_ = std::move(front->own);
  json message = {{"type", "start"},
                  {"config", json::parse(config_to_json(config))},
                  {"backend", backend.name},
                  {"generation", 1},
                  {"sandboxes_dir", place_.path() + "/sandboxes"},
                  {"uids_dir", place_.path() + "/uids"},
                  {"plugin_copy_dir", copies},
                  {"many_tenants", false},
                  {"probe_only", false}};
  EXPECT_TRUE(
      ipc::send_record(control_.get(), message.dump(), {front->theirs.get()}, ipc::Wait::kBlock).ok());
}

HostProcess::~HostProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string HostProcess::first_message() {
  if (!readable(control_.get(), 30000)) return "nothing";
  auto received = ipc::receive_record(control_.get(), ipc::Wait::kBlock);
  if (!received) return "nothing: " + received.error().message;
  json message = json::parse(received->bytes);
  return message["type"] == "failed" ? message["message"].get<std::string>()
                                     : message["type"].get<std::string>();
}

std::string HostProcess::mistaken_setting() {
  if (!readable(control_.get(), 30000)) return "nothing";
  auto received = ipc::receive_record(control_.get(), ipc::Wait::kBlock);
  return received ? json::parse(received->bytes).value("setting", "nothing") : "nothing";
}

void HostProcess::expect_ready() {
  ASSERT_EQ(first_message(), "ready");
  auto received = ipc::receive_record(front_.get(), ipc::Wait::kBlock);
  ASSERT_TRUE(received.ok());
  auto decoded = ipc::decode_from_host(received->bytes);
  ASSERT_TRUE(decoded.ok() && std::holds_alternative<ipc::Hello>(*decoded));
  hello_ = std::get<ipc::Hello>(*decoded);
}

uint64_t HostProcess::send(ipc::Call call) {
  uint64_t id = next_id_++;
  std::visit([id](auto& message) { message.call.id = id; }, call);
  ipc::Encoded encoded = ipc::encode(call);
  EXPECT_TRUE(ipc::send_record(front_.get(), encoded.bytes, encoded.fds, ipc::Wait::kBlock).ok());
  return id;
}

void HostProcess::send_bytes(std::string_view bytes) {
  EXPECT_TRUE(ipc::send_record(front_.get(), bytes, {}, ipc::Wait::kBlock).ok());
}

std::optional<ipc::Reply> HostProcess::reply_to(uint64_t id) {
  while (replies_.find(id) == replies_.end()) {
    if (!readable(front_.get(), 60000)) return std::nullopt;
    auto received = ipc::receive_record(front_.get(), ipc::Wait::kBlock);
    if (!received) return std::nullopt;
    auto decoded = ipc::decode_from_host(received->bytes);
    EXPECT_TRUE(decoded.ok()) << decoded.error().message;
    if (!decoded.ok()) return std::nullopt;
    ipc::Reply reply = std::get<ipc::Reply>(*decoded);
    EXPECT_EQ(replies_.count(reply.id), 0u) << "answered twice";
    replies_[reply.id] = reply;
  }
  return replies_.extract(id).mapped();
}

ipc::Reply HostProcess::call(ipc::Call call) {
  auto reply = reply_to(send(std::move(call)));
  EXPECT_TRUE(reply.has_value()) << "the channel ended";
  return reply.value_or(ipc::Reply{});
}

ipc::Reply HostProcess::open(const std::string& agent, const std::string& box) {
  ipc::OpenCall open;
  open.sandbox_id = box;
  open.tenant = "tenant";
  open.agent_id = agent;
  return call(std::move(open));
}

ipc::Reply HostProcess::close(uint32_t mode, const std::string& box) {
  ipc::CloseCall close;
  close.sandbox_id = box;
  close.mode = mode;
  return call(std::move(close));
}

ipc::ExecCall exec_call(std::vector<std::string> argv, const std::string& box) {
  ipc::ExecCall exec;
  exec.sandbox_id = box;
  exec.exec_id = std::string(32, '0');
  exec.argv = std::move(argv);
  return exec;
}

uint64_t HostProcess::start_exec(std::vector<std::string> argv, int cancel, const std::string& box) {
  ipc::ExecCall exec = exec_call(std::move(argv), box);
  if (cancel >= 0) exec.call.cancel = Fd(::dup(cancel));
  return send(std::move(exec));
}

ipc::Reply HostProcess::exec(std::vector<std::string> argv, std::string* output) {
  ipc::ExecCall exec = exec_call(std::move(argv));
  auto pipe = make_pipe();
  exec.std_out = std::move(pipe->write);
  ipc::Reply reply = call(std::move(exec));
  if (output != nullptr) *output = read_all(pipe->read.get());
  return reply;
}

bool HostProcess::await_running(int count) {
  const std::string wanted = "running=" + std::to_string(count + 1);  // with the one that asks
  return test::eventually(20, [&] {
    std::string counters;
    exec({"counters"}, &counters);
    return counters.ends_with(wanted);
  });
}

ipc::Reply HostProcess::file(ipc::FileVerb verb, const std::string& path, std::string* output) {
  ipc::FileCall file;
  file.verb = verb;
  file.sandbox_id = kBox;
  file.path = path;
  auto pipe = make_pipe();
  if (verb == ipc::FileVerb::kMove) file.path_to = "to";
  if (verb == ipc::FileVerb::kRead || verb == ipc::FileVerb::kList || verb == ipc::FileVerb::kWatch)
    file.body = std::move(pipe->write);
  if (output == nullptr) return call(std::move(file));
  uint64_t id = send(std::move(file));
  pipe->write.reset();
  *output = read_all(pipe->read.get());
  return reply_to(id).value_or(ipc::Reply{});
}

void HostProcess::tell(const std::string& text) {
  EXPECT_TRUE(ipc::send_record(control_.get(), text, {}, ipc::Wait::kBlock).ok());
}

bool HostProcess::channel_ended() {
  while (readable(front_.get(), 10000)) {
    auto received = ipc::receive_record(front_.get(), ipc::Wait::kBlock);
    if (!received) return received.error().os_errno == ECONNRESET;
  }
  return false;
}

int HostProcess::exit_code() {
  for (int i = 0; i < 6000; ++i) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return -1;
}

long HostProcess::status_number(const std::string& name) const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
  return -1;
}

std::string HostProcess::trace() const {
  std::ifstream in(place_.path() + "/trace");
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

std::string read_all(int fd) {
  std::string all;
  char buffer[65536];
  for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    all.append(buffer, static_cast<size_t>(n));
  return all;
}

}  // namespace isogate
