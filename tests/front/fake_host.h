// Sandboxes of a front whose one backend host, `fake`, is a thread of the test.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "gateway/front/sandboxes/sandboxes.h"
#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"

namespace isogate::front {

// A backend host that has no sandbox until it must create one, and executes each call.
class FakeHost {
 public:
  explicit FakeHost(Fd socket) : socket_(std::move(socket)), thread_([this] { serve(); }) {}
  ~FakeHost() { thread_.join(); }  // the other end is closed by then

  std::atomic<int> probes_to_fail{0}, probes{0};
  std::atomic<uint32_t> isolation{ISOGATE_ISOLATION_NONE};
  std::atomic<int> detached{0}, ended{0};  // closes, by their mode
  // These answer in the host's thread; set before the first such call.
  std::function<isogate_status(const ipc::ExecCall&)> exec;
  std::function<isogate_status(ipc::FileCall&)> read;  // and write; ISOGATE_LOST: it never answers

  // Whether the event came before the call was cancelled; -1: none is waited for.
  static bool came(int event, const ipc::CallHeader& call) {
    pollfd both[] = {{event, POLLIN, 0}, {call.cancel.get(), POLLIN, 0}};
    EXPECT_GE(::poll(both, 2, 30'000), 1);
    return both[0].revents != 0;
  }

 private:
  void serve() {
    ipc::Hello hello;
    hello.max_connections = hello.max_watches = 64;
    hello.max_execs = hello.max_file_calls = hello.max_sandboxes = 64;
    send(ipc::encode(hello));
    bool open = false;
    for (;;) {
      auto record = ipc::receive_record(socket_.get(), ipc::Wait::kBlock);
      if (!record) return;
      auto call = ipc::decode_call(record->bytes, std::move(record->fds));
      if (!call) return;
      ipc::Reply reply;
      reply.id = std::visit([](const auto& each) { return each.call.id; }, *call);
      reply.status = ISOGATE_OK;
      if (std::holds_alternative<ipc::ProbeCall>(*call)) {
        ipc::Probe probe;
        probe.verdict = probes_to_fail > 0 ? ISOGATE_PROBE_UNAVAILABLE : ISOGATE_PROBE_AVAILABLE;
        if (probes_to_fail > 0) --probes_to_fail;
        ++probes;
        probe.isolation = isolation;
        probe.locality = ISOGATE_LOCALITY_HOST;
        probe.capabilities = ISOGATE_CAP_PORTS;
        reply.value = probe;
      } else if (const auto* asked = std::get_if<ipc::OpenCall>(&*call)) {
        const bool attach_only = (asked->flags & ISOGATE_OPEN_ATTACH_ONLY) != 0;
        open = open || !attach_only;
        if (open)
          reply.value = ipc::Opened{};
        else
          reply.status = ISOGATE_NO_SANDBOX;
      } else if (const auto* closed = std::get_if<ipc::CloseCall>(&*call)) {
        ++(closed->mode == ISOGATE_CLOSE_DETACH ? detached : ended);
      } else if (const auto* program = std::get_if<ipc::ExecCall>(&*call)) {
        reply.status = exec ? exec(*program) : ISOGATE_UNSUPPORTED;
      } else if (auto* file = std::get_if<ipc::FileCall>(&*call)) {
        reply.status = ISOGATE_UNSUPPORTED;  // it counts no disk
        const bool moves = file->verb == ipc::FileVerb::kRead || file->verb == ipc::FileVerb::kWrite;
        if (moves && read) reply.status = read(*file);
        if (reply.status == ISOGATE_LOST) continue;
        if (reply.status == ISOGATE_OK) reply.value = ipc::Entry{.type = ISOGATE_ENTRY_REGULAR};
        if (file->verb == ipc::FileVerb::kWatch) reply.status = until_cancelled(file->call);
      } else if (const auto* dialled = std::get_if<ipc::ConnectCall>(&*call)) {
        EXPECT_EQ(::eventfd_write(dialled->ready.get(), 1), 0);
        reply.status = until_cancelled(dialled->call);
      }
      send(ipc::encode(reply));
    }
  }
  static isogate_status until_cancelled(const ipc::CallHeader& call) {
    pollfd cancelled{call.cancel.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&cancelled, 1, 10'000), 1);
    return ISOGATE_CANCELLED;
  }
  void send(const ipc::Encoded& record) const {
    (void)ipc::send_record(socket_.get(), record.bytes, {}, ipc::Wait::kBlock);
  }

  Fd socket_;
  std::thread thread_;
};

inline Config one_backend() {
  Config config;
  config.allow_unisolated = true;
  config.probe_interval_sec = 1;
  config.limits.tenant_share_percent = 100;
  config.backends.emplace_back().name = "fake";
  return config;
}

class OnFakeHost : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "isogate-sandboxes-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    auto opened = State::open(root_ + "/front/state.db");
    ASSERT_TRUE(opened.ok());
    state_ = std::move(*opened);
    sandboxes_ = std::make_unique<Sandboxes>(io_.get_executor(), backends_, *state_, "instance", false);
    ASSERT_TRUE(sandboxes_->load().ok());
    auto pair = ipc::make_socket_pair();
    ASSERT_TRUE(pair.ok());
    host_ = std::make_unique<FakeHost>(std::move(pair->theirs));
    backends_.host_up("fake", {.generation = 1, .settings = 1}, std::move(pair->own));
  }
  void TearDown() override {
    backends_.reconfigure(Config());  // retires the channel
    io_.restart();
    io_.run_for(std::chrono::seconds(5));
    host_.reset();
    EXPECT_EQ(std::system(("rm -rf '" + root_ + "'").c_str()), 0);
  }

  // Rethrows its exception; fails if it does not end.
  template <typename T>
  void run(boost::asio::awaitable<T> work) {
    bool ended = false;
    std::exception_ptr failure;
    boost::asio::co_spawn(io_, std::move(work), [&](const std::exception_ptr& thrown, auto...) {
      ended = true;
      failure = thrown;
      io_.stop();
    });
    io_.restart();
    io_.run_for(std::chrono::seconds(10));
    if (!ended) throw std::logic_error("it waits forever");
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const ApiError& error) {
      throw std::runtime_error(error.message);
    }
  }
  [[nodiscard]] static Wanted wanted(const std::string& agent = "agent") {
    return {.tenant = "tenant", .agent = agent, .request_id = "request"};
  }
  void open(std::optional<Lease>& lease, const std::string& agent = "agent") {
    run([&]() -> boost::asio::awaitable<void> {
      lease.emplace(co_await sandboxes_->acquire(wanted(agent)));
    }());
  }

  std::string root_;
  boost::asio::io_context io_;
  Backends backends_{io_.get_executor(), one_backend()};
  std::unique_ptr<State> state_;
  std::unique_ptr<FakeHost> host_;
  std::unique_ptr<Sandboxes> sandboxes_;
};

}  // namespace isogate::front
