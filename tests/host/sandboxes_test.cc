#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/eventually.h"
#include "tests/host/host_process.h"

namespace isogate {
namespace {

using testing::HasSubstr;

class Boxes : public testing::Test {
 protected:
  void SetUp() override {
    ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
    start(fixture_backend("good"));
  }
  void start(BackendConfig backend) {
    host_ = std::make_unique<HostProcess>(std::move(backend));
    ASSERT_NO_FATAL_FAILURE(host_->expect_ready());
  }
  std::string counters() {
    std::string text;
    host_->exec({"counters"}, &text);
    return text;
  }
  uint64_t send_open(const std::string& agent, const std::string& box = kBox) {
    ipc::OpenCall open;
    open.sandbox_id = box;
    open.agent_id = agent;
    return host_->send(std::move(open));
  }
  // Waits until a close has begun.
  bool refuses_calls() {
    return test::eventually(20, [&] { return host_->exec({"exit", "0"}).status == ISOGATE_NO_SANDBOX; });
  }

  std::unique_ptr<HostProcess> host_;
};

TEST_F(Boxes, ThatAreNotOpenRefuseEveryCall) {
  ipc::Reply reply = host_->exec({"exit", "0"});
  EXPECT_EQ(reply.status, ISOGATE_NO_SANDBOX);
  EXPECT_THAT(reply.message, HasSubstr("is not open"));
  EXPECT_EQ(host_->close().status, ISOGATE_NO_SANDBOX);
}

TEST_F(Boxes, ThatAreOpenAnswerOpenAgain) {
  ipc::Reply first = host_->open();
  ASSERT_EQ(first.status, ISOGATE_OK) << first.message;
  EXPECT_EQ(std::get<ipc::Opened>(first.value).flags, 0u);
  EXPECT_EQ(std::get<ipc::Opened>(first.value).uid, 12345u);
  ipc::Reply second = host_->open();
  ASSERT_EQ(second.status, ISOGATE_OK);
  EXPECT_EQ(std::get<ipc::Opened>(second.value).flags, ISOGATE_SANDBOX_ATTACHED);
  EXPECT_EQ(std::get<ipc::Opened>(second.value).handle, std::get<ipc::Opened>(first.value).handle);
  EXPECT_THAT(counters(), HasSubstr("opens=1 "));
}

TEST_F(Boxes, AreOpenedOnceHoweverManyAsk) {
  std::vector<uint64_t> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(send_open("slow"));
  int attached = 0;
  for (uint64_t id : ids) {
    auto reply = host_->reply_to(id);
    ASSERT_EQ(reply->status, ISOGATE_OK) << reply->message;
    attached += std::get<ipc::Opened>(reply->value).flags == ISOGATE_SANDBOX_ATTACHED ? 1 : 0;
  }
  EXPECT_EQ(attached, 15);
  EXPECT_THAT(counters(), HasSubstr("opens=1 twice=0"));
}

TEST_F(Boxes, ThatCouldNotBeOpenedAreNotOpen) {
  ipc::Reply reply = host_->open("refused");
  EXPECT_EQ(reply.status, ISOGATE_UNAVAILABLE);
  EXPECT_EQ(reply.message, "no sandbox today");
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_NO_SANDBOX);
  EXPECT_EQ(host_->open().status, ISOGATE_OK);
}

TEST_F(Boxes, OfAPluginThatClaimsTooMuchAreClosedAgain) {
  ipc::Reply reply = host_->open("liar");
  EXPECT_EQ(reply.status, ISOGATE_INTERNAL);
  EXPECT_THAT(reply.message, HasSubstr("more isolation than its descriptor"));
  EXPECT_EQ(host_->trace(), "close liar 1\n");
  reply = host_->open("null");
  EXPECT_EQ(reply.status, ISOGATE_INTERNAL);
  EXPECT_THAT(reply.message, HasSubstr("OK without a sandbox"));
}

TEST_F(Boxes, CloseAfterTheirCallsAndRefuseNewOnesMeanwhile) {
  ASSERT_EQ(host_->open().status, ISOGATE_OK);
  uint64_t exec = host_->start_exec({"sleep", "5000"});
  ASSERT_TRUE(host_->await_running(1));
  ipc::CloseCall close;
  close.sandbox_id = kBox;
  close.mode = ISOGATE_CLOSE_STOP;
  uint64_t closing = host_->send(std::move(close));
  EXPECT_TRUE(refuses_calls());
  EXPECT_EQ(host_->trace(), "");
  auto reply = host_->reply_to(exec);
  EXPECT_EQ(std::get<isogate_exec_result>(reply->value).flags, 0u);  // it ran to its end
  EXPECT_EQ(host_->reply_to(closing)->status, ISOGATE_OK);
  EXPECT_EQ(host_->trace(), "close agent 1\n");
  EXPECT_EQ(host_->open().status, ISOGATE_OK);
}

TEST_F(Boxes, TakeNothingButACloseOnceOneWasCancelledOrFailed) {
  ASSERT_EQ(host_->open("sticky").status, ISOGATE_OK);
  auto event = make_event();
  uint64_t exec = host_->start_exec({"sleep", "60000"}, event->get());
  ASSERT_TRUE(host_->await_running(1));
  auto impatient = make_event();
  ipc::CloseCall close;
  close.sandbox_id = kBox;
  close.call.cancel = Fd(::dup(impatient->get()));
  uint64_t closing = host_->send(std::move(close));
  EXPECT_TRUE(refuses_calls());
  signal_event(impatient->get());
  EXPECT_EQ(host_->reply_to(closing)->status, ISOGATE_CANCELLED);
  const auto expect_closed_to_calls = [&] {
    EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_NO_SANDBOX);
    EXPECT_EQ(host_->file(ipc::FileVerb::kStat, "a").status, ISOGATE_NO_SANDBOX);
    EXPECT_EQ(host_->open("sticky").status, ISOGATE_UNAVAILABLE);
  };
  expect_closed_to_calls();
  signal_event(event->get());
  EXPECT_TRUE(host_->reply_to(exec).has_value());
  ipc::Reply failed = host_->close();
  EXPECT_EQ(failed.status, ISOGATE_IO);
  EXPECT_EQ(failed.message, "not yet");
  expect_closed_to_calls();
  ipc::OpenCall attach;  // a front that has no record of it can still close it
  attach.sandbox_id = kBox;
  attach.agent_id = "sticky";
  attach.flags = ISOGATE_OPEN_ATTACH_ONLY;
  EXPECT_EQ(host_->call(std::move(attach)).status, ISOGATE_OK);
  expect_closed_to_calls();
  EXPECT_EQ(host_->close(ISOGATE_CLOSE_PURGE).status, ISOGATE_OK);
  EXPECT_EQ(host_->trace(), "close sticky 2\n");
}

