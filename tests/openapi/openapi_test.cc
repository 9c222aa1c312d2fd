// docs/openapi.yaml against itself, against the JSON the gateway serves, and against the router's table.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "gateway/base/openapi.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/api_error.h"
#include "lib/limits.h"
#include "tests/support/yaml.h"
#include "tests_dirs.h"

namespace isogate {
namespace {

using Json = nlohmann::json;

const Json& document() {
  static const Json json = Json::parse(openapi_json());
  return json;
}

const Json* resolve(const std::string& ref) {
  if (ref.rfind("#/", 0) != 0) return nullptr;
  Json::json_pointer pointer(ref.substr(1));
  return document().contains(pointer) ? &document().at(pointer) : nullptr;
}

const Json& followed(const Json& value) {
  const Json* at = &value;
  while (at->is_object() && at->contains("$ref")) at = resolve(at->at("$ref").get<std::string>());
  return *at;
}

void walk(const Json& value, const std::string& path,
          const std::function<void(const Json&, const std::string&)>& visit) {
  visit(value, path);
  if (value.is_object())
    for (const auto& [key, inner] : value.items()) walk(inner, path + "/" + key, visit);
  if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i) walk(value[i], path + "/" + std::to_string(i), visit);
}

const std::set<std::string> kMethods = {"get", "head", "put", "post", "delete", "patch", "options", "trace"};

struct Operation {
  std::string method, path;
  const Json* json;
};

std::vector<Operation> operations() {
  std::vector<Operation> all;
  for (const auto& [path, item] : document().at("paths").items())
    for (const auto& [method, operation] : item.items())
      if (kMethods.count(method) > 0) all.push_back({method, path, &operation});
  return all;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

const Json* request_schema(const Json& operation) {
  if (!operation.contains("requestBody")) return nullptr;
  const Json& content = operation.at("requestBody").at("content");
  return content.contains("application/json") ? &followed(content.at("application/json").at("schema"))
                                              : nullptr;
}

TEST(Openapi, JsonIsInStepWithYaml) {
  Json yaml = test::from_yaml(YAML::LoadFile(ISOGATE_SOURCE_DIR "/docs/openapi.yaml"));
  EXPECT_EQ(Json::diff(document(), yaml), Json::array()) << "run scripts/generate.sh";
}

TEST(Openapi, BinaryCarriesTheJsonFile) {
  std::ifstream file(ISOGATE_SOURCE_DIR "/docs/openapi.json");
  EXPECT_EQ(Json::parse(file), document());
}

TEST(Openapi, IsOpenapi31) {
  EXPECT_EQ(document().at("openapi"), "3.1.0");
  EXPECT_EQ(document().at("info").at("version"), ISOGATE_VERSION);
  EXPECT_TRUE(document().at("info").contains("title"));
  static const std::set<std::string> known = {"openapi",  "info",  "servers",   "tags",
                                              "security", "paths", "components"};
  for (const auto& [key, value] : document().items()) EXPECT_EQ(known.count(key), 1u) << key;
}

TEST(Openapi, EveryReferenceResolves) {
  walk(document(), "#", [](const Json& value, const std::string& path) {
    if (!value.is_object() || !value.contains("$ref")) return;
    EXPECT_NE(resolve(value.at("$ref").get<std::string>()), nullptr) << path << " → " << value.at("$ref");
  });
}

TEST(Openapi, EveryComponentIsUsed) {
  std::set<std::string> used;
  walk(document(), "#", [&](const Json& value, const std::string&) {
    if (value.is_object() && value.contains("$ref")) used.insert(value.at("$ref").get<std::string>());
  });
  for (const auto& [kind, members] : document().at("components").items()) {
    if (kind == "securitySchemes") continue;
    for (const auto& [name, value] : members.items()) {
      if (kind == "responses" && (name == "NotFound" || name == "MethodNotAllowed"))
        continue;  // used by no operation
      EXPECT_EQ(used.count("#/components/" + kind + "/" + name), 1u) << kind << "/" << name;
    }
  }
}

TEST(Openapi, EveryOperationIsComplete) {
  std::set<std::string> ids;
  for (const Operation& operation : operations()) {
    const std::string where = operation.method + " " + operation.path;
    EXPECT_TRUE(ids.insert(operation.json->at("operationId").get<std::string>()).second) << where;
    EXPECT_TRUE(operation.json->contains("summary")) << where;
    const Json& responses = operation.json->at("responses");
    EXPECT_TRUE(responses.contains("200") || responses.contains("101")) << where;
    for (const auto& [status, response] : responses.items()) {
      const Json& answer = followed(response);
      EXPECT_TRUE(std::regex_match(status, std::regex("101|[2-5][0-9][0-9]"))) << where << " " << status;
      EXPECT_TRUE(answer.contains("description")) << where << " " << status;
      EXPECT_TRUE(answer.at("headers").contains("X-Request-Id")) << where << " " << status;
    }
  }
}

TEST(Openapi, EveryPathParameterIsDeclared) {
  for (const auto& [path, item] : document().at("paths").items()) {
    std::set<std::string> declared, wanted;
    for (const Json& parameter : item.value("parameters", Json::array()))
      if (followed(parameter).at("in") == "path")
        declared.insert(followed(parameter).at("name").get<std::string>());
    static const std::regex name("\\{([a-z_]+)\\}");
    for (std::sregex_iterator it(path.begin(), path.end(), name), end; it != end; ++it)
      wanted.insert((*it)[1]);
    EXPECT_EQ(declared, wanted) << path;
  }
}

TEST(Openapi, OnlyHealthNeedsNoKey) {
  for (const Operation& operation : operations()) {
    bool open = operation.json->contains("security") && operation.json->at("security").empty();
    bool health = operation.path == "/healthz" || operation.path == "/livez" || operation.path == "/readyz";
    EXPECT_EQ(open, health) << operation.path;
  }
}

// The fields of an MCP message belong to its revision.
bool takes_any_field(const front::Route& row) { return !row.fields.empty() && row.fields.front() == "*"; }

TEST(Openapi, UnknownRequestFieldsAreRefused) {
  std::set<std::string> any;
  for (const front::Route& row : front::routes())
    if (takes_any_field(row)) any.insert(std::string(row.operation_id));
  EXPECT_EQ(any, (std::set<std::string>{"mcp", "mcpOfAgent"}));
  for (const Operation& operation : operations()) {
    if (any.contains(operation.json->at("operationId").get<std::string>())) continue;
    const Json* schema = request_schema(*operation.json);
    if (schema != nullptr) {
      EXPECT_EQ(schema->at("additionalProperties"), false) << operation.path;
    }
  }
}

TEST(Openapi, NamesEveryErrorCodeWithItsStatus) {
  std::set<std::string> in_code;
  std::map<std::string, std::set<std::string>> statuses;
  for (size_t i = 0; i < front::kCodeCount; ++i) {
    front::ApiError error{.code = static_cast<front::Code>(i)};
    in_code.insert(std::string(error.code_text()));
    const Json& responses = document().at("components").at("responses");
    for (const auto& [name, response] : responses.items()) {
      std::string description = response.at("description").get<std::string>();
      if (description.find("`" + std::string(error.code_text()) + "`") == std::string::npos) continue;
      walk(document().at("paths"), "",
           [&, label = "#/components/responses/" + name](const Json& value, const std::string& path) {
             if (value.is_object() && value.contains("$ref") && value.at("$ref") == label)
               statuses[std::string(error.code_text())].insert(path.substr(path.rfind('/') + 1));
           });
    }
    bool of_no_operation =
        error.code == front::Code::kNotFound || error.code == front::Code::kMethodNotAllowed;
    std::set<std::string> expected;
    if (!of_no_operation) expected.insert(std::to_string(error.http_status()));
    EXPECT_EQ(statuses[std::string(error.code_text())], expected) << error.code_text();
  }
  auto listed =
      document().at("components").at("schemas").at("ErrorCode").at("enum").get<std::set<std::string>>();
  EXPECT_EQ(listed, in_code);
}

TEST(Openapi, TheGuideNamesEveryErrorCodeAndOutcome) {
  std::ifstream file(ISOGATE_SOURCE_DIR "/docs/http-api.md");
  std::string guide(std::istreambuf_iterator<char>(file), {});
  for (const Json& code : document().at("components").at("schemas").at("ErrorCode").at("enum"))
    EXPECT_NE(guide.find("`" + code.get<std::string>() + "`"), std::string::npos) << code;
  for (const Json& outcome : document().at("components").at("schemas").at("Outcome").at("enum"))
    EXPECT_NE(guide.find("| `" + outcome.get<std::string>() + "` |"), std::string::npos) << outcome;
}

TEST(Openapi, ErrorObjectOfTheCodeFitsTheDocument) {
  front::ApiError error{.code = front::Code::kUnsupported, .message = "no"};
  Json body = Json::parse(error.body("id"));
  const Json& schema = document().at("components").at("schemas").at("Error");
  std::set<std::string> outer, inner;
  for (const auto& [key, value] : body.items()) outer.insert(key);
  for (const auto& [key, value] : body.at("error").items()) inner.insert(key);
  EXPECT_EQ(outer, schema.at("required").get<std::set<std::string>>());
  EXPECT_EQ(inner, schema.at("properties").at("error").at("required").get<std::set<std::string>>());
}

TEST(Openapi, RoutesAndDocumentAgree) {
  std::set<std::vector<std::string>> in_code, in_document;
  for (const front::Route& row : front::routes())
    in_code.insert({std::string(row.method), std::string(row.path), std::string(row.operation_id)});
  for (const Operation& operation : operations())
    in_document.insert(
        {upper(operation.method), operation.path, operation.json->at("operationId").get<std::string>()});
  EXPECT_EQ(in_code, in_document);
}

TEST(Openapi, RequestFieldsAgree) {
  std::map<std::string, const Json*> by_id;
  for (const Operation& operation : operations())
    by_id[operation.json->at("operationId").get<std::string>()] = operation.json;
  for (const front::Route& row : front::routes()) {
    ASSERT_EQ(by_id.count(std::string(row.operation_id)), 1u) << row.operation_id;
    if (takes_any_field(row)) continue;
    std::set<std::string> in_code(row.fields.begin(), row.fields.end()), in_document;
    if (const Json* schema = request_schema(*by_id[std::string(row.operation_id)]))
      for (const auto& [name, value] : schema->at("properties").items()) in_document.insert(name);
    EXPECT_EQ(in_code, in_document) << row.operation_id;
  }
}

TEST(Openapi, QueryParametersAgree) {
  std::map<std::string, std::set<std::string>> in_document;
  for (const auto& [path, item] : document().at("paths").items()) {
    for (const auto& [method, operation] : item.items()) {
      if (kMethods.count(method) == 0) continue;
      auto& names = in_document[operation.at("operationId").get<std::string>()];
      for (const Json* from : {&item, &operation})
        for (const Json& parameter : from->value("parameters", Json::array()))
          if (followed(parameter).at("in") == "query")
            names.insert(followed(parameter).at("name").get<std::string>());
    }
  }
  for (const front::Route& row : front::routes()) {
    const std::set<std::string> in_code(row.parameters.begin(), row.parameters.end());
    EXPECT_EQ(in_code, in_document[std::string(row.operation_id)]) << row.operation_id;
  }
}

TEST(Openapi, KeysAreNeededWhereTheDocumentSaysSo) {
  std::map<std::string, const Json*> by_id;
  for (const Operation& operation : operations())
    by_id[operation.json->at("operationId").get<std::string>()] = operation.json;
  for (const front::Route& row : front::routes()) {
    const bool needs_key = row.needs != front::Needs::kNothing;
    const Json* operation = by_id[std::string(row.operation_id)];
    ASSERT_NE(operation, nullptr) << row.operation_id;
    EXPECT_EQ(needs_key, !operation->contains("security")) << row.operation_id;
    EXPECT_EQ(needs_key, operation->at("responses").contains("401")) << row.operation_id;
    EXPECT_EQ(needs_key, operation->at("responses").contains("400")) << "its query: " << row.operation_id;
  }
}

TEST(Openapi, StreamRequestHasLinesAndNothingOfLongLivedExecs) {
  const Json& schemas = document().at("components").at("schemas");
  Json stream = schemas.at("ExecStreamRequest").at("properties");
  Json exec = schemas.at("ExecRequest").at("properties");
  EXPECT_EQ(stream.erase("lines"), 1u);
  for (const char* field : {"background", "wait_sec", "stdin_open", "pty"})
    EXPECT_EQ(exec.erase(field), 1u) << field;
  EXPECT_EQ(stream, exec);
}

TEST(Openapi, TheLimitsOfAnExecAreThoseOfTheTable) {
  Json expected = Json::object();
  for (const LimitKind& kind : kLimitKinds)
    if (kind.most_of_exec != 0) expected[kind.setting] = kind.least_of_exec;
  Json found = Json::object();
  for (const auto& [name, property] :
       document().at("/components/schemas/Cgroup/properties"_json_pointer).items())
    found[name] = property.at("minimum");
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace isogate
