// What backend.hpp does for a plugin on its own: checks of requests, statuses, and what it leaves out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <ios>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "isogate/backend.hpp"
#include "lib/fd.h"

namespace isogate {
namespace {

const isogate_host kNoHost{};

using Act = std::function<void(const sdk::Call&)>;

class ActingSandbox : public sdk::Sandbox {
 public:
  explicit ActingSandbox(const Act& act, int& alive) : act_(act), alive_(alive) { ++alive_; }
  ~ActingSandbox() override { --alive_; }
  void close(const sdk::Call& call, uint32_t) override { act_(call); }
  void exec(const sdk::Call& call, const isogate_exec_request&, isogate_exec_result&) override { act_(call); }
  void stat(const sdk::Call& call, const isogate_file_request&, isogate_entry&) override { act_(call); }
  void mkdir(const sdk::Call& call, const isogate_file_request&) override { act_(call); }
  void connect(const sdk::Call& call, const isogate_connect_request&) override { act_(call); }

 private:
  void evidence(const sdk::Call& call, const isogate_evidence_request&, isogate_evidence&) override {
    act_(call);
  }
  const Act& act_;
  int& alive_;
};

class WholeSandbox : public ActingSandbox {
 public:
  using ActingSandbox::ActingSandbox;
  void disk_use(const sdk::Call&, isogate_disk_use&) override {}
  void start_kept(const sdk::Call&, const isogate_exec_request&, const isogate_kept_exec&,
                  isogate_exec_result&) override {}
  void rejoin(const sdk::Call&, const isogate_exec_request&, const isogate_kept_exec&,
              isogate_exec_result&) override {}
};

class ForgetfulBackend : public sdk::Backend {
 public:
  ForgetfulBackend(sdk::Host, std::string_view) {}
  void probe(const sdk::Call& call, isogate_probe&) override { act(call); }
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec&,
                                     isogate_sandbox_info&) override {
    act(call);
    return std::make_unique<ActingSandbox>(act, alive);
  }
  Act act = [](const sdk::Call&) {};
  int alive = 0;
};

class UnmadeBackend : public ForgetfulBackend {
 public:
  UnmadeBackend(sdk::Host host, std::string_view config) : ForgetfulBackend(host, config) {
    throw std::filesystem::filesystem_error("cannot open", "/srv/of-the-host",
                                            std::make_error_code(std::errc::permission_denied));
  }
};

class AttachingBackend : public ForgetfulBackend {
 public:
  using ForgetfulBackend::ForgetfulBackend;
  std::unique_ptr<sdk::Sandbox> attach(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                       isogate_sandbox_info& info) override {
    return open(call, spec, info);
  }
};

class Wrapped : public testing::Test {
 protected:
  isogate_status open(sdk::Backend& backend, isogate_sandbox_spec spec = {}) {
    spec.struct_size = sizeof spec;
    isogate_sandbox_info info{};
    info.struct_size = sizeof info;
    return kTable.open(reinterpret_cast<isogate_backend*>(&backend), &call_, &spec, &sandbox_, &info,
                       &error_);
  }
  isogate_status open_with_flags(sdk::Backend& backend, uint32_t flags) {
    isogate_sandbox_spec spec{};
    spec.flags = flags;
    return open(backend, spec);
  }
  isogate_status exec(isogate_exec_request request = {}) {
    request.struct_size = sizeof request;
    isogate_exec_result result{};
    result.struct_size = sizeof result;
    return kTable.exec(sandbox_, &call_, &request, &result, &error_);
  }
  isogate_status stat(isogate_file_request request = {}) {
    request.struct_size = sizeof request;
    isogate_entry entry{};
    entry.struct_size = sizeof entry;
    return kTable.stat(sandbox_, &call_, &request, &entry, &error_);
  }
  isogate_status probe() {
    isogate_probe probe{};
    probe.struct_size = sizeof probe;
    return kTable.probe(reinterpret_cast<isogate_backend*>(&backend_), &call_, &probe, &error_);
  }
  isogate_status evidence() {
    isogate_evidence_request request{};
    request.struct_size = sizeof request;
    isogate_evidence found{};
    found.struct_size = sizeof found;
    return kTable.evidence(sandbox_, &call_, &request, &found, &error_);
  }
  isogate_status connect(isogate_connect_request request = {}) {
    request.struct_size = sizeof request;
    return kTable.connect(sandbox_, &call_, &request, &error_);
  }
  isogate_status close(uint32_t mode = ISOGATE_CLOSE_STOP) {
    return kTable.close(sandbox_, &call_, mode, &error_);
  }
  void SetUp() override {
    call_.struct_size = sizeof call_;
    call_.cancel_fd = cancel_.get();
    error_.struct_size = sizeof error_;
    ASSERT_EQ(open(backend_), ISOGATE_OK);
    backend_.act = [this](const sdk::Call&) { ++acts_; };
  }
  void TearDown() override {
    backend_.act = [](const sdk::Call&) {};
    if (backend_.alive > 0) {
      EXPECT_EQ(close(), ISOGATE_OK);
    }
  }

