#include <gtest/gtest.h>

#include "gateway/front/artifacts.h"
#include "gateway/front/exec.h"

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
