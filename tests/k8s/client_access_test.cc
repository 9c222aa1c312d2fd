// Kubeconfigs and the resulting access.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <map>

#include "lib/text.h"
#include "plugins/k8s/client/access.h"
#include "tests/k8s/fake_cluster.h"
#include "tests/support/processes.h"

namespace isogate::k8s {
namespace {

const std::string kPem = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";

std::string config_of(const std::string& cluster, const std::string& user, const std::string& context = "") {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
         "contexts: [{name: here, context: {cluster: c, user: u" +
         context + "}}]\nclusters: [{name: c, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" +
         user + "}}]\n";
}

class Kubeconfig : public testing::Test {
 protected:
  ClusterAccess load(const std::string& text, AccessConfig config = {}) {
    config.kubeconfig = directory_.file("config", text);
    return load_access(config, environment());
  }
  std::string refused(const std::string& text, const AccessConfig& config = {}) {
    const Failure failure = failure_of([&] { load(text, config); });
    EXPECT_EQ(failure.status, ISOGATE_INVALID_ARGUMENT) << text;
    EXPECT_EQ(failure.message.find("hush"), std::string::npos) << failure.message;
    return failure.message;
  }
  Identity identity(const std::string& user) {
    return load(config_of("server: 'https://a'", user)).credentials->current(usual());
  }
  Environment environment() {
    return [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    };
  }

