#include "lib/net/websocket.h"

#include <gtest/gtest.h>

namespace isogate::net {
namespace {

using Event = FrameReader::Event;

// The output: "b:…" and "t:…" for messages, "." after a text, "p" and "c" for ping and close, "!" when
// it is invalid.
std::string read_all(const std::string& bytes, size_t piece, bool takes_text = true) {
  FrameReader reader(takes_text);
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    std::string_view in = std::string_view(bytes).substr(at, piece);
    for (;;) {
      const auto step = reader.next(in);
      in.remove_prefix(step.taken);
      if (step.event == Event::kMore) break;
      if (step.event == Event::kBroken) return out + "!";
      if (step.event == Event::kTextEnd) out += ".";
      if (step.event == Event::kPing) out += "p";
      if (step.event == Event::kClose) out += "c";
      if (step.event != Event::kData) continue;
      if (step.begins) out += step.text ? "t:" : "b:";
      out += step.data;
      reader.took(step.data.size());
      in.remove_prefix(step.data.size());
    }
  }
  return out;
}

TEST(FrameReader, TextMessagesHaveAnEnd) {
  const std::pair<std::string, std::string> streams[] = {
      {"\x81\x02hi", "t:hi."},
      {std::string("\x81\x00", 2), "t:."},
      {"\x81\x02hi\x82\x01x\x81\x01y", "t:hi.b:xt:y."},
      {std::string("\x01\x01h\x89\x00\x80\x01i", 8), "t:hpi."},
      {std::string("\x01\x02hi\x80\x00", 6), "t:hi."},
      {std::string("\x01\x00\x00\x00\x80\x00\x82\x01x", 9), "t:.b:x"},
      {"\x01\x01h\x82\x01x", "t:h!"},
      {"\x01\x01h\x81\x01x", "t:h!"},
      {std::string("\x81\x02hi\x88\x00", 6), "t:hi.c"},
  };
  for (const auto& [bytes, out] : streams)
    for (size_t piece = 1; piece <= bytes.size(); ++piece) EXPECT_EQ(read_all(bytes, piece), out) << piece;
}

TEST(FrameReader, TextIsBrokenWhereNoneIsExpected) {
  EXPECT_EQ(read_all("\x81\x02hi", 4, false), "!");
  EXPECT_EQ(read_all("\x82\x02hi", 4, false), "b:hi");
}

}  // namespace
}  // namespace isogate::net
