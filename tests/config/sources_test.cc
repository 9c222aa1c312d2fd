#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "gateway/config/settings.h"
#include "tests/config/loading.h"

namespace isogate {
namespace {

using test::loaded;
using test::refusal;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

std::vector<std::string> names(const Config& config) {
  std::vector<std::string> list;
  for (const BackendConfig& backend : config.backends) list.push_back(backend.name);
  return list;
}

TEST(Defaults, AreStrict) {
  auto got = loaded({"-"});
  const Config& config = got.config;
  EXPECT_THAT(config.listen, ElementsAre("127.0.0.1:9090"));
  EXPECT_FALSE(config.allow_unisolated);
  EXPECT_FALSE(config.fallback_allowed);
  EXPECT_EQ(config.anonymous, "never");
  EXPECT_THAT(config.keys, IsEmpty());
  EXPECT_EQ(config.shell, "/bin/bash");
  EXPECT_EQ(config.exec.timeout_sec, 30);
  EXPECT_EQ(config.exec.max_output_bytes, 131072u);
  EXPECT_FALSE(config.keep_on_shutdown);
  EXPECT_THAT(names(config), ElementsAre("namespace", "local"));
  for (const BackendConfig& backend : config.backends) {
    EXPECT_EQ(backend.plugin, backend.name);
    EXPECT_EQ(backend.run_as, "isogate-host");
    EXPECT_FALSE(backend.limits_best_effort);
    EXPECT_EQ(backend.egress, ISOGATE_EGRESS_UNSET);
  }
  EXPECT_THAT(got.relaxations, IsEmpty());
  EXPECT_THAT(got.warnings,
              Contains(HasSubstr(
                  "no configuration file: the backends are namespace, then local; local stays ineligible "
                  "until `allow_unisolated: true`")));
}

TEST(Defaults, WarnNoMoreOnceLocalIsAllowedOrBackendsAreNamed) {
  EXPECT_THAT(loaded({"-", {{"ISOGATE_ALLOW_UNISOLATED", "true"}}}).warnings, IsEmpty());
  EXPECT_THAT(loaded({"backends: [{name: a}]"}).warnings, IsEmpty());
  EXPECT_THAT(loaded({"shell: /bin/sh"}).warnings, Contains(HasSubstr("no `backends` configured")));
}

TEST(Defaults, PutTheStateWhereTheUserMayWrite) {
  std::string state = loaded({"-", {{"XDG_STATE_HOME", "/x/state"}}}).config.state_dir;
  EXPECT_EQ(state, ::geteuid() == 0 ? "/var/lib/isogate" : "/x/state/isogate");
  if (::geteuid() == 0) GTEST_SKIP() << "the rest is about ordinary users";
  EXPECT_EQ(loaded({"-"}).config.state_dir, "/home/me/.local/state/isogate");
  EXPECT_EQ(loaded({"-", {{"XDG_STATE_HOME", "relative"}}}).config.state_dir,
            "/home/me/.local/state/isogate");
}

TEST(Defaults, FindPluginsNextToTheProgram) {
  test::Directory directory;
  LoadOptions options;
  options.environment = {{"HOME", "/home/me"}};
  options.binary_dir = directory.path() + "/bin";
  auto without = load_config(options);
  ASSERT_TRUE(without);
  EXPECT_EQ(without->config.plugin_dir, "/usr/lib/isogate/plugins");
  std::filesystem::create_directories(directory.path() + "/lib/isogate/plugins");
  EXPECT_EQ(load_config(options)->config.plugin_dir, directory.path() + "/lib/isogate/plugins")
      << "installed";
  std::filesystem::create_directory(directory.path() + "/plugins");
  auto beside = load_config(options);
  ASSERT_TRUE(beside);
  EXPECT_EQ(beside->config.plugin_dir, directory.path() + "/plugins");
}

// Two keys of these tenants.
std::string keys_of(const std::string& one, const std::string& two) {
  const std::string zeros(63, '0');
  return "keys: [{name: a, tenant: " + one + ", sha256: '" + zeros + "1'}, {name: b, tenant: " + two +
         ", sha256: '" + zeros + "2'}]";
}

TEST(TenantShare, CountsAmongSeveralTenants) {
  const auto share = [](const std::string& yaml) {
    return loaded({yaml}).config.limits.tenant_share_percent;
  };
  EXPECT_EQ(share("-"), 100u);
  EXPECT_EQ(share(keys_of("one", "one")), 100u);
  EXPECT_EQ(share(keys_of("one", "two")), 50u);
  EXPECT_EQ(share("limits: {tenant_share_percent: 30}"), 30u) << "a configured value applies";
}

TEST(Precedence, IsFlagThenEnvironmentThenFileThenDefault) {
  TextPairs environment = {{"ISOGATE_SHELL", "/env"}}, flags = {{"shell", "/flag"}};
  EXPECT_EQ(loaded({"shell: /file", environment, flags}).config.shell, "/flag");
  EXPECT_EQ(loaded({"shell: /file", environment}).config.shell, "/env");
  EXPECT_EQ(loaded({"shell: /file"}).config.shell, "/file");
  EXPECT_EQ(loaded({"-", environment}).config.shell, "/env");
  EXPECT_EQ(loaded({"log: {level: warn, file: /a}", {{"ISOGATE_LOG_LEVEL", "error"}}}).config.log.file, "/a")
      << "only what is named";
}

TEST(Precedence, TakesAnEmptyVariableForNone) {
  EXPECT_EQ(loaded({"shell: /file", {{"ISOGATE_SHELL", ""}}}).config.shell, "/file");
  EXPECT_EQ(loaded({"toolchain_path: /opt/t", {}, {{"toolchain_path", ""}}}).config.toolchain_path, "")
      << "an empty flag is one";
}

TEST(RequireRemote, IsTrueIfAnySourceSaysSo) {
  for (const char* file : {"-", "require_remote: true", "require_remote: false"})
    for (const char* old : {"", "true", "false"})
      for (const char* variable : {"", "1", "0"})
        for (const char* flag : {"", "yes", "no"}) {
          bool expected = std::string(file).find("true") != std::string::npos || old == std::string("true") ||
                          variable == std::string("1") || flag == std::string("yes");
          TextPairs flags;
          if (*flag != '\0') flags.emplace_back("require_remote", flag);
          auto got = loaded({file, {{"REQUIRE_REMOTE", old}, {"ISOGATE_REQUIRE_REMOTE", variable}}, flags});
          EXPECT_EQ(got.config.require_remote, expected)
              << file << "|" << old << "|" << variable << "|" << flag;
        }
}

TEST(RequireRemote, SaysWhoseFalseIsIgnored) {
  EXPECT_THAT(
      loaded({"require_remote: true", {{"REQUIRE_REMOTE", "false"}}}).warnings,
      Contains("require_remote: false from environment variable REQUIRE_REMOTE is ignored: c.yaml:1:17 "
               "says true, and the strictest wins"));
}

TEST(RequireRemote, IsNotTalkedAwayByAnythingUnclear) {
  EXPECT_THAT(
      refusal({"-", {{"REQUIRE_REMOTE", "ture"}}}),
      HasSubstr(
          "environment variable REQUIRE_REMOTE: `require_remote`: expected true or false, got \"ture\""));
  EXPECT_THAT(refusal({"-", {{"REQUIRE_REMOTE", "ture"}}, {{"require_remote", "false"}}}),
              HasSubstr("got \"ture\""));
  EXPECT_THAT(refusal({"require_remote: maybe", {{"REQUIRE_REMOTE", "true"}}}),
              HasSubstr("c.yaml:1:17: `require_remote`"));
}

// The settings whose strictest source wins: a value and a stricter one.
struct StrictCase {
  const char *path, *loose, *strict;
};
const StrictCase kStrictCases[] = {
    {"multi_agent", "false", "true"},       {"require_remote", "false", "true"},
    {"min_isolation", "none", "namespace"}, {"min_isolation", "namespace", "container"},
    {"min_isolation", "container", "vm"},   {"fallback", "allowed", "never"},
    {"allow_unisolated", "true", "false"},  {"anonymous", "loopback", "never"},
};

Json value_of(const std::string& path, const test::Sources& sources) {
  return Json::parse(loaded(sources).document)[path];
}

TEST(StrictestWins, WhicheverSourceNamesIt) {
  for (const auto& [path, loose, strict] : kStrictCases) {
    const std::string variable = environment_name(path), name = path;
    const Json least = value_of(name, {name + ": " + loose}), most = value_of(name, {name + ": " + strict});
    ASSERT_NE(least, most) << path;
    for (const char* file : {"", loose, strict})
      for (const char* environment : {"", loose, strict})
        for (const char* flag : {"", loose, strict}) {
          const std::set<std::string> named = {file, environment, flag};
          TextPairs flags;
          if (*flag != '\0') flags.emplace_back(name, flag);
          test::Sources sources{*file == '\0' ? "-" : name + ": " + file, {{variable, environment}}, flags};
          if (named.count(strict) == 0 && named.count(loose) == 0) continue;
          EXPECT_EQ(value_of(name, sources), named.count(strict) != 0 ? most : least)
              << path << ": " << file << "|" << environment << "|" << flag;
        }
  }
}

TEST(StrictestWins, AndSaysWhatItIgnored) {
  EXPECT_THAT(loaded({"min_isolation: container", {{"ISOGATE_MIN_ISOLATION", "none"}}}).warnings,
              Contains("min_isolation: none from environment variable ISOGATE_MIN_ISOLATION is ignored: "
                       "c.yaml:1:16 says container, and the strictest wins"));
}

TEST(StrictestWins, AndAMistakeIsNeverIgnored) {
  EXPECT_THAT(refusal({"min_isolation: vmm", {{"ISOGATE_MIN_ISOLATION", "vm"}}}),
              HasSubstr("did you mean `vm`"));
  EXPECT_THAT(refusal({"min_isolation: vm", {{"ISOGATE_MIN_ISOLATION", "VM"}}}),
              HasSubstr("environment variable ISOGATE_MIN_ISOLATION"));
  EXPECT_FALSE(test::load({"min_isolation:", {{"ISOGATE_MIN_ISOLATION", "vm"}}})) << "null is a mistake";
}

TEST(StrictestWins, ForWhatTlsAsksOfItsClients) {
  const std::string tls = "tls: {cert: /c, key: /k, client_ca: /a, client_auth: ";
  EXPECT_EQ(loaded({tls + "required}", {{"ISOGATE_TLS_CLIENT_AUTH", "optional"}}}).config.tls.client_auth,
            "required");
  EXPECT_EQ(loaded({tls + "optional}", {{"ISOGATE_TLS_CLIENT_AUTH", "required"}}}).config.tls.client_auth,
            "required");
}

// Every setting that has a variable: a text that differs from its default, and what it becomes.
const std::vector<std::pair<std::string, std::string>> kTexts = {
    {"listen", "127.0.0.1:1,unix:/srv/s"},
    {"state_dir", "/srv/state"},
    {"instance", "two"},
    {"plugin_dir", "/srv/plugins"},
    {"shell", "/bin/sh"},
    {"workdir", "/srv/work"},
    {"toolchain_path", "/opt/a:/opt/b"},
    {"shared_dirs", "docs:/srv/docs, data/x:/srv/data"},
    {"multi_agent", "true"},
    {"require_remote", "TRUE"},
    {"min_isolation", "vm"},
    {"fallback", "allowed"},
    {"allow_unisolated", "on"},
    {"anonymous", "loopback"},
    {"hosts", "dev.example, b"},
    {"keys", R"([{"name": "k", "tenant": "t", "sha256": ")" + std::string(64, 'a') + "\"}]"},
    {"tls.cert", "/srv/cert.pem"},
    {"tls.key", "/srv/key.pem"},
    {"tls.client_ca", "/srv/ca.pem"},
    {"tls.client_auth", "optional"},
    {"tls.clients", R"([{"name": "a", "tenant": "t", "san": "DNS:a.example"}])"},
    {"tls.handshake_timeout_sec", "3"},
    {"cors.origins", "https://a.example,http://localhost:3000"},
    {"metrics.listen", "127.0.0.1:9091"},
    {"probe_interval_sec", "7"},
    {"sandbox_idle_timeout_sec", "60"},
    {"drain_timeout_sec", "0"},
    {"on_shutdown", "keep"},
    {"wait_for_sidecar", "localhost:9091"},
    {"wait_for_sidecar_timeout_sec", "5"},
    {"log.level", "error"},
    {"log.file", "/srv/log"},
    {"log.access", "false"},
    {"limits.max_connections", "5"},
    {"limits.max_connections_per_peer", "5"},
    {"limits.max_requests_per_connection", "5"},
    {"limits.max_headers", "50"},
    {"limits.min_bytes_per_sec", "0"},
    {"limits.max_header_bytes", "2048"},
    {"limits.max_json_bytes", "4096"},
    {"limits.max_held_bytes", "536870912"},
    {"limits.max_spool_bytes", "8388608"},
    {"limits.tenant_share_percent", "70"},
    {"limits.header_timeout_sec", "3"},
    {"limits.body_idle_timeout_sec", "4"},
    {"limits.idle_timeout_sec", "5"},
    {"limits.write_timeout_sec", "6"},
    {"limits.max_execs", "7"},
    {"limits.max_execs_per_sandbox", "2"},
    {"limits.exec_queue", "0"},
    {"limits.exec_queue_timeout_sec", "2"},
    {"limits.max_sandboxes", "9"},
    {"limits.max_sandboxes_per_tenant", "8"},
    {"limits.max_disk_mb_per_tenant", "4096"},
    {"limits.list_max_entries", "10"},
    {"exec.timeout_sec", "1.5"},
    {"exec.max_timeout_sec", "60"},
    {"exec.max_background_sec", "7200"},
    {"exec.keep_ended_sec", "5"},
    {"exec.survive_sec", "60"},
    {"exec.spool_bytes", "1048576"},
    {"exec.max_output_bytes", "10"},
    {"exec.max_max_output_bytes", "262144"},
    {"exec.env", "A=1,B=x=y"},
    {"ports.domain", "sandboxes.example.org"},
    {"ports.max_per_sandbox", "3"},
    {"e2b.listen", "127.0.0.1:9092"},
    {"e2b.domain", "e2b.example.org"},
    {"e2b.templates", "tools=team/tools:1"},
    {"e2b.timeout_sec", "60"},
    {"e2b.max_timeout_sec", "7200"},
    {"backends", "local"}};

// The other settings that a setting needs to be accepted.
std::string needed_by(const std::string& path) {
  if (path == "tls.cert") return "tls: {key: /srv/k}";
  if (path == "tls.key") return "tls: {cert: /srv/c}";
  if (path == "tls.client_ca") return "tls: {cert: /srv/c, key: /srv/k}";
  if (path == "tls.clients") return "tls: {cert: /srv/c, key: /srv/k, client_ca: /srv/a}";
  return "-";
}

Json at(const Json& document, std::string path) {
  size_t dot = path.find('.');
  return dot == std::string::npos ? document[path] : document[path.substr(0, dot)][path.substr(dot + 1)];
}

TEST(Environment, ReachesEverySetting) {
  Json defaults = Json::parse(loaded({"-"}).document);
  size_t tried = 0;
  for (const Setting& setting : top_settings()) {
    const std::string path(setting.path), variable = environment_name(path), other(setting.other_variable);
    auto text =
        std::find_if(kTexts.begin(), kTexts.end(), [&](const auto& one) { return one.first == path; });
    ASSERT_NE(text, kTexts.end()) << "no case for " << path;
    const std::string file = needed_by(path);
    Json by_variable = Json::parse(loaded({file, {{variable, text->second}}}).document);
    EXPECT_NE(at(by_variable, path), at(defaults, path)) << path;
    EXPECT_EQ(by_variable, Json::parse(loaded({file, {}, {{path, text->second}}}).document)) << path;
    if (!other.empty()) {
      EXPECT_EQ(by_variable, Json::parse(loaded({"-", {{other, text->second}}}).document)) << path;
    }
    by_variable[path.substr(0, path.find('.'))] = defaults[path.substr(0, path.find('.'))];
    EXPECT_EQ(by_variable, defaults) << path << " changes nothing else";
    ++tried;
  }
  EXPECT_EQ(tried, kTexts.size());
}

TEST(Environment, HasSecondNamesOfSomeVariables) {
  std::vector<std::string> others;
  for (const Setting& setting : top_settings())
    if (!setting.other_variable.empty()) others.emplace_back(setting.other_variable);
  EXPECT_THAT(others,
              ::testing::UnorderedElementsAre("REQUIRE_REMOTE", "WAIT_FOR_SIDECAR",
                                              "WAIT_FOR_SIDECAR_TIMEOUT", "SHARED_DIRS", "TOOLCHAIN_PATH"));
  auto both = loaded({"-", {{"TOOLCHAIN_PATH", "/opt/old"}, {"ISOGATE_TOOLCHAIN_PATH", "/opt/new"}}});
  EXPECT_EQ(both.config.toolchain_path, "/opt/new");
  EXPECT_THAT(
      both.warnings,
      Contains("environment variable TOOLCHAIN_PATH is ignored: ISOGATE_TOOLCHAIN_PATH says otherwise"));
}

TEST(Environment, WarnsOfWhatIsNoSetting) {
  EXPECT_THAT(
      loaded({"-", {{"ISOGATE_LOG_LEVL", "info"}, {"ISOGATE_CONFIG", ""}}}).warnings,
      Contains("environment variable ISOGATE_LOG_LEVL is no setting; did you mean `ISOGATE_LOG_LEVEL`?"));
  EXPECT_THAT(loaded({"-", {{"ISOGATE_QQQQQQQQQQQQ", "x"}}}).warnings,
              Contains(HasSubstr("is no setting; `isogate config docs` lists those there are")));
  for (const std::string& warning : loaded({"-", {{"ISOGATE_CONFIG", ""}, {"OTHER", "x"}}}).warnings)
    EXPECT_THAT(warning, Not(HasSubstr("is no setting")));
  LoadOptions options;
  options.environment = {{"HOME", "/h"}, {"ISOGATE_KEY", "x"}};
  options.known_environment = {"ISOGATE_KEY"};
  auto known = load_config(options);
  ASSERT_TRUE(known);
  for (const std::string& warning : known->warnings) EXPECT_THAT(warning, Not(HasSubstr("is no setting")));
}

TEST(Environment, ReportsItsMistakesByVariable) {
  EXPECT_THAT(refusal({"-", {{"ISOGATE_LIMITS_MAX_EXECS", "1e"}}}),
              HasSubstr("environment variable ISOGATE_LIMITS_MAX_EXECS: `limits.max_execs`: expected an "
                        "integer from 1 to 1000000, got \"1e\""));
  EXPECT_THAT(refusal({"-", {{"SHARED_DIRS", "docs"}}}),
              HasSubstr("environment variable SHARED_DIRS: `shared_dirs`: expected a list of objects"));
  EXPECT_THAT(refusal({"-", {{"SHARED_DIRS", "docs:rel"}}}),
              HasSubstr("environment variable SHARED_DIRS: `shared_dirs[0].path`"));
  EXPECT_THAT(refusal({"-", {{"ISOGATE_LISTEN", "127.0.0.1:1,,"}}}),
              HasSubstr("environment variable ISOGATE_LISTEN: `listen[1]`"));
  EXPECT_THAT(refusal({"-", {{"ISOGATE_KEYS", "[{"}}}), HasSubstr("environment variable ISOGATE_KEYS:1:"));
  EXPECT_THAT(refusal({"-", {{"ISOGATE_KEYS", "[{\"name\": \"a\", \"name\": \"b\"}]"}}}),
              HasSubstr("duplicate key `name`"));
  EXPECT_THAT(refusal({"-", {{"ISOGATE_EXEC_ENV", "A=1,A=2"}}}),
              HasSubstr("`exec.env`: expected an object of texts"));
  EXPECT_THAT(refusal({"-", {{"ISOGATE_SHELL", "/\xff"}}}),
              HasSubstr("environment variable ISOGATE_SHELL: not UTF-8"));
}

TEST(Flags, TellTheirMistakesByFlag) {
  EXPECT_THAT(refusal({"-", {}, {{"limits.max_execs", "x"}}}),
              HasSubstr("flag --limits-max-execs: `limits.max_execs`: expected an integer"));
  EXPECT_THAT(
      refusal({"-", {}, {{"limits.max_exec", "1"}}}),
      HasSubstr(
          "flag --limits-max-exec: there is no setting `limits.max_exec`; did you mean `limits.max_execs`?"));
}

TEST(Lists, FromTextMayBeJson) {
  EXPECT_THAT(loaded({"-", {{"ISOGATE_LISTEN", R"(["127.0.0.1:1", "unix:/a,b"])"}}}).config.listen,
              ElementsAre("127.0.0.1:1", "unix:/a,b"));
  EXPECT_THAT(loaded({"-", {{"ISOGATE_HOSTS", " [a.example, b] "}}}).config.hosts,
              ElementsAre("a.example", "b"));
  auto shared =
      loaded({"-", {{"SHARED_DIRS", R"([{"prefix": "a", "path": "/srv/a:b"}])"}}}).config.shared_dirs;
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].path, "/srv/a:b");
  auto backends = loaded({"-", {{"ISOGATE_BACKENDS", R"([{"name": "x", "plugin": "y"}])"}}}).config.backends;
  ASSERT_EQ(backends.size(), 1u);
  EXPECT_EQ(backends[0].plugin, "y");
}

