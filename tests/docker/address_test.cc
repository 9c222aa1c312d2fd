// Which Engine is meant: addresses, the environment, the docker client's contexts.
#include "plugins/docker/client/engine_address.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <map>

#include "lib/fd.h"
#include "plugins/docker/client/engine_error.h"
#include "tests/support/program.h"

namespace isogate::docker {
namespace {

using test::TemporaryDirectory;
using Variables = std::map<std::string, std::string>;

std::string why_not(const std::function<void()>& work) {
  try {
    work();
  } catch (const NetError& error) {
    EXPECT_FALSE(std::string(error.what()).empty());
    return error.what();
  }
  return {};
}

std::string why_not(const std::string& text) {
  return why_not([&] { parse_address(text, "the test"); });
}

// A home directory with contexts, an environment, and sockets of its own.
class Resolving : public testing::Test {
 protected:
  EngineAddress resolve(const Variables& variables, const std::string& configured = {}) {
    const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
      if (const auto found = variables.find(name); found != variables.end()) return found->second;
      if (name == "HOME") return home_.path();
      return std::nullopt;
    };
    return resolve_address(configured, std::nullopt, environment,
                           {home_.path() + "/system.sock", "$XDG_RUNTIME_DIR/docker.sock"});
  }

  void make_directories(const std::string& path) {
    for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
      ::mkdir((home_.path() + "/" + path.substr(0, at)).c_str(), 0755);
  }
  void write(const std::string& path, const std::string& content) {
    make_directories(path);
    home_.file(path, content);
  }
  // A context `far` with these; its name's SHA-256 is what sha256sum says.
  void add_context(const std::string& host, const std::string& more = "") {
    write(".docker/contexts/meta/" + far_ + "/meta.json",
          R"({"Name":"far","Metadata":{},"Endpoints":{"docker":{"Host":")" + host + "\"" + more + "}}}");
  }
  void listen(const std::string& path) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path.c_str(), sizeof to.sun_path - 1);
    socket_ = Fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }

  TemporaryDirectory home_;
  Fd socket_;
  const std::string far_ = test::run_program({"sh", "-c", "printf far | sha256sum"}).out.substr(0, 64);
};

TEST(EngineAddress, IsASocketOrAHostAndAPort) {
  EXPECT_EQ(parse_address("unix:///run/a b.sock", "t").unix_path, "/run/a b.sock");
  EXPECT_EQ(parse_address("tcp://engine:2376", "t").text(), "tcp://engine:2376");
  EXPECT_EQ(parse_address("tcp://engine", "t").port, 2375);
  EXPECT_EQ(parse_address("tcp://engine", "t", true).port, 2376);
  EXPECT_EQ(parse_address("tcp://[::1]:99", "t").host, "::1");
  EXPECT_EQ(parse_address("tcp://[::1]:99", "t").text(), "tcp://[::1]:99");
  EXPECT_EQ(parse_address("http://engine/", "t").text(), "tcp://engine:2375");
  EXPECT_TRUE(parse_address("https://engine", "t").tls);
  EXPECT_EQ(parse_address("https://engine", "t").port, 2376);
}

TEST(EngineAddress, OfAnotherKindIsRefusedWithWhatToDo) {
  EXPECT_NE(why_not("ssh://user@host").find("ssh -nNT -L"), std::string::npos);
  for (const char* text : {"", "engine", "unix://relative", "unix://", "tcp://", "tcp://:2375", "tcp://a:0",
                           "tcp://a:65536", "tcp://a:x", "tcp://a/path", "tcp://u@a", "tcp://[::1", "fd://",
                           "npipe:////./pipe/docker", "tcp://a:1:2", "tcp://a b", "tcp://a\r\nX: y"})
    EXPECT_NE(why_not(std::string(text)), "") << text;
  EXPECT_NE(why_not("unix:///" + std::string(107, 'x')), "");
  EXPECT_EQ(why_not("tcp://a\r\nX: y").find('\n'), std::string::npos);
}

TEST_F(Resolving, TakesTheConfigurationFirstAndTheEnvironmentNext) {
  add_context("tcp://context:1");
  write(".docker/config.json", R"({"currentContext": "far"})");
  const Variables both{{"DOCKER_HOST", "tcp://variable:2"}, {"DOCKER_CONTEXT", "far"}};
  EXPECT_EQ(resolve(both, "tcp://configured:3").text(), "tcp://configured:3");
  EXPECT_EQ(resolve(both).text(), "tcp://variable:2");
  EXPECT_EQ(resolve({{"DOCKER_HOST", ""}}).text(), "tcp://context:1");
  EXPECT_EQ(resolve({}).text(), "tcp://context:1");
}

