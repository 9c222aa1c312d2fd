#include <gtest/gtest.h>

#include "gateway/base/redact.h"
#include "gateway/front/artifacts.h"
#include "gateway/front/exec.h"
#include "gateway/front/exec_request.h"

namespace isogate::front {
namespace {

TEST(ExecSpec, CountsEachTextThatARequestCanMakeLong) {
  const std::string text(100000, 'x');
  const auto bytes = [](const auto& fill) {
    ExecSpec spec;
    fill(spec);
    return spec.bytes();
  };
  EXPECT_EQ(ExecSpec().bytes(), 0u);
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.argv = {text}; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.env = {{text, text}}; }), 2 * text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.cwd = text; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.user = text; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.artifact_dir = text; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.stdin_bytes = std::make_shared<const std::string>(text); }),
            text.size());
}

std::string shown(std::vector<std::string> arguments) { return journal_text(arguments); }

TEST(JournalText, IsTheCommandShortAndPrintable) {
  EXPECT_EQ(shown({"make -j2 test"}), "make -j2 test");
  EXPECT_EQ(shown({"ls", "-l", "a b"}), "ls -l a b");
  EXPECT_EQ(shown({"a\nb"}).find('\n'), std::string::npos);
  EXPECT_LE(shown({std::string(5000, 'x')}).size(), 210u);
  EXPECT_LE(shown(std::vector<std::string>(5000, "xyz")).size(), 210u);
}

TEST(JournalText, HoldsNoSecret) {
  const std::string token = "ghp_" + std::string(30, 'S') + "1234567", own = "registered SECRET-value 99";
  ASSERT_TRUE(register_secret(own));
  const std::vector<std::vector<std::string>> rows = {
      {"git clone https://user:SECRET@example.com/x"},
      {"curl -H 'Authorization: Bearer SECRET0123456789' http://x"},
      {"API_TOKEN=SECRET make"},
      {"curl", "-H", "Authorization: Bearer SECRET0123456789", "http://x"},
      {"tool", "--token", "SECRET"},
      {"tool", "--password", "two SECRET words"},
      {"tool", "--password=two SECRET words", "more"},
      {"env", "DB_PASSWORD=two SECRET words", "make"},
      {"echo " + own},
      {"echo", own},
      {"push " + token},
  };
  for (const auto& row : rows) {
    const std::string text = shown(row);
    EXPECT_EQ(text.find("SECRET"), std::string::npos) << text;
    EXPECT_NE(text.find("[redacted:"), std::string::npos) << text;
    EXPECT_EQ(text.find("SSSS"), std::string::npos) << text;
  }
  EXPECT_EQ(shown({"tool", "--token", "SECRET", "--fast"}), "tool --token [redacted:assignment] --fast");
}

// Half a secret has no shape: it must be found before the text is cut.
TEST(JournalText, HoldsNoHalfOfASecretWhereItIsCut) {
  const std::string token = "ghp_" + std::string(30, 'S') + "1234567";
  for (size_t before = 150; before < 210; ++before) {
    for (const auto& row : {std::vector<std::string>{std::string(before, '.') + " " + token},
                            std::vector<std::string>{std::string(before, '.'), token}})
      EXPECT_EQ(shown(row).find("SS"), std::string::npos) << shown(row);
  }
}

TEST(ArtifactPrefix, HasNoDetours) {
  for (const char* here : {"", ".", "./", "././/.", "./././"}) EXPECT_EQ(artifact_prefix(here), "") << here;
  for (const char* out : {"out", "out/", "./out", "out//.", ".//out/./"})
    EXPECT_EQ(artifact_prefix(out), "out/") << out;
  EXPECT_EQ(artifact_prefix("a/.b/..c"), "a/.b/..c/");
  EXPECT_EQ(artifact_prefix("/workspace/./out/"), "/workspace/out/");
  EXPECT_EQ(artifact_prefix("/"), "/");
}

}  // namespace
}  // namespace isogate::front