  static constexpr isogate_backend_api kTable = sdk::detail::kApi<ForgetfulBackend, ActingSandbox>;
  const Fd cancel_{::eventfd(0, EFD_CLOEXEC)};
  ForgetfulBackend backend_{sdk::Host(kNoHost), ""};
  isogate_sandbox* sandbox_ = nullptr;
  isogate_call call_{};
  isogate_error error_{};
  int acts_ = 0;
};

TEST_F(Wrapped, LeavesOutWhatASandboxDoesNotOverride) {
  EXPECT_NE(kTable.mkdir, nullptr);
  EXPECT_NE(kTable.connect, nullptr);
  EXPECT_NE(kTable.evidence, nullptr) << "a private function overrides, too";
  EXPECT_EQ(kTable.move, nullptr);
  EXPECT_EQ(kTable.remove, nullptr);
  EXPECT_EQ(kTable.watch, nullptr);
  EXPECT_NE(kTable.read, nullptr) << "required";
  auto* const backend = reinterpret_cast<isogate_backend*>(&backend_);
  const auto whole = sdk::detail::kApi<ForgetfulBackend, WholeSandbox>;
  EXPECT_NE(whole.mkdir, nullptr) << "inherited";
  for (const char* id : {ISOGATE_DISK_EXTENSION, ISOGATE_EXEC_EXTENSION}) {
    EXPECT_EQ(kTable.get_extension(backend, id), nullptr) << id;
    EXPECT_NE(whole.get_extension(backend, id), nullptr) << id;
  }
}

TEST_F(Wrapped, ABackendThatOverridesNoAttachFindsNoSandbox) {
  ASSERT_EQ(close(), ISOGATE_OK);
  for (const uint32_t flag : {ISOGATE_OPEN_ATTACH_ONLY, ISOGATE_OPEN_RUNNING_ONLY}) {
    ForgetfulBackend forgetful(sdk::Host(kNoHost), "");
    EXPECT_EQ(open_with_flags(forgetful, flag | ISOGATE_OPEN_KNOWN), ISOGATE_NO_SANDBOX);
    EXPECT_EQ(forgetful.alive, 0);
    AttachingBackend attaching(sdk::Host(kNoHost), "");
    EXPECT_EQ(open_with_flags(attaching, flag | ISOGATE_OPEN_KNOWN), ISOGATE_OK);
    EXPECT_EQ(close(), ISOGATE_OK);
  }
}

TEST_F(Wrapped, NoUnknownRequestReachesAPlugin) {
  const auto refused = [this](isogate_status status, const std::string& why) {
    EXPECT_EQ(status, ISOGATE_INVALID_ARGUMENT) << why;
    EXPECT_NE(std::string(error_.message).find(why), std::string::npos) << error_.message;
  };
  const isogate_limit twice[] = {{ISOGATE_LIMIT_PIDS, 0, 1}, {ISOGATE_LIMIT_PIDS, 0, 2}};
  const isogate_limit marked[] = {{ISOGATE_LIMIT_PIDS, 1, 1}};
  const uint32_t bit = 1u << 30;
  ForgetfulBackend other(sdk::Host(kNoHost), "");
  refused(open(other, {.flags = bit}), "unknown flags 0x40000000: the gateway is probably newer");
  refused(open(other, {.egress = ISOGATE_EGRESS_ALLOW + 1}), "unknown egress");
  refused(open(other, {.reserved = 18}), "unknown fields 0x12");
  refused(open(other, {.limits = twice, .limit_count = 2}), "malformed, or there twice");
  EXPECT_EQ(other.alive, 0);
  refused(exec({.flags = bit}), "unknown flags 0x40000000");
  refused(exec({.reserved = 1}), "unknown fields 0x1");
  refused(exec({.limits = marked, .limit_count = 1}), "malformed");
  refused(stat({.flags = bit}), "unknown flags 0x40000000");
  refused(stat({.scope = ISOGATE_SCOPE_SANDBOX + 1}), "unknown scope");
  refused(stat({.mode = 04755}), "more than permission bits 0x800");
  refused(connect({.flags = 1}), "unknown flags 0x1");
  refused(close(ISOGATE_CLOSE_PURGE + 1), "close mode");
  EXPECT_EQ(acts_, 0);
}

TEST_F(Wrapped, AnExecWhoseStreamFailsIsLost) {
  const Fd directory(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  char buffer[8];
  backend_.act = [&](const sdk::Call& call) {
    EXPECT_EQ(call.read_some(directory.get(), buffer, sizeof buffer), 0u) << "it throws";
  };
  EXPECT_EQ(exec(), ISOGATE_LOST);
  EXPECT_EQ(error_.os_errno, EISDIR);
  EXPECT_EQ(stat(), ISOGATE_IS_DIRECTORY);
  ASSERT_EQ(::eventfd_write(cancel_.get(), 1), 0);
  EXPECT_EQ(exec(), ISOGATE_LOST) << "cancelled while it waited";
  EXPECT_EQ(stat(), ISOGATE_CANCELLED);
  backend_.act = [](const sdk::Call& call) { call.check(); };
  EXPECT_EQ(exec(), ISOGATE_CANCELLED) << "before anything was started";
}

TEST_F(Wrapped, AnErrnoIsACallersOnlyInACallOfFilesOrPorts) {
  struct Row {
    isogate_status of_a_file, of_an_exec, of_the_backend;
    int os_errno;
    Act act;
  };
  const auto throws = [](int os_errno, const std::error_category& category) -> Act {
    return [os_errno, &category](const sdk::Call&) { throw std::system_error(os_errno, category); };
  };
  const auto &generic = std::generic_category(), &system = std::system_category();
  const std::vector<Row> rows = {
      {ISOGATE_NOT_FOUND, ISOGATE_NOT_FOUND, ISOGATE_NOT_FOUND, ENOENT,
       [](const sdk::Call&) { sdk::fail_with_errno("cannot open it", ENOENT); }},
      {ISOGATE_NOT_FOUND, ISOGATE_LOST, ISOGATE_IO, ENOENT, throws(ENOENT, generic)},
      {ISOGATE_PERMISSION_DENIED, ISOGATE_LOST, ISOGATE_IO, EACCES, throws(EACCES, system)},
      {ISOGATE_ALREADY_EXISTS, ISOGATE_LOST, ISOGATE_IO, EEXIST, throws(EEXIST, generic)},
      {ISOGATE_INVALID_ARGUMENT, ISOGATE_LOST, ISOGATE_IO, EINVAL, throws(EINVAL, generic)},
      {ISOGATE_RESOURCE_EXHAUSTED, ISOGATE_LOST, ISOGATE_IO, ENOSPC, throws(ENOSPC, generic)},
      {ISOGATE_RESOURCE_EXHAUSTED, ISOGATE_LOST, ISOGATE_RESOURCE_EXHAUSTED, EMFILE, throws(EMFILE, system)},
      {ISOGATE_RESOURCE_EXHAUSTED, ISOGATE_LOST, ISOGATE_RESOURCE_EXHAUSTED, EAGAIN, throws(EAGAIN, system)},
      {ISOGATE_IO, ISOGATE_LOST, ISOGATE_IO, 0,
       [](const sdk::Call&) { throw std::ios_base::failure("no errno"); }},
  };
  for (const Row& row : rows) {
    backend_.act = row.act;
    const auto expect = [&](const char* call, isogate_status status, isogate_status expected) {
      EXPECT_EQ(status, expected) << call << ": " << error_.message;
      EXPECT_EQ(error_.os_errno, row.os_errno) << call;
    };
    expect("stat", stat(), row.of_a_file);
    expect("connect", connect(), row.of_a_file);
    expect("exec", exec(), row.of_an_exec);
    expect("probe", probe(), row.of_the_backend);
    expect("open", open(backend_), row.of_the_backend);
    expect("evidence", evidence(), row.of_the_backend);
    expect("close", close(), row.of_the_backend);
  }
}

// create() throws it to an operator, who reads it whole.
TEST_F(Wrapped, TheTextOfAnErrnoGoesToTheLogAndItsPathToNoCaller) {
  struct Line {
    uint32_t level = 0;
    std::string text;
  } logged;
  isogate_host host{};
  host.ctx = &logged;
  host.log = [](void* ctx, uint32_t level, isogate_str text) {
    *static_cast<Line*>(ctx) = {level, std::string(sdk::view(text))};
  };
  const auto fails = [](int os_errno) -> Act {
    return [os_errno](const sdk::Call&) {
      throw std::filesystem::filesystem_error("cannot open", "/srv/of-the-host",
                                              std::error_code(os_errno, std::generic_category()));
    };
  };
  isogate_backend* made = nullptr;
  EXPECT_EQ(sdk::detail::create<UnmadeBackend>(&host, sdk::str("{}"), &made, &error_), ISOGATE_IO);
  EXPECT_NE(std::string(error_.message).find("/srv/of-the-host"), std::string::npos) << error_.message;
  EXPECT_EQ(logged.text, "");
  ASSERT_EQ(kTable.create(&host, sdk::str("{}"), &made, &error_), ISOGATE_OK);
  const auto expect = [&](isogate_status status, isogate_status expected, const std::string& message,
                          uint32_t level) {
    EXPECT_EQ(status, expected);
    EXPECT_EQ(error_.message, message);
    EXPECT_EQ(logged.level, level) << message;
    EXPECT_NE(logged.text.find("/srv/of-the-host"), std::string::npos) << logged.text;
    logged = {};
  };
  backend_.act = fails(EIO);
  const isogate_file_request file{.path = sdk::str("a/b")};
  expect(stat(file), ISOGATE_IO, "Input/output error: `a/b`", ISOGATE_LOG_WARN);
  EXPECT_EQ(error_.os_errno, EIO);
  expect(exec(), ISOGATE_LOST, "Input/output error", ISOGATE_LOG_WARN);
  backend_.act = fails(ENOENT);
  expect(stat(file), ISOGATE_NOT_FOUND, "No such file or directory: `a/b`", ISOGATE_LOG_DEBUG);
  expect(probe(), ISOGATE_IO, "No such file or directory", ISOGATE_LOG_WARN);
  backend_.act = fails(EMFILE);
  expect(evidence(), ISOGATE_RESOURCE_EXHAUSTED, "Too many open files", ISOGATE_LOG_WARN);
  kTable.destroy(made);
  EXPECT_EQ(stat(file), ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(logged.text, "") << "its host is gone";
}

TEST_F(Wrapped, TheEndOfATerminalsProgramsIsTheEndOfItsBytes) {
  const Fd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master && ::grantpt(master.get()) == 0 && ::unlockpt(master.get()) == 0);
  char name[64];
  ASSERT_EQ(::ptsname_r(master.get(), name, sizeof name), 0);
  Fd program(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(::write(program.get(), "hi", 2), 2);
  program.reset();
  char buffer[8];
  const sdk::Call call(call_);
  EXPECT_EQ(call.read_some(master.get(), buffer, sizeof buffer), 2u);
  EXPECT_EQ(call.read_some(master.get(), buffer, sizeof buffer), 0u);
}

TEST_F(Wrapped, ACloseThatFindsNoSandboxReleasesIt) {
  backend_.act = [](const sdk::Call&) { throw sdk::Error(ISOGATE_IO, "it still runs"); };
  EXPECT_EQ(close(), ISOGATE_IO);
  EXPECT_EQ(backend_.alive, 1);
  backend_.act = [](const sdk::Call&) { throw sdk::Error(ISOGATE_NO_SANDBOX, "it has ended"); };
  EXPECT_EQ(close(), ISOGATE_NO_SANDBOX);
  EXPECT_EQ(backend_.alive, 0);
}

}  // namespace
}  // namespace isogate
