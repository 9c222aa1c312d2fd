#include "gateway/config/schema.h"

#include <gmock/gmock.h>

#include "plugins/namespace/config.h"

namespace isogate {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const char kSchema[] = R"({
  "type": "object", "additionalProperties": false, "required": ["image"],
  "definitions": {"size": {"type": "integer", "minimum": 1}},
  "properties": {
    "image": {"type": "string", "pattern": "^[a-z]+$"},
    "network": {"enum": ["none", "bridge"]},
    "size": {"$ref": "#/definitions/size"},
    "token": {"type": "string", "pattern": "^t"},
    "mounts": {"type": "array", "items": {"type": "object", "properties": {"from": {"type": "string"}}, "additionalProperties": false}},
    "user": {"oneOf": [{"const": "host"}, {"type": "integer"}]}
  }})";

std::string misfit(const std::string& document) {
  auto result = validate_json(kSchema, document, "config of backend `x`");
  return result ? "fits" : result.error().message;
}

TEST(SchemaCheck, TakesWhatFits) {
  EXPECT_EQ(misfit(R"({"image": "abc"})"), "fits");
  EXPECT_EQ(
      misfit(
          R"({"image": "abc", "network": "none", "size": 3, "mounts": [{"from": "/a"}, {}], "user": "host"})"),
      "fits");
  EXPECT_EQ(misfit(R"({"image": "abc", "user": 7})"), "fits");
}

TEST(SchemaCheck, SaysWhereAndWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "`image` is missing"},
      {R"({"image": "ABC"})", "`image`: expected a text like ^[a-z]+$, got \"ABC\""},
      {R"({"image": 5})", "`image`: expected string, got 5"},
      {R"({"image": "a", "network": "host"})", "`network`: expected one of none, bridge, got \"host\""},
      {R"({"image": "a", "size": 0})", "`size`: Expected number greater than or equal to 1"},
      {R"({"image": "a", "size": "1"})", "`size`: expected integer, got \"1\""},
      {R"({"image": "a", "imgae": "b"})", "unknown key `imgae`; did you mean `image`?"},
      {R"({"image": "a", "mounts": [{}, {"from": 1}]})", "`mounts.1.from`: expected string, got 1"},
      {R"({"image": "a", "mounts": [{"form": "x"}]})",
       "`mounts.0`: unknown key `form`; did you mean `from`?"},
      {R"({"image": "a", "user": "me"})", "`user`: expected host or integer, got \"me\""},
      {R"([])", "expected object, got []"},
  };
  for (const auto& [document, message] : cases) {
    EXPECT_THAT(misfit(document),
                HasSubstr("config of backend `x` does not fit its schema: " + std::string(message)))
        << document;
    EXPECT_THAT(misfit(document), Not(HasSubstr("Failed to validate"))) << document;
  }
}

TEST(SchemaCheck, ReportsEveryMismatch) {
  std::string message = misfit(R"({"image": 1, "network": 2, "size": "x", "more": 3})");
  for (const char* part : {"`image`", "`network`", "`size`", "`more`"}) EXPECT_THAT(message, HasSubstr(part));
}

TEST(SchemaCheck, RepeatsNoSecret) {
  EXPECT_THAT(misfit(R"({"image": "a", "token": "x-hidden"})"), Not(HasSubstr("x-hidden")));
  EXPECT_THAT(misfit(R"({"image": "a", "token": "x-hidden"})"),
              HasSubstr("`token`: expected a text like ^t"));
}

TEST(SchemaCheck, DoesNotTakeOneTypeForAnother) {
  EXPECT_NE(misfit(R"({"image": "a", "size": 1.5})"), "fits");
  EXPECT_NE(misfit(R"({"image": "a", "size": true})"), "fits");
  EXPECT_NE(misfit(R"({"image": null})"), "fits");
}

TEST(SchemaCheck, RefusesWhatIsNoJson) {
  EXPECT_THAT(misfit("{"), HasSubstr("config of backend `x`: not JSON"));
}

