#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/config/loading.h"

namespace isogate {
namespace {

using test::refusal;
using ::testing::HasSubstr;
using ::testing::Not;

struct Mistake {
  const char *yaml, *line;  // the line that the message must have, from its place to its end
};

const char kKeyHash[] = "sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

std::string key(const std::string& name, const std::string& hash = kKeyHash) {
  return "{name: " + name + ", tenant: t, " + hash + "}";
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreReportedWithPlaceAndExpectation) {
  std::string message = refusal({GetParam().yaml});
  EXPECT_THAT(message + "\n", HasSubstr("\n  " + std::string(GetParam().line) + "\n"));
  EXPECT_THAT(message, HasSubstr("cannot load the configuration: 1 mistake\n")) << "and nothing else";
}

INSTANTIATE_TEST_SUITE_P(
    Keys, Mistakes,
    ::testing::Values(
        Mistake{"requre_remote: true",
                "c.yaml:1:1: unknown key `requre_remote`; did you mean `require_remote`?"},
        Mistake{"a: 1", "c.yaml:1:1: unknown key `a`"},
        Mistake{"require-remote: true",
                "c.yaml:1:1: unknown key `require-remote`; did you mean `require_remote`?"},
        Mistake{"exec: {shell: /bin/sh}",
                "c.yaml:1:8: unknown key `shell` in `exec`; `shell` stands at the top level"},
        Mistake{"max_execs: 1",
                "c.yaml:1:1: unknown key `max_execs`; did you mean `limits: {max_execs: …}`?"},
        Mistake{"limits.max_execs: 1",
                "c.yaml:1:1: unknown key `limits.max_execs`; did you mean `limits: {max_execs: …}`?"},
        Mistake{"limits: {max_execs: 2}\nlimits.max_execs: 1",
                "c.yaml:2:1: unknown key `limits.max_execs`; did you mean `limits: {max_execs: …}`?"},
        Mistake{"limits.max_exec: 1", "c.yaml:1:1: unknown key `limits.max_exec`"},
        Mistake{"backends: [{name: a, limits.memory_mb: 64}]",
                "c.yaml:1:22: unknown key `limits.memory_mb` in `backends[0]`; did you mean `limits: "
                "{memory_mb: …}`?"},
        Mistake{"'': {shell: /bin/sh}", "c.yaml:1:1: unknown key ``"},
        Mistake{"limits: {'': {max_execs: 1}}", "c.yaml:1:1: unknown key `` in `limits`"},
        Mistake{"limits:\n  max_exec: 1",
                "c.yaml:2:3: unknown key `max_exec` in `limits`; did you mean `max_execs`?"},
        Mistake{"backends:\n  - name: a\n    plugn: b",
                "c.yaml:3:5: unknown key `plugn` in `backends[0]`; did you mean `plugin`?"},
        Mistake{"backends: [{name: a, limits: {memory: 1}}]",
                "c.yaml:1:31: unknown key `memory` in `backends[0].limits`; did you mean `memory_mb`?"},
        Mistake{"shell: /bin/sh\nshell: /bin/bash", "c.yaml:2:1: duplicate key `shell`, first at c.yaml:1:1"},
        Mistake{"backends: [{name: a, config: {x: {y: 1, y: 2}}}]",
                "c.yaml:1:41: duplicate key `y`, first at c.yaml:1:35"}));

INSTANTIATE_TEST_SUITE_P(
    Values, Mistakes,
    ::testing::Values(
        Mistake{"require_remote: yes", "c.yaml:1:17: `require_remote`: expected true or false, got \"yes\""},
        Mistake{"shell: /bin/sh\nrequire_remote:",
                "c.yaml:2:1: `require_remote`: expected true or false, got nothing"},
        Mistake{"multi_agent: 1", "c.yaml:1:14: `multi_agent`: expected true or false, got 1"},
        Mistake{
            "exec: {timeout_sec: 5s}",
            "c.yaml:1:21: `exec.timeout_sec`: expected a number from 0.001 to 31622400, got \"5s\"; write a "
            "number of seconds, without a unit"},
        Mistake{"backends: [{name: a, limits: {memory_mb: 256M}}]",
                "c.yaml:1:42: `backends[0].limits.memory_mb`: expected 0, or an integer from 32 to 16777216, "
                "got \"256M\"; write a number of MiB, without a unit"},
        Mistake{"limits: {max_execs: ten}",
                "c.yaml:1:21: `limits.max_execs`: expected an integer from 1 to 1000000, got \"ten\""},
        Mistake{"limits: {max_execs: 0}",
                "c.yaml:1:21: `limits.max_execs`: expected an integer from 1 to 1000000, got 0"},
        Mistake{"limits: {max_execs: -1}",
                "c.yaml:1:21: `limits.max_execs`: expected an integer from 1 to 1000000, got -1"},
        Mistake{"limits: {max_execs: 1.5}",
                "c.yaml:1:21: `limits.max_execs`: expected an integer from 1 to 1000000, got 1.5"},
        Mistake{"limits: {max_execs: 0100}",
                "c.yaml:1:21: `limits.max_execs`: expected an integer from 1 to 1000000, got \"0100\""},
        Mistake{"limits: {max_execs: 99999999999999999999}",
                "c.yaml:1:21: `limits.max_execs`: expected an integer from 1 to 1000000, got "
                "\"99999999999999999999\""},
        Mistake{"probe_interval_sec: 3601",
                "c.yaml:1:21: `probe_interval_sec`: expected an integer from 1 to 3600, got 3601"},
        Mistake{"exec: {timeout_sec: 0}",
                "c.yaml:1:21: `exec.timeout_sec`: expected a number from 0.001 to 31622400, got 0"},
        Mistake{"exec: {timeout_sec: .inf}",
                "c.yaml:1:21: `exec.timeout_sec`: expected a number from 0.001 to 31622400, got \".inf\""},
        Mistake{"limits: 5", "c.yaml:1:9: `limits`: expected an object, got 5"},
        Mistake{"anonymous: lopback",
                "c.yaml:1:12: `anonymous`: expected one of `never`, `loopback`, got \"lopback\"; did you "
                "mean `loopback`?"},
        Mistake{
            "min_isolation: 10",
            "c.yaml:1:16: `min_isolation`: expected one of `none`, `namespace`, `container`, `vm`, got 10"},
        Mistake{"on_shutdown: kept",
                "c.yaml:1:14: `on_shutdown`: expected one of `remove`, `keep`, got \"kept\"; did you mean "
                "`keep`?"},
        Mistake{
            "log: {level: verbose}",
            "c.yaml:1:14: `log.level`: expected one of `debug`, `info`, `warn`, `error`, got \"verbose\""},
        Mistake{"shell: bash",
                "c.yaml:1:8: `shell`: expected an absolute path without `..`, got \"bash\" (`~` and "
                "variables are not expanded)"},
        Mistake{"shell: \"\"",
                "c.yaml:1:8: `shell`: expected an absolute path without `..`, got \"\" (`~` and variables "
                "are not expanded)"},
        Mistake{"state_dir: ~/x",
                "c.yaml:1:12: `state_dir`: expected an absolute path without `..`, got \"~/x\" (`~` and "
                "variables are not expanded)"},
        Mistake{"state_dir: /a/../b",
                "c.yaml:1:12: `state_dir`: expected an absolute path without `..`, got \"/a/../b\" (`~` and "
                "variables are not expanded)"},
        Mistake{"plugin_dir: plugins",
                "c.yaml:1:13: `plugin_dir`: expected an absolute path without `..`, got \"plugins\" (`~` and "
                "variables are not expanded)"},
        Mistake{"toolchain_path: \"/a:b\"",
                "c.yaml:1:17: `toolchain_path`: expected absolute paths without `..`, separated by `:`, got "
                "\"/a:b\""},
        Mistake{"instance: -x",
                "c.yaml:1:11: `instance`: expected a name of 1 to 63 letters, digits, `_` and `-`, a letter "
                "or digit first, got \"-x\""},
        Mistake{"instance: 7",
                "c.yaml:1:11: `instance`: expected a name of 1 to 63 letters, digits, `_` and `-`, a letter "
                "or digit first, got 7; put it in quotes"},
        Mistake{"tls: {cert: /c}", "c.yaml:1:13: `tls.cert`: a certificate without its key; add `tls.key`"},
        Mistake{"tls: {key: /k}", "c.yaml:1:12: `tls.key`: a key without a certificate; add `tls.cert`"},
        Mistake{"tls: {client_ca: /a}",
                "c.yaml:1:18: `tls.client_ca`: client certificates need TLS; add `tls.cert` and `tls.key`"},
        Mistake{"tls: {cert: /c, key: /k, clients: [{name: a, tenant: t, san: DNS:a}]}",
                "c.yaml:1:35: `tls.clients`: nothing would verify these certificates; add `tls.client_ca`"},
        Mistake{"tls: {cert: /c, key: /k, client_ca: /a, clients: [{name: a, tenant: t, san: 'CN:a'}]}",
                "c.yaml:1:77: `tls.clients[0].san`: expected DNS:NAME, URI:…, email:NAME@HOST or "
                "IP:ADDRESS, got \"CN:a\" (as `openssl x509 -noout -ext subjectAltName` shows it, without "
                "wildcards)"},
        Mistake{"cors: {origins: ['*']}",
                "c.yaml:1:18: `cors.origins[0]`: expected an origin like `https://console.example.org` or "
                "`http://localhost:3000`, got \"*\" (scheme, host and port alone: no path, no `*`)"},
        Mistake{"cors: {origins: ['https://a.example/']}",
                "c.yaml:1:18: `cors.origins[0]`: expected an origin like `https://console.example.org` or "
                "`http://localhost:3000`, got \"https://a.example/\" (scheme, host and port alone: no path, "
                "no `*`)"},
        Mistake{"metrics: {listen: 'unix:/m'}",
                "c.yaml:1:19: `metrics.listen`: expected HOST:PORT with a literal address or localhost, got "
                "`unix:/m`"},
        Mistake{"listen: ['127.0.0.1:1']\nmetrics: {listen: '127.0.0.1:1'}",
                "c.yaml:2:19: `metrics.listen`: `127.0.0.1:1` is in `listen`, too; choose another port"},
        Mistake{"wait_for_sidecar: localhost",
                "c.yaml:1:19: `wait_for_sidecar`: expected HOST:PORT, got \"localhost\""},
        Mistake{"hosts: [\"a b\"]",
                "c.yaml:1:9: `hosts[0]`: expected a host name without a port, got \"a b\""},
        Mistake{"hosts: a", "c.yaml:1:8: `hosts`: expected a list of texts, got \"a\""},
        Mistake{"exec: {env: {A-B: x}}",
                "c.yaml:1:13: `exec.env`: expected a variable's name: letters, digits and `_`, no digit "
                "first, got \"A-B\""},
        Mistake{"exec: {env: {A: 1}}", "c.yaml:1:17: `exec.env.A`: expected a text; put it in quotes"},
        Mistake{"exec: {env: [A]}", "c.yaml:1:13: `exec.env`: expected an object of texts, got [\"A\"]"},
        Mistake{"- a", "c.yaml: expected settings, `name: value`"}));

INSTANTIATE_TEST_SUITE_P(
    Backends, Mistakes,
    ::testing::Values(
        Mistake{"backends: []", "c.yaml:1:11: `backends`: expected at least one backend"},
        Mistake{"backends: local", "c.yaml:1:11: `backends`: expected a list of objects, got \"local\""},
        Mistake{"backends: [local]", "c.yaml:1:12: `backends[0]`: expected an object, got \"local\""},
        Mistake{"backends: [{plugin: a}]", "c.yaml:1:12: `backends[0]`: `name` is missing"},
        Mistake{"backends: [{name: a}, {name: a}]",
                "c.yaml:1:30: `backends[1].name`: another backend has this name; give each its own `name`, "
                "`plugin` may be the same"},
        Mistake{"backends: [{name: a, plugin: ./x.so}]",
                "c.yaml:1:30: `backends[0].plugin`: expected the name of a file in plugin_dir without .so, "
                "or an absolute path, got \"./x.so\""},
        Mistake{
            "backends: [{name: a, sha256: abc}]",
            "c.yaml:1:30: `backends[0].sha256`: expected 64 hexadecimal digits (as sha256sum prints them)"},
        Mistake{"backends: [{name: a, limits: best_efort}]",
                "c.yaml:1:30: `backends[0].limits`: expected an object or `best_effort`, got \"best_efort\""},
        Mistake{
            "backends: [{name: a, limits: {mode: best}}]",
            "c.yaml:1:37: `backends[0].limits.mode`: expected one of `enforce`, `best_effort`, got \"best\""},
        Mistake{
            "backends: [{name: a, limits: {memory_mb: -1}}]",
            "c.yaml:1:42: `backends[0].limits.memory_mb`: expected 0, or an integer from 32 to 16777216, got "
            "-1"},
        Mistake{
            "backends: [{name: a, limits: {max_pids: 31}}]",
            "c.yaml:1:41: `backends[0].limits.max_pids`: expected 0, or an integer from 32 to 4194304, got "
            "31"},
        Mistake{
            "backends: [{name: a, limits: {disk_mb: 7}}]",
            "c.yaml:1:40: `backends[0].limits.disk_mb`: expected 0, or an integer from 8 to 1073741824, got "
            "7"},
        Mistake{"backends: [{name: a, egress: no}]",
                "c.yaml:1:30: `backends[0].egress`: expected one of `default`, `deny`, `proxy`, `allow`, got "
                "\"no\""},
        Mistake{"backends: [{name: a, users: [\"0\"]}]",
                "c.yaml:1:30: `backends[0].users[0]`: expected a user name, or a number in quotes from 1 to "
                "4294967294, got \"0\" (root has to be spelled `root`)"},
        Mistake{"backends: [{name: a, users: [\"4294967295\"]}]",
                "c.yaml:1:30: `backends[0].users[0]`: expected a user name, or a number in quotes from 1 to "
                "4294967294, got \"4294967295\" (root has to be spelled `root`)"},
        Mistake{"backends: [{name: a, users: [1000]}]",
                "c.yaml:1:30: `backends[0].users[0]`: expected a user name, or a number in quotes from 1 to "
                "4294967294, got 1000; put it in quotes (root has to be spelled `root`)"},
        Mistake{"backends: [{name: a, run_as: root}]",
                "c.yaml:1:30: `backends[0].run_as`: a backend that needs root declares it, and keeps the "
                "capabilities that it declares; leave this out"},
        Mistake{"backends: [{name: a, limits: {cpus: 2}}]",
                "c.yaml:1:31: unknown key `cpus` in `backends[0].limits`; did you mean `cpu_percent`?"},
        Mistake{"backends: [{name: a, run_as: 'a b'}]",
                "c.yaml:1:30: `backends[0].run_as`: expected the name of a user or group of this machine, "
                "got \"a b\""},
        Mistake{"backends: [{name: a, config: 5}]",
                "c.yaml:1:30: `backends[0].config`: expected an object, got 5"}));

INSTANTIATE_TEST_SUITE_P(
    Directories, Mistakes,
    ::testing::Values(
        Mistake{"shared_dirs: [{prefix: a, path: /}]",
                "c.yaml:1:33: `shared_dirs[0].path`: `/` would show `/proc` to every sandbox; name a "
                "directory of data"},
        Mistake{"shared_dirs: [{prefix: a, path: /proc/1}]",
                "c.yaml:1:33: `shared_dirs[0].path`: `/proc/1` would show `/proc` to every sandbox; name a "
                "directory of data"},
        Mistake{"shared_dirs: [{prefix: a, path: /run/x}]",
                "c.yaml:1:33: `shared_dirs[0].path`: `/run/x` would show `/run` to every sandbox; name a "
                "directory of data"},
        Mistake{"shared_dirs: [{prefix: a, path: /var}]",
                "c.yaml:1:33: `shared_dirs[0].path`: `/var` would show `/var/run` to every sandbox; name a "
                "directory of data"},
        Mistake{"toolchain_path: /opt/a:/sys",
                "c.yaml:1:17: `toolchain_path`: `/sys` would show `/sys` to every sandbox; name a directory "
                "of data"},
        Mistake{"state_dir: /srv/g\nshared_dirs: [{prefix: a, path: /srv//g/x}]",
                "c.yaml:2:33: `shared_dirs[0].path`: `/srv//g/x` overlaps `state_dir` (/srv/g); name another "
                "directory"},
        Mistake{"state_dir: /srv/g\nshared_dirs: [{prefix: a, path: /srv/}]",
                "c.yaml:2:33: `shared_dirs[0].path`: `/srv/` overlaps `state_dir` (/srv/g); name another "
                "directory"},
        Mistake{"plugin_dir: /opt/p\ntoolchain_path: /opt/p/bin",
                "c.yaml:2:17: `toolchain_path`: `/opt/p/bin` overlaps `plugin_dir` (/opt/p); name another "
                "directory"},
        Mistake{"workdir: /srv/w\nshared_dirs: [{prefix: a, path: /srv/w}]",
                "c.yaml:2:33: `shared_dirs[0].path`: `/srv/w` overlaps `workdir` (/srv/w); name another "
                "directory"},
        Mistake{"state_dir: /srv/g\nworkdir: /srv/g/front",
                "c.yaml:2:10: `workdir`: `/srv/g/front` is the gateway's own directory `/srv/g/front`; name "
                "another one, or leave it out for /srv/g/sandboxes"},
        Mistake{"state_dir: /srv/g\nworkdir: /srv/g//uids/x",
                "c.yaml:2:10: `workdir`: `/srv/g//uids/x` is the gateway's own directory `/srv/g/uids`; name "
                "another one, or leave it out for /srv/g/sandboxes"},
        Mistake{"state_dir: /", "c.yaml:1:12: `state_dir`: expected a directory of its own, got `/`"},
        Mistake{"shared_dirs: [{prefix: a, path: rel}]",
                "c.yaml:1:33: `shared_dirs[0].path`: expected an absolute path without `..`, got \"rel\" "
                "(`~` and variables are not expanded)"},
        Mistake{"shared_dirs: [{prefix: a}]", "c.yaml:1:15: `shared_dirs[0]`: `path` is missing"},
        Mistake{
            "shared_dirs: [{prefix: a/b, path: /srv/1}, {prefix: a, path: /srv/2}]",
            "c.yaml:1:53: `shared_dirs[1].prefix`: `a` overlaps `a/b`: a path would mean two directories"}));

class Prefixes : public ::testing::TestWithParam<const char*> {};
TEST_P(Prefixes, ThatAPathCouldMissAreRefused) {
  EXPECT_THAT(refusal({"shared_dirs: [{prefix: '" + std::string(GetParam()) + "', path: /srv/a}]"}),
              HasSubstr("`shared_dirs[0].prefix`: expected a relative prefix like `shared/docs`"));
}
INSTANTIATE_TEST_SUITE_P(All, Prefixes,
                         ::testing::Values("", "/a", "a/", "a//b", "..", "a/../b", ".", "a/.", "workspace",
                                           "workspace/x", "a b"));

class Listeners : public ::testing::TestWithParam<const char*> {};
TEST_P(Listeners, ThatAreNoAddressAreRefused) {
  EXPECT_THAT(refusal({"listen: ['" + std::string(GetParam()) + "']"}),
              HasSubstr("`listen[0]`: expected HOST:PORT with a literal address or localhost"));
}
INSTANTIATE_TEST_SUITE_P(All, Listeners,
                         ::testing::Values("", "9090", "127.0.0.1", "127.0.0.1:", ":9090", "127.0.0.1:65536",
                                           "127.0.0.1:x", "host.example:80", "[::1]", "::1:80", "[::1:80",
                                           "[]:80", "unix:", "unix:rel", "unix:/a/", "unix:/a/../b", "*:80",
                                           "127.0.0.1:-1"));

class OpenListeners : public ::testing::TestWithParam<const char*> {};
TEST_P(OpenListeners, NeedKeys) {
  std::string listen = "listen: ['" + std::string(GetParam()) + "']\n";
  std::string message = refusal({listen});
  EXPECT_THAT(message, HasSubstr("c.yaml:1:10: `listen[0]`: `" + std::string(GetParam()) +
                                 "` can be reached from other machines"));
  EXPECT_THAT(message, HasSubstr("add `keys: [{name: …, tenant: …, sha256: …}]` (`isogate key new`)"));
  EXPECT_THAT(test::loaded({listen + "keys: [" + key("a") + "]"}).warnings,
              ::testing::Contains(HasSubstr("speaks HTTP without TLS")));
}
TEST(ListenersWithTls, NeedNoProxyAndTakeCertificatesForKeys) {
  const std::string yaml =
      "listen: ['0.0.0.0:80']\ntls: {cert: /c, key: /k, client_ca: /a, clients: [{name: a, tenant: t, san: "
      "'DNS:a'}]}\nbackends: [{name: a}]";
  EXPECT_THAT(test::loaded({yaml}).warnings, ::testing::IsEmpty());
}
TEST(MetricsListener, BeyondLoopbackIsARelaxation) {
  EXPECT_THAT(test::loaded({"metrics: {listen: '0.0.0.0:9091'}"}).relaxations,
              ::testing::Contains(HasSubstr("metrics.listen: 0.0.0.0:9091")));
  EXPECT_THAT(test::loaded({"metrics: {listen: '127.0.0.1:9091'}"}).relaxations, ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, OpenListeners,
                         ::testing::Values("0.0.0.0:80", "10.0.0.1:80", "[::]:80", "[2001:db8::1]:80",
                                           "[::ffff:10.0.0.1]:80", "128.0.0.1:1"));

TEST(Listeners, OfThisMachineNeedNone) {
  for (const char* listen : {"127.0.0.1:0", "127.8.9.1:80", "localhost:80", "[::1]:80",
                             "[::ffff:127.0.0.1]:80", "unix:/srv/g.sock"})
    EXPECT_TRUE(test::load({"listen: ['" + std::string(listen) + "']"})) << listen;
}

TEST(ListenersOfE2b, AreCheckedAsTheOthers) {
  EXPECT_THAT(refusal({"e2b: {listen: ['0.0.0.0:9092']}"}),
              HasSubstr("`e2b.listen[0]`: `0.0.0.0:9092` can be reached from other machines"));
  EXPECT_THAT(refusal({"e2b: {listen: ['127.0.0.1:9092', '127.0.0.1:9092']}"}),
              HasSubstr("`e2b.listen[1]`: `127.0.0.1:9092` is there twice"));
  EXPECT_THAT(test::loaded({"e2b: {listen: ['0.0.0.0:9092']}\nkeys: [" + key("a") + "]"}).warnings,
              ::testing::Contains(HasSubstr("e2b.listen: `0.0.0.0:9092` speaks HTTP without TLS")));
}

TEST(Listeners, AreNotThereTwice) {
  EXPECT_THAT(refusal({"listen: ['127.0.0.1:80', '127.0.0.1:80']"}),
              HasSubstr("`listen[1]`: `127.0.0.1:80` is there twice"));
  EXPECT_TRUE(test::load({"listen: ['127.0.0.1:0', '127.0.0.1:0']"})) << "two free ports";
  EXPECT_THAT(refusal({"listen: []"}), HasSubstr("`listen`: expected at least one address"));
}

TEST(Keys, AreHashesAndDifferent) {
  std::string raw = refusal({"keys: [" + key("a", "sha256: isg_abcdefghijkl234567mnop") + "]"});
  EXPECT_THAT(raw, HasSubstr("c.yaml:1:37: `keys[0].sha256`: expected 64 hexadecimal digits (`isogate key "
                             "new` and `isogate key hash` print them; the key itself never goes here)"));
  EXPECT_THAT(raw, Not(HasSubstr("isg_"))) << "a key is never repeated";
  EXPECT_THAT(refusal({"keys: [" + key("a") + ", " + key("b") + "]"}),
              HasSubstr("`keys[1].sha256`: another entry has the same key"));
  std::string other = "sha256: 1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  EXPECT_THAT(refusal({"keys: [" + key("a") + ", " + key("a", other) + "]"}),
              HasSubstr("`keys[1].name`: another key has this name"));
  EXPECT_TRUE(test::load({"keys: [" + key("a") + ", " + key("b", other) + "]"}));
}

TEST(Keys, AreTheSameInAnyCaseOfTheirDigits) {
  std::string upper = "sha256: 0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef";
  EXPECT_THAT(refusal({"keys: [" + key("a") + ", " + key("b", upper) + "]"}),
              HasSubstr("another entry has the same key"));
  auto one = test::loaded({"keys: [" + key("b", upper) + "]"});
  ASSERT_EQ(one.config.keys.size(), 1u);
  EXPECT_EQ(one.config.keys[0].sha256, std::string(kKeyHash).substr(8));
}

TEST(Policy, RefusesWhatContradictsRequireRemote) {
  EXPECT_THAT(refusal({"require_remote: true\nanonymous: loopback"}),
              HasSubstr("c.yaml:2:12: `anonymous`: `loopback` is refused under"));
  EXPECT_THAT(refusal({"require_remote: true\nallow_unisolated: true"}),
              HasSubstr("c.yaml:2:19: `allow_unisolated`: contradicts"));
  EXPECT_THAT(refusal({"allow_unisolated: true", {{"REQUIRE_REMOTE", "true"}}}),
              HasSubstr("`allow_unisolated`: contradicts"));
}

TEST(Policy, RefusesDefaultsAboveTheirBounds) {
  EXPECT_THAT(refusal({"exec: {timeout_sec: 100, max_timeout_sec: 99}"}),
              HasSubstr("`exec.timeout_sec`: more than `exec.max_timeout_sec`"));
  EXPECT_THAT(refusal({"exec: {max_output_bytes: 9, max_max_output_bytes: 8}"}),
              HasSubstr("`exec.max_output_bytes`: more than"));
}

TEST(Policy, RefusesWhatNoCallerCouldEverGet) {
  EXPECT_THAT(
      refusal({"limits: {max_disk_mb_per_tenant: 19}\nbackends: [{name: local, limits: {disk_mb: 20}}]"}),
      HasSubstr("`limits.max_disk_mb_per_tenant`: less than `limits.disk_mb` of backend `local`"));
  EXPECT_THAT(refusal({"limits: {max_held_bytes: 201326590, tenant_share_percent: 50}"}),
              HasSubstr("`limits.max_held_bytes`: one tenant's share of it, 100663295 bytes, is less than"));
  EXPECT_THAT(refusal({"limits: {max_held_bytes: 100663296, tenant_share_percent: 99}"}),
              HasSubstr("`limits.max_held_bytes`"));
  EXPECT_THAT(refusal({"limits: {max_json_bytes: 1073741824}"}), HasSubstr("`limits.max_held_bytes`"));
  EXPECT_THAT(refusal({"limits: {max_held_bytes: 1048576, max_json_bytes: 1024, tenant_share_percent: 50}\n"
                       "exec: {max_output_bytes: 1024, max_max_output_bytes: 1024}"}),
              HasSubstr("524288 bytes, is less than"))
      << "a stream with `lines` would never fit";
  EXPECT_EQ(test::loaded({"limits: {max_held_bytes: 100663296, tenant_share_percent: 100}"})
                .config.limits.max_held_bytes,
            100663296u);
}

TEST(Errors, ComeAllAtOnce) {
  std::string message =
      refusal({"requre_remote: true\nlimits:\n  max_execs: ten\nanonymous: x\nlisten: ['0.0.0.0:1']\n"
               "backends: [{name: a}, {name: a}]\nshared_dirs: [{prefix: /a, path: /srv}]\n"});
  EXPECT_THAT(message, HasSubstr("6 mistakes"));
  for (const char* place :
       {"c.yaml:1:1: ", "c.yaml:3:14: ", "c.yaml:4:12: ", "c.yaml:5:10: ", "c.yaml:6:30: ", "c.yaml:7:24: "})
    EXPECT_THAT(message, HasSubstr(place));
}

TEST(Errors, FollowLinksOfSharedDirectories) {
  test::Directory directory;
  ASSERT_EQ(::symlink("/proc", (directory.path() + "/link").c_str()), 0);
  EXPECT_THAT(refusal({"shared_dirs: [{prefix: a, path: " + directory.path() + "/link/1}]"}),
              HasSubstr("would show `/proc` to every sandbox"));
}

TEST(Errors, FollowLinksOfTheGatewaysOwnDirectories) {
  test::Directory directory;
  const std::string root = std::filesystem::canonical(directory.path()), real = root + "/real";
  std::filesystem::create_directories(real + "/g");
  std::filesystem::create_directory_symlink(real, root + "/home");
  const std::string state = "state_dir: " + root + "/home/g\n";
  EXPECT_THAT(
      refusal({state + "shared_dirs: [{prefix: a, path: " + real + "}]"}),
      HasSubstr("`" + real + "` overlaps `state_dir` (" + root + "/home/g, that is " + real + "/g); "));
  EXPECT_THAT(refusal({state + "toolchain_path: " + real + "/g/bin"}), HasSubstr("overlaps `state_dir`"));
  for (const char* own : {"plugin_dir", "workdir"})
    EXPECT_THAT(refusal({std::string(own) + ": " + root + "/home/g\ntoolchain_path: " + real}),
                HasSubstr("overlaps `" + std::string(own) + "`"));
  Config config = test::loaded({state}).config;
  config.shared_dirs.push_back({.prefix = "a", .path = real});
  EXPECT_TRUE(config_from_json(config_to_json(config))) << "without a look at the file system";
  EXPECT_FALSE(config_from_json(config_to_json(config), true));
}

}  // namespace
}  // namespace isogate