TEST_F(Resolving, FindsCertificatesOfTheEnvironment) {
  write("certs/ca.pem", "");
  write("certs/cert.pem", "");
  write("certs/key.pem", "");
  const std::string certs = home_.path() + "/certs";
  for (const Variables& more : {Variables{{"DOCKER_TLS_VERIFY", "1"}}, Variables{}}) {
    Variables variables{{"DOCKER_HOST", "tcp://engine"}, {"DOCKER_CERT_PATH", certs}};
    variables.insert(more.begin(), more.end());
    const auto address = resolve(variables);
    ASSERT_TRUE(address.tls);
    EXPECT_EQ(address.port, 2376);
    EXPECT_EQ(address.tls->ca, certs + "/ca.pem");
    EXPECT_EQ(address.tls->key, certs + "/key.pem");
  }
  EXPECT_TRUE(resolve({{"DOCKER_HOST", "tcp://engine"}, {"DOCKER_TLS_VERIFY", "1"}}).tls);
  EXPECT_FALSE(resolve({{"DOCKER_HOST", "tcp://engine"}, {"DOCKER_TLS_VERIFY", ""}}).tls);
}

TEST_F(Resolving, ReadsTheCertificatesOfAContext) {
  add_context("tcp://engine:2376");
  write(".docker/contexts/tls/" + far_ + "/docker/ca.pem", "");
  const auto address = resolve({{"DOCKER_CONTEXT", "far"}});
  ASSERT_TRUE(address.tls);
  EXPECT_TRUE(address.tls->ca.ends_with("/docker/ca.pem"));
  EXPECT_EQ(address.tls->certificate, "");
}

TEST_F(Resolving, RefusesAContextThatSkipsTheVerificationOfTls) {
  const Variables far{{"DOCKER_CONTEXT", "far"}};
  for (const char* host : {"tcp://engine:2376", "https://engine"}) {
    add_context(host, R"(,"SkipTLSVerify":true)");
    const std::string why = why_not([&] { resolve(far); });
    EXPECT_NE(why.find("docker context `far` skips the verification"), std::string::npos) << why;
    EXPECT_NE(why.find("set `host` and `tls`"), std::string::npos) << why;
    write(".docker/contexts/tls/" + far_ + "/docker/ca.pem", "");
    EXPECT_EQ(why_not([&] { resolve(far); }), why);
    add_context(host, R"(,"SkipTLSVerify":false)");
    EXPECT_TRUE(resolve(far).tls);
  }
  add_context("unix:///run/engine.sock", R"(,"SkipTLSVerify":true)");
  EXPECT_EQ(resolve(far).unix_path, "/run/engine.sock") << "there is nothing to verify";
}

TEST_F(Resolving, TcpWithoutTlsIsARelaxationWhereverItIsFrom) {
  add_context("tcp://context:1");
  const std::string without = " without TLS";
  EXPECT_EQ(resolve({}, "tcp://a:1").relaxation(), "the Engine is spoken to over tcp://a:1" + without);
  EXPECT_EQ(resolve({{"DOCKER_HOST", "tcp://b:2"}}).relaxation(),
            "the Engine is spoken to over tcp://b:2" + without);
  EXPECT_EQ(resolve({{"DOCKER_CONTEXT", "far"}}).relaxation(),
            "the Engine is spoken to over tcp://context:1" + without);
  EXPECT_EQ(resolve({{"DOCKER_HOST", "tcp://b:2"}, {"DOCKER_TLS_VERIFY", "1"}}).relaxation(), "");
  EXPECT_EQ(resolve({}, "unix:///s").relaxation(), "");
}

TEST_F(Resolving, NeverGoesOnFromANameThatLeadsNowhere) {
  listen(home_.path() + "/system.sock");
  EXPECT_NE(why_not([&] { resolve({{"DOCKER_CONTEXT", "near"}}); }).find("`near`"), std::string::npos);
  EXPECT_NE(why_not([&] { resolve({{"DOCKER_HOST", "engine"}}); }).find("DOCKER_HOST"), std::string::npos);
  write(".docker/config.json", "{");
  EXPECT_NE(why_not([&] { resolve({}); }).find("config.json"), std::string::npos);
  write(".docker/config.json", R"({"currentContext": 7})");
  EXPECT_NE(why_not([&] { resolve({}); }), "");
  add_context("ssh://user@host");
  EXPECT_NE(why_not([&] { resolve({{"DOCKER_CONTEXT", "far"}}); }).find("ssh -nNT"), std::string::npos);
}

TEST_F(Resolving, LooksAtTheUsualSocketsLast) {
  const Variables runtime{{"XDG_RUNTIME_DIR", home_.path()}};
  EXPECT_NE(why_not([&] { resolve(runtime); }).find(home_.path() + "/docker.sock"), std::string::npos);
  write(".docker/config.json", R"({"currentContext": "default", "auths": {}})");
  listen(home_.path() + "/docker.sock");
  EXPECT_EQ(resolve(runtime).unix_path, home_.path() + "/docker.sock");
  listen(home_.path() + "/system.sock");
  EXPECT_EQ(resolve(runtime).unix_path, home_.path() + "/system.sock");
  EXPECT_EQ(resolve({{"DOCKER_CONTEXT", "default"}}).unix_path, home_.path() + "/system.sock");
}

}  // namespace
}  // namespace isogate::docker