TEST_F(Boxes, ThatThePluginLostAreOpenedAgain) {
  ASSERT_EQ(host_->open().status, ISOGATE_OK);
  EXPECT_EQ(host_->file(ipc::FileVerb::kStat, "gone").status, ISOGATE_NO_SANDBOX);
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_NO_SANDBOX);
  ipc::Reply again = host_->open();
  ASSERT_EQ(again.status, ISOGATE_OK) << again.message;
  EXPECT_EQ(std::get<ipc::Opened>(again.value).flags, 0u);
  EXPECT_THAT(counters(), HasSubstr("opens=2 "));
  EXPECT_EQ(host_->trace(), "close agent 0\n");
}

// Its container ended before it was closed.
TEST_F(Boxes, ThatThePluginDoesNotHaveAnyMoreAreClosed) {
  for (const uint32_t mode : {ISOGATE_CLOSE_DETACH, ISOGATE_CLOSE_STOP, ISOGATE_CLOSE_PURGE}) {
    ASSERT_EQ(host_->open("gone").status, ISOGATE_OK);
    const ipc::Reply closed = host_->close(mode);
    EXPECT_EQ(closed.status, mode == ISOGATE_CLOSE_PURGE ? ISOGATE_NO_SANDBOX : ISOGATE_OK)
        << "what a purge may have left is looked for";
    EXPECT_EQ(host_->close().message, "sandbox `" + kBox + "` is not open");
  }
  ASSERT_EQ(host_->open("gone").status, ISOGATE_OK);
  EXPECT_EQ(host_->file(ipc::FileVerb::kStat, "gone").status, ISOGATE_NO_SANDBOX);
  const ipc::Reply again = host_->open("gone");
  ASSERT_EQ(again.status, ISOGATE_OK) << again.message;
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_OK);
  EXPECT_EQ(host_->trace(), "close gone 0\nclose gone 1\nclose gone 2\nclose gone 0\n");
}