TEST(SchemaCheck, BlamesABrokenSchema) {
  for (const char* schema : {"", "{", "[]", "5", R"({"type": 5})", R"({"$ref": "http://example.org/x.json"})",
                             R"({"properties": []})"}) {
    auto result = validate_json(schema, "{\"a\": 1}", "config");
    ASSERT_FALSE(result) << schema;
    EXPECT_THAT(result.error().message, HasSubstr("its JSON Schema is broken")) << schema;
  }
  EXPECT_FALSE(validate_json(R"({"properties": {"a": {"pattern": "("}}})", R"({"a": "x"})", "config"));
}

TEST(SchemaCheck, BoundsTheSettingsOfTheBackendNamespace) {
  for (const char* bad :
       {"[]", "x", R"({"profil": "debug"})", R"({"profile": "strict"})", R"({"max_processes": 1})",
        R"({"max_processes": "64"})", R"({"max_processes": 64.5})", R"({"shm_mb": 0})",
        R"({"inits_ahead": 1})", R"({"shm_mb": -1})", R"({"tmp_mb": 0})", R"({"cpus": "many"})",
        R"({"cpus": 1001})", R"({"root": "/"})", R"({"root": "srv"})", R"({"root": "/srv/"})",
        R"({"disk_mb": 1.5})", R"({"workspace_fs": "zfs"})"})
    EXPECT_FALSE(validate_json(ns::kConfigSchema, bad, "config")) << bad;
  for (const char* good : {"{}", R"({"memory_mb": 0, "cpus": 0.5, "root": "/srv/root"})"})
    EXPECT_TRUE(validate_json(ns::kConfigSchema, good, "config")) << good;
}

TEST(SchemaCheck, AcceptsNoMistypedKeyByOversight) {
  const auto refusal = [](const std::string& schema) {
    const auto checked = check_schema(schema, "plugin `x`");
    return checked ? "fits" : checked.error().message;
  };
  EXPECT_EQ(refusal(kSchema), "fits");
  EXPECT_EQ(refusal(R"({"additionalProperties": {"type": "string"}})"), "fits");
  EXPECT_EQ(refusal(R"({"additionalProperties": true})"), "fits") << "it is said";
  EXPECT_EQ(
      refusal(R"({"$ref": "#/definitions/all", "definitions": {"all": {"additionalProperties": false}}})"),
      "fits");
  EXPECT_EQ(refusal(R"({"oneOf": [{"properties": {"a": {}}, "additionalProperties": false}]})"), "fits");
  EXPECT_EQ(
      refusal(R"({"additionalProperties": false, "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}})"),
      "fits");
  EXPECT_EQ(refusal(R"({"oneOf": [{"$ref": "#/definitions/d"}, {"anyOf": [{"$ref": "#/definitions/d"}]}],
                        "definitions": {"d": {"additionalProperties": false}}})"),
            "fits");
  const std::pair<const char*, const char*> open[] = {
      {"{}", "`config`"},
      {R"({"type": "object", "properties": {"a": {}}})", "`config`"},
      {R"({"$ref": "#/definitions/all", "additionalProperties": false, "definitions": {"all": {}}})",
       "`config`"},
      {R"({"additionalProperties": false, "properties": {"a": {"properties": {"b": {}}}}})", "`config.a`"},
      {R"({"additionalProperties": false, "properties": {"a": {"items": {"properties": {"b": {}}}}}})",
       "`config.a[]`"},
      {R"({"additionalProperties": false, "properties": {"d": {"$ref": "#/definitions/d"}},
           "definitions": {"d": {"properties": {"b": {}}}}})",
       "`config.d`"},
      {R"({"additionalProperties": {"properties": {"b": {}}}})", "`config.*`"},
      {R"({"oneOf": [{"additionalProperties": false}, {"properties": {"b": {}}}]})", "`config`"}};
  for (const auto& [schema, where] : open)
    EXPECT_THAT(refusal(schema),
                HasSubstr("plugin `x`: its JSON Schema accepts any key in " + std::string(where)))
        << schema;
}

}  // namespace
}  // namespace isogate
