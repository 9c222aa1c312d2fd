#include "gateway/front/sandboxes/sandboxes.h"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

#include "gateway/front/base/alarm.h"
#include "gateway/front/sandboxes/port_connection.h"
#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"

namespace {
// Allocations of this size, or up to 63 bytes more, fail in this thread; 0: none fails.
thread_local size_t no_room_for = 0;
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // which has an allocator of its own
#else
constexpr bool kSanitized = false;
// Not inline: GCC would see one inlined half of the pair and warn of a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  const bool refused = no_room_for != 0 && size >= no_room_for && size < no_room_for + 64;
  void* block = refused ? nullptr : std::malloc(size > 0 ? size : 1);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept { std::free(block); }
#endif

namespace isogate::front {
namespace {
namespace asio = boost::asio;

constexpr size_t kRequestIdBytes = 654321;

// A backend host that has no sandbox until it must create one, and executes each call.
class FakeHost {
 public:
  explicit FakeHost(Fd socket) : socket_(std::move(socket)), thread_([this] { serve(); }) {}
  ~FakeHost() { thread_.join(); }  // the other end is closed by then

  std::atomic<int> probes_to_fail{0}, probes{0};

 private:
  void serve() {
    ipc::Hello hello;
    hello.max_connections = 64;
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
      } else if (std::holds_alternative<ipc::FileCall>(*call)) {
        reply.status = ISOGATE_UNSUPPORTED;  // it counts no disk
      } else if (const auto* dialled = std::get_if<ipc::ConnectCall>(&*call)) {
        pollfd cancelled{dialled->call.cancel.get(), POLLIN, 0};
        EXPECT_EQ(::eventfd_write(dialled->ready.get(), 1), 0);
        EXPECT_EQ(::poll(&cancelled, 1, 10'000), 1);
        reply.status = ISOGATE_CANCELLED;
      }
      send(ipc::encode(reply));
    }
  }
  void send(const ipc::Encoded& record) const {
    (void)ipc::send_record(socket_.get(), record.bytes, {}, ipc::Wait::kBlock);
  }

