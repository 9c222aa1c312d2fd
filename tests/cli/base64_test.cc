#include <gtest/gtest.h>

#include "gateway/cli/output.h"

namespace isogate::cli {
namespace {

TEST(Base64, EncodesEveryLengthAndComesBack) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    auto back = from_base64(base64(bytes));
    ASSERT_TRUE(back.ok()) << i;
    EXPECT_EQ(*back, bytes) << i;
    bytes += static_cast<char>(i * 7);
  }
}

TEST(Base64, KnownTexts) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Zg=", "Z", "Zg==Zg==", "Z===", "====", "Zm9 ", "Zm\n9v", "Zg-_"})
    EXPECT_FALSE(from_base64(text).ok()) << text;
}

TEST(TerminalText, ControlCharactersDoNotReachATerminal) {
  EXPECT_EQ(for_terminal("a\x1b[31mb\x7f\r\nc"), "a?[31mb??\nc");
  EXPECT_EQ(for_terminal("grün"), "grün");
}

}  // namespace
}  // namespace isogate::cli
