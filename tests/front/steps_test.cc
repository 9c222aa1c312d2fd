#include "gateway/front/base/steps.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gateway/front/http/json_answer.h"

namespace isogate::front {
namespace {

// How often somebody else had a turn before the work was done.
size_t turns_of_others(boost::asio::awaitable<void> work) {
  boost::asio::io_context io;
  bool done = false;
  size_t turns = 0;
  std::function<void()> other = [&] {
    if (done) return;
    ++turns;
    boost::asio::post(io, other);
  };
  boost::asio::co_spawn(io, std::move(work), [&done](const std::exception_ptr&) { done = true; });
  boost::asio::post(io, other);
  io.run();
  return turns;
}

boost::asio::awaitable<void> judged(const std::string& bytes, TextJudge& judge) {
  judge = co_await judge_text(bytes);
}

TEST(Steps, OthersHaveTheirTurnWhileTextIsJudged) {
  TextJudge judge;
  const std::string controls(8 << 20, '\1');
  EXPECT_GT(turns_of_others(judged(controls, judge)), 16U);
  EXPECT_TRUE(judge.utf8());
  EXPECT_FALSE(judge.as_text());
  std::string euros;
  while (euros.size() < (2 << 20)) euros += "€";
  EXPECT_GT(turns_of_others(judged(euros, judge)), 4U);
  EXPECT_TRUE(judge.as_text());
}

TEST(Steps, OthersHaveTheirTurnWhileMuchIsFreed) {
  std::vector<std::string> names(100'000, "longer than what a string keeps in itself");
  EXPECT_GT(turns_of_others(clear_in_steps(names)), 50U);
  EXPECT_TRUE(names.empty());
  std::set<size_t> numbers;
  for (size_t i = 0; i < 100'000; ++i) numbers.insert(i);
  EXPECT_GT(turns_of_others(clear_in_steps(numbers)), 50U);
  EXPECT_TRUE(numbers.empty());
}

}  // namespace
}  // namespace isogate::front
