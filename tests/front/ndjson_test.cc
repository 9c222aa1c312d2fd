#include "gateway/front/exec/ndjson.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "lib/text.h"

namespace isogate::front {
namespace {

struct Seen {
  std::string out, error;
  std::vector<nlohmann::json> events;
};

Seen collect(const std::string& events) {
  Seen seen;
  std::istringstream lines(events);
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    std::string data = event.at("data");
    if (event.at("encoding") == "base64") data = base64_decode(data).value();
    (event.at("event") == "stderr" ? seen.error : seen.out) += data;
    seen.events.push_back(event);
  }
  return seen;
}

// As a stream does: no part of the events is large.
void add(EventFramer& framer, bool error, std::string_view data, std::string& events) {
  for (bool more = true; more;) {
    const std::string_view bytes = data.substr(0, framer.at_a_time());
    data.remove_prefix(bytes.size());
    framer.add(error, bytes);
    for (bool rest = true; rest;) {
      std::string part;
      rest = framer.next(error, part);
      EXPECT_LE(part.size(), 170000u);
      events += part;
    }
    more = !data.empty();
  }
}

void flush(EventFramer& framer, std::string& events) {
  framer.finish();
  for (const bool error : {false, true}) add(framer, error, "", events);
}

TEST(EventFramer, NoEventHasALineEndOfAnyKindInIt) {
  EventFramer framer(false);
  std::string events;
  const std::string text =
      "a\xC2\x85"
      "b\xE2\x80\xA8"
      "c\xE2\x80\xA9"
      "d\xE2\x80\xAA";
  add(framer, false, text, events);
  flush(framer, events);
  EXPECT_EQ(collect(events).out, text);
  for (const std::string_view end : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"})
    EXPECT_EQ(events.find(end), std::string::npos);
}

TEST(EventFramer, LineEndsAndWhatResemblesThemKeepTheirBytes) {
  const std::string part =
      "\xC2\x85\xC2\x86\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xA7\xE2\x82\xAC\"\n\xC3\x85\xC2\x85\xC2\x85";
  std::string text;
  while (text.size() < 100000) text += part;
  for (const bool lines : {false, true}) {
    EventFramer framer(lines);
    std::string events;
    add(framer, true, text, events);
    flush(framer, events);
    std::string seen;
    for (const auto& event : collect(events).events) {
      EXPECT_EQ(event.at("encoding"), "utf-8");
      seen += event.at("data").get<std::string>() + (lines ? "\n" : "");
    }
    const size_t whole = lines ? text.rfind('\n') : text.size();  // the rest ends without a newline
    EXPECT_EQ(seen.substr(0, whole), text.substr(0, whole));
    for (const std::string_view end : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"})
      EXPECT_EQ(events.find(end), std::string::npos);
  }
}

TEST(EventFramer, EventsHaveTheOffsetOfTheirFirstByte) {
  EventFramer framer(std::array<uint64_t, 2>{100, 7});
  std::string events;
  add(framer, false, "one\xE2\x82", events);  // half a character waits
  add(framer, true, "error", events);
  add(framer, false, "\xAC!", events);
  flush(framer, events);
  const Seen seen = collect(events);
  ASSERT_EQ(seen.events.size(), 3u);
  EXPECT_EQ(seen.events[0].at("offset"), 100);
  EXPECT_EQ(seen.events[1].at("offset"), 7);
  EXPECT_EQ(seen.events[2].at("offset"), 103);
  EXPECT_EQ(seen.out, "one\xE2\x82\xAC!");
}

TEST(EventFramer, KeepsEveryByteHoweverTheOutputIsCut) {
  std::mt19937 random(7);
  std::string bytes;
  for (int i = 0; i < 5000; ++i)
    bytes += i % 3 == 0 ? "é€😀" : i % 7 == 0 ? std::string(1, static_cast<char>(random())) : "text\n";
  EventFramer framer(false);
  std::string events;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(1 + random() % 97, bytes.size() - at);
    add(framer, false, std::string_view(bytes).substr(at, n), events);
    at += n;
  }
  flush(framer, events);
  EXPECT_EQ(collect(events).out, bytes);
}

TEST(EventFramer, NeverCutsACharacter) {
  const std::string text = "a€b😀c";
  EventFramer framer(false);
  std::string events;
  for (const char byte : text) add(framer, true, {&byte, 1}, events);
  flush(framer, events);
  const Seen seen = collect(events);
  EXPECT_EQ(seen.error, text);
  for (const auto& event : seen.events) EXPECT_EQ(event.at("encoding"), "utf-8");
}

TEST(EventFramer, GivesOneEventPerLineWithoutItsNewline) {
  EventFramer framer(true);
  std::string events;
  add(framer, false, "one\ntw", events);
  add(framer, true, "err", events);
  add(framer, false, "o\n\nlast", events);
  flush(framer, events);
  const Seen seen = collect(events);
  ASSERT_EQ(seen.events.size(), 5u);
  EXPECT_EQ(seen.events[0].at("data"), "one");
  EXPECT_EQ(seen.events[1].at("data"), "two");
  EXPECT_EQ(seen.events[2].at("data"), "");
  EXPECT_EQ(seen.events[3].at("data"), "last");
  EXPECT_EQ(seen.events[4].at("event"), "stderr");
}

TEST(EventFramer, SplitsALongLineIntoPartialParts) {
  EventFramer framer(true);
  std::string events;
  const std::string line(200000, 'x');
  add(framer, false, line + "\nshort\n", events);
  const Seen seen = collect(events);
  ASSERT_EQ(seen.events.size(), 5u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(seen.events[i].value("partial", false));
  EXPECT_FALSE(seen.events[3].contains("partial"));
  EXPECT_EQ(seen.events[4].at("data"), "short");
  EXPECT_EQ(seen.out, line + "short");
}

TEST(EventFramer, MakesEventsInPartsHoweverManyThereAre) {
  EventFramer framer(true);
  framer.add(false, std::string(framer.at_a_time(), '\n'));
  size_t parts = 0, events = 0;
  for (bool more = true; more; ++parts) {
    std::string part;
    more = framer.next(false, part);
    EXPECT_LE(part.size(), 32768u + 64);
    events += collect(part).events.size();
  }
  EXPECT_EQ(events, framer.at_a_time());
  EXPECT_GT(parts, 10u);
}

// Text that JSON escapes to six times its size, in lines of each length: what is kept at a time stays below
// the claim.
TEST(EventFramer, KeepsLessThanItClaims) {
  for (const bool lines : {false, true}) {
    for (const size_t length : {0, 1, 700, 4000, 16383, 65536, 200000}) {
      EventFramer framer(lines);
      std::string output;
      while (output.size() < 400000) output.append(length, length % 2 == 0 ? '\x01' : '"').append(1, '\n');
      size_t most = 0;
      for (size_t at = 0; at < output.size(); at += framer.at_a_time()) {
        framer.add(false, std::string_view(output).substr(at, framer.at_a_time()));
        for (bool more = true; more;) {
          std::string part;
          more = framer.next(false, part);
          most = std::max(most, part.capacity());
        }
      }
      EXPECT_LE(most, framer.most_bytes() / 2) << length;
    }
  }
}

TEST(EventFramer, HoldsBackAtMostOneLine) {
  EventFramer framer(true);
  std::string events;
  for (int i = 0; i < 1000; ++i) add(framer, false, std::string(4096, 'y'), events);
  EXPECT_GT(collect(events).out.size(), 4096u * 1000 - 65536 - 4096);
}

// However the output is split, each event has the offset of its first byte, and no byte is missing between
// them.
TEST(EventFramer, ReportsTheOffsetOfEachEvent) {
  const std::string bytes =
      "a\xc3\xa9"
      "b\xf0\x9f\x98\x80\xff\n" +
      std::string(100000, 'x');
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{50000}}) {
    EventFramer framer(std::array<uint64_t, 2>{7, 1000});
    std::string events;
    for (size_t at = 0; at < bytes.size(); at += piece)
      for (const bool error : {false, true})
        add(framer, error, std::string_view(bytes).substr(at, piece), events);
    flush(framer, events);
    std::array<uint64_t, 2> next{7, 1000};
    for (const auto& event : collect(events).events) {
      uint64_t& expected = next[event.at("event") == "stderr" ? 1 : 0];
      ASSERT_EQ(event.at("offset"), expected);
      const std::string data = event.at("data");
      expected += event.at("encoding") == "base64" ? base64_decode(data).value().size() : data.size();
    }
    EXPECT_EQ(next, (std::array<uint64_t, 2>{7 + bytes.size(), 1000 + bytes.size()})) << piece;
  }
}

}  // namespace
}  // namespace isogate::front
