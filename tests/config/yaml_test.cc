#include <gmock/gmock.h>

#include "tests/config/loading.h"

namespace isogate {
namespace {

using test::loaded;
using test::refusal;
using ::testing::HasSubstr;

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Yaml, RefusesWhatHidesOrMultipliesContent) {
  EXPECT_THAT(refusal({"shell: &a /bin/sh"}), HasSubstr("c.yaml:1:8: anchors are not accepted"));
  EXPECT_THAT(refusal({"a: &a [x]\nb: *a"}), HasSubstr("anchors are not accepted"));
  EXPECT_THAT(refusal({"shell: !!str /bin/sh"}), HasSubstr("c.yaml:1:8: tags are not accepted"));
  EXPECT_THAT(refusal({"shell: /bin/sh\n---\nshell: /bin/bash\n"}),
              HasSubstr("c.yaml: more than one document"));
  EXPECT_THAT(refusal({"backends: [{name: a, config: {? [x] : y}}]"}), HasSubstr("expected a text as key"));
}

TEST(Yaml, RefusesABombOfAliases) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i)
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" +
            repeated("*a" + std::to_string(i - 1) + ",", 9) + "]\n";
  EXPECT_THAT(refusal({bomb}), HasSubstr("anchors are not accepted"));
}

TEST(Yaml, BoundsDepthSizeAndCount) {
  EXPECT_THAT(refusal({"x: " + repeated("[", 40) + repeated("]", 40)}), HasSubstr("more than 32 levels"));
  EXPECT_THAT(refusal({"x: " + repeated("[", 100000)}), HasSubstr("c.yaml:1:"));
  EXPECT_THAT(refusal({"x: " + repeated("{a: ", 100000)}), HasSubstr("c.yaml:1:"));
  EXPECT_THAT(refusal({"x: [" + repeated("1,", 200000) + "]"}), HasSubstr("more than 100000 values"));
  EXPECT_THAT(refusal({"# " + repeated("x", 1 << 20)}), HasSubstr("c.yaml`: it is over 1 MiB"));
  EXPECT_TRUE(test::load({"# " + repeated("x", (1 << 20) - 3)}));
}

TEST(Yaml, RefusesWhatIsNotText) {
  EXPECT_THAT(refusal({"shell: /bin/\xff"}), HasSubstr("c.yaml: not UTF-8"));
  EXPECT_THAT(refusal({std::string("shell: /bin\0/sh", 15)}),
              HasSubstr("c.yaml: contains control characters"));
  EXPECT_THAT(refusal({"\xff\xfes\0h\0"}), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal({"shell: \"/bin\\u0007/sh\""}), HasSubstr("`shell`: expected an absolute path"));
}

TEST(Yaml, ReportsWhereItsSyntaxBreaks) {
  EXPECT_THAT(refusal({"shell: [a\n"}), HasSubstr("c.yaml:"));
  EXPECT_THAT(refusal({"a: 1\n b: 2\n"}), HasSubstr("c.yaml:2:"));
  EXPECT_THAT(refusal({"exec:\n\ttimeout_sec: 1\n"}), HasSubstr("indented with a tab; use spaces"));
  EXPECT_THAT(refusal({"backends:\n  name: a\n  - name: b\n"}), HasSubstr("begins with `- `"));
  EXPECT_THAT(refusal({"just a text"}), HasSubstr("c.yaml: expected settings"));
}

// An editor has just truncated it: no key must go for that.
TEST(Yaml, WithoutAnySettingIsTheDefaultsAtAStartAndAMistakeOfAReload) {
  for (const char* empty : {"", "\n", "# later\n", "---\n", "~"}) {
    EXPECT_TRUE(test::load({.yaml = empty})) << empty;
    EXPECT_THAT(refusal({.yaml = empty, .reload = true}), HasSubstr("c.yaml: it is empty")) << empty;
  }
  EXPECT_TRUE(test::load({.yaml = "{}", .reload = true}));
  EXPECT_TRUE(test::load({.yaml = "shell: /bin/sh", .reload = true}));
  EXPECT_TRUE(test::load({.yaml = "-", .reload = true})) << "there is no file";
}

TEST(Yaml, IsReadByTheCoreSchema) {
  auto config =
      loaded({"backends: [{name: a, config: {a: yes, b: \"true\", c: true, d: 0755, e: 12, f: -3, g: 1.5e3, "
              "h: ~, i: '1', "
              "j: 18446744073709551615, k: 0x10, l: 1_000, m: .5}}]"});
  EXPECT_EQ(config.config.backends[0].config_json,
            R"({"a":"yes","b":"true","c":true,"d":"0755","e":12,"f":-3,"g":1500.0,"h":null,"i":"1",)"
            R"("j":18446744073709551615,"k":"0x10","l":"1_000","m":0.5})");
}

TEST(Yaml, MayBeJson) {
  auto config = loaded({R"({
	"listen": ["127.0.0.1:1"], "shell": "\/bin\/s\u0068",
	"limits": {"max_execs": 7}, "exec": {"timeout_sec": 1.5e1, "env": {"A": "é \"q\" \\ \n"}},
	"backends": [{"name": "x", "limits": "best_effort", "config": {"a": [1, {"b": null}]}}]})"})
                    .config;
  EXPECT_EQ(config.listen, std::vector<std::string>{"127.0.0.1:1"});
  EXPECT_EQ(config.shell, "/bin/sh");
  EXPECT_EQ(config.limits.max_execs, 7u);
  EXPECT_EQ(config.exec.timeout_sec, 15);
  ASSERT_EQ(config.exec.env.size(), 1u);
  EXPECT_EQ(config.exec.env[0].second, "é \"q\" \\ \n");
  EXPECT_TRUE(config.backends[0].limits_best_effort);
  EXPECT_EQ(config.backends[0].config_json, R"({"a":[1,{"b":null}]})");
}

TEST(Yaml, MayBeEmpty) {
  EXPECT_TRUE(test::load({""}));
  EXPECT_TRUE(test::load({"# nothing\n"}));
  EXPECT_TRUE(test::load({"---\n"}));
}

}  // namespace
}  // namespace isogate