TEST(Lists, FromTextMayBeginWithAnIpv6Address) {
  const auto both = ElementsAre("[::1]:9090", "[::1]:9091");
  EXPECT_THAT(loaded({"-", {}, {{"listen", "[::1]:9090"}}}).config.listen, ElementsAre("[::1]:9090"));
  EXPECT_THAT(loaded({"-", {{"ISOGATE_LISTEN", "[::1]:9090, [::1]:9091"}}}).config.listen, both);
  EXPECT_THAT(loaded({"-", {{"ISOGATE_LISTEN", R"(["[::1]:9090", "[::1]:9091"])"}}}).config.listen, both);
  EXPECT_THAT(loaded({"-", {{"ISOGATE_E2B_LISTEN", "[::1]:9092"}}}).config.e2b.listen,
              ElementsAre("[::1]:9092"));
  EXPECT_THAT(refusal({"-", {}, {{"listen", "[\"127.0.0.1:1\""}}}), HasSubstr("flag --listen: `listen[0]`"));
}

const char kThree[] = "backends: [{name: a, plugin: p}, {name: b, limits: best_effort}, {name: c}]\n";

TEST(Backends, AreChosenAndOrderedByFlag) {
  auto got = loaded({kThree, {}, {}, {"c", "a"}});
  EXPECT_THAT(names(got.config), ElementsAre("c", "a"));
  EXPECT_EQ(got.config.backends[1].plugin, "p") << "with their settings";
  EXPECT_THAT(got.warnings, IsEmpty());
  EXPECT_THAT(names(loaded({kThree, {{"ISOGATE_BACKENDS", "b"}}}).config), ElementsAre("b"));
  EXPECT_THAT(names(loaded({kThree, {{"ISOGATE_BACKENDS", "b"}}, {}, {"c"}}).config), ElementsAre("c"));
  EXPECT_THAT(names(loaded({kThree, {{"ISOGATE_BACKENDS", "b"}}, {{"backends", "[{name: d}]"}}}).config),
              ElementsAre("d"))
      << "a weaker source chooses none of a stronger one's";
}

