#include <csignal>

#include "tests/tls/certificates.h"

// Callers that authenticate with a certificate.
namespace isogate::test {
namespace {

constexpr const char* kClients =
    "clients: [{name: agent-host, tenant: alpha, san: 'DNS:Agent.example.org'}, {name: spiffe, tenant: beta, "
    "san: "
    "'URI:spiffe://example.org/b'}, {name: address, tenant: gamma, san: 'IP:2001:DB8::0:1'}]";

class ClientCertificates : public Tls {
 protected:
  Gateway& start_with(const std::string& auth, const std::string& yaml = {}) {
    return start("client_ca: " + authority_.certificate() + ", client_auth: " + auth + ", " + kClients, yaml);
  }
  std::vector<std::string> by(const Authority& authority, const std::string& name,
                              std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"--cert", authority.file(name + ".pem"), "--key", authority.file(name + ".key")});
    return more;
  }
  // The tenant that an exec was logged for.
  std::string tenant_of(const std::string& name) {
    authority_.sign(name, sans_.at(name));
    const std::string agent = "agent-of-" + name;
    const Fetched ran = fetch("/exec", by(authority_, name,
                                          {"-H", "Content-Type: application/json", "-d",
                                           R"({"command":"true","agent_id":")" + agent + "\"}"}));
    EXPECT_EQ(ran.status, 200) << name << ": " << ran.body << ran.error;
    const std::string log = gateway().log();
    for (const char* tenant : {"alpha", "beta", "gamma"})
      if (log.find(std::string("\"tenant\":\"") + tenant + "\",\"agent_id\":\"" + agent) != std::string::npos)
        return tenant;
    return "none";
  }
  const std::map<std::string, std::string> sans_ = {{"dns", "DNS:other.example.org,DNS:agent.example.ORG"},
                                                    {"uri", "URI:spiffe://example.org/b"},
                                                    {"ip", "IP:2001:db8::1"},
                                                    {"stranger", "DNS:stranger.example.org"}};
};

TEST_F(ClientCertificates, StandForTheTenantOfTheirName) {
  start_with("required");
  EXPECT_EQ(tenant_of("dns"), "alpha");
  EXPECT_EQ(tenant_of("uri"), "beta");
  EXPECT_EQ(tenant_of("ip"), "gamma");
}

TEST_F(ClientCertificates, AreNeededForAConnectionWhenRequired) {
  start_with("required");
  const Fetched none = fetch("/livez");
  EXPECT_EQ(none.status, 0) << none.body;
  EXPECT_NE(none.exit_code, 0);
}

TEST_F(ClientCertificates, MayBeLeftOutWhenOptional) {
  start_with("optional", "keys: [{name: k, tenant: t, sha256: " +
                             sha256_hex("isg_some_key_of_a_test_0123456789") + "}]\n");
  EXPECT_EQ(fetch("/livez").status, 200);
  EXPECT_EQ(fetch("/backends").status, 401);
  EXPECT_EQ(fetch("/backends", {"-H", "Authorization: Bearer isg_some_key_of_a_test_0123456789"}).status,
            200);
}

TEST_F(ClientCertificates, OfStrangersOpenNothing) {
  start_with("optional");
  authority_.sign("stranger", sans_.at("stranger"));
  EXPECT_EQ(fetch("/livez", by(authority_, "stranger")).status, 200);
  EXPECT_EQ(fetch("/backends", by(authority_, "stranger")).status, 401) << "verified, but nobody's";
  const Authority foreign("another authority");
  foreign.sign("dns", sans_.at("dns"));
  EXPECT_EQ(fetch("/livez", by(foreign, "dns")).status, 0) << "not verified";
  authority_.sign("dns", sans_.at("dns"), -1);
  EXPECT_EQ(fetch("/livez", by(authority_, "dns")).status, 0) << "expired";
}

TEST_F(ClientCertificates, DoNotMakeUpForAWrongKey) {
  start_with("required");
  authority_.sign("dns", sans_.at("dns"));
  EXPECT_EQ(fetch("/backends", by(authority_, "dns")).status, 200);
  EXPECT_EQ(fetch("/backends", by(authority_, "dns", {"-H", "Authorization: Bearer wrong"})).status, 401);
}

// A browser presents its certificate for the requests of any page.
TEST_F(ClientCertificates, AreNoPermissionForWebPages) {
  start_with("required", "cors: {origins: ['https://console.example.org']}\n");
  authority_.sign("dns", sans_.at("dns"));
  EXPECT_EQ(fetch("/backends", by(authority_, "dns", {"-H", "Origin: https://evil.example"})).status, 403);
  EXPECT_EQ(fetch("/backends", by(authority_, "dns", {"-H", "Sec-Fetch-Site: cross-site"})).status, 403);
  EXPECT_EQ(fetch("/backends", by(authority_, "dns", {"-H", "Origin: https://console.example.org"})).status,
            200);
}

