#include "gateway/front/ndjson.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "gateway/front/text.h"

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

TEST(EventFramer, KeepsEveryByteHoweverTheOutputIsCut) {
  std::mt19937 random(7);
  std::string bytes;
  for (int i = 0; i < 5000; ++i)
    bytes += i % 3 == 0 ? "é€😀" : i % 7 == 0 ? std::string(1, static_cast<char>(random())) : "text\n";
  EventFramer framer(false);
  std::string events;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(1 + random() % 97, bytes.size() - at);
    framer.add(false, std::string_view(bytes).substr(at, n), events);
    at += n;
  }
  framer.flush(events);
  EXPECT_EQ(collect(events).out, bytes);
}

TEST(EventFramer, NeverCutsACharacter) {
  const std::string text = "a€b😀c";
  EventFramer framer(false);
  std::string events;
  for (const char byte : text) framer.add(true, {&byte, 1}, events);
  framer.flush(events);
  const Seen seen = collect(events);
  EXPECT_EQ(seen.error, text);
  for (const auto& event : seen.events) EXPECT_EQ(event.at("encoding"), "utf-8");
}

TEST(EventFramer, GivesOneEventPerLineWithoutItsNewline) {
  EventFramer framer(true);
  std::string events;
  framer.add(false, "one\ntw", events);
  framer.add(true, "err", events);
  framer.add(false, "o\n\nlast", events);
  framer.flush(events);
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
  framer.add(false, line + "\nshort\n", events);
  const Seen seen = collect(events);
  ASSERT_EQ(seen.events.size(), 5u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(seen.events[i].value("partial", false));
  EXPECT_FALSE(seen.events[3].contains("partial"));
  EXPECT_EQ(seen.events[4].at("data"), "short");
  EXPECT_EQ(seen.out, line + "short");
}

TEST(EventFramer, HoldsBackAtMostOneLine) {
  EventFramer framer(true);
  std::string events;
  for (int i = 0; i < 1000; ++i) framer.add(false, std::string(4096, 'y'), events);
  EXPECT_GT(collect(events).out.size(), 4096u * 1000 - 65536 - 4096);
}

}  // namespace
}  // namespace isogate::front
