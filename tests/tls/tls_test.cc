#include <arpa/inet.h>

#include "tests/tls/certificates.h"
#include "tests_dirs.h"

// Which TLS the gateway supports, and which it does not.
namespace isogate::test {
namespace {

const std::vector<std::string> kJson = {"-H", "Content-Type: application/json"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(Tls, ServesBothVersionsAndNoOlderOne) {
  start();
  for (const char* version : {"1.2", "1.3"}) {
    const Fetched answer = fetch("/livez", {std::string("--tlsv") + version, "--tls-max", version});
    EXPECT_EQ(answer.status, 200) << version << ": " << answer.error;
  }
  for (const char* version : {"-tls1", "-tls1_1"}) {
    const std::string said = s_client({version, "-cipher", "ALL:@SECLEVEL=0"});
    EXPECT_NE(said.find("alert protocol version"), std::string::npos) << version << ": " << said;
  }
}

TEST_F(Tls, SpeaksOnlyForwardSecretAead) {
  start();
  EXPECT_NE(s_client({"-tls1_2"}).find("Cipher    : ECDHE-"), std::string::npos);
  for (const char* cipher : {"ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "AES128-GCM-SHA256"})
    EXPECT_NE(s_client({"-tls1_2", "-cipher", cipher}).find("handshake failure"), std::string::npos)
        << cipher;
}

TEST_F(Tls, TakesHttp11AndRefusesOtherProtocols) {
  start();
  EXPECT_NE(s_client({"-alpn", "h2,http/1.1"}).find("ALPN protocol: http/1.1"), std::string::npos);
  EXPECT_NE(s_client({"-alpn", "h2"}).find("no application protocol"), std::string::npos);
  EXPECT_EQ(fetch("/livez", {"--no-alpn"}).status, 200);
}

TEST_F(Tls, RunsProgramsAndMovesFilesWhole) {
  start();
  const Fetched ran =
      fetch("/exec",
            with_key() + kJson + std::vector<std::string>{"-d", R"({"command":"echo hi","agent_id":"a"})"});
  ASSERT_EQ(ran.status, 200) << ran.body << ran.error;
  EXPECT_EQ(Json::parse(ran.body).at("stdout"), "hi\n");
  const std::string bytes = noise(5'000'003, 7);
  const std::string file = authority_.directory().file("big", bytes), back = authority_.file("back");
  EXPECT_EQ(fetch("/workspace/files/a/big", with_key() + std::vector<std::string>{"-T", file}).status, 200);
  EXPECT_EQ(fetch("/workspace/files/a/big2",
                  with_key() + std::vector<std::string>{"-T", file, "-H", "Transfer-Encoding: chunked"})
                .status,
            200);
  for (const char* name : {"big", "big2"}) {
    EXPECT_EQ(
        fetch(std::string("/workspace/files/a/") + name, with_key() + std::vector<std::string>{"-o", back})
            .status,
        200);
    EXPECT_EQ(sha256_hex(read_whole(back)), sha256_hex(bytes)) << name;
  }
}

TEST_F(Tls, KeepsConnectionsAndStreamsOutput) {
  start();
  const std::string body = R"({"command":"for i in 1 2 3; do echo $i; done","agent_id":"a"})";
  const ProgramResult twice =
      run_program({"curl", "-sS", "--cacert", authority_.certificate(), "-H",
                   "Authorization: Bearer " + gateway().key(), "-H", "Content-Type: application/json", "-w",
                   "connects %{num_connects}\n", "-d", body, url("/exec-stream"), url("/exec-stream")});
  EXPECT_NE(twice.out.find("connects 1"), std::string::npos) << twice.out << twice.err;
  EXPECT_NE(twice.out.find("connects 0"), std::string::npos) << twice.out;
  EXPECT_NE(twice.out.find("\"exit\""), std::string::npos) << twice.out;
}

// The response is sent before the body was read, and is not lost.
TEST_F(Tls, AnswersBeforeTheBodyIsRead) {
  start();
  const std::string file = authority_.directory().file("big", noise(3'000'000, 3));
  const Fetched refused = fetch("/workspace/files/a/big", {"-T", file});
  EXPECT_EQ(refused.status, 401) << refused.error;
}

TEST_F(Tls, AClientThatLeavesEndsItsExec) {
  start();
  const std::string mark = new_mark();
  const std::string body = R"({"command":"sleep )" + mark + R"(","timeout_sec":600,"agent_id":"a"})";
  Program client(
      {"curl", "-sS", "--cacert", authority_.certificate(), "-H", "Authorization: Bearer " + gateway().key(),
       "-H", "Content-Type: application/json", "-d", body, url("/exec")},
      {});
  ASSERT_TRUE(there_within(20, "sleep " + mark));
  client.signal(SIGKILL);
  client.wait(10);
  EXPECT_TRUE(gone_within(20, "sleep " + mark));
}

TEST_F(Tls, PlainHttpGetsACloseAndNoAnswer) {
  start();
  HttpConnection plain(gateway().url());
  plain.send("POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
  std::string said;
  try {
    said = plain.read_until_closed();
  } catch (const std::runtime_error&) {  // a reset is a close, too
  }
  EXPECT_EQ(said.find("HTTP/"), std::string::npos) << said;
  EXPECT_EQ(fetch("/livez").status, 200);
}

TEST_F(Tls, TheUnixSocketStaysPlain) {
  start();
  EXPECT_TRUE(succeeded(Caller(gateway().unix_url(), "", "a").exec("true")));
}

TEST_F(Tls, AHandshakeHasADeadline) {
  start("handshake_timeout_sec: 1");
  HttpConnection silent(gateway().url()), half(gateway().url());
  half.send(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));
  EXPECT_TRUE(silent.closed_within(15));
  EXPECT_TRUE(half.closed_within(15));
}

TEST_F(Tls, AGatewayThatCannotServeItDoesNotStart) {
  authority_.sign("other", "DNS:localhost");
  const std::string server = authority_.file("server.pem"), key = authority_.file("server.key");
  const std::string empty = authority_.directory().file("empty", ""),
                    text = authority_.directory().file("text", "hello");
  const std::string open_key = authority_.directory().file("open.key", read_whole(key), 0644);
  const std::string locked = authority_.file("locked.key");
  ASSERT_EQ(
      run_program({"openssl", "pkey", "-in", key, "-out", locked, "-aes256", "-passout", "pass:x"}).exit_code,
      0);
  struct Case {
    std::string tls, said;
  };
  for (const Case& each :
       {Case{"cert: /nowhere.pem, key: " + key, "tls.cert: cannot read `/nowhere.pem`: No such file"},
        Case{"cert: " + server + ", key: " + authority_.file("other.key"),
             "tls.key: it is not the key of the first certificate in tls.cert"},
        Case{"cert: " + server + ", key: " + open_key, "may be read by others"},
        Case{"cert: " + server + ", key: " + locked, "tls.key: the key is encrypted"},
        Case{"cert: " + empty + ", key: " + key, "tls.cert: cannot read `" + empty + "`: it is empty"},
        Case{"cert: " + text + ", key: " + key, "tls.cert: there is no certificate in it"},
        Case{"cert: " + authority_.directory().path() + ", key: " + key, "regular file"},
        Case{"cert: " + server + ", key: " + key + ", client_ca: " + text,
             "tls.client_ca: there is no certificate in it"}}) {
    const TemporaryDirectory place;
    const std::string config = place.file(
        "c.yaml", "listen: ['127.0.0.1:0']\nstate_dir: " + place.path() +
                      "/state\nplugin_dir: " ISOGATE_BUILD_DIR "/plugins\ntls: {" + each.tls + "}\n");
    const ProgramResult result = run_isogate({"serve", "--config", config});
    EXPECT_EQ(result.exit_code, 1) << each.said;
    EXPECT_NE((result.out + result.err).find(each.said), std::string::npos) << each.said << "\n"
                                                                            << result.err;
    EXPECT_EQ((result.out + result.err).find("PRIVATE KEY"), std::string::npos);
  }
}

// Switches protocols, reads to the end, which has to be a close_notify, and only then sends its own bytes.
constexpr const char* kSwitch = R"(
import socket, ssl, sys
port, ca, key = int(sys.argv[1]), *sys.argv[2:]
raw = socket.create_connection(("127.0.0.1", port), timeout=30)
tls = ssl.create_default_context(cafile=ca).wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
tls.sendall(b"GET / HTTP/1.1\r\nHost: 8080-web.sbx.test\r\nConnection: Upgrade\r\nUpgrade: raw\r\n"
            b"Authorization: Bearer " + key.encode() + b"\r\n\r\n")
got = b""
while part := tls.recv(4096): got += part
print(got.split(b"\r\n")[0], got.split(b"\r\n\r\n")[1], flush=True)
tls.sendall(b"x" * 100000)
tls.unwrap()
)";

TEST_F(Tls, ASwitchedConnectionEndsInEachDirectionByItself) {
  if (const std::string why = namespace_obstacle(); !why.empty()) GTEST_SKIP() << why;
  start("", "ports: {domain: sbx.test}\n", "namespace");
  const Caller me(gateway().unix_url(), gateway().key(), "web");
  const std::string program = read_whole(ISOGATE_BUILD_DIR "/bin/contract_port_server");
  ASSERT_TRUE(succeeded(me.call("PUT", me.file_url("port_server?mode=0755"), {}, program)));
  const Answer started = me.post("/exec", {{"command", "./port_server last 8080"}, {"background", true}});
  ASSERT_EQ(started.status, 202) << started.text;
  const std::string output = "/execs/" + started.body.at("exec_id").get<std::string>() + "/output";
  const auto wrote = [&](const char* text) { return me.get(output).text.find(text) != std::string::npos; };
  ASSERT_TRUE(eventually(20, [&] { return wrote("ready"); })) << me.get(output).text;
  const std::string script = authority_.directory().file("switch.py", kSwitch);
  const ProgramResult client =
      run_program({"python3", script, gateway().port(), authority_.certificate(), gateway().key()});
  EXPECT_NE(client.out.find("101 Switching Protocols' b'done'"), std::string::npos)
      << client.out << client.err;
  EXPECT_EQ(client.exit_code, 0) << client.err;
  EXPECT_TRUE(eventually(20, [&] { return wrote("100000"); })) << me.get(output).text;
  EXPECT_FALSE(wrote("broken"));
}

// Root's gateway: the process that faces the network runs as another user and could not open the key.
TEST_F(Tls, TheFrontCannotReadTheKeyFile) {
  if (!root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  start();
  const pid_t front = front_of(gateway());
  const std::string uids = status_field(front, "Uid");
  ASSERT_NE(std::atoi(uids.c_str()), 0) << uids;
  as_user(static_cast<uid_t>(std::atoi(uids.c_str())),
          [&] { EXPECT_EQ(read_whole(authority_.file("server.key")), ""); });
  for (const auto& [fd, target] : open_files(front))
    EXPECT_EQ(target.find("server."), std::string::npos) << target;
  EXPECT_EQ(gateway().log().find("PRIVATE KEY"), std::string::npos);
}

}  // namespace
}  // namespace isogate::test