// Sends two requests on one connection, and waits for a file in between.
constexpr const char* kTwice = R"(
import http.client, os, ssl, sys, time
port, ca, certificate, key, go = int(sys.argv[1]), *sys.argv[2:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(certificate, key)
c = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
def ask(which):
    c.request("GET", "/backends")
    r = c.getresponse(); r.read(); print(which, r.status, flush=True)
ask("first"); socket = c.sock
while not os.path.exists(go): time.sleep(0.01)
ask("second"); print("same" if c.sock is socket else "another", flush=True)
)";

class ShutOut : public ClientCertificates, public testing::WithParamInterface<const char*> {};

// An entry that a reload removes ends at the next request of an open connection.
TEST_P(ShutOut, HoldsForOpenConnections) {
  const std::string authorities =
      authority_.directory().file("clients-ca.pem", read_whole(authority_.certificate()));
  start("client_ca: " + authorities + ", " + kClients);
  authority_.sign("dns", sans_.at("dns"));
  const std::string script = authority_.directory().file("twice.py", kTwice), go = authority_.file("go");
  Program client({"python3", script, gateway().port(), authority_.certificate(), authority_.file("dns.pem"),
                  authority_.file("dns.key"), go},
                 {});
  ASSERT_TRUE(client.wait_for_output("first 200", 20)) << client.result.err;
  if (std::string(GetParam()) == "authority") {
    const Authority other("another authority");
    (void)authority_.directory().file("clients-ca.pem", read_whole(other.certificate()));
  } else {
    std::string yaml = read_whole(config_file());
    yaml.replace(yaml.find("DNS:Agent.example.org"), 21, "DNS:gone.example.org");
    write_config(yaml);
  }
  hang_up("\"event\":\"reloaded\"");
  (void)authority_.directory().file("go", "");
  EXPECT_TRUE(client.wait_for_output("second 401", 20)) << client.result.out << client.result.err;
  EXPECT_TRUE(client.wait_for_output("same", 20)) << client.result.out;
}
INSTANTIATE_TEST_SUITE_P(By, ShutOut, testing::Values("authority", "entry"));

TEST_F(ClientCertificates, GoOnWhereAnAuthorityIsAdded) {
  const std::string own = read_whole(authority_.certificate());
  const std::string authorities = authority_.directory().file("clients-ca.pem", own);
  start("client_ca: " + authorities + ", " + kClients);
  authority_.sign("dns", sans_.at("dns"));
  const std::string script = authority_.directory().file("twice.py", kTwice), go = authority_.file("go");
  Program client({"python3", script, gateway().port(), authority_.certificate(), authority_.file("dns.pem"),
                  authority_.file("dns.key"), go},
                 {});
  ASSERT_TRUE(client.wait_for_output("first 200", 20)) << client.result.err;
  const Authority other("another authority");
  (void)authority_.directory().file("clients-ca.pem", read_whole(other.certificate()) + own);
  hang_up("\"event\":\"reloaded\"");
  (void)authority_.directory().file("go", "");
  EXPECT_TRUE(client.wait_for_output("second 200", 20)) << client.result.out << client.result.err;
  EXPECT_TRUE(client.wait_for_output("same", 20)) << client.result.out;
}

// Connects, and begins the handshake once a file exists.
constexpr const char* kLate = R"(
import os, socket, ssl, sys, time
port, ca, certificate, key, go = int(sys.argv[1]), *sys.argv[2:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(certificate, key)
raw = socket.create_connection(("127.0.0.1", port), timeout=30)
time.sleep(0.3); print("connected", flush=True)
while not os.path.exists(go): time.sleep(0.01)
try:
    tls = context.wrap_socket(raw, server_hostname="127.0.0.1")
    tls.sendall(b"GET /backends HTTP/1.1\r\nHost: localhost\r\n\r\n")
    print("status", tls.recv(4096).split()[1].decode(), flush=True)
except OSError as error:
    print("refused", error, flush=True)
)";

// A connection made under the old authorities proves nothing with them later.
TEST_F(ClientCertificates, OfAnAuthorityThatWentDuringTheHandshakeCountForNothing) {
  const std::string authorities =
      authority_.directory().file("clients-ca.pem", read_whole(authority_.certificate()));
  start("client_ca: " + authorities + ", " + kClients);
  authority_.sign("dns", sans_.at("dns"));
  ASSERT_EQ(fetch("/backends", by(authority_, "dns")).status, 200);
  const std::string script = authority_.directory().file("late.py", kLate), go = authority_.file("go");
  Program client({"python3", script, gateway().port(), authority_.certificate(), authority_.file("dns.pem"),
                  authority_.file("dns.key"), go},
                 {});
  ASSERT_TRUE(client.wait_for_output("connected", 20)) << client.result.err;
  const Authority other("another authority");
  (void)authority_.directory().file("clients-ca.pem", read_whole(other.certificate()));
  hang_up("\"event\":\"reloaded\"");
  (void)authority_.directory().file("go", "");
  EXPECT_TRUE(client.wait(20));
  EXPECT_NE(client.result.out.find("status 401"), std::string::npos)
      << client.result.out << client.result.err;
}

// No local.key is created: it would be valid beyond this machine.
TEST_F(ClientCertificates, TakeTheLocalKeysPlace) {
  start_with("required");
  EXPECT_EQ(gateway().key(), "");
}

}  // namespace
}  // namespace isogate::test