  Fd socket_;
  std::thread thread_;
};

Config one_backend() {
  Config config;
  config.allow_unisolated = true;
  config.probe_interval_sec = 1;
  config.backends.emplace_back().name = "fake";
  return config;
}

class SandboxesTest : public testing::Test {
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
    host_ = std::make_unique<FakeHost>(std::move(pair->b));
    backends_.host_up("fake", {.generation = 1, .settings = 1}, std::move(pair->a));
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
  void run(asio::awaitable<T> work) {
    bool ended = false;
    std::exception_ptr failure;
    asio::co_spawn(io_, std::move(work), [&](const std::exception_ptr& thrown, auto...) {
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
  [[nodiscard]] static Wanted wanted() {
    return {.tenant = "tenant", .agent = "agent", .request_id = "request"};
  }
  void open(std::optional<Lease>& lease) {
    run([&]() -> asio::awaitable<void> { lease.emplace(co_await sandboxes_->acquire(wanted())); }());
  }
  [[nodiscard]] bool available() const {
    return backends_.find("fake")->probe->verdict != ISOGATE_PROBE_UNAVAILABLE;
  }
  // Until the host has been probed that often; true: nothing else was observed meanwhile.
  bool stays_available(int probes) {
    bool stayed = true;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (host_->probes < probes && std::chrono::steady_clock::now() < until) {
      io_.restart();
      io_.run_for(std::chrono::milliseconds(20));
      stayed = stayed && available();
    }
    return stayed;
  }
  void end(std::string request_id) { run(sandboxes_->end("tenant", "agent", true, std::move(request_id))); }

  std::string root_;
  asio::io_context io_;
  Backends backends_{io_.get_executor(), one_backend()};
  std::unique_ptr<State> state_;
  std::unique_ptr<FakeHost> host_;
  std::unique_ptr<Sandboxes> sandboxes_;
};

TEST_F(SandboxesTest, ASearchThatFindsNoMemoryLeavesTheAgentUsable) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator always finds memory";
  std::optional<Lease> lease;
  run([&]() -> asio::awaitable<void> { co_await backends_.settled(std::chrono::seconds(5)); }());
  std::string request_id(kRequestIdBytes, 'r');
  no_room_for = kRequestIdBytes;
  EXPECT_THROW(end(std::move(request_id)), std::bad_alloc);
  no_room_for = 0;
  EXPECT_EQ(sandboxes_->records.all().size(), 0u);
  ASSERT_NO_THROW(open(lease));
  EXPECT_EQ(lease->backend->config.name, "fake");
}

TEST_F(SandboxesTest, ACloseThatIsFinishedLaterAndThrowsLeavesTheAgentUsable) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  std::function<void()> kill = [] { throw std::runtime_error("the kill fails"); };
  lease->sandbox->kills.insert(&kill);
  lease->distrust();
  std::optional<Lease> next;
  EXPECT_THROW(open(next), std::runtime_error);
  EXPECT_FALSE(lease->sandbox->changing);
  lease->sandbox->kills.clear();
  lease.reset();
  ASSERT_NO_THROW(open(next));
  EXPECT_FALSE(next->sandbox->closing);
}

TEST_F(SandboxesTest, AnEndThatFindsNoMemoryIsTriedAgain) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator always finds memory";
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  lease.reset();
  std::string request_id(kRequestIdBytes, 'r');
  no_room_for = kRequestIdBytes;
  EXPECT_THROW(end(std::move(request_id)), std::bad_alloc);
  no_room_for = 0;
  EXPECT_NO_THROW(end("again"));
  EXPECT_EQ(sandboxes_->records.all().size(), 0u);
}

// A program may answer without end, and nothing else of its agent is served by the next host meanwhile.
TEST_F(SandboxesTest, ARequestToAPortHoldsUpAReloadForAWhileOnly) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  lease->sandbox->ports_refused.clear();
  const SandboxPtr sandbox = lease->sandbox;
  lease.reset();
  Killer killer;
  std::unique_ptr<PortConnection> port;
  const PortTarget target{.tenant = "tenant",
                          .agent = "agent",
                          .request_id = "request",
                          .port = 80,
                          .lasting = false,
                          .patience = std::chrono::milliseconds(50)};
  ASSERT_NO_THROW(run([&]() -> asio::awaitable<void> {
    port = co_await PortConnection::open(*sandboxes_, backends_, target, 1, killer);
  }()));
  EXPECT_EQ(sandbox->calls, 1u);
  std::string why;
  const auto reader = [&]() -> asio::awaitable<void> {
    char byte = 0;
    try {
      (void)co_await port->read_some(&byte, 1);
    } catch (const PortBroken& broken) {
      why = broken.why;
    }
  };
  backends_.find("fake")->channel->retire();
  ASSERT_NO_THROW(run(reader()));
  EXPECT_EQ(why, "the sandbox's backend is replaced");
  ASSERT_NO_THROW(run([&]() -> asio::awaitable<void> {
    while (sandbox->calls > 0) co_await sleep_for(io_.get_executor(), std::chrono::milliseconds(5));
  }()));
}

TEST_F(SandboxesTest, ABackendIsLostWhenTwoProbesInARowFail) {
  run([&]() -> asio::awaitable<void> { co_await backends_.settled(std::chrono::seconds(5)); }());
  asio::co_spawn(io_, backends_.probe_loop(), asio::detached);
  host_->probes_to_fail = 1;
  EXPECT_TRUE(stays_available(host_->probes + 2));
  host_->probes_to_fail = 2;
  EXPECT_FALSE(stays_available(host_->probes + 3));
  (void)stays_available(host_->probes + 2);
  EXPECT_TRUE(available());
}

}  // namespace
}  // namespace isogate::front
