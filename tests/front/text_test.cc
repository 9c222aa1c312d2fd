#include "lib/text.h"
#include "gateway/front/api/mime.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace isogate::front {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (int value : values) out += static_cast<char>(value);
  return out;
}

// RFC 3629's own definition, one code point after the other: slow, and obviously correct.
bool reference_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    auto at = [&](size_t k) { return i + k < text.size() ? static_cast<uint8_t>(text[i + k]) : 0; };
    uint8_t first = at(0);
    size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t point = length == 1 ? first : first & (0x7F >> length);
    for (size_t k = 1; k < length; ++k) {
      if (at(k) >> 6 != 2) return false;
      point = (point << 6) | (at(k) & 63);
    }
    static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kLeast[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
    i += length;
  }
  return true;
}

TEST(Utf8, TakesWhatTheRfcTakes) {
  const std::vector<std::string> good = {"",
                                         "a",
                                         "plain ascii of more than eight bytes",
                                         "é",
                                         "€",
                                         "😀",
                                         bytes({0}),
                                         bytes({0xC2, 0x80}),
                                         bytes({0xDF, 0xBF}),
                                         bytes({0xE0, 0xA0, 0x80}),
                                         bytes({0xED, 0x9F, 0xBF}),
                                         bytes({0xEE, 0x80, 0x80}),
                                         bytes({0xF0, 0x90, 0x80, 0x80}),
                                         bytes({0xF4, 0x8F, 0xBF, 0xBF}),
                                         bytes({0xEF, 0xBF, 0xBE})};
  for (const std::string& text : good) EXPECT_TRUE(is_utf8(text)) << text;
}

TEST(Utf8, RefusesWhatTheRfcRefuses) {
  const std::vector<std::string> bad = {bytes({0x80}),                    // a continuation on its own
                                        bytes({0xC0, 0x80}),              // overlong NUL
                                        bytes({0xC1, 0xBF}),              // overlong
                                        bytes({0xE0, 0x9F, 0xBF}),        // overlong
                                        bytes({0xF0, 0x8F, 0xBF, 0xBF}),  // overlong
                                        bytes({0xED, 0xA0, 0x80}),        // surrogate
                                        bytes({0xED, 0xBF, 0xBF}),        // surrogate
                                        bytes({0xF4, 0x90, 0x80, 0x80}),  // above U+10FFFF
                                        bytes({0xF5, 0x80, 0x80, 0x80}),
                                        bytes({0xFF}),
                                        bytes({0xFE}),
                                        bytes({0xC3}),
                                        bytes({0xE2, 0x82}),
                                        bytes({0xF0, 0x9F, 0x98}),
                                        bytes({0xC3, 'a'}),
                                        bytes({0xE2, 'a', 0x80})};
  for (const std::string& text : bad)
    for (size_t before = 0; before < 9; ++before)
      for (size_t after : {0, 1, 8})
        EXPECT_FALSE(is_utf8(std::string(before, 'x') + text + std::string(after, 'y')))
            << before << " " << after;
}

TEST(Utf8, AgreesWithTheReferenceOnAllShortAndManyRandomStrings) {
  for (uint32_t v = 0; v < 0x10000; ++v) {
    std::string two = bytes({static_cast<int>(v >> 8), static_cast<int>(v & 0xFF)});
    ASSERT_EQ(is_utf8(two), reference_utf8(two)) << v;
  }
  std::mt19937 random(7);
  static constexpr uint8_t kPool[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF,
                                      0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  for (int round = 0; round < 300000; ++round) {
    std::string text;
    for (size_t left = random() % 7; left > 0; --left)
      text += static_cast<char>(kPool[random() % sizeof kPool]);
    ASSERT_EQ(is_utf8(text), reference_utf8(text)) << printable(text, 100);
  }
}

TEST(Utf8Boundary, LeavesOnlyWhatCouldStillBecomeACharacter) {
  struct Row {
    std::string text;
    size_t boundary;
  };
  const std::vector<Row> rows = {
      {"", 0},
      {"a", 1},
      {"abc", 3},
      {"é", 2},
      {"aé", 3},
      {"a\xC3", 1},
      {"\xC3", 0},
      {"€", 3},
      {"a\xE2\x82", 1},
      {"a\xE2", 1},
      {"😀", 4},
      {"a\xF0\x9F\x98", 1},
      {"a\xF0\x9F", 1},
      {"a\xF0", 1},
      {"a\x80", 2},              // invalid: complete
      {"a\x80\x80\x80\x80", 5},  // invalid: complete
      {"a\xC0", 2},
      {"a\xFF", 2},          // never a lead
      {"a\xE0\x80", 3},      // overlong: cannot be completed
      {"a\xED\xA0", 3},      // surrogate: cannot be completed
      {"a\xF4\x90", 3},      // too high: cannot be completed
      {"a\xF0\x80\x80", 4},  // overlong: cannot be completed
      {"a\xE0\xA0", 1},
      {"a\xF4\x8F\xBF", 1},
  };
  for (const Row& row : rows) EXPECT_EQ(utf8_boundary(row.text), row.boundary) << printable(row.text, 100);
}

TEST(Utf8Boundary, CutsAStreamAnywhereAndLosesNothing) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "aé€😀\n";
  ASSERT_TRUE(is_utf8(text));
  for (size_t chunk = 1; chunk < 12; ++chunk) {
    std::string carried, joined;
    for (size_t at = 0; at < text.size(); at += chunk) {
      carried += text.substr(at, chunk);
      size_t cut = utf8_boundary(carried);
      ASSERT_LE(carried.size() - cut, 3u);
      ASSERT_TRUE(is_utf8(carried.substr(0, cut)));
      joined += carried.substr(0, cut);
      carried.erase(0, cut);
    }
    EXPECT_EQ(joined + carried, text);
    EXPECT_TRUE(carried.empty());
  }
}