  test::TemporaryDirectory directory_;
  std::map<std::string, std::string> variables_;
};

TEST_F(Kubeconfig, TellsWhereTheClusterIs) {
  const struct {
    const char *server, *host;
    uint16_t port;
    const char *path, *text;
  } table[] = {
      {"https://a.example:6443", "a.example", 6443, "", "https://a.example:6443"},
      {"https://a.example/", "a.example", 443, "", "https://a.example:443"},
      {"https://[::1]:8443/k8s/c-1/", "::1", 8443, "/k8s/c-1", "https://[::1]:8443/k8s/c-1"},
      {"http://127.0.0.1:8001", "127.0.0.1", 8001, "", "http://127.0.0.1:8001"},
  };
  for (const auto& row : table) {
    const ClusterAccess access = load(config_of(std::string("server: '") + row.server + "'", "token: t"));
    EXPECT_EQ(access.host, row.host);
    EXPECT_EQ(access.port, row.port);
    EXPECT_EQ(access.path, row.path);
    EXPECT_EQ(access.text(), row.text);
    EXPECT_TRUE(access.relaxations.empty());
  }
  for (const char* server :
       {"", "a.example:6443", "ftp://a", "https://", "https://u:hush@a", "https://a:0", "https://a:65536",
        "https://a:1x", "https://a?x=1", "https://a b", "https://[::1"})
    EXPECT_NE(refused(config_of(std::string("server: '") + server + "'", "")).find("cluster `c`: server"),
              std::string::npos)
        << server;
}

TEST_F(Kubeconfig, ReadsDataAndFilesNextToIt) {
  directory_.file("ca.pem", kPem);
  ClusterAccess access = load(config_of("server: 'https://a', certificate-authority: ca.pem", ""));
  EXPECT_EQ(access.authority.file, directory_.path() + "/ca.pem");
  access =
      load(config_of("server: 'https://a', tls-server-name: other, certificate-authority: ca.pem, "
                     "certificate-authority-data: " +
                         base64_encode(kPem),
                     "", ", namespace: box"));
  EXPECT_EQ(access.authority.text, kPem);
  EXPECT_EQ(access.server_name, "other");
  EXPECT_EQ(access.name_space, "box");
  EXPECT_NE(access.source.find("context `here`"), std::string::npos);
  EXPECT_NE(refused(config_of("server: 'https://a', certificate-authority: gone.pem", ""))
                .find("certificate-authority: there is no file"),
            std::string::npos);
  EXPECT_NE(
      refused(config_of("server: 'https://a', certificate-authority-data: '&&'", "")).find("is no base64"),
      std::string::npos);
  EXPECT_NE(refused(config_of("server: 'https://a', certificate-authority-data: QUJD", "")).find("is no PEM"),
            std::string::npos);
}

TEST_F(Kubeconfig, TellsWhoWeAre) {
  EXPECT_EQ(identity("token: t1").authorization, "Bearer t1");
  EXPECT_EQ(identity("username: me, password: 'a:b'").authorization, "Basic " + base64_encode("me:a:b"));
  EXPECT_EQ(identity("").authorization, "");
  const Identity shown = identity("client-certificate-data: " + base64_encode(kPem) +
                                  ", client-key-data: " + base64_encode("key"));
  EXPECT_EQ(shown.certificate, kPem);
  EXPECT_EQ(shown.key, "key");
  EXPECT_NE(refused(config_of("server: 'https://a'", "client-key-data: " + base64_encode("hush"))), "");
  EXPECT_NE(refused(config_of("server: 'https://a'", "token: hush, username: me")), "");
  EXPECT_NE(refused(config_of("server: 'https://a'", "auth-provider: {name: gcp}")).find("auth-provider"),
            std::string::npos);
}

TEST_F(Kubeconfig, ATokenFileWinsAndIsReadAgainOnceItIsRefused) {
  const std::string file = directory_.file("token", "first\n");
  const ClusterAccess access = load(config_of("server: 'https://a'", "token: other, tokenFile: token"));
  const Identity first = access.credentials->current(usual());
  EXPECT_EQ(first.authorization, "Bearer first");
  directory_.file("token", "second");
  EXPECT_EQ(access.credentials->current(usual()), first);
  access.credentials->refused({"Bearer older", "", ""});
  EXPECT_EQ(access.credentials->current(usual()), first);
  access.credentials->refused(first);
  EXPECT_EQ(access.credentials->current(usual()).authorization, "Bearer second");
  access.credentials->refused({"Bearer second", "", ""});
  directory_.file("token", "hush\r\nX-Evil: 1");
  const Failure failure = failure_of([&] { access.credentials->current(usual()); });
  EXPECT_EQ(failure.status, ISOGATE_PERMISSION_DENIED);
  EXPECT_NE(failure.message.find(file), std::string::npos);
  EXPECT_EQ(failure.message.find("hush"), std::string::npos);
}

TEST_F(Kubeconfig, WhatItEmbedsIsReadAgainOnceItIsRefused) {
  const ClusterAccess access = load(config_of("server: 'https://a'", "token: first"));
  const Identity first = access.credentials->current(usual());
  directory_.file("config", config_of("server: 'https://a'", "token: second"));
  EXPECT_EQ(access.credentials->current(usual()), first);
  access.credentials->refused(first);
  const Identity second = access.credentials->current(usual());
  EXPECT_EQ(second.authorization, "Bearer second");
  directory_.file("config", "{users: [");
  access.credentials->refused(second);
  EXPECT_EQ(access.credentials->current(usual()), second) << "until it is whole";
}

TEST_F(Kubeconfig, NoClusterGetsTheCredentialsOfAnother) {
  const ClusterAccess access = load(config_of("server: 'https://a'", "token: first"));
  const Identity first = access.credentials->current(usual());
  for (const std::string& other :
       {config_of("server: 'https://b'", "token: hush"),
        std::string("current-context: there\ncontexts: [{name: there, context: {cluster: c, user: u}}]\n"
                    "clusters: [{name: c, cluster: {server: 'https://a'}}]\n"
                    "users: [{name: u, user: {token: hush}}]\n")}) {
    directory_.file("config", other);
    access.credentials->refused(first);
    EXPECT_EQ(access.credentials->current(usual()), first);
  }
}

TEST_F(Kubeconfig, FilesOfAListAreMergedTheFirstWins) {
  const std::string first = directory_.file(
      "1",
      "contexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: "
      "'https://one'}}]\n");
  const std::string second = directory_.file(
      "2",
      "current-context: x\ncontexts: [{name: x, context: {cluster: none}}]\nclusters: [{name: c, cluster: "
      "{server: 'https://two'}}]\nusers: [{name: u, user: {token: t}}]\n");
  variables_["KUBECONFIG"] = directory_.path() + "/missing:" + first + "::" + second;
  const ClusterAccess access = load_access({}, environment());
  EXPECT_EQ(access.host, "one");
  EXPECT_EQ(access.credentials->current(usual()).authorization, "Bearer t");
  variables_["KUBECONFIG"] = directory_.path() + "/missing";
  EXPECT_NE(failure_of([&] { load_access({}, environment()); }).message.find("missing"), std::string::npos);
  variables_["KUBECONFIG"] = "staging.conf:" + first + ":" + second;
  EXPECT_NE(failure_of([&] { load_access({}, environment()); }).message.find("`staging.conf` is no absolute"),
            std::string::npos)
      << "it is not left out: the others may lead to another cluster";
}

TEST_F(Kubeconfig, MistakesAreNamed) {
  const struct {
    const char *text, *said;
  } table[] = {
      {"[1, 2]", "it is no kubeconfig"},
      {"{a: [}", "is no YAML"},
      {"{}", "current-context"},
      {"current-context: x", "there is no context `x`"},
      {"{current-context: x, contexts: 3}", "contexts is no list"},
      {"{current-context: x, contexts: [3]}", "contexts has an element"},
      {"{current-context: [hush], contexts: []}", "current-context is no text"},
      {"{current-context: x, contexts: [{name: x, context: 3}]}", "context `x` is no object"},
      {"{current-context: x, contexts: [{name: x, context: {}}]}", "context `x`: cluster is missing"},
      {"{current-context: x, contexts: [{name: x, context: {cluster: c}}]}", "there is no cluster `c`"},
      {"{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}], clusters: [{name: c, "
       "cluster: "
       "{server: 'https://a'}}]}",
       "there is no user `u`"},
  };
  for (const auto& row : table)
    EXPECT_NE(refused(row.text).find(row.said), std::string::npos) << refused(row.text);
  AccessConfig config;
  config.context = "there";
  EXPECT_NE(refused(config_of("server: 'https://a'", ""), config).find("`there`"), std::string::npos);
}

TEST_F(Kubeconfig, WhatAdmitsAManInTheMiddleHasToBeWrittenDown) {
  const std::string skips = config_of("server: 'https://a', insecure-skip-tls-verify: true", "");
  const std::string plain = config_of("server: 'http://a'", "");
  EXPECT_NE(
      refused(config_of("server: 'http://127.0.0.1.evil.example'", "")).find("allow_unverified_cluster"),
      std::string::npos);
  EXPECT_NE(refused(skips).find("allow_unverified_cluster"), std::string::npos);
  EXPECT_NE(refused(plain).find("allow_unverified_cluster"), std::string::npos);
  AccessConfig config;
  config.allow_unverified_cluster = true;
  const ClusterAccess access = load(skips, config);
  EXPECT_FALSE(access.verify);
  EXPECT_EQ(access.relaxations, std::vector<std::string>{"insecure-skip-tls-verify"});
  EXPECT_EQ(load(plain, config).relaxations, std::vector<std::string>{"http://"});
  EXPECT_NE(
      refused(config_of("server: 'https://a', insecure-skip-tls-verify: true, certificate-authority-data: " +
                            base64_encode(kPem),
                        ""),
              config),
      "");
}

TEST_F(Kubeconfig, ImpersonationIsHeaders) {
  const ClusterAccess access =
      load(config_of("server: 'https://a'",
                     "as: jane, as-uid: '7', as-groups: [a, b], as-user-extra: {scope/x: [one, two]}"));
  const std::vector<std::pair<std::string, std::string>> expected = {{"Impersonate-User", "jane"},
                                                                     {"Impersonate-Uid", "7"},
                                                                     {"Impersonate-Group", "a"},
                                                                     {"Impersonate-Group", "b"},
                                                                     {"Impersonate-Extra-scope%2Fx", "one"},
                                                                     {"Impersonate-Extra-scope%2Fx", "two"}};
  EXPECT_EQ(access.headers, expected);
  EXPECT_NE(refused(config_of("server: 'https://a'", "as-groups: [a]")), "");
  EXPECT_NE(refused(config_of("server: 'https://a'", "as: \"a\\r\\nX: y\"")), "");
}

TEST_F(Kubeconfig, AProxyIsOnlyHttp) {
  const ClusterAccess access =
      load(config_of("server: 'https://a', proxy-url: 'http://me:p%40ss@proxy:3128'", ""));
  EXPECT_EQ(access.proxy->host, "proxy");
  EXPECT_EQ(access.proxy->port, 3128);
  EXPECT_EQ(access.proxy->authorization, "Basic " + base64_encode("me:p@ss"));
  EXPECT_NE(refused(config_of("server: 'https://a', proxy-url: 'socks5://hush:1'", "")).find("proxy-url"),
            std::string::npos);
}

TEST_F(Kubeconfig, APodHasItsServiceAccount) {
  AccessConfig config;
  config.service_account = directory_.path();
  EXPECT_NE(failure_of([&] { load_access(config, environment()); }).message.find("KUBERNETES_SERVICE_HOST"),
            std::string::npos);
  variables_ = {{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}};
  EXPECT_NE(failure_of([&] { load_access(config, environment()); }).message.find("ca.crt"),
            std::string::npos);
  directory_.file("ca.crt", kPem);
  directory_.file("token", "pod-token");
  directory_.file("namespace", "boxes\n");
  const ClusterAccess access = load_access(config, environment());
  EXPECT_EQ(access.text(), "https://[fd00::1]:443");
  EXPECT_EQ(access.name_space, "boxes");
  EXPECT_EQ(access.credentials->current(usual()).authorization, "Bearer pod-token");
}

// Credential plugins: shell scripts here.
class Plugin : public Kubeconfig {
 protected:
  ClusterAccess with(const std::string& script, const std::string& more = "", const std::string& user = "") {
    const std::string file = directory_.file("plugin", "#!/bin/sh\n" + script);
    EXPECT_EQ(::chmod(file.c_str(), 0755), 0);
    return load(config_of(
        "server: 'https://a', certificate-authority-data: " + base64_encode(kPem),
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin" + more + "}" + user));
  }
  std::string says(const std::string& status) {
    return "echo '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", "
           "\"status\": " +
           status + "}'\n";
  }
  std::string failure(const std::string& script) {
    const ClusterAccess access = with(script);
    const Failure found = failure_of([&] { access.credentials->current(usual()); });
    EXPECT_EQ(found.status, ISOGATE_PERMISSION_DENIED);
    EXPECT_EQ(found.message.find("hush"), std::string::npos) << found.message;
    return found.message;
  }
  std::string runs() { return directory_.path() + "/runs"; }
  size_t count() {
    const auto result = test::run_program({"sh", "-c", "cat " + runs() + " | wc -l"});
    return std::stoul(result.out);
  }
};

TEST_F(Plugin, IsAskedOnceUntilItExpiresOrIsRefused) {
  const std::string script = "echo x >> " + runs() + "\n";
  const ClusterAccess access =
      with(script + says(R"({"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"})"));
  std::vector<std::thread> many;
  for (int i = 0; i < 8; ++i)
    many.emplace_back([&] { EXPECT_EQ(access.credentials->current(usual()).authorization, "Bearer t"); });
  for (auto& each : many) each.join();
  EXPECT_EQ(count(), 1u);
  access.credentials->refused(access.credentials->current(usual()));
  access.credentials->current(usual());
  EXPECT_EQ(count(), 2u);
  const ClusterAccess past =
      with(script + says(R"({"token": "t", "expirationTimestamp": "2001-01-01T00:00:00.5+02:00"})"));
  past.credentials->current(usual());
  past.credentials->current(usual());
  EXPECT_EQ(count(), 4u);
}

TEST_F(Plugin, GetsItsArgumentsVariablesAndTheCluster) {
  const ClusterAccess access =
      with("printf '%s|%s|%s|' \"$1\" \"$A\" \"$KUBERNETES_EXEC_INFO\" > " + runs() + "\n" +
               says(R"({"clientCertificateData": "c", "clientKeyData": "k"})"),
           ", args: ['a b'], env: [{name: A, value: v}], provideClusterInfo: true");
  const Identity identity = access.credentials->current(usual());
  EXPECT_EQ(identity.certificate, "c");
  EXPECT_EQ(identity.key, "k");
  const std::string got = test::run_program({"cat", runs()}).out;
  EXPECT_TRUE(got.starts_with("a b|v|{")) << got;
  EXPECT_NE(got.find(base64_encode(kPem)), std::string::npos);
  EXPECT_NE(got.find(R"("server":"https://a")"), std::string::npos);
}

TEST_F(Plugin, FailuresTellNothingOfWhatItPrinted) {
  EXPECT_NE(failure("echo hush; echo hush >&2; exit 3").find("exit code 3"), std::string::npos);
  EXPECT_NE(failure("echo hush").find("no ExecCredential"), std::string::npos);
  EXPECT_NE(failure("kill -9 $$").find("137"), std::string::npos);
  failure(says("3"));
  failure(says(R"({"clientKeyData": "hush"})"));
  failure(says(R"({"token": "hush", "expirationTimestamp": "soon"})"));
  failure(says(R"({"token": "hush\r\nX: y"})"));
  failure("head -c 2000000 /dev/zero");
}

TEST_F(Plugin, ThatHangsIsKilledWithAllItStarted) {
  const std::string mark = test::new_mark();
  const ClusterAccess access = with("sleep " + mark + " & sleep " + mark);
  const auto begin = std::chrono::steady_clock::now();
  const Failure late =
      failure_of([&] { access.credentials->current(Budget(std::chrono::milliseconds(300))); });
  EXPECT_EQ(late.status, ISOGATE_PERMISSION_DENIED);
  EXPECT_NE(late.message.find("in time"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(test::gone_within(2, mark));
}

TEST_F(Plugin, ManyCallersThatAreRefusedAskItOnce) {
  const ClusterAccess access = with("echo x >> " + runs() + "\nsleep 0.2\n" + says(R"({"token": "t'$$'"})"));
  constexpr int kCallers = 32;
  const Identity before = access.credentials->current(usual());
  std::vector<std::thread> many;
  std::vector<std::string> after(kCallers);
  for (std::string& each : after)
    many.emplace_back([&] {
      access.credentials->refused(before);
      each = access.credentials->current(usual()).authorization;
    });
  for (auto& each : many) each.join();
  EXPECT_EQ(count(), 2u);
  for (const std::string& each : after) EXPECT_EQ(each, after[0]);
  EXPECT_NE(after[0], before.authorization);
}

TEST_F(Plugin, WhatCannotWorkIsRefusedAtOnce) {
  const std::string v1 = "exec: {apiVersion: client.authentication.k8s.io/v1, ";
  for (const std::string& user :
       {v1 + "command: x, interactiveMode: Always}", v1 + "command: ''}", v1 + "command: x}, token: hush",
        std::string("exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}"),
        v1 + "command: x, env: [{value: a}]}", v1 + "command: x, args: 3}"})
    refused(config_of("server: 'https://a'", user));
}

}  // namespace
}  // namespace isogate::k8s
