// An attacker controls the front: what it can send to a backend host, and the result.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <cstring>

#include "tests/host/host_process.h"

namespace isogate {
namespace {

using testing::HasSubstr;

class HostileFront : public testing::Test {
 protected:
  void SetUp() override {
    ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
    host_ = std::make_unique<HostProcess>(fixture_backend("good"));
    ASSERT_NO_FATAL_FAILURE(host_->expect_ready());
    ASSERT_EQ(host_->open().status, ISOGATE_OK);
  }

  void expect(ipc::Call call, isogate_status status, const std::string& message) {
    ipc::Reply reply = host_->call(std::move(call));
    EXPECT_EQ(reply.status, status) << reply.message;
    EXPECT_THAT(reply.message, HasSubstr(message));
  }

  static ipc::OpenCall open(const std::string& box, const std::string& agent) {
    ipc::OpenCall call;
    call.sandbox_id = box;
    call.agent_id = agent;
    return call;
  }

  static ipc::FileCall stat(const std::string& path) {
    ipc::FileCall call;
    call.verb = ipc::FileVerb::kStat;
    call.sandbox_id = kBox;
    call.path = path;
    return call;
  }

  std::unique_ptr<HostProcess> host_;
};

TEST_F(HostileFront, EndsItsChannelWithAMalformedRecord) {
  for (const char* bytes : {"x", "\1\1", "\1\5\0", "\2\1\0"}) {
    HostProcess host(fixture_backend("good"));
    ASSERT_NO_FATAL_FAILURE(host.expect_ready());
    host.open();
    host.send_bytes(std::string_view(bytes, std::strlen(bytes) + 1));
    EXPECT_TRUE(host.channel_ended());
    EXPECT_EQ(host.exit_code(), 1);
    EXPECT_EQ(host.trace(), "close agent 0\ndestroy\n");
  }
}

TEST_F(HostileFront, GetsNoUserThatTheConfigurationDoesNotName) {
  for (const char* user : {"root", "0", "admitted2", "-1"}) {
    ipc::ExecCall exec = exec_call({"exit", "0"});
    exec.user = user;
    expect(std::move(exec), ISOGATE_PERMISSION_DENIED,
           "user `" + std::string(user) + "` is not admitted: add it to the backend's `users`");
    ipc::FileCall file = stat("x");
    file.user = user;
    expect(std::move(file), ISOGATE_PERMISSION_DENIED, "is not admitted");
  }
  ipc::ExecCall exec = exec_call({"exit", "0"});
  exec.user = "admitted";
  expect(std::move(exec), ISOGATE_OK, "");
}

TEST_F(HostileFront, GetsNoNameThatCouldBeAPath) {
  for (const std::string& id :
       {std::string("isg-../../../../etc/passwd____"), std::string("isg-") + std::string(25, 'a'),
        "isg-" + std::string(26, 'A'), "isg-" + std::string(26, '1'), "isx-" + std::string(26, 'a'),
        std::string()}) {
    expect(open(id, "agent"), ISOGATE_INVALID_ARGUMENT, "sandbox_id");
    expect(exec_call({"exit"}, id), ISOGATE_INVALID_ARGUMENT, "sandbox_id");
  }
  for (const std::string& agent : {std::string("../x"), std::string("-x"), std::string("a b"),
                                   std::string(64, 'a'), std::string("a\0b", 3), std::string()})
    expect(open(kOtherBox, agent), ISOGATE_INVALID_ARGUMENT, "agent_id");
  ipc::ExecCall exec = exec_call({"exit"});
  exec.exec_id = "../x";
  expect(std::move(exec), ISOGATE_INVALID_ARGUMENT, "exec_id");
}

TEST_F(HostileFront, GetsNoPathOutOfTheWorkspaceByAnAbsoluteRoot) {
  expect(stat("/etc/shadow"), ISOGATE_PERMISSION_DENIED, "absolute");
  expect(stat("/workspacex"), ISOGATE_PERMISSION_DENIED, "absolute");
  expect(stat("/workspace/x"), ISOGATE_OK, "");
  expect(stat(std::string("a\0b", 3)), ISOGATE_INVALID_ARGUMENT, "NUL");
  ipc::FileCall relative = stat("x");
  relative.scope = ISOGATE_SCOPE_SANDBOX;
  expect(std::move(relative), ISOGATE_INVALID_ARGUMENT, "must be absolute");
}

TEST_F(HostileFront, GetsNothingForFlagsModesAndCountsOutOfRange) {
  ipc::FileCall mode = stat("x");
  mode.mode = 04755;
  expect(std::move(mode), ISOGATE_INVALID_ARGUMENT, "0777");
  ipc::FileCall flags = stat("x");
  flags.flags = 1u << 31;
  expect(std::move(flags), ISOGATE_INVALID_ARGUMENT, "flags");
  ipc::FileCall scope = stat("x");
  scope.scope = 2;
  expect(std::move(scope), ISOGATE_INVALID_ARGUMENT, "scope");
  ipc::FileCall second = stat("x");
  second.path_to = "y";
  expect(std::move(second), ISOGATE_INVALID_ARGUMENT, "second path");
  ipc::ExecCall exec = exec_call({"exit"});
  exec.flags = 1u << 31;
  expect(std::move(exec), ISOGATE_INVALID_ARGUMENT, "flags");
  ipc::ExecCall sampled = exec_call({"exit"});
  sampled.flags = ISOGATE_EXEC_LIMITS_SAMPLED;
  sampled.limits.set(ISOGATE_LIMIT_PIDS, 5);
  expect(std::move(sampled), ISOGATE_PERMISSION_DENIED, "limits.exec: sampled");
  expect(exec_call({}), ISOGATE_INVALID_ARGUMENT, "`argv` is empty");
  expect(exec_call({"exit", std::string("a\0", 2)}), ISOGATE_INVALID_ARGUMENT, "NUL");
  for (const std::string& name : {std::string(), std::string("A=B"), std::string("A\0", 2)}) {
    ipc::ExecCall env = exec_call({"exit"});
    env.env = {{name, "x"}};
    expect(std::move(env), ISOGATE_INVALID_ARGUMENT, "`env`");
  }
  ipc::OpenCall best_effort = open(kOtherBox, "agent");
  best_effort.flags = ISOGATE_OPEN_LIMITS_BEST_EFFORT;
  expect(std::move(best_effort), ISOGATE_PERMISSION_DENIED, "best_effort");
  ipc::OpenCall egress = open(kOtherBox, "agent");
  egress.egress = 9;
  expect(std::move(egress), ISOGATE_INVALID_ARGUMENT, "egress");
  ipc::CloseCall close;
  close.sandbox_id = kBox;
  close.mode = 3;
  expect(std::move(close), ISOGATE_INVALID_ARGUMENT, "mode");
  ipc::EvidenceCall evidence;
  evidence.sandbox_id = kBox;
  evidence.gateway_port = 70000;
  expect(std::move(evidence), ISOGATE_INVALID_ARGUMENT, "port");
}

TEST_F(HostileFront, GetsNothingForDescriptorsOfTheWrongKind) {
  auto directory = [] { return Fd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); };
  auto pipe = make_pipe();
  ipc::ExecCall stdout_dir = exec_call({"exit"});
  stdout_dir.std_out = directory();
  expect(std::move(stdout_dir), ISOGATE_INVALID_ARGUMENT, "`stdout`");
  ipc::ExecCall wrong_way = exec_call({"exit"});
  wrong_way.std_out = Fd(::dup(pipe->read.get()));
  expect(std::move(wrong_way), ISOGATE_INVALID_ARGUMENT, "`stdout`");
  ipc::ExecCall device = exec_call({"exit"});
  device.std_in = Fd(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  expect(std::move(device), ISOGATE_INVALID_ARGUMENT, "`stdin`");
  ipc::ExecCall cancel = exec_call({"exit"});
  cancel.call.cancel = Fd(::dup(pipe->write.get()));
  expect(std::move(cancel), ISOGATE_INVALID_ARGUMENT, "not an event");
  ipc::FileCall none = stat("x");
  none.verb = ipc::FileVerb::kRead;
  expect(std::move(none), ISOGATE_INVALID_ARGUMENT, "no descriptor for `body`");
  ipc::FileCall extra = stat("x");
  extra.body = Fd(::dup(pipe->write.get()));
  expect(std::move(extra), ISOGATE_INVALID_ARGUMENT, "body that its verb does not use");
  const auto connect = [](uint32_t port, Fd stream) {
    ipc::ConnectCall call;
    call.sandbox_id = kBox;
    call.port = port;
    call.stream = std::move(stream);
    call.ready = std::move(*make_event());
    return call;
  };
  expect(connect(0, {}), ISOGATE_INVALID_ARGUMENT, "not 1 to 65535");
  expect(connect(65536, {}), ISOGATE_INVALID_ARGUMENT, "not 1 to 65535");
  expect(connect(80, Fd(::dup(pipe->write.get()))), ISOGATE_INVALID_ARGUMENT, "not a Unix stream socket");
  expect(connect(80, Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))), ISOGATE_INVALID_ARGUMENT,
         "not a Unix stream socket");
  expect(ipc::EnumerateCall{}, ISOGATE_INVALID_ARGUMENT, "no descriptor for `out`");
  expect(ipc::OrphansCall{}, ISOGATE_INVALID_ARGUMENT, "no descriptor for `out`");
  ipc::OrphansCall strange;
  strange.sandbox_id = "isg-../../../etc";
  expect(std::move(strange), ISOGATE_INVALID_ARGUMENT, "not of the form");
}

// Without a way to report that the body is complete, a truncated one would count as complete.
TEST_F(HostileFront, GetsNoWriteThatCannotSayItsBodyIsComplete) {
  auto pipe = make_pipe();
  pipe->write.reset();
  auto write = [&] {
    ipc::FileCall call = stat("x");
    call.verb = ipc::FileVerb::kWrite;
    call.body = Fd(::dup(pipe->read.get()));
    return call;
  };
  expect(write(), ISOGATE_INVALID_ARGUMENT, "no descriptor for `complete`");
  ipc::FileCall wrong = write();
  wrong.complete = Fd(::dup(pipe->read.get()));
  expect(std::move(wrong), ISOGATE_INVALID_ARGUMENT, "the complete descriptor of a record is not an event");
  ipc::FileCall elsewhere = stat("x");
  elsewhere.complete = std::move(*make_event());
  expect(std::move(elsewhere), ISOGATE_INVALID_ARGUMENT, "`complete` that its verb does not use");
}

}  // namespace
}  // namespace isogate
