#include "gateway/front/sandboxes/sandboxes.h"

#include <gtest/gtest.h>

#include <boost/asio/detached.hpp>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "gateway/front/base/alarm.h"
#include "gateway/front/sandboxes/port_connection.h"
#include "tests/front/fake_host.h"

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

class SandboxesTest : public OnFakeHost {
 protected:
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
  // As a reload does: the first serves those who hold it.
  void replace_host(uint64_t settings = 1, int probes_to_fail = 0) {
    auto pair = ipc::make_socket_pair();
    ASSERT_TRUE(pair.ok());
    next_host_ = std::make_unique<FakeHost>(std::move(pair->theirs));
    next_host_->probes_to_fail = probes_to_fail;
    backends_.host_up("fake", {.generation = 2, .settings = settings}, std::move(pair->own));
  }
  // Another backend, whose host has not started yet, before or behind `fake`.
  void add(const std::string& name, bool before) {
    Config config = one_backend();
    BackendConfig other;
    other.name = name;
    config.backends.insert(before ? config.backends.begin() : config.backends.end(), std::move(other));
    backends_.reconfigure(config);
  }
  template <typename There>
  void wait_until(There there) {
    run([&]() -> asio::awaitable<void> {
      while (!there()) co_await sleep_for(io_.get_executor(), std::chrono::milliseconds(5));
    }());
  }
  void end(std::string request_id) { run(sandboxes_->end("tenant", "agent", true, std::move(request_id))); }

  std::unique_ptr<FakeHost> next_host_, later_host_;
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

TEST_F(SandboxesTest, AtTheLimitWhatNoRecordHasIsFoundAndEnded) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  const SandboxPtr lost = lease->sandbox;
  lease.reset();
  sandboxes_->records.set_limits(0, 0);
  EXPECT_THROW(open(lease, "another"), std::runtime_error) << "the limit holds";
  sandboxes_->records.remove_record(*lost);
  sandboxes_->records.forget(*lost);
  EXPECT_NO_THROW(end("request"));
  EXPECT_EQ(sandboxes_->records.all().size(), 0u);
}

TEST_F(SandboxesTest, AtTheLimitAnAgentWithoutSandboxIsToldSo) {
  run([&]() -> asio::awaitable<void> { co_await backends_.settled(std::chrono::seconds(5)); }());
  sandboxes_->records.set_limits(0, 0);
  try {
    end("request");
    ADD_FAILURE() << "there is nothing to end";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "agent `agent` has no sandbox");
  }
}

// A lost state store must not hide what a backend has.
TEST_F(SandboxesTest, WhileABackendThatMayHaveASandboxIsAwayItsEndIsNoNotFound) {
  run([&]() -> asio::awaitable<void> { co_await backends_.settled(std::chrono::seconds(5)); }());
  backends_.host_down("fake", 1, "its host ended", BackendState::kDown);
  try {
    end("request");
    ADD_FAILURE() << "nobody was asked";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "backend `fake` is restarting");
  }
}

TEST_F(SandboxesTest, WhatIsLostInACallIsStoppedWhenIdle) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  const std::string id = lease->sandbox->row.sandbox_id;
  lease->lost(ISOGATE_LOST);
  lease.reset();
  asio::co_spawn(io_, sandboxes_->upkeep.stop_idle([] { return std::chrono::seconds(1); }), asio::detached);
  EXPECT_NO_THROW(wait_until([&] { return host_->ended > 0; }));
  EXPECT_NO_THROW(wait_until([&] { return !backends_.find("fake")->channel->may_have(id); }));
}

TEST_F(SandboxesTest, WhatIsLostInACallThatHangsMayBeIdleForTwiceAsLong) {
  std::optional<Lease> lease, slow;
  ASSERT_NO_THROW(open(lease));
  ASSERT_NO_THROW(open(slow, "slow"));
  host_->read = [](ipc::FileCall&) { return ISOGATE_LOST; };
  const auto channel = backends_.find("fake")->channel;
  const auto hang = [&](const Lease& in, ipc::FileVerb verb, uint32_t flags) {
    ipc::FileCall call;
    call.verb = verb;
    call.flags = flags;
    call.sandbox_id = in.sandbox->row.sandbox_id;
    auto cancel = Cancel::make(io_.get_executor());
    ASSERT_TRUE(cancel.ok());
    (*cancel)->fire();
    asio::co_spawn(io_, channel->call(std::move(call), std::move(*cancel)), asio::detached);
  };
  const SandboxPtr lost = lease->sandbox, written = slow->sandbox;
  hang(*lease, ipc::FileVerb::kRead, 0);
  hang(*slow, ipc::FileVerb::kWrite, ISOGATE_FILE_DURABLE);
  const auto both_hang = [&] {
    return channel->hangs(lost->row.sandbox_id) && channel->hangs(written->row.sandbox_id);
  };
  for (int i = 0; i < 60 && !both_hang(); ++i) {
    io_.restart();
    io_.run_for(std::chrono::milliseconds(500));
  }
  ASSERT_TRUE(both_hang());
  slow.reset();
  lease->lost(ISOGATE_LOST);
  lease.reset();
  asio::co_spawn(io_, sandboxes_->upkeep.stop_idle([] { return std::chrono::seconds(5); }), asio::detached);
  EXPECT_NO_THROW(wait_until([&] { return lost->hangs && written->hangs; }));
  EXPECT_EQ(host_->ended, 0);
  EXPECT_NO_THROW(wait_until([&] { return host_->ended > 0; }));
  EXPECT_GE(std::chrono::steady_clock::now() - lost->used, std::chrono::seconds(10));
  io_.restart();
  io_.run_for(std::chrono::seconds(2));
  EXPECT_EQ(host_->ended, 1) << "a durable write may take its time";
  EXPECT_FALSE(written->closing);
}

