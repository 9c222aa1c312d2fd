#include "tests/tls/certificates.h"

// `isogate` as a client of a gateway with TLS.
namespace isogate::test {
namespace {

class CommandLine : public Tls {
 protected:
  ProgramResult run(const std::string& host, const std::string& ca_file, std::vector<std::string> arguments,
                    const std::string& input = "") {
    ProgramOptions options;
    options.stdin_bytes = input;
    options.env = {{"ISOGATE_URL", "https://" + host + ":" + gateway().port()},
                   {"ISOGATE_KEY", gateway().key()},
                   {"ISOGATE_CA_FILE", ca_file}};
    return run_isogate(std::move(arguments), options);
  }
};

TEST_F(CommandLine, SpeaksTlsToAGatewayThatProvesItself) {
  start();
  const std::string content = noise(3 << 20, 7), file = authority_.directory().file("content", content);
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const auto ran = run(host, authority_.certificate(), {"exec", "-c", "echo hello; exit 3"});
    EXPECT_EQ(ran.exit_code, 3) << host << ": " << ran.err;
    EXPECT_EQ(ran.out, "hello\n");
  }
  EXPECT_EQ(run("localhost", authority_.certificate(), {"write", "f", file}).exit_code, 0);
  EXPECT_TRUE(run("localhost", authority_.certificate(), {"read", "f"}).out == content);
  const auto streamed = run("localhost", authority_.certificate(), {"exec", "--stream", "-c", "seq 3"});
  EXPECT_EQ(streamed.out, "1\n2\n3\n") << streamed.err;
}

TEST_F(CommandLine, AttachesOverTls) {
  start();
  const std::string input = noise(1 << 20, 3);
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const auto ran =
        run(host, authority_.certificate(), {"exec", "-i", "-c", "cat; echo end >&2; exit 3"}, input);
    EXPECT_EQ(ran.exit_code, 3) << host << ": " << ran.err;
    EXPECT_TRUE(ran.out == input) << host << ": " << ran.out.size();
    EXPECT_EQ(ran.err, "end\n") << host;
  }
}

TEST_F(CommandLine, PresentsAClientCertificate) {
  start("client_ca: " + authority_.certificate() +
        ", client_auth: required, clients: [{name: host, tenant: alpha, san: 'DNS:host.example.org'}]");
  authority_.sign("host", "DNS:host.example.org");
  const auto with = [&](std::vector<std::string> arguments) {
    ProgramOptions options;
    options.env = {{"ISOGATE_URL", url()}, {"ISOGATE_CA_FILE", authority_.certificate()}};
    options.stdin_bytes = "typed";
    return run_isogate(std::move(arguments), options);
  };
  const auto none = with({"sandbox", "ls"});
  EXPECT_EQ(none.exit_code, 125) << none.out;
  EXPECT_NE(none.err.find("asks for a client certificate: give --cert"), std::string::npos) << none.err;
  const std::string cert = authority_.file("host.pem"), key = authority_.file("host.key");
  const auto ran = with({"exec", "--cert", cert, "--cert-key", key, "-c", "echo hello"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "hello\n");
  const auto refused = with({"exec", "-i", "-c", "cat"});
  EXPECT_NE(refused.err.find("asks for a client certificate: give --cert"), std::string::npos) << refused.err;
  const auto attached = with({"exec", "-i", "--cert", cert, "--cert-key", key, "-c", "cat"});
  EXPECT_EQ(attached.out, "typed") << attached.err;
  const auto alone = with({"ps", "--cert-key", key});
  EXPECT_EQ(alone.exit_code, 2) << alone.err;
}

TEST_F(CommandLine, AGatewayThatIsNotTrustedIsNotToBeStarted) {
  start();
  const Authority other("another authority");
  for (const std::string& ca_file : {other.certificate(), std::string(), authority_.file("no-such-file")}) {
    const std::string error = run("localhost", ca_file, {"exec", "-c", "true"}).err;
    EXPECT_NE(error.find("--ca-file"), std::string::npos) << error;
    EXPECT_EQ(error.find("isogate serve"), std::string::npos) << error;
  }
  ProgramOptions plain;
  plain.env = {{"ISOGATE_URL", "https://127.0.0.1:1"}};
  const auto nobody = run_isogate({"exec", "-c", "true"}, plain);
  EXPECT_NE(nobody.err.find("isogate serve"), std::string::npos) << nobody.err;
}

TEST_F(CommandLine, RevealsNothingToAnUnprovenGateway) {
  start();
  const Authority other("another authority");
  const auto refused = [&](const std::string& host, const std::string& ca_file) {
    const auto ran = run(host, ca_file, {"exec", "-c", "echo hello > /tmp/never"});
    EXPECT_EQ(ran.exit_code, 125) << ran.out;
    EXPECT_NE(ran.err.find("cannot speak TLS with the gateway at https://"), std::string::npos) << ran.err;
  };
  refused("localhost", other.certificate());
  refused("localhost", "");  // the system's authorities
  const auto unread = run("localhost", authority_.file("no-such-file"), {"exec", "-c", "true"});
  EXPECT_EQ(unread.exit_code, 2) << unread.out;
  EXPECT_NE(unread.err.find("the file of --ca-file"), std::string::npos) << unread.err;
  const auto invalid = run("localhost", authority_.file("server.key"), {"exec", "-c", "true"});
  EXPECT_NE(invalid.err.find("(--ca-file `"), std::string::npos) << invalid.err;
  refused("127.1", authority_.certificate());  // its address, by a name that is not in its certificate
  EXPECT_EQ(gateway().log().find("\"route\":\"/exec\""), std::string::npos) << gateway().log();
}

}  // namespace
}  // namespace isogate::test
