// TLS between the client and a real Engine, which checks each other's certificates.
#include <thread>

#include "tests/docker/engines.h"
#include "tests/support/authority.h"

namespace isogate::docker {
namespace {

// One Engine and its authority for all tests of the suite.
struct TlsEngine {
  test::Authority authority{"the authority"}, other{"another authority"};
  std::string port = std::to_string(20'000 + ::getpid() % 10'000);
  std::unique_ptr<PrivateEngine> process;
};

class EngineTls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared = new TlsEngine;
    shared->authority.sign("engine", "IP:127.0.0.1,DNS:localhost");
    shared->authority.sign("client", "DNS:client");
    shared->other.sign("client", "DNS:client");
    shared->process = std::make_unique<PrivateEngine>(std::vector<std::string>{
        "--tlsverify", "--tlscacert=" + shared->authority.certificate(),
        "--tlscert=" + shared->authority.file("engine.pem"),
        "--tlskey=" + shared->authority.file("engine.key"), "-H", "tcp://127.0.0.1:" + shared->port});
  }
  static void TearDownTestSuite() {
    delete shared;
    shared = nullptr;
  }
  void SetUp() override {
    if (!shared->process->obstacle().empty()) GTEST_SKIP() << shared->process->obstacle();
  }

  static TlsFiles files() {
    return {shared->authority.certificate(), shared->authority.file("client.pem"),
            shared->authority.file("client.key")};
  }
  static EngineAddress at(const std::string& host, const TlsFiles& with) {
    EngineAddress address = parse_address("tcp://" + host + ":" + shared->port, "the test");
    address.tls = with;
    return address;
  }
  static std::string refused(const std::string& host, const TlsFiles& with,
                             isogate_status status = ISOGATE_UNAVAILABLE) {
    Engine one(at(host, with));
    const Failure failure = failure_of([&] { one.ping(usual()); });
    EXPECT_EQ(failure.status, status) << failure.message;
    return failure.message;
  }

  static TlsEngine* shared;
};

TlsEngine* EngineTls::shared = nullptr;

TEST_F(EngineTls, BothSidesShowWhoTheyAre) {
  Engine engine(at("127.0.0.1", files()));
  EXPECT_FALSE(engine.info(usual()).version.empty());
  for (int i = 0; i < 3; ++i) engine.ping(usual());
  Engine(at("localhost", files())).ping(usual());
}

TEST_F(EngineTls, NoOtherCertificateIsTrusted) {
  TlsFiles stranger = files();
  stranger.ca = shared->other.certificate();
  EXPECT_NE(refused("127.0.0.1", stranger).find("not to be trusted"), std::string::npos);
  TlsFiles system = files();
  system.ca = "";
  EXPECT_NE(refused("127.0.0.1", system).find("not to be trusted"), std::string::npos);

  TlsFiles nobody = files();
  nobody.certificate = nobody.key = "";
  refused("127.0.0.1", nobody);
  refused("127.0.0.1", {files().ca, shared->other.file("client.pem"), shared->other.file("client.key")});
  Engine plain(parse_address("tcp://127.0.0.1:" + shared->port, "the test"));
  EXPECT_NE(failure_of([&] { plain.ping(usual()); }).status, ISOGATE_OK);
}

// Made out to 127.0.0.1 and localhost: an address that leads there, too, is another name.
TEST_F(EngineTls, TheCertificateHasToNameTheHost) {
  EXPECT_NE(refused("127.0.0.1.", files()), "");
  EXPECT_NE(refused("ip6-localhost", files()), "");
}

TEST_F(EngineTls, FilesThatCannotBeUsedAreNamed) {
  TlsFiles missing = files();
  missing.key = "/nonexistent/key.pem";
  EXPECT_NE(refused("127.0.0.1", missing, ISOGATE_INVALID_ARGUMENT).find("/nonexistent/key.pem"),
            std::string::npos);
  missing.key = "";
  refused("127.0.0.1", missing, ISOGATE_INVALID_ARGUMENT);
  missing = files();
  missing.key = shared->other.file("client.key");
  refused("127.0.0.1", missing, ISOGATE_INVALID_ARGUMENT);
}

TEST_F(EngineTls, StreamsCarryAllBytesBothWays) {
  Engine engine(at("127.0.0.1", files()));
  const Json box{
      {"Image", "isogate-test:small"}, {"Cmd", {"sleep", "600"}}, {"HostConfig", {{"NetworkMode", "none"}}}};
  const std::string id = engine.create_container(new_name(), box, usual());
  engine.start(id, usual());
  std::string bytes(size_t{8} << 20, '\0');
  const Json head{{"Cmd", {"head", "-c", std::to_string(bytes.size())}},
                  {"AttachStdin", true},
                  {"AttachStdout", true},
                  {"AttachStderr", true}};
  const auto stream = engine.exec_start(engine.exec_create(id, head, usual()), usual());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  std::thread writer([&] { write_all(*stream, bytes); });
  EXPECT_TRUE(read_all(*stream) == bytes);
  writer.join();
  engine.remove(id, usual());
}

}  // namespace
}  // namespace isogate::docker