TEST(Backends, ThatAreNotConfiguredAreAddedAloud) {
  auto got = loaded({kThree, {}, {}, {"d", "b"}});
  EXPECT_THAT(names(got.config), ElementsAre("d", "b"));
  EXPECT_EQ(got.config.backends[0].plugin, "d");
  EXPECT_THAT(got.warnings,
              ElementsAre("backend `d` is not configured: taken as plugin `d` without settings"));
  EXPECT_THAT(loaded({"-", {}, {}, {"d"}}).warnings, IsEmpty()) << "there is no file that could name it";
  EXPECT_THAT(refusal({kThree, {}, {}, {"a", "a"}}),
              HasSubstr("`backends[1].name`: another backend has this name"));
  EXPECT_THAT(refusal({kThree, {}, {}, {"../x"}}), HasSubstr("`backends[0].name`: expected a name"));
}

TEST(Backends, KeepTheirPlaceInMessagesWhenReordered) {
  EXPECT_THAT(refusal({"backends: [{name: a}, {name: b, egress: x}]", {}, {}, {"b"}}),
              HasSubstr("c.yaml:1:41: `backends[0].egress`"));
}

TEST(Port, ReplacesTheFirstTcpListenersPort) {
  EXPECT_THAT(loaded({"-", {}, {}, {}, 8080}).config.listen, ElementsAre("127.0.0.1:8080"));
  EXPECT_THAT(loaded({"listen: ['unix:/a', '[::1]:1', '127.0.0.1:2']", {}, {}, {}, 0}).config.listen,
              ElementsAre("unix:/a", "[::1]:0", "127.0.0.1:2"));
  EXPECT_THAT(refusal({"listen: ['unix:/a']", {}, {}, {}, 1}),
              HasSubstr("flag --port: `listen` has no TCP address"));
  EXPECT_THAT(refusal({"-", {}, {}, {}, 65536}), HasSubstr("flag --port"));
}