std::string json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonString, EscapesWhatJsonRequiresAndNothingElse) {
  EXPECT_EQ(json(""), "\"\"");
  EXPECT_EQ(json("plain"), "\"plain\"");
  EXPECT_EQ(json("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
  EXPECT_EQ(json("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\"");
  EXPECT_EQ(json(bytes({0, 1, 0x1F, 0x20, 0x7F})), "\"\\u0000\\u0001\\u001f \x7F\"");
  EXPECT_EQ(json("é€😀"), "\"é€😀\"");
  EXPECT_EQ(json("<script>&'"), "\"<script>&'\"");
}

TEST(JsonString, AppendsToWhatIsThere) {
  std::string out = "{\"a\":";
  append_json_string(out, "b");
  EXPECT_EQ(out, "{\"a\":\"b\"");
}

TEST(JsonString, FindsEveryByteAtEveryPlace) {
  for (int value = 0; value < 256; ++value)
    for (size_t before = 0; before < 17; ++before)
      for (size_t after : {0, 7, 8}) {
        std::string text = std::string(before, 'x') + static_cast<char>(value) + std::string(after, 'y');
        std::string expected = "\"" + std::string(before, 'x');
        if (value == '"' || value == '\\')
          expected += std::string("\\") + static_cast<char>(value);
        else if (value == '\b' || value == '\f' || value == '\n' || value == '\r' || value == '\t')
          expected += std::string("\\") + std::string_view("btn_fr")[static_cast<size_t>(value - 8)];
        else if (value < 0x20)
          expected += std::string("\\u00") + (value < 16 ? '0' : '1') + "0123456789abcdef"[value & 15];
        else
          expected += static_cast<char>(value);
        ASSERT_EQ(json(text), expected + std::string(after, 'y') + "\"") << value << " at " << before;
      }
}

TEST(JsonString, InPiecesIsTheSame) {
  const std::string text = "a\"b\\c\n\x01\xc3\xa9 and more than eight bytes";
  std::string whole, pieces = "\"";
  append_json_string(whole, text);
  for (const char c : text) append_json_text(pieces, {&c, 1});
  EXPECT_EQ(pieces + '"', whole);
}

TEST(GoesAsText, IsForTextThatEscapesDoNotBlowUp) {
  EXPECT_TRUE(goes_as_text(""));
  EXPECT_TRUE(goes_as_text(std::string(1024, '\0'))) << "little";
  EXPECT_TRUE(goes_as_text(std::string(1 << 20, '\n'))) << "twice the bytes";
  EXPECT_TRUE(goes_as_text(std::string(1 << 20, '"')));
  EXPECT_TRUE(goes_as_text(std::string(1 << 20, 'x')));
  EXPECT_FALSE(goes_as_text(std::string(1 << 20, '\0')));
  EXPECT_FALSE(goes_as_text("\xff"));
}

TEST(GoesAsText, IsBoundedToTheByte) {
  for (size_t size = 1; size < 40000; size += 4999) {
    for (size_t controls = 0; controls <= size; controls += 499) {
      std::string text(size - controls, 'x');
      text.insert(text.size() / 2, std::string(controls, '\x01'));
      std::string json;
      append_json_text(json, text);
      ASSERT_EQ(goes_as_text(text), json.size() <= 2 * size + 4096) << size << " " << controls;
    }
  }
}

TEST(TextJudge, JudgesPiecesAsTheWhole) {
  const std::string texts[] = {"",
                               "aé€😀\n",
                               "aé€😀\xE2",
                               "\xE2\xE2\xE2\xE2\xE2",
                               "\xF0\x9F\xE2\x82\xAC",
                               "\xE2\x82",
                               "€\x80€",
                               std::string(20000, '\1'),
                               std::string(4096, '\1') + std::string(4096 * 3 - 4096, 'x'),
                               std::string(4099, '\v') + std::string(9000, '"'),
                               std::string(9000, '\t') + "😀" + std::string(2000, '\x1f')};
  for (const std::string& text : texts) {
    for (const size_t size : {1, 2, 3, 4, 5, 7, 4096, 100'000}) {
      TextJudge judge;
      for (size_t at = 0; at < text.size(); at += size) judge.add(std::string_view(text).substr(at, size));
      EXPECT_EQ(judge.utf8(), is_utf8(text)) << printable(text, 100) << " by " << size;
      EXPECT_EQ(judge.as_text(), goes_as_text(text)) << printable(text, 100) << " by " << size;
    }
  }
}

TEST(Base64, MatchesTheVectorsOfTheRfc) {
  struct Row {
    const char *plain, *coded;
  };
  for (const Row& row : {Row{"", ""},
                         {"f", "Zg=="},
                         {"fo", "Zm8="},
                         {"foo", "Zm9v"},
                         {"foob", "Zm9vYg=="},
                         {"fooba", "Zm9vYmE="},
                         {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(base64_encode(row.plain), row.coded);
    EXPECT_EQ(base64_decode(row.coded), row.plain);
  }
  EXPECT_EQ(base64_encode(bytes({0xFB, 0xFF})), "+/8=");
}

TEST(Base64, ComesBackAsItWas) {
  std::mt19937 random(3);
  for (size_t size = 0; size < 300; ++size) {
    std::string plain;
    while (plain.size() < size) plain += static_cast<char>(random());
    std::string coded = "kept:";
    append_base64(coded, plain);
    ASSERT_EQ(base64_decode(std::string_view(coded).substr(5)), plain);
    ASSERT_EQ(coded.size(), 5 + (size + 2) / 3 * 4);
  }
}

TEST(Base64, RefusesWhatIsNotStrict) {
  for (const char* bad :
       {"Z",   "Zg",    "Zg=",      "Zg===", "Z===", "====", "=",        "Zm9v\n",  " Zm9v", "Zm9v Zg==",
        "Zm8", "Zm9v=", "Zg==Zg==", "Zh==",  "Zm9=", "Zm-_", "Zm9v!mFy", "Zm\x80v", "Zg=a",  "=Zg="})
    EXPECT_EQ(base64_decode(bad), std::nullopt) << bad;
  EXPECT_EQ(base64_decode(std::string_view("Zm9\0", 4)), std::nullopt);
}

TEST(MimeType, KnowsTheCommonOnes) {
  struct Row {
    const char *path, *type;
  };
  for (const Row& row : {Row{"a.txt", "text/plain"},
                         {"out/plot.PNG", "image/png"},
                         {"x.tar.gz", "application/gzip"},
                         {"a.7z", "application/x-7z-compressed"},
                         {"a.zst", "application/zstd"},
                         {"report.pdf", "application/pdf"},
                         {"d.json", "application/json"},
                         {"page.html", "text/html"},
                         {"data.csv", "text/csv"},
                         {"a.svg", "image/svg+xml"}})
    EXPECT_EQ(mime_type(row.path), row.type) << row.path;
  for (const char* unknown :
       {"", "a", "dir.txt/a", ".txt", "a.", "a.nothing", "dir/.png", "a.pn", "a.pngg", "/"})
    EXPECT_EQ(mime_type(unknown), "application/octet-stream") << unknown;
}

TEST(Printable, ShowsEveryByteHarmlessly) {
  EXPECT_EQ(printable("plain", 100), "plain");
  EXPECT_EQ(printable("Grüße 日本 😀", 100), "Grüße 日本 😀");
  EXPECT_EQ(printable("a\n\r\tb", 100), "a\\n\\r\\tb");
  EXPECT_EQ(printable("\x1b[31mred", 100), "\\x1b[31mred");
  EXPECT_EQ(printable("back\\slash", 100), "back\\\\slash");
  EXPECT_EQ(printable(bytes({0, 0x7F, 0xFF, 0xC3}), 100), "\\x00\\x7f\\xff\\xc3");
  EXPECT_EQ(printable("\u0085", 100), "\\xc2\\x85") << "a control character beyond ASCII";
  EXPECT_EQ(printable("a\u202Eb", 100), "a\\xe2\\x80\\xaeb") << "right-to-left override";
  EXPECT_EQ(printable("a\u200Bb", 100), "a\\xe2\\x80\\x8bb") << "zero-width space";
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("éé", 1), "é…");
  EXPECT_EQ(printable("", 0), "");
  EXPECT_LT(printable(std::string(1 << 20, '\1'), 50).size(), 60u);
}

TEST(PercentDecode, DecodesExactlyOnce) {
  EXPECT_EQ(percent_decode(""), "");
  EXPECT_EQ(percent_decode("a%20b+c"), "a b+c");
  EXPECT_EQ(percent_decode("%252e"), "%2e");
  EXPECT_EQ(percent_decode("%2F%2f%C3%a9"), "//é");
  EXPECT_EQ(percent_decode("%00"), std::string(1, '\0'));
  for (const char* bad : {"%", "%2", "a%", "%zz", "%2g", "%g2", "%%20", "a%2"})
    EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace isogate::front
