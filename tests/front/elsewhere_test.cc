#include "gateway/front/base/elsewhere.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <future>
#include <stdexcept>

#include "gateway/front/http/exchange.h"

namespace isogate::front {
namespace {

class ElsewhereTest : public testing::Test {
 protected:
  // `order_` gets `name` when the work is done, or "-" and the name when its waiter has left.
  std::shared_ptr<Killer> begin(const std::string& tenant, const std::string& name,
                                std::function<void()> work = {}) {
    auto killer = std::make_shared<Killer>();
    std::function<void()> whole = [this, name, work = std::move(work)] {
      if (work) work();
      const std::lock_guard lock(mutex_);
      worked_ += name;
    };
    boost::asio::co_spawn(
        io_, elsewhere_.run(tenant, *killer, std::move(whole)),
        [this, name, killer](const std::exception_ptr& failure) { order_ += failure ? "-" + name : name; });
    turn();
    return killer;
  }
  // Runs what is ready now; a context that ran out of work does nothing until it is restarted.
  void turn() {
    io_.restart();
    io_.poll();
  }
  void run_all() {
    io_.restart();
    io_.run();
  }

  boost::asio::io_context io_;
  std::mutex mutex_;
  std::string order_, worked_;
  Elsewhere elsewhere_{io_.get_executor()};
};

TEST_F(ElsewhereTest, TenantsTakeTurns) {
  std::promise<void> go;
  begin("a", "1", [held = go.get_future().share()] { held.wait(); });
  for (const char* name : {"2", "3", "4"}) begin("a", name);
  begin("b", "5");
  go.set_value();
  run_all();
  EXPECT_EQ(order_, "12534");
}

TEST_F(ElsewhereTest, WorkThatNobodyWaitsForIsNotBegun) {
  std::promise<void> go;
  begin("a", "1", [held = go.get_future().share()] { held.wait(); });
  const auto gone = begin("a", "2");
  begin("a", "3");
  gone->kill();
  go.set_value();
  run_all();
  EXPECT_EQ(order_, "-213");
  EXPECT_EQ(worked_, "13");
}

TEST_F(ElsewhereTest, WhoLeavesDoesNotWaitForWhatHasBegun) {
  std::promise<void> go;
  const auto gone = begin("a", "1", [held = go.get_future().share()] { held.wait(); });
  gone->kill();
  turn();
  EXPECT_EQ(order_, "-1");
  go.set_value();
  const auto worked = [this] {
    const std::lock_guard lock(mutex_);
    return worked_;
  };
  for (int i = 0; i < 5000 && worked().empty(); ++i) ::usleep(1000);
  EXPECT_EQ(worked(), "1");
  turn();
}

TEST_F(ElsewhereTest, WhatIsThrownComesBack) {
  begin("a", "1", [] { throw std::runtime_error("no"); });
  begin("a", "2");
  run_all();
  EXPECT_EQ(order_, "-12");
}

}  // namespace
}  // namespace isogate::front