// Two hosts would take what runs from each other.
TEST_F(SandboxesTest, WhatIsLostInAReplacedHostIsClosedThereBeforeTheNextHasIt) {
  std::optional<Lease> lease, runs, other, next;
  ASSERT_NO_THROW(open(lease));
  ASSERT_NO_THROW(open(runs));
  ASSERT_NO_THROW(open(other, "other"));
  lease->lost(ISOGATE_LOST);
  lease.reset();
  ASSERT_NO_FATAL_FAILURE(replace_host());
  EXPECT_THROW(open(next), std::runtime_error) << "a call of it still runs there";
  runs.reset();
  ASSERT_NO_THROW(open(next));
  EXPECT_EQ(host_->detached, 1);
  EXPECT_EQ(next->channel.get(), backends_.find("fake")->channel.get());
}

TEST_F(SandboxesTest, AnOpenThatIsRefusedForALostWorkspaceTakesNoTrialOfTheBreaker) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  const SandboxPtr sandbox = lease->sandbox;
  lease.reset();
  ASSERT_NO_THROW(run(sandboxes_->end("tenant", "agent", false, "request")));
  sandbox->emptied = true;
  const auto due = std::chrono::steady_clock::now() - std::chrono::minutes(1);
  for (const char* failed : {"a", "b", "c"})
    backends_.find("fake")->breakers.failed("tenant", failed, due, "it failed");
  EXPECT_THROW(open(lease), std::runtime_error);
  EXPECT_NO_THROW(open(lease, "another"));
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
  ASSERT_NO_THROW(wait_until([&] { return sandbox->calls == 0; }));
}

TEST_F(SandboxesTest, ABackendThatComesLaterDelaysNoCall) {
  add("later", false);
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  EXPECT_EQ(lease->backend->config.name, "fake");
  lease.reset();
  Wanted lacks = wanted("other");
  lacks.capabilities = ISOGATE_CAP_PTY;
  try {
    run([&]() -> asio::awaitable<void> { lease.emplace(co_await sandboxes_->acquire(lacks)); }());
    ADD_FAILURE() << "`fake` has no such capability";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("`fake`, it lacks pty"), std::string::npos) << error.what();
  }
}

TEST_F(SandboxesTest, ACallWaitsForABackendThatComesFirst) {
  add("first", true);
  std::optional<Lease> lease;
  bool ended = false;
  const auto call = [&]() -> asio::awaitable<void> { lease.emplace(co_await sandboxes_->acquire(wanted())); };
  asio::co_spawn(io_, call(), [&](const std::exception_ptr&) { ended = true; });
  ASSERT_NO_THROW(wait_until([&] { return backends_.find("fake")->settled; }));
  io_.restart();
  io_.poll();
  EXPECT_FALSE(ended) << "it did not wait";
  backends_.host_down("first", 1, "its plugin is not installed", BackendState::kFailed);
  ASSERT_NO_THROW(wait_until([&] { return ended; }));
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->backend->config.name, "fake");
}

TEST_F(SandboxesTest, AWaitingCallIsServedOnceAnEarlierBackendIsAvailable) {
  host_->probes_to_fail = 1;
  add("later", false);
  asio::co_spawn(io_, backends_.probe_loop(), asio::detached);
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  EXPECT_EQ(lease->backend->config.name, "fake");
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

TEST_F(SandboxesTest, ABackendThatIsAwayWhenItsSettingsChangeIsStillAwaited) {
  host_->isolation = ISOGATE_ISOLATION_CONTAINER;
  run([&]() -> asio::awaitable<void> { co_await backends_.settled(std::chrono::seconds(5)); }());
  ASSERT_TRUE(available());
  add("later", false);
  auto pair = ipc::make_socket_pair();
  ASSERT_TRUE(pair.ok());
  later_host_ = std::make_unique<FakeHost>(std::move(pair->theirs));
  backends_.host_up("later", {.generation = 1, .settings = 1}, std::move(pair->own));
  replace_host(2, 1000);
  run([&]() -> asio::awaitable<void> { co_await backends_.settled(std::chrono::seconds(5)); }());
  ASSERT_FALSE(available());
  EXPECT_FALSE(backends_.find("fake")->good) << "that of other settings";
  EXPECT_EQ(backends_.find("fake")->seen, uint32_t{ISOGATE_ISOLATION_CONTAINER});
  ASSERT_TRUE(backends_.find("later")->serves());
  const Decision decision = backends_.decide({});
  EXPECT_FALSE(decision.chosen);
  EXPECT_NE(decision.message.find("less than `fake`"), std::string::npos) << decision.message;
}

}  // namespace
}  // namespace isogate::front
