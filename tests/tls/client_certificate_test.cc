#include <csignal>

#include "tests/tls/certificates.h"

// Callers that prove themselves by certificate.
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

// A browser presents its certificate for whatever a page asks.
TEST_F(ClientCertificates, AreNoPermissionForWebPages) {
  start_with("required", "cors: {origins: ['https://console.example.org']}\n");
  authority_.sign("dns", sans_.at("dns"));
  EXPECT_EQ(fetch("/backends", by(authority_, "dns", {"-H", "Origin: https://evil.example"})).status, 403);
  EXPECT_EQ(fetch("/backends", by(authority_, "dns", {"-H", "Sec-Fetch-Site: cross-site"})).status, 403);
  EXPECT_EQ(fetch("/backends", by(authority_, "dns", {"-H", "Origin: https://console.example.org"})).status,
            200);
}

// No local.key is made: it would be good beyond this machine.
TEST_F(ClientCertificates, TakeTheLocalKeysPlace) {
  start_with("required");
  EXPECT_EQ(gateway().key(), "");
}

}  // namespace
}  // namespace isogate::test
