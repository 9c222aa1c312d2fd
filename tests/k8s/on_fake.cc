#include "tests/k8s/on_fake.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <thread>

namespace isogate::k8s {

namespace {

Pipe new_pipe() {
  auto made = make_pipe();
  if (!made.ok()) throw std::runtime_error(made.error().message);
  return std::move(*made);
}

std::string read_once(const Fd& pipe) {
  std::string text(4096, '\0');
  const ssize_t size = ::read(pipe.get(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

}  // namespace

void OnFake::SetUpTestSuite() { ::signal(SIGPIPE, SIG_IGN); }

isogate_status status_of(const std::function<void()>& work, std::string* message) {
  try {
    work();
  } catch (const sdk::Error& error) {
    if (message != nullptr) *message = error.what();
    return error.status();
  }
  return ISOGATE_OK;
}

void FakeGateway::note(void* ctx, uint32_t, isogate_str message) {
  auto* const self = static_cast<FakeGateway*>(ctx);
  const std::lock_guard lock(self->mutex_);
  self->log_ += std::string(sdk::view(message)) + "\n";
}

FakeGateway::FakeGateway(const FakeApi& api, const std::string& state_dir, const std::string& config)
    : api_(api), state_dir_(state_dir) {
  host_.struct_size = sizeof host_;
  host_.ctx = this;
  host_.log = note;
  host_.instance = sdk::str("test");
  host_.backend_name = sdk::str("k8s");
  host_.sandboxes_dir = sdk::str(state_dir_);
  host_.shell = sdk::str("/bin/sh");
  call_ = {sizeof call_, api_.hanging(), INT64_MAX, {}};
  const std::string kubeconfig = api.kubeconfig();
  backend_ = std::make_unique<Backend>(
      sdk::Host(host_), R"({"network": "open", "allow_unverified_cluster": true, "kubeconfig": ")" +
                            kubeconfig + "\"" + (config.empty() ? "" : ", " + config) + "}");
}

std::string FakeGateway::id_of(const std::string& agent) {
  return "isg-" + std::string(26 - agent.size(), 'a') + agent;
}

FakeGateway::Box FakeGateway::open(uint32_t flags, const std::string& handle, const std::string& agent) {
  const std::string id = id_of(agent);
  isogate_sandbox_spec spec{};
  spec.struct_size = sizeof spec;
  spec.flags = flags;
  spec.egress = egress;
  spec.sandbox_id = sdk::str(id);
  spec.tenant = sdk::str("t");
  spec.agent_id = sdk::str(agent);
  spec.handle = sdk::str(handle);
  const isogate_pair option{sdk::str("image"), sdk::str(image)};
  if (!image.empty()) {
    spec.options = &option;
    spec.option_count = 1;
  }
  isogate_sandbox_info info{};
  info.struct_size = sizeof info;
  Box box;
  box.sandbox = backend_->open(sdk::Call(call_), spec, info);
  box.flags = info.flags;
  box.handle = info.handle;
  return box;
}

isogate_evidence FakeGateway::evidence(Box& box, const std::string& listeners) {
  isogate_evidence_request request{};
  request.struct_size = sizeof request;
  request.gateway_address = sdk::str("127.0.0.1");
  request.gateway_port = 1;
  request.gateway_listeners = sdk::str(listeners);
  isogate_evidence found{};
  found.struct_size = sizeof found;
  box.sandbox->evidence(sdk::Call(call_), request, found);
  return found;
}

FakeGateway::Box FakeGateway::ready(uint32_t flags, const std::string& handle, const std::string& agent) {
  Box box = open(flags, handle, agent);
  evidence(box);
  return box;
}

FakeGateway::Box FakeGateway::used(const std::string& command, const std::string& agent) {
  Box box = ready(0, "", agent);
  run(box, command);
  return box;
}

FakeGateway::Box FakeGateway::left(const std::string& command, const std::string& agent) {
  Box box = used(command, agent);
  close(box, ISOGATE_CLOSE_DETACH);
  return box;
}

std::string FakeGateway::run(Box& box, const std::string& command, uint32_t* result_flags) {
  Pipe pipe = new_pipe();
  const isogate_str argv[] = {sdk::str("/bin/sh"), sdk::str("-c"), sdk::str(command)};
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.exec_id = sdk::str("00000000000000000000000000000000");
  request.argv = argv;
  request.argc = 3;
  request.stdin_fd = request.stderr_fd = request.control_fd = -1;
  request.stdout_fd = pipe.write.get();
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  box.sandbox->exec(sdk::Call(call_), request, result);
  pipe.write.reset();
  if (result_flags != nullptr) *result_flags = result.flags;
  if (result.exit_code != 0 || result.term_signal != 0) throw std::runtime_error(command + " failed");
  return read_once(pipe.read);
}

void FakeGateway::watch(Box& box) {
  Pipe pipe = new_pipe();
  const Fd cancel(::eventfd(0, EFD_CLOEXEC));
  std::thread canceller([&] {
    char ready[sizeof(isogate_change)];
    if (::read(pipe.read.get(), ready, sizeof ready) <= 0) return;
    const uint64_t one = 1;
    (void)!::write(cancel.get(), &one, sizeof one);
  });
  isogate_call call{sizeof call, cancel.get(), INT64_MAX, {}};
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.fd = pipe.write.get();
  request.complete_fd = -1;
  const isogate_status status = status_of([&] { box.sandbox->watch(sdk::Call(call), request); });
  pipe.write.reset();
  canceller.join();
  if (status != ISOGATE_CANCELLED) throw std::runtime_error("the watch failed");
}

void FakeGateway::write(Box& box, const std::string& path, const std::string& bytes) {
  Pipe pipe = new_pipe();
  (void)!::write(pipe.write.get(), bytes.data(), bytes.size());
  pipe.write.reset();
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.path = sdk::str(path);
  request.fd = pipe.read.get();
  request.complete_fd = -1;
  box.sandbox->write(sdk::Call(call_), request);
}

std::string FakeGateway::read(Box& box, const std::string& path) {
  Pipe pipe = new_pipe();
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.path = sdk::str(path);
  request.limit = UINT64_MAX;
  request.fd = pipe.write.get();
  request.complete_fd = -1;
  isogate_entry entry{};
  entry.struct_size = sizeof entry;
  box.sandbox->read(sdk::Call(call_), request, entry);
  pipe.write.reset();
  return read_once(pipe.read);
}

void FakeGateway::close(Box& box, uint32_t mode) { box.sandbox->close(sdk::Call(call_), mode); }

std::string FakeGateway::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

}  // namespace isogate::k8s
