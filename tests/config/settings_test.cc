#include "gateway/config/settings.h"

#include <gmock/gmock.h>
#include <stdio.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gateway/config/load.h"
#include "gateway/config/schema.h"
#include "lib/limits.h"
#include "tests/config/loading.h"
#include "tests_dirs.h"

namespace isogate {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string source_file(const std::string& name) { return std::string(ISOGATE_SOURCE_DIR) + "/" + name; }

std::string content(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// By their whole paths, those of items too: "backends[].name".
std::vector<std::pair<std::string, const Setting*>> all_settings() {
  std::vector<std::pair<std::string, const Setting*>> all;
  for (const Setting& setting : top_settings()) {
    all.emplace_back(setting.path, &setting);
    for (const Setting& item : item_settings(setting))
      all.emplace_back(std::string(setting.path) + "[]." + std::string(item.path), &item);
  }
  return all;
}

// A file made from the table of settings.
void expect_published(const std::string& name, const std::string& made) {
  EXPECT_EQ(content(source_file(name)), made)
      << name << " is older than the settings: run scripts/generate.sh";
}

TEST(Settings, ArePublishedAsDocumentation) {
  expect_published("docs/configuration.md", config_docs_markdown());
}

TEST(Settings, ThatNeedARestartAreNamedForOperators) {
  const std::string page = content(source_file("docs/operations.md"));
  const size_t from = page.find("These settings need a restart:"), to = page.find(". ", from);
  ASSERT_LT(to, page.size());
  std::vector<std::string> named, wanted;
  for (size_t at = from; (at = page.find('`', at)) < to;) {
    const size_t end = page.find('`', at + 1);
    named.push_back(page.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  for (const Setting& setting : top_settings())
    if (setting.needs_restart) wanted.emplace_back(setting.path);
  EXPECT_EQ(named, wanted);
}

TEST(Settings, ThatNeedARestartAreKept) {
  Config running, config;
  config.listen = {"127.0.0.1:1"};
  config.log.file = "/var/log/new";
  config.wait_for_sidecar_timeout_sec = 7;
  config.limits.max_execs = 5;
  EXPECT_EQ(keep_start_settings(config, running),
            std::vector<std::string>({"listen", "wait_for_sidecar_timeout_sec", "log.file"}));
  EXPECT_EQ(config.listen, running.listen);
  EXPECT_EQ(config.log.file, "");
  EXPECT_EQ(config.wait_for_sidecar_timeout_sec, running.wait_for_sidecar_timeout_sec);
  EXPECT_EQ(config.limits.max_execs, 5u);
}

TEST(Settings, ArePublishedAsSchema) {
  expect_published("configs/isogate.schema.json", config_json_schema());
}

TEST(Settings, AreComplete) {
  std::set<std::string> paths, variables, flags;
  for (const auto& [path, setting] : all_settings()) {
    EXPECT_TRUE(paths.insert(path).second) << path;
    ASSERT_FALSE(setting->brief.empty()) << path;
    EXPECT_EQ(setting->brief.back(), '.') << path;
    if (path != setting->path) continue;  // of an item
    EXPECT_TRUE(variables.insert(environment_name(path)).second) << path;
    EXPECT_TRUE(flags.insert(flag_name(path)).second) << path;
    EXPECT_FALSE(fallback_of(*setting).empty()) << path;
  }
  EXPECT_EQ(environment_name("limits.max_execs"), "ISOGATE_LIMITS_MAX_EXECS");
  EXPECT_EQ(flag_name("limits.max_execs"), "--limits-max-execs");
  const Setting* one = find_top_setting("limits.max_execs");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(type_of(*one), "integer");
  EXPECT_EQ(fallback_of(*one), "4096");
}

TEST(Settings, CoverTheWholeDocument) {
  Json document = Json::parse(
      test::loaded(
          {"backends: [{name: a}]\nshared_dirs: [{prefix: a, path: /srv/a}]\nkeys: [{name: a, tenant: t, "
           "sha256: " +
           std::string(64, 'a') +
           "}]\ntls: {cert: /c, key: /k, client_ca: /a, clients: [{name: a, tenant: t, san: 'DNS:a'}]}"})
          .document);
  std::set<std::string> in_table, in_document;
  for (const auto& [path, setting] : all_settings()) in_table.insert(path);
  Json flat = document.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    std::string path = pointer.substr(1);
    for (size_t at = 0; (at = path.find("/0", at)) != std::string::npos;) path.replace(at, 2, "[]");
    for (char& c : path)
      if (c == '/') c = '.';
    if (path.substr(path.size() - 2) == "[]") path.resize(path.size() - 2);
    in_document.insert(path);
  }
  for (const std::string& path : in_document) EXPECT_TRUE(in_table.count(path)) << path;
  for (const std::string& path : in_table)
    EXPECT_TRUE(in_document.count(path) || path == "backends" || path == "keys" || path == "shared_dirs" ||
                path == "tls.clients")
        << path;
}

// ---- the schema judges as the loader does ----

bool fits_schema(const Json& document) {
  return validate_json(config_json_schema(), document.dump(), "document").ok();
}

TEST(Schema, TakesTheEffectiveDocument) {
  auto fits = validate_json(config_json_schema(), test::loaded({"-"}).document, "effective document");
  EXPECT_TRUE(fits) << fits.error().message;
}

TEST(Schema, AndLoaderAgree) {
  for (
      const char* good :
      {R"({"shell": "/bin/sh"})", R"({"limits": {"max_execs": 1}})",
       R"({"backends": [{"name": "a", "limits": "best_effort"}]})",
       R"({"backends": [{"name": "a", "limits": {"memory_mb": 32, "max_pids": 0, "mode": "best_effort"}, "config": {"x": [1]}}]})",
       R"({"exec": {"env": {"A": "b"}, "timeout_sec": 0.5}})", R"({"workdir": ""})",
       R"({"listen": ["[::1]:80"]})"}) {
    EXPECT_TRUE(test::load({good})) << good;
    EXPECT_TRUE(fits_schema(Json::parse(good))) << good;
  }
  for (const char* bad :
       {R"({"shel": "/bin/sh"})", R"({"shell": "bash"})", R"({"limits": {"max_execs": 0}})",
        R"({"limits": {"max": 1}})", R"({"limits": {"max_execs": "1"}})", R"({"require_remote": "yes"})",
        R"({"anonymous": "always"})", R"({"backends": [{"plugin": "a"}]})",
        R"({"backends": [{"name": "a", "limits": "none"}]})",
        R"({"backends": [{"name": "a", "limits": {"memory_mb": 31}}]})",
        R"({"backends": [{"name": "a", "limits": {"max_pids": 1}}]})",
        R"({"keys": [{"name": "a", "tenant": "t", "sha256": "00"}]})", R"({"exec": {"env": {"A-B": "x"}}})",
        R"({"exec": {"env": {"A": 1}}})", R"({"listen": [9090]})", R"({"listen": "127.0.0.1:1"})"}) {
    EXPECT_FALSE(test::load({bad})) << bad;
    EXPECT_FALSE(fits_schema(Json::parse(bad))) << bad;
  }
}

// ---- samples ----

class Samples : public ::testing::TestWithParam<const char*> {};

TEST_P(Samples, Load) {
  LoadOptions options;
  options.file = source_file("configs/" + std::string(GetParam()));
  options.environment = {{"HOME", "/home/me"}};
  auto got = load_config(options);
  ASSERT_TRUE(got) << got.error().message;
  auto fits = validate_json(config_json_schema(), got->document, GetParam());
  EXPECT_TRUE(fits) << fits.error().message;
}

TEST_P(Samples, FitThePublishedSchemaByAnotherValidator) {
  if (::system("python3 -c 'import jsonschema, yaml' 2>/dev/null") != 0)
    GTEST_SKIP() << "python3-jsonschema or python3-yaml is missing";
  std::string program =
      "import json, sys, yaml, jsonschema\n"
      "schema = json.load(open(sys.argv[1]))\n"
      "jsonschema.Draft7Validator.check_schema(schema)\n"
      "jsonschema.validate(yaml.safe_load(open(sys.argv[2])), schema)\n";
  test::Directory directory;
  std::string command = "python3 " + directory.write("check.py", program) + " " +
                        source_file("configs/isogate.schema.json") + " " +
                        source_file("configs/" + std::string(GetParam()));
  EXPECT_EQ(::system(command.c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Samples,
                         ::testing::Values("k8s.yaml", "local-dev.yaml", "production.yaml",
                                           "single-host.yaml"));

// The file in a manifest's ConfigMap.
std::string deployed(const std::string& path) {
  for (const YAML::Node& each : YAML::LoadAllFromFile(source_file(path))) {
    if (each["kind"] && each["kind"].as<std::string>() == "ConfigMap")
      return each["data"]["isogate.yaml"].as<std::string>();
    if (each["backends"]) return YAML::Dump(each);
  }
  return "";
}

TEST(Samples, OfDeploymentsLoad) {
  const std::string keys = R"([{"name": "a", "tenant": "b", "sha256": ")" + std::string(64, 'a') + R"("}])";
  for (const char* path :
       {"deploy/k8s/gateway.yaml", "deploy/k8s/sidecar.yaml", "deploy/compose/isogate.yaml"}) {
    test::Directory directory;
    LoadOptions options;
    options.file = directory.write("isogate.yaml", deployed(path));
    options.environment = {{"HOME", "/home/me"}, {"ISOGATE_KEYS", keys}};
    const auto got = load_config(options);
    ASSERT_TRUE(got) << path << ": " << got.error().message;
    EXPECT_TRUE(got->config.require_remote) << path;
    EXPECT_TRUE(got->relaxations.empty()) << path;
  }
}

TEST(Samples, SayWhatTheyAreFor) {
  LoadOptions options;
  options.environment = {{"HOME", "/home/me"}};
  options.file = source_file("configs/local-dev.yaml");
  auto dev = load_config(options);
  ASSERT_TRUE(dev);
  EXPECT_TRUE(dev->config.allow_unisolated);
  EXPECT_EQ(dev->relaxations.size(), 4u);
  options.file = source_file("configs/production.yaml");
  auto production = load_config(options);
  ASSERT_TRUE(production);
  EXPECT_TRUE(production->config.require_remote);
  EXPECT_TRUE(production->relaxations.empty());
  options.file = source_file("configs/k8s.yaml");
  auto pods = load_config(options);
  ASSERT_TRUE(pods);
  EXPECT_TRUE(pods->config.require_remote);
  EXPECT_TRUE(pods->relaxations.empty());
  options.file = source_file("configs/single-host.yaml");
  auto host = load_config(options);
  ASSERT_TRUE(host);
  EXPECT_EQ(host->config.min_isolation, ISOGATE_ISOLATION_NAMESPACE);
  EXPECT_TRUE(host->relaxations.empty());
}

// ---- the document and back ----

TEST(Document, GoesRoundExactly) {
  std::string limits;
  for (const LimitKind& kind : kLimitKinds)
    limits += std::string(kind.setting) + ": " + std::to_string(kind.least + 1) + ", ";
  auto got =
      test::loaded({"listen: ['0.0.0.0:1', 'unix:/srv/s']\nstate_dir: /srv/é\nshared_dirs: [{prefix: a/b, "
                    "path: /srv/a}]\nmin_isolation: vm\non_shutdown: "
                    "keep\nkeys: [{name: a, tenant: t@x, sha256: " +
                    std::string(64, 'b') +
                    "}]\nexec: {timeout_sec: 0.1, env: {B: '2', A: \"1\\n\"}}\nbackends:\n- {name: a, "
                    "plugin: /p.so, sha256: " +
                    std::string(64, 'c') + ", groups: [g], users: [root], egress: proxy, limits: {" + limits +
                    "mode: best_effort}, "
                    "config: {z: 1, a: [true, null, 1.5, x]}}\n"});
  auto back = config_from_json(got.document);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(config_to_json(*back), got.document);
  const BackendConfig& backend = back->backends[0];
  for (const LimitKind& kind : kLimitKinds)
    EXPECT_EQ(backend.sandbox_limits.get(kind.id), (kind.least + 1) * kind.scale) << kind.setting;
  EXPECT_TRUE(backend.limits_best_effort);
  EXPECT_EQ(backend.egress, ISOGATE_EGRESS_PROXY);
  EXPECT_EQ(backend.config_json, R"({"z":1,"a":[true,null,1.5,"x"]})");
  EXPECT_EQ(back->exec.timeout_sec, 0.1);
  EXPECT_EQ(back->exec.env, (TextPairs{{"B", "2"}, {"A", "1\n"}}));
  EXPECT_TRUE(back->keep_on_shutdown);
  EXPECT_EQ(back->min_isolation, ISOGATE_ISOLATION_VM);
}

TEST(Document, OfDefaultsGoesRound) {
  Config config;
  config.limits.tenant_share_percent = 100;  // as for a configuration that names no tenants
  auto back = config_from_json(config_to_json(config));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(config_to_json(*back), config_to_json(config));
}

TEST(Document, IsReadStrictly) {
  for (const char* bad :
       {"", "[]", "{", "{\"bogus\": 1}", "{\"limits\": {\"max_execs\": 0}}", "{} {}",
        "{\"require_remote\": true, \"allow_unisolated\": true}", "{\"shell\": \"\\u0000\"}"})
    EXPECT_FALSE(config_from_json(bad)) << bad;
  EXPECT_THAT(config_from_json("{\"shel\": 1}").error().message,
              HasSubstr("unknown key `shel`; did you mean `shell`?"));
}

}  // namespace
}  // namespace isogate