TEST(File, IsNamedByOptionOrVariable) {
  test::Directory directory;
  LoadOptions options;
  options.environment = {{"HOME", "/h"}, {"ISOGATE_CONFIG", directory.write("env.yaml", "instance: env")}};
  auto by_variable = load_config(options);
  ASSERT_TRUE(by_variable);
  EXPECT_EQ(by_variable->config.instance, "env");
  options.file = directory.write("option.yaml", "instance: option");
  auto by_option = load_config(options);
  ASSERT_TRUE(by_option);
  EXPECT_EQ(by_option->config.instance, "option");
  EXPECT_EQ(by_option->file, options.file);
}

TEST(File, ThatCannotBeReadIsAnError) {
  LoadOptions options;
  options.file = "/absent/isogate.yaml";
  auto absent = load_config(options);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message,
              AllOf(HasSubstr("cannot read the configuration `/absent/isogate.yaml`: "),
                    HasSubstr("No such file or directory")));
  options.file = "/";
  EXPECT_FALSE(load_config(options));
}

TEST(Relaxations, AreSaidInWords) {
  auto got =
      loaded({"allow_unisolated: true\nfallback: allowed\nanonymous: loopback\nbackends:\n- {name: a, "
              "limits: best_effort, "
              "egress: allow, users: [root, dev]}\n"
              "- {name: b, limits: {memory_mb: 64, mode: best_effort}}\n- {name: c, egress: "
              "deny, users: ['1000']}\n"});
  EXPECT_THAT(got.relaxations,
              ElementsAre(HasSubstr("allow_unisolated: true"), HasSubstr("fallback: allowed"),
                          HasSubstr("anonymous: loopback"), HasSubstr("`a`: limits.mode: best_effort"),
                          HasSubstr("`a`: egress: allow"), HasSubstr("`a`: users: root"),
                          HasSubstr("`b`: limits.mode: best_effort")));
}

TEST(Warnings, TellWhatHasNoEffect) {
  EXPECT_THAT(loaded({"hosts: [a]"}).warnings,
              Contains("hosts: has no effect without `anonymous: loopback`"));
  EXPECT_THAT(loaded({"limits: {max_execs: 1}"}).warnings,
              Contains(HasSubstr("limits.max_execs_per_sandbox: more than")));
}

}  // namespace
}  // namespace isogate
