#include "gateway/front/e2b/envelopes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/api_error.h"
#include "tests/front/e2b/body.h"

namespace isogate::front::e2b {
namespace {

using nlohmann::json;
using namespace std::string_literals;

constexpr uint64_t kMostOfMessage = 100000;

boost::asio::awaitable<json> parse_at_once(std::string text) { co_return parse_body(text, kAnyField); }

struct Messages {
  std::vector<json> messages;
  std::optional<Code> refused;
};

Messages read_stream(const std::string& body, size_t step = SIZE_MAX, uint64_t most = kMostOfMessage,
                     bool only = false) {
  Messages all;
  ByteShare memory;
  const auto read_all = [&]() -> boost::asio::awaitable<void> {
    MessageReader reader(body_of(body, step), most, memory, parse_at_once);
    if (only) {
      all.messages.push_back(co_await reader.only());
      co_return;
    }
    while (auto message = co_await reader.next()) all.messages.push_back(std::move(*message));
  };
  try {
    run(read_all());
  } catch (const ApiError& error) {
    all.refused = error.code;
  }
  return all;
}

TEST(Envelopes, MessagesArriveUnchangedWhereverTheyAreCut) {
  const std::vector<json> messages = {
      json::object(), {{"a", 1}, {"unknown", {1, 2}}}, {{"text", std::string(70000, 'x')}}};
  std::string body;
  for (const json& each : messages) body += envelope(0, each.dump());
  for (const size_t step : {size_t{1}, size_t{3}, size_t{4096}, SIZE_MAX}) {
    const Messages all = read_stream(body, step);
    EXPECT_EQ(all.refused, std::nullopt) << step;
    EXPECT_TRUE(all.messages == messages) << step;
  }
  EXPECT_TRUE(read_stream("").messages.empty());
  EXPECT_EQ(read_stream("").refused, std::nullopt);
}

TEST(Envelopes, AnEnvelopeIsFlagsALengthAndTheMessage) {
  EXPECT_EQ(envelope(kEndOfStream, "{}"), "\x02\0\0\0\x02{}"s);
  EXPECT_EQ(envelope(0, std::string(0x10203, ' ')).substr(0, 5), "\0\0\x01\x02\x03"s);
}

TEST(Envelopes, WhatIsNoStreamOfMessagesIsRefused) {
  const std::string good = envelope(0, "{}");
  struct Row {
    std::string body;
    Code code = Code::kInvalidRequest;
  };
  for (const Row& row : {Row{envelope(1, "{}"), Code::kUnsupported},
                         {envelope(kEndOfStream, "{}")},
                         {envelope(3, "{}")},
                         {envelope(0x80, "{}")},
                         {"\0"s},
                         {"\0\0\0\0"s},
                         {"\0\0\0\0\x03{}"s},
                         {envelope(0, "")},
                         {envelope(0, "[]")},
                         {envelope(0, "{")},
                         {envelope(0, R"({"a":1,"a":2})")},
                         {envelope(0, "{} {}")}}) {
    const Messages all = read_stream(good + row.body);
    EXPECT_EQ(all.messages.size(), 1u) << row.body;
    EXPECT_EQ(all.refused, row.code) << row.body;
  }
}

TEST(Envelopes, ALengthBeyondTheBoundIsRefusedBeforeItIsReadOrHeld) {
  size_t reads = 0, most_asked = 0;
  ByteBudget budget;
  ByteShare memory(budget, "tenant");
  const ReadBody body = body_of("\0\xff\xff\xff\xff{}"s, SIZE_MAX);
  const ReadBody counted = [&](char* data, size_t size) {
    ++reads;
    most_asked = std::max(most_asked, size);
    return body(data, size);
  };
  const auto work = [&]() -> boost::asio::awaitable<void> {
    MessageReader reader(counted, kMostOfMessage, memory, parse_at_once);
    co_await reader.next();
  };
  try {
    run(work());
    FAIL() << "it was read";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.code, Code::kFileTooLarge);
  }
  EXPECT_EQ(reads, 1u);
  EXPECT_EQ(most_asked, 5u);
  EXPECT_EQ(memory.bytes(), 5u);
  EXPECT_EQ(read_stream(envelope(0, "{ }"), SIZE_MAX, 3).refused, std::nullopt);
  EXPECT_EQ(read_stream(envelope(0, "{  }"), SIZE_MAX, 3).refused, Code::kFileTooLarge);
}

TEST(Envelopes, MemoryIsHeldForAMessageAlsoWhileTheStreamsEndIsLookedFor) {
  ByteBudget budget;
  ByteShare memory(budget, "tenant");
  const json message = {{"text", std::string(1000, 'x')}};
  const auto work = [&]() -> boost::asio::awaitable<void> {
    MessageReader reader(body_of(envelope(0, message.dump()), 10), kMostOfMessage, memory, parse_at_once);
    EXPECT_EQ(co_await reader.only(), message);
    EXPECT_EQ(memory.bytes(), kept_bytes(message));
  };
  run(work());
  budget.set_limits(500, 500);
  EXPECT_THROW(run(work()), ApiError);
}

TEST(Envelopes, OnlyOneMessageWhereOneIsAskedFor) {
  const std::string one = envelope(0, R"({"a":1})");
  const Messages all = read_stream(one, SIZE_MAX, kMostOfMessage, true);
  ASSERT_EQ(all.messages.size(), 1u);
  EXPECT_EQ(all.messages.front(), json::parse(R"({"a":1})"));
  for (const std::string& body : {std::string(), one + one, one + "\0"s, one + envelope(kEndOfStream, "{}")})
    EXPECT_EQ(read_stream(body, SIZE_MAX, kMostOfMessage, true).refused, Code::kInvalidRequest)
        << body.size();
}

}  // namespace
}  // namespace isogate::front::e2b
