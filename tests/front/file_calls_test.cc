#include "gateway/front/sandboxes/file_calls.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/front/base/alarm.h"
#include "gateway/front/base/own_fd.h"
#include "tests/front/fake_host.h"

namespace isogate::front {
namespace {
namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;

class FileCallsTest : public OnFakeHost {
 protected:
  void SetUp() override {
    OnFakeHost::SetUp();
    ASSERT_NO_THROW(open(lease_));
  }
  void TearDown() override {
    lease_.reset();
    OnFakeHost::TearDown();
  }
  Descriptor an_event() { return Descriptor(io_, or_throw(make_event()).release()); }

  std::optional<Lease> lease_;
};

TEST_F(FileCallsTest, AnEventOfAClosedDescriptorDoesNotEndTheWaitForBytes) {
  const Fd write = or_throw(make_event()), seen = or_throw(make_event());
  host_->read = [&](ipc::FileCall& call) {
    if (!FakeHost::came(write.get(), call.call)) return ISOGATE_CANCELLED;
    EXPECT_TRUE(write_all(call.body.get(), "some bytes"));
    return FakeHost::came(seen.get(), call.call) ? ISOGATE_OK : ISOGATE_CANCELLED;
  };
  const auto work = [&]() -> asio::awaitable<void> {
    Descriptor first = an_event(), closed = an_event();
    signal_event(first.native_handle());
    signal_event(closed.native_handle());
    // Both events are taken from the kernel here, and that of `closed` is still to come.
    co_await first.async_wait(Descriptor::wait_read, asio::use_awaitable);
    closed.close();
    Transfer transfer(*lease_, ipc::FileVerb::kRead, {});
    asio::post(io_, [&] { signal_event(write.get()); });
    Alarm too_late(io_.get_executor());
    too_late.set(std::chrono::seconds(5), [&] { transfer.cancel(); });
    co_await transfer.ready();
    EXPECT_FALSE(transfer.answered()) << "it waited for the reply";
    EXPECT_EQ(bytes_in(transfer.pipe.native_handle()), 10u);
    too_late.cancel();
    signal_event(seen.get());
    const ipc::Reply reply = co_await transfer.reply();
    EXPECT_EQ(reply.status, ISOGATE_OK);
  };
  ASSERT_NO_THROW(run(work()));
}

// Nothing of a read waits for its client while the front waits for the reply.
TEST_F(FileCallsTest, ABackendThatWritesBytesAndDoesNotReplyIsCancelled) {
  host_->read = [](ipc::FileCall& call) {
    EXPECT_TRUE(write_all(call.body.get(), "some bytes"));
    FakeHost::came(-1, call.call);
    return ISOGATE_CANCELLED;
  };
  const auto work = [&]() -> asio::awaitable<void> {
    FileTarget target;
    target.idle = std::chrono::seconds(1);
    Transfer transfer(*lease_, ipc::FileVerb::kRead, target);
    co_await transfer.ready();
    const ipc::Reply reply = co_await transfer.reply();
    EXPECT_EQ(reply.status, ISOGATE_CANCELLED);
    EXPECT_NE(reply.message.find("did not go on"), std::string::npos) << reply.message;
  };
  ASSERT_NO_THROW(run(work()));
}

}  // namespace
}  // namespace isogate::front