TEST_F(Boxes, ThatThePluginLostAreOpenedAgainOnceTheyCanBeClosed) {
  ASSERT_EQ(host_->open("sticky").status, ISOGATE_OK);
  EXPECT_EQ(host_->file(ipc::FileVerb::kStat, "gone").status, ISOGATE_NO_SANDBOX);
  EXPECT_EQ(host_->open("sticky").message, "not yet");
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_NO_SANDBOX);
  const ipc::Reply again = host_->open("sticky");
  ASSERT_EQ(again.status, ISOGATE_OK) << again.message;
  EXPECT_EQ(std::get<ipc::Opened>(again.value).flags, 0u);
  EXPECT_EQ(host_->trace(), "close sticky 0\n");
}

TEST_F(Boxes, ThatClaimTooMuchAreKeptUntilTheyCanBeClosed) {
  const auto attach = [&] {
    ipc::OpenCall call;
    call.sandbox_id = kBox;
    call.agent_id = "sticky-liar";
    call.flags = ISOGATE_OPEN_ATTACH_ONLY;
    return host_->call(std::move(call)).status;
  };
  for (const uint32_t mode : {ISOGATE_CLOSE_DETACH, ISOGATE_CLOSE_STOP}) {
    const ipc::Reply reply = host_->open("sticky-liar");
    EXPECT_EQ(reply.status, ISOGATE_LOST) << "it is still there";
    EXPECT_THAT(reply.message, HasSubstr("more isolation than its descriptor"));
    EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_NO_SANDBOX);
    EXPECT_EQ(attach(), ISOGATE_OK) << "its agent can be ended";
    EXPECT_EQ(host_->close(mode).status, ISOGATE_OK);
  }
  EXPECT_EQ(host_->open("sticky-liar").status, ISOGATE_LOST);
  EXPECT_EQ(host_->open().status, ISOGATE_OK) << "an open closes it first";
  EXPECT_EQ(host_->trace(), "close sticky-liar 1\nclose sticky-liar 1\nclose sticky-liar 1\n");
}

TEST_F(Boxes, GetTheStricterOfRequestAndConfiguration) {
  BackendConfig backend = fixture_backend("good");
  backend.sandbox_limits.set(ISOGATE_LIMIT_PIDS, 100);
  backend.egress = ISOGATE_EGRESS_PROXY;
  start(backend);
  auto open = [&](const std::string& box, uint64_t pids, uint32_t egress) {
    ipc::OpenCall call;
    call.sandbox_id = box;
    call.agent_id = "agent";
    call.limits.set(ISOGATE_LIMIT_PIDS, pids);
    call.egress = egress;
    return host_->call(std::move(call));
  };
  auto handle = [&](char name, uint64_t pids, uint32_t egress) {
    ipc::Reply reply = open("isg-" + std::string(26, name), pids, egress);
    auto* opened = std::get_if<ipc::Opened>(&reply.value);
    return opened != nullptr ? opened->handle : reply.message;
  };
  EXPECT_EQ(handle('a', 0, ISOGATE_EGRESS_UNSET), "limit-100-egress-2");
  EXPECT_EQ(handle('b', 5, ISOGATE_EGRESS_DENY), "limit-5-egress-1");
  EXPECT_EQ(handle('c', 500, ISOGATE_EGRESS_PROXY), "limit-100-egress-2");
  EXPECT_THAT(handle('d', 0, ISOGATE_EGRESS_ALLOW), HasSubstr("more egress than"));
}

}  // namespace
}  // namespace isogate
