#include "gateway/front/backends/backend_channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <vector>

#include "gateway/front/base/own_fd.h"
#include "gateway/ipc/channel.h"

namespace isogate::front {
namespace {

class BackendChannelTest : public testing::Test {
 protected:
  BackendChannelTest() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    host_ = Fd(ends[1]);
    channel_ = std::make_shared<BackendChannel>(io_.get_executor(), Fd(ends[0]), HostIdentity());
    channel_->start([](const ipc::Hello&) {}, [] {});
  }
  // It passes the pipe's reading end on.
  void call() {
    ipc::ExecCall exec;
    exec.std_in = std::move(pipe_.read);
    boost::asio::co_spawn(io_, run(std::move(exec)), [](const std::exception_ptr&) {});
    io_.poll();
  }
  boost::asio::awaitable<void> run(ipc::ExecCall exec) {
    auto cancel = or_throw(Cancel::make(io_.get_executor()));
    if (cancelled_) cancel->fire();
    reply_ = co_await channel_->call(std::move(exec), std::move(cancel), {}, &unsent_);
  }
  // The reply to an open, to which the host answers `status`, if it comes to the host.
  isogate_status open(const std::string& sandbox_id, isogate_status status) {
    ipc::OpenCall open;
    open.sandbox_id = sandbox_id;
    open.tenant = "tenant";
    std::optional<ipc::Reply> reply;
    boost::asio::co_spawn(io_, ask(std::move(open), reply), [](const std::exception_ptr&) {});
    io_.poll();
    if (!reply) answer(status);
    return reply ? reply->status : ISOGATE_INTERNAL;
  }
  // The reply to a close, which the host cancels.
  isogate_status close(const std::string& sandbox_id) {
    ipc::CloseCall close;
    close.sandbox_id = sandbox_id;
    std::optional<ipc::Reply> reply;
    boost::asio::co_spawn(io_, ask(std::move(close), reply), [](const std::exception_ptr&) {});
    io_.poll();
    answer(ISOGATE_CANCELLED);
    return reply ? reply->status : ISOGATE_INTERNAL;
  }
  boost::asio::awaitable<void> ask(ipc::Call call, std::optional<ipc::Reply>& reply) {
    reply = co_await channel_->call(std::move(call));
  }
  // A host of its own, which does not end the first of two calls of one sandbox though that is cancelled.
  struct Stuck {
    const char* what;
    ipc::Call hangs, next;
    bool given_up;  // for that
    Fd host = {};
    std::shared_ptr<BackendChannel> channel = {};
    std::optional<ipc::Reply> lost = {}, answer = {};
  };
  template <typename Message>
  static ipc::Call of_sandbox(uint32_t flags = 0) {
    Message message;
    message.sandbox_id = "sandbox";
    if constexpr (requires { message.flags; }) message.flags = flags;
    return message;
  }
  boost::asio::awaitable<void> ask_cancelled(Stuck& stuck) {
    auto cancel = or_throw(Cancel::make(io_.get_executor()));
    cancel->fire();
    stuck.lost = co_await stuck.channel->call(std::move(stuck.hangs), std::move(cancel));
  }
  boost::asio::awaitable<void> ask_next(Stuck& stuck) {
    stuck.answer = co_await stuck.channel->call(std::move(stuck.next));
  }
  void begin(Stuck& stuck) {
    auto ends = or_throw(ipc::make_socket_pair());
    stuck.host = std::move(ends.theirs);
    stuck.channel = std::make_shared<BackendChannel>(io_.get_executor(), std::move(ends.own),
                                                     HostIdentity{.backend = "mine"});
    stuck.channel->start([](const ipc::Hello&) {}, [] {});
    or_throw(ipc::send_record(stuck.host.get(), ipc::encode(ipc::Hello()).bytes, {}, ipc::Wait::kBlock));
    boost::asio::co_spawn(io_, ask_cancelled(stuck), [](const std::exception_ptr&) {});
    io_.poll();
    or_throw(ipc::receive_record(stuck.host.get(), ipc::Wait::kBlock));
  }
  // The host cancels the second one, which waited for the first.
  void go_on(Stuck& stuck) {
    boost::asio::co_spawn(io_, ask_next(stuck), [](const std::exception_ptr&) {});
    io_.poll();
    ipc::Reply reply;
    reply.id = ipc::call_id(or_throw(ipc::receive_record(stuck.host.get(), ipc::Wait::kBlock)).bytes);
    reply.status = ISOGATE_CANCELLED;
    or_throw(ipc::send_record(stuck.host.get(), ipc::encode(reply).bytes, {}, ipc::Wait::kBlock));
    io_.poll();
  }
  void answer(isogate_status status) {
    auto record = or_throw(ipc::receive_record(host_.get(), ipc::Wait::kBlock));
    const auto call = or_throw(ipc::decode_call(record.bytes, std::move(record.fds)));
    ipc::Reply reply;
    reply.id = std::visit([](const auto& each) { return each.call.id; }, call);
    reply.status = status;
    if (status == ISOGATE_OK) reply.value = ipc::Opened{};
    send(ipc::encode(reply));
  }
  void send(const ipc::Encoded& record) {
    or_throw(ipc::send_record(host_.get(), record.bytes, {}, ipc::Wait::kBlock));
    io_.poll();
  }
  [[nodiscard]] bool has_reader() const {
    pollfd writer{pipe_.write.get(), POLLOUT, 0};
    return ::poll(&writer, 1, 0) == 1 && (writer.revents & POLLERR) == 0;
  }

