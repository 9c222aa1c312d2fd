#include <csignal>
#include <cstdio>
#include <fstream>

#include "tests/tls/certificates.h"

// Certificates are renewed while the gateway runs.
namespace isogate::test {
namespace {

constexpr const char* kReloaded = "\"event\":\"reloaded\"";
constexpr const char* kRefused = "reload_refused";

// Two requests on one connection, the second once a file exists.
constexpr const char* kKeeper = R"(
import http.client, os, ssl, sys, time
port, ca, go = int(sys.argv[1]), sys.argv[2], sys.argv[3]
c = http.client.HTTPSConnection("127.0.0.1", port, context=ssl.create_default_context(cafile=ca), timeout=30)
c.request("GET", "/livez")
r = c.getresponse(); r.read(); print("first", r.status, flush=True)
socket = c.sock
while not os.path.exists(go): time.sleep(0.01)
c.request("GET", "/livez")
r = c.getresponse(); r.read(); print("second", r.status, "same" if c.sock is socket else "another", flush=True)
)";

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_F(Tls, ANewCertificateIsTakenWithoutDroppingConnections) {
  start();
  const std::string before = serial();
  const std::string script = authority_.directory().file("keeper.py", kKeeper), go = authority_.file("go");
  Program keeper({"python3", script, gateway().port(), authority_.certificate(), go}, {});
  ASSERT_TRUE(keeper.wait_for_output("first 200", 20)) << keeper.result.err;
  authority_.sign("server", "DNS:localhost,IP:127.0.0.1");
  EXPECT_EQ(serial(), before) << "it has not been told yet";
  const pid_t front = front_of(gateway());
  hang_up(kReloaded);
  EXPECT_TRUE(eventually(10, [&] { return serial() != before; }));
  put(go, "");
  EXPECT_TRUE(keeper.wait_for_output("second 200 same", 20)) << keeper.result.out << keeper.result.err;
  EXPECT_EQ(front_of(gateway()), front);
  EXPECT_EQ(fetch("/livez").status, 200);
}

TEST_F(Tls, ABadCertificateKeepsTheOldOne) {
  start();
  const std::string before = serial(), path = authority_.file("server.pem"), good = read_whole(path);
  put(path, "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
  hang_up(kRefused);
  EXPECT_NE(gateway().log().find("tls.cert: certificate 1 in it is broken"), std::string::npos)
      << gateway().log();
  EXPECT_EQ(serial(), before);
  authority_.sign("other", "DNS:localhost");
  put(path, read_whole(authority_.file("other.pem")));
  hang_up(kRefused);
  EXPECT_NE(gateway().log().find("it is not the key of the first certificate"), std::string::npos);
  EXPECT_EQ(serial(), before);
  // A front that dies meanwhile restarts with the old one, too.
  const pid_t front = front_of(gateway());
  ASSERT_EQ(::kill(front, SIGKILL), 0);
  EXPECT_TRUE(eventually(20, [&] { return fetch("/readyz").status == 200; }));
  EXPECT_NE(front_of(gateway()), front);
  EXPECT_EQ(serial(), before);
  put(path, good);
  hang_up(kReloaded);
  EXPECT_EQ(fetch("/livez").status, 200);
}

TEST_F(Tls, IsNotSwitchedOffByAReload) {
  start();
  std::string yaml = read_whole(config_file());
  const size_t tls = yaml.find("tls: {");
  yaml.erase(tls, yaml.find('\n', tls) - tls + 1);
  write_config(yaml);
  hang_up("switched on or off only at a start");
  EXPECT_EQ(fetch("/livez").status, 200);
}

}  // namespace
}  // namespace isogate::test
