#include "gateway/front/exec/admission.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace isogate::front {
namespace {

using Ticket = Admission::Ticket;

// Records what its waiters get, and in which order.
struct Hall {
  explicit Hall(Admission::Limits limits) : admission(limits) {}

  // A sandbox's name is a letter for its tenant, which may be followed by a number.
  Admission::Answer ask(const std::string& sandbox, const std::string& who = "") {
    return admission.admit(sandbox.substr(0, 1), sandbox, "on-" + sandbox.substr(sandbox.size() - 1),
                           [this, name = who.empty() ? sandbox : who](Ticket ticket) {
                             order.push_back(name);
                             tickets.push_back(std::move(ticket));
                           });
  }
  void run(const std::string& sandbox) {
    Admission::Answer answer = ask(sandbox);
    ASSERT_TRUE(std::holds_alternative<Ticket>(answer));
    tickets.push_back(std::move(std::get<Ticket>(answer)));
  }
  uint64_t wait(const std::string& sandbox, const std::string& who = "") {
    Admission::Answer answer = ask(sandbox, who);
    EXPECT_TRUE(std::holds_alternative<Admission::Queued>(answer));
    return std::get<Admission::Queued>(answer).waiter;
  }
  // Removes the ticket before it is given back, because that may admit new ones.
  void end_first() {
    Ticket ticket = std::move(tickets.front());
    tickets.erase(tickets.begin());
  }
  void end_last() {
    Ticket ticket = std::move(tickets.back());
    tickets.pop_back();
  }
  void end_all() {
    while (!tickets.empty()) end_first();
  }
  ~Hall() { end_all(); }
  bool refused(const std::string& sandbox) {
    return std::holds_alternative<Admission::Refused>(ask(sandbox));
  }