  boost::asio::io_context io_;
  Fd host_;
  std::shared_ptr<BackendChannel> channel_;
  Pipe pipe_ = or_throw(make_pipe());
  ipc::Call unsent_;
  std::optional<ipc::Reply> reply_;
  bool cancelled_ = false;  // what run() calls
};

TEST_F(BackendChannelTest, GivesBackACallThatTheHostDidNotTake) {
  host_.reset();
  call();
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->status, ISOGATE_UNAVAILABLE);
  auto* exec = std::get_if<ipc::ExecCall>(&unsent_);
  ASSERT_NE(exec, nullptr);
  EXPECT_TRUE(exec->std_in);
  EXPECT_TRUE(has_reader());
}

TEST_F(BackendChannelTest, ClosesTheDescriptorsOfACallThatIsSent) {
  call();
  EXPECT_FALSE(reply_);
  host_.reset();
  EXPECT_FALSE(has_reader()) << "only the host has its reader";
  io_.poll();
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->status, ISOGATE_LOST);
  EXPECT_EQ(std::get_if<ipc::ExecCall>(&unsent_), nullptr);
}

// No close follows there.
TEST_F(BackendChannelTest, WhatIsGoneAtALaterOpenTakesNoPlace) {
  send(ipc::encode(ipc::Hello()));
  channel_->limit_sandboxes(1, 1);
  for (const isogate_status gone : {ISOGATE_SANDBOX_LOST, ISOGATE_NO_SANDBOX}) {
    EXPECT_EQ(open("first", ISOGATE_OK), ISOGATE_OK);
    EXPECT_EQ(open("second", ISOGATE_OK), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_EQ(open("first", ISOGATE_UNAVAILABLE), ISOGATE_UNAVAILABLE);
    EXPECT_EQ(open("second", ISOGATE_OK), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_EQ(open("first", gone), gone);
    EXPECT_EQ(open("second", ISOGATE_OK), ISOGATE_OK);
    EXPECT_EQ(open("second", gone), gone);
  }
}

TEST_F(BackendChannelTest, AHostThatHasEndedIsLostThoughAnotherHasItsSocket) {
  send(ipc::encode(ipc::Hello()));
  call();
  const Fd forked(::dup(host_.get()));
  host_.reset();
  io_.poll();
  EXPECT_FALSE(reply_);
  channel_->host_ended();
  io_.poll();
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->status, ISOGATE_LOST);
  EXPECT_FALSE(channel_->connected());
}

TEST_F(BackendChannelTest, AHostThatHasEndedLeavesItsLastAnswer) {
  send(ipc::encode(ipc::Hello()));
  call();
  auto record = or_throw(ipc::receive_record(host_.get(), ipc::Wait::kBlock));
  ipc::Reply reply;
  reply.id = ipc::call_id(record.bytes);
  reply.status = ISOGATE_UNSUPPORTED;
  or_throw(ipc::send_record(host_.get(), ipc::encode(reply).bytes, {}, ipc::Wait::kBlock));
  channel_->host_ended();
  io_.poll();
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->status, ISOGATE_UNSUPPORTED);
}

