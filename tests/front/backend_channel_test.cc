#include "gateway/front/sandboxes/backend_channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "gateway/front/base/own_fd.h"

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
    reply_ = co_await channel_->call(std::move(exec), std::move(cancel), {}, &unsent_);
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

}  // namespace
}  // namespace isogate::front