  Admission admission;  // outlives its tickets
  std::vector<std::string> order;
  std::vector<Ticket> tickets;
};

TEST(Admission, AdmitsUpToTheCapAndGivesBack) {
  Hall hall({2, 2, 0});
  hall.run("a");
  hall.run("b");
  EXPECT_EQ(hall.admission.running(), 2u);
  EXPECT_EQ(hall.admission.running("a"), 1u);
  EXPECT_TRUE(hall.refused("c"));
  hall.end_last();
  EXPECT_EQ(hall.admission.running(), 1u);
  EXPECT_EQ(hall.admission.running("b"), 0u);
  hall.run("c");
}

TEST(Admission, ATicketIsGivenBackOnce) {
  Hall hall({1, 1, 0});
  Admission::Answer answer = hall.ask("a");
  Ticket first = std::move(std::get<Ticket>(answer));
  Ticket second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(second);
  first.release();
  EXPECT_EQ(hall.admission.running(), 1u);
  second.release();
  second.release();
  EXPECT_EQ(hall.admission.running(), 0u);
}

TEST(Admission, AssigningATicketGivesBackTheOldOne) {
  Hall hall({2, 2, 0});
  Admission::Answer one = hall.ask("a"), two = hall.ask("b");
  Ticket ticket = std::move(std::get<Ticket>(one));
  ticket = std::move(std::get<Ticket>(two));
  EXPECT_EQ(hall.admission.running("a"), 0u);
  EXPECT_EQ(hall.admission.running("b"), 1u);
}

TEST(Admission, QueuesInOrderWithinASandbox) {
  Hall hall({1, 1, 10});
  hall.run("a");
  for (const char* who : {"1", "2", "3"}) hall.wait("a", who);
  EXPECT_EQ(hall.admission.waiting(), 3u);
  hall.end_all();
  EXPECT_EQ(hall.order, (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(hall.admission.waiting(), 0u);
  EXPECT_EQ(hall.admission.running(), 0u);
}

TEST(Admission, ASandboxAtItsOwnCapBlocksNobodyElse) {
  Hall hall({4, 1, 10});
  hall.run("greedy");
  for (int i = 0; i < 5; ++i) hall.wait("greedy");
  hall.run("other");
  hall.run("third");
  EXPECT_EQ(hall.admission.running(), 3u);
  hall.end_last();
  EXPECT_TRUE(hall.order.empty()) << "free slots do not help a sandbox at its cap";
}

TEST(Admission, GoesRoundAmongSandboxes) {
  Hall hall({1, 1, 20});
  hall.run("a");
  for (int i = 0; i < 4; ++i) hall.wait("a", "a" + std::to_string(i));
  hall.wait("b", "b0");
  hall.wait("b", "b1");
  hall.wait("c", "c0");
  hall.end_all();
  // `a` runs while it waits, so it is in the round again only after its first exec has ended.
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < hall.order.size(); ++i) place[hall.order[i]] = i;
  ASSERT_EQ(hall.order.size(), 7u);
  EXPECT_LE(place["b0"], 2u);
  EXPECT_LE(place["c0"], 2u);
  EXPECT_LT(place["b1"], place["a2"]);
  EXPECT_EQ(place["a3"], 6u);
}

TEST(Admission, BoundsItsQueueAndSaysWhy) {
  Hall hall({1, 1, 4});
  hall.run("a");
  for (int i = 0; i < 3; ++i) hall.wait("a");
  EXPECT_TRUE(hall.refused("a")) << "the last quarter of the queue is for others";
  hall.wait("b");
  EXPECT_TRUE(hall.refused("c")) << "full";
  auto answer = hall.ask("c");
  const auto& refused = std::get<Admission::Refused>(answer);
  EXPECT_GE(refused.retry_after_sec, 1u);
  EXPECT_NE(refused.reason.find("max_execs"), std::string::npos);
  auto own = hall.ask("a");
  EXPECT_NE(std::get<Admission::Refused>(own).reason.find("max_execs_per_sandbox"), std::string::npos);
}

TEST(Admission, ATinyQueueIsWhollyUsable) {
  for (uint32_t size : {1u, 2u, 3u}) {
    Hall hall({1, 1, size});
    hall.run("a");
    for (uint32_t i = 0; i < size; ++i) hall.wait("a");
    EXPECT_TRUE(hall.refused("a"));
  }
}

TEST(Admission, ACancelledWaiterIsNeverCalled) {
  Hall hall({1, 1, 10});
  hall.run("a");
  uint64_t first = hall.wait("a", "1");
  hall.wait("a", "2");
  EXPECT_TRUE(hall.admission.cancel(first));
  EXPECT_FALSE(hall.admission.cancel(first));
  EXPECT_FALSE(hall.admission.cancel(12345));
  hall.end_first();
  EXPECT_EQ(hall.order, std::vector<std::string>{"2"});
}

TEST(Admission, AWaiterWhoseTurnHasComeCannotBeCancelled) {
  Hall hall({1, 1, 10});
  hall.run("a");
  uint64_t waiter = hall.wait("a");
  hall.end_first();
  EXPECT_FALSE(hall.admission.cancel(waiter));
}

TEST(Admission, ACallbackMayDropItsTicketAtOnce) {
  Admission admission({1, 1, 10000});
  Admission::Answer answer = admission.admit("a", "a", "b", {});
  Ticket ticket = std::move(std::get<Ticket>(answer));
  int called = 0;
  for (int i = 0; i < 7000; ++i) admission.admit("a", "a", "b", [&](Ticket) { ++called; });
  ticket.release();  // must not recurse 7,000 deep
  EXPECT_EQ(called, 7000);
  EXPECT_EQ(admission.running(), 0u);
}

TEST(Admission, ACallbackMayAskAgain) {
  Admission admission({1, 1, 10});
  Admission::Answer held = admission.admit("a", "a", "b", {});
  std::vector<Ticket> kept;
  int second = 0;
  admission.admit("a", "a", "b", [&](Ticket ticket) {
    kept.push_back(std::move(ticket));
    Admission::Answer answer = admission.admit("a", "a", "b", [&](Ticket later) {
      ++second;
      kept.push_back(std::move(later));
    });
    EXPECT_TRUE(std::holds_alternative<Admission::Queued>(answer));
  });
  std::get<Ticket>(held).release();
  EXPECT_EQ(second, 0);
  Ticket first = std::move(kept.front());
  first.release();
  EXPECT_EQ(second, 1);
}

TEST(Admission, HigherLimitsAdmitThoseWhoWait) {
  Hall hall({1, 1, 10});
  hall.run("a");
  hall.wait("a");
  hall.wait("b");
  hall.admission.set_limits({1, 2, 10});
  EXPECT_TRUE(hall.order.empty());
  hall.admission.set_limits({3, 2, 10});
  EXPECT_EQ(hall.order.size(), 2u);
}

TEST(Admission, LowerLimitsEndNothing) {
  Hall hall({3, 3, 10});
  for (int i = 0; i < 3; ++i) hall.run("a");
  hall.wait("a");
  hall.admission.set_limits({1, 1, 10});
  hall.end_last();
  hall.end_last();
  EXPECT_TRUE(hall.order.empty());
  EXPECT_EQ(hall.admission.running(), 1u);
  hall.end_last();
  EXPECT_EQ(hall.order.size(), 1u);
}

TEST(Admission, ATenantTakesItsShareOfTheExecsThroughAnyNumberOfSandboxes) {
  Hall hall({4, 4, 10, 2, 5});
  hall.run("a1");
  hall.run("a2");
  hall.wait("a3");
  hall.run("b1");
  hall.run("c1");
  hall.end_last();
  EXPECT_TRUE(hall.order.empty()) << "a slot is free, and `a` has its share";
  hall.end_first();
  EXPECT_EQ(hall.order, std::vector<std::string>{"a3"});
}

TEST(Admission, ATenantTakesItsShareOfTheQueueThroughAnyNumberOfSandboxes) {
  Hall hall({2, 2, 8, 1, 4});
  hall.run("a1");
  hall.run("b1");
  for (const char* sandbox : {"a1", "a2", "a3", "a4"}) hall.wait(sandbox);
  auto answer = hall.ask("a5");
  ASSERT_TRUE(std::holds_alternative<Admission::Refused>(answer));
  EXPECT_NE(std::get<Admission::Refused>(answer).reason.find("tenant_share_percent"), std::string::npos);
  for (int i = 0; i < 3; ++i) hall.wait("b1");
  EXPECT_TRUE(hall.refused("b1")) << "one sandbox has three quarters of its tenant's share";
  hall.wait("b2");
  EXPECT_TRUE(hall.refused("c1")) << "full";
}

TEST(Admission, GoesRoundAmongTenantsWhateverTheirSandboxes) {
  Hall hall({1, 1, 40});
  hall.run("z");
  for (int i = 0; i < 9; ++i) hall.wait("a" + std::to_string(i));
  for (int i = 0; i < 3; ++i) hall.wait("b1", "b" + std::to_string(i));
  hall.wait("c1");
  hall.end_all();
  ASSERT_EQ(hall.order.size(), 13u);
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < hall.order.size(); ++i) place[hall.order[i]] = i;
  EXPECT_LE(place["b0"], 2u);
  EXPECT_LE(place["c1"], 2u);
  EXPECT_LT(place["b2"], place["a4"]) << "nine sandboxes are nine turns";
}

TEST(Admission, AShareThatGrowsAdmitsThoseWhoWait) {
  Hall hall({4, 4, 10, 1, 10});
  hall.run("a1");
  hall.wait("a2");
  hall.wait("a3");
  hall.admission.set_limits({4, 4, 10, 2, 10});
  EXPECT_EQ(hall.order.size(), 1u);
  hall.admission.set_limits({4, 4, 10, 4, 10});
  EXPECT_EQ(hall.order.size(), 2u);
}

TEST(Admission, ABackendThatTakesFewDelaysNoOther) {
  Hall hall({4, 4, 10});
  hall.admission.set_backend_limit("on-1", 1);
  hall.run("a1");
  hall.wait("a1");
  hall.wait("b1");
  hall.run("a2");
  hall.run("b2");
  hall.run("c2");
  hall.end_last();
  EXPECT_TRUE(hall.order.empty()) << "a slot is free, but none on this backend";
  hall.end_first();
  ASSERT_EQ(hall.order.size(), 1u);
  hall.end_last();
  EXPECT_EQ(hall.order.size(), 2u);
}

TEST(Admission, ABackendThatIsFullIsNamed) {
  Hall hall({4, 4, 1});
  hall.admission.set_backend_limit("on-1", 1);
  hall.run("a1");
  hall.wait("b1");
  auto answer = hall.ask("c1");
  EXPECT_NE(std::get<Admission::Refused>(answer).reason.find("backend on-1"), std::string::npos);
  hall.admission.set_backend_limit("on-1", 2);
  EXPECT_EQ(hall.order, std::vector<std::string>{"b1"});
}

TEST(Admission, WhatRunsAlreadyHasAPlaceWhateverTheCaps) {
  Admission admission({.max_execs = 1, .max_execs_per_sandbox = 1, .exec_queue = 1});
  admission.set_backend_limit("b", 1);
  Admission::Ticket newcomer = std::get<Admission::Ticket>(admission.admit("t", "s", "b", {}));
  bool called = false;
  Admission::Ticket queued;
  EXPECT_TRUE(
      std::holds_alternative<Admission::Queued>(admission.admit("t", "s", "b", [&](Admission::Ticket t) {
        called = true;
        queued = std::move(t);
      })));
  Admission::Ticket first = admission.readmit("t", "s", "b"), second = admission.readmit("t", "s", "b");
  EXPECT_EQ(admission.running("s"), 3u);
  newcomer.release();
  first.release();
  EXPECT_FALSE(called) << "one runs, which is the cap";
  second.release();
  EXPECT_TRUE(called);
  queued.release();
  EXPECT_EQ(admission.running(), 0u);
}

TEST(Admission, KeepsItsCountsInAnyOrderOfEvents) {
  const Admission::Limits limits{10, 3, 12, 6, 7};
  auto hall = std::make_unique<Hall>(limits);
  hall->admission.set_backend_limit("on-1", 2);
  hall->admission.set_backend_limit("on-2", 4);
  std::mt19937 random(11);
  std::vector<uint64_t> waiters;
  for (int step = 0; step < 50000; ++step) {
    std::string sandbox{"abc"[random() % 3], "12345"[random() % 5]};
    switch (random() % 4) {
      case 0:
      case 1: {
        Admission::Answer answer = hall->ask(sandbox);
        if (auto* ticket = std::get_if<Ticket>(&answer)) hall->tickets.push_back(std::move(*ticket));
        if (auto* queued = std::get_if<Admission::Queued>(&answer)) waiters.push_back(queued->waiter);
        break;
      }
      case 2:
        if (!hall->tickets.empty()) {
          std::swap(hall->tickets[random() % hall->tickets.size()], hall->tickets.back());
          hall->end_last();
        }
        break;
      default:
        if (!waiters.empty()) hall->admission.cancel(waiters[random() % waiters.size()]);
    }
    ASSERT_EQ(hall->admission.running(), hall->tickets.size());
    ASSERT_LE(hall->admission.running(), limits.max_execs);
    ASSERT_LE(hall->admission.waiting(), limits.exec_queue);
    uint32_t sum = 0;
    for (char tenant : {'a', 'b', 'c'}) {
      uint32_t of_tenant = 0;
      for (char each : {'1', '2', '3', '4', '5'}) {
        uint32_t own = hall->admission.running(std::string{tenant, each});
        ASSERT_LE(own, limits.max_execs_per_sandbox);
        of_tenant += own;
      }
      ASSERT_LE(of_tenant, limits.max_execs_per_tenant);
      sum += of_tenant;
    }
    ASSERT_EQ(sum, hall->admission.running());
    for (auto [backend, most] : {std::pair{'1', 2u}, {'2', 4u}}) {
      uint32_t on_it = 0;
      for (char tenant : {'a', 'b', 'c'}) on_it += hall->admission.running(std::string{tenant, backend});
      ASSERT_LE(on_it, most);
    }
  }
  hall->end_all();
  EXPECT_EQ(hall->admission.running(), 0u);
  EXPECT_EQ(hall->admission.waiting(), 0u);
}

}  // namespace
}  // namespace isogate::front