// Else the sandbox could not be ended until a restart.
TEST_F(BackendChannelTest, AHostIsGivenUpForACallThatKeepsItsSandboxFromBeingClosed) {
  send(ipc::encode(ipc::Hello()));
  EXPECT_EQ(open("other", ISOGATE_OK), ISOGATE_OK);
  ipc::ExecCall exec;
  exec.sandbox_id = "sandbox";
  exec.std_in = std::move(pipe_.read);
  cancelled_ = true;
  boost::asio::co_spawn(io_, run(std::move(exec)), [](const std::exception_ptr&) {});
  io_.poll();
  or_throw(ipc::receive_record(host_.get(), ipc::Wait::kBlock));
  for (int i = 0; i < 30 && !reply_; ++i) {
    io_.restart();
    io_.run_for(std::chrono::seconds(1));
  }
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->status, ISOGATE_LOST);
  EXPECT_TRUE(channel_->hangs("sandbox"));
  EXPECT_FALSE(channel_->hangs("other"));
  io_.restart();
  EXPECT_EQ(close("other"), ISOGATE_CANCELLED);
  EXPECT_EQ(channel_->given_up(), "") << "nothing of that one hangs";
  EXPECT_EQ(close("sandbox"), ISOGATE_UNAVAILABLE);
  EXPECT_NE(channel_->given_up(), "");
}

TEST_F(BackendChannelTest, ACallThatDoesNotEndIsNamedInTheLog) {
  Stuck write{"a write", of_sandbox<ipc::FileCall>(), of_sandbox<ipc::CloseCall>(), true};
  std::get<ipc::FileCall>(write.hangs).verb = ipc::FileVerb::kWrite;
  begin(write);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 30 && !write.lost; ++i) {
    io_.restart();
    io_.run_for(std::chrono::seconds(1));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(write.lost);
  EXPECT_NE(log.find(R"("event":"backend_call_abandoned","backend":"mine","function":"write","call":1,)"),
            std::string::npos)
      << log;
}

// Else its agent could not work until a restart. A disk may be slow, and the background is in no hurry.
TEST_F(BackendChannelTest, AHostIsGivenUpForAnyCallThatKeepsItsSandboxFromBeingOpenedOrClosed) {
  using ipc::CloseCall, ipc::EvidenceCall, ipc::FileCall, ipc::OpenCall;
  std::vector<Stuck> all;
  all.push_back({"evidence", of_sandbox<EvidenceCall>(), of_sandbox<CloseCall>(), true});
  all.push_back({"a close", of_sandbox<CloseCall>(), of_sandbox<CloseCall>(), true});
  all.push_back({"an open", of_sandbox<OpenCall>(), of_sandbox<OpenCall>(), true});
  all.push_back({"a read", of_sandbox<FileCall>(), of_sandbox<OpenCall>(), true});
  all.push_back(
      {"a durable write", of_sandbox<FileCall>(ISOGATE_FILE_DURABLE), of_sandbox<CloseCall>(), false});
  all.push_back(
      {"a re-attachment", of_sandbox<OpenCall>(), of_sandbox<OpenCall>(ISOGATE_OPEN_RUNNING_ONLY), false});
  for (Stuck& each : all) begin(each);
  const auto is_lost = [](const Stuck& each) { return each.lost.has_value(); };
  for (int i = 0; i < 30 && !std::all_of(all.begin(), all.end(), is_lost); ++i) {
    io_.restart();
    io_.run_for(std::chrono::seconds(1));
  }
  io_.restart();
  for (Stuck& each : all) {
    SCOPED_TRACE(each.what);
    ASSERT_TRUE(each.lost);
    EXPECT_EQ(each.lost->status, ISOGATE_LOST);
    EXPECT_EQ(each.channel->given_up(), "");
    go_on(each);
    ASSERT_TRUE(each.answer);
    EXPECT_EQ(each.answer->status, each.given_up ? ISOGATE_UNAVAILABLE : ISOGATE_CANCELLED);
    EXPECT_EQ(each.channel->given_up() != "", each.given_up) << each.channel->given_up();
  }
}

}  // namespace
}  // namespace isogate::front
