#include "gateway/front/http/auth.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/hash.h"

namespace isogate::front {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Options : Config {
  std::string local_key_sha256;
  std::vector<uint32_t> peer_uids;
};

Options two_keys() {
  Options options;
  options.keys = {{"ci", "acme", sha256_hex("key-of-ci")}, {"laptop", "bob", sha256_hex("key-of-laptop")}};
  options.local_key_sha256 = sha256_hex("the-local-key");
  options.peer_uids = {0, 1000};
  return options;
}

Result<Authenticator> make(const Options& options) {
  return Authenticator::make(options, options.local_key_sha256, options.peer_uids);
}

Authenticator made(const Options& options) {
  Result<Authenticator> result = make(options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return *result;
}

TEST(Keys, StandForTheirTenant) {
  Authenticator auth = made(two_keys());
  struct Row {
    const char *key, *tenant, *name;
  };
  for (const Row& row : {Row{"key-of-ci", "acme", "ci"},
                         {"key-of-laptop", "bob", "laptop"},
                         {"the-local-key", "local", "local.key"}}) {
    auto principal = auth.by_key(row.key);
    ASSERT_TRUE(principal) << row.key;
    EXPECT_EQ(principal->tenant, row.tenant);
    EXPECT_EQ(principal->key_name, row.name);
  }
}

TEST(Keys, ThatAreWrongMatchNobody) {
  Authenticator auth = made(two_keys());
  for (const std::string& wrong :
       {std::string(), std::string("key-of-c"), std::string("key-of-ci "), std::string("KEY-OF-CI"),
        sha256_hex("key-of-ci"), std::string("key-of-ci\0", 10), std::string(kMaxTokenBytes + 1, 'x')})
    EXPECT_FALSE(auth.by_key(wrong)) << wrong;
}

TEST(Keys, OfTheLastAndTheOnlyPositionAreFound) {
  Options options;
  for (int i = 0; i < 50; ++i)
    options.keys.push_back(
        {"k" + std::to_string(i), "t" + std::to_string(i), sha256_hex("key " + std::to_string(i))});
  Authenticator auth = made(options);
  for (int i = 0; i < 50; ++i) {
    auto principal = auth.by_key("key " + std::to_string(i));
    ASSERT_TRUE(principal);
    EXPECT_EQ(principal->tenant, "t" + std::to_string(i));
  }
  EXPECT_FALSE(auth.by_key("key 50"));
}

TEST(Keys, NoneConfiguredAdmitsNone) {
  Authenticator auth = made({});
  EXPECT_FALSE(auth.by_key("anything"));
  EXPECT_FALSE(auth.by_key(""));
  EXPECT_FALSE(auth.by_key(std::string(32, '\0')));
  EXPECT_FALSE(auth.by_peer_uid(0));
  EXPECT_FALSE(auth.by_loopback());
}

TEST(Keys, ABadHashStopsTheStart) {
  for (const std::string& hash : {std::string("00"), std::string(), std::string(63, 'a'),
                                  std::string(65, 'a'), std::string(64, 'g'), std::string(66, 'a')}) {
    Options options;
    options.keys = {{"ci", "acme", hash}};
    Result<Authenticator> result = make(options);
    ASSERT_FALSE(result.ok()) << hash;
    EXPECT_NE(result.error().message.find("`ci`"), std::string::npos);
    EXPECT_TRUE(hash.empty() || result.error().message.find(hash) == std::string::npos);
  }
  Options local;
  local.local_key_sha256 = "xyz";
  EXPECT_FALSE(make(local).ok());
}

TEST(Keys, OneKeyForTwoPrincipalsStopsTheStart) {
  Options options = two_keys();
  std::string upper = sha256_hex("key-of-ci");
  for (char& c : upper) c = static_cast<char>(toupper(c));
  options.keys.push_back({"copy", "other", upper});
  Result<Authenticator> result = make(options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("`copy`"), std::string::npos);
  options = two_keys();
  options.keys[0].tenant = "";
  EXPECT_FALSE(make(options).ok());
}

TEST(PeerUid, OnlyAdmittedOnes) {
  Authenticator auth = made(two_keys());
  for (uint32_t uid : {0u, 1000u}) {
    auto principal = auth.by_peer_uid(uid);
    ASSERT_TRUE(principal);
    EXPECT_EQ(principal->tenant, "local");
    EXPECT_EQ(principal->key_name, "uid " + std::to_string(uid));
  }
  for (uint32_t uid : {1u, 1001u, 65534u, UINT32_MAX}) EXPECT_FALSE(auth.by_peer_uid(uid));
}

TEST(Anonymous, OnlyWhereItWasConfigured) {
  EXPECT_FALSE(made(two_keys()).by_loopback());
  Options options = two_keys();
  options.anonymous = "loopback";
  auto principal = made(options).by_loopback();
  ASSERT_TRUE(principal);
  EXPECT_EQ(principal->tenant, "local");
  EXPECT_EQ(principal->key_name, "anonymous");
  options.require_remote = true;
  EXPECT_FALSE(made(options).by_loopback());
}

TEST(BearerToken, IsExactlyOneToken) {
  EXPECT_EQ(bearer_token("Bearer abc"), "abc");
  EXPECT_EQ(bearer_token("bearer abc"), "abc");
  EXPECT_EQ(bearer_token("BEARER   a-._~+/1=="), "a-._~+/1==");
  EXPECT_EQ(bearer_token("Bearer " + std::string(kMaxTokenBytes, 'x')), std::string(kMaxTokenBytes, 'x'));
  const std::vector<std::string> bad = {"",
                                        "Bearer",
                                        "Bearer ",
                                        "Bearer  ",
                                        "Bearerabc",
                                        "Basic abc",
                                        "abc",
                                        " Bearer abc",
                                        "Bearer abc ",
                                        "Bearer a b",
                                        "Bearer abc,def",
                                        "Bearer \"abc\"",
                                        "Bearer\tabc",
                                        "Bearer a=b",
                                        "Bearer =",
                                        "Bearer abc\r\nX: y",
                                        "Bearer é",
                                        {"Bearer a\0b", 10},
                                        "Bearer " + std::string(kMaxTokenBytes + 1, 'x')};
  for (const std::string& header : bad) EXPECT_EQ(bearer_token(header), std::nullopt) << header;
}

TEST(Host, OnWhatTheBoundAddressIsCalled) {
  const BoundAddress v4{"127.0.0.1", 9090}, v6{"::1", 9090}, lan{"192.168.1.5", 9090}, any{"0.0.0.0", 9090};
  struct Row {
    const char* host;
    const BoundAddress& bound;
    bool allowed;
  };
  const std::vector<Row> rows = {
      {"localhost", v4, true},
      {"localhost:9090", v4, true},
      {"LocalHost:9090", v4, true},
      {"127.0.0.1:9090", v4, true},
      {"127.0.0.1", v4, true},
      {"127.9.9.9:9090", v4, true},
      {"[::1]:9090", v4, true},
      {"[::1]", v6, true},
      {"[0:0:0:0:0:0:0:1]:9090", v6, true},
      {"[::ffff:127.0.0.1]:9090", v4, true},
      {"192.168.1.5:9090", lan, true},
      {"gw.test:9090", v4, true},
      {"GW.test", v4, true},
      {"evil.example", v4, false},
      {"evil.example:9090", v4, false},
      {"localhost:80", v4, false},
      {"localhost:", v4, false},
      {"localhost:9090:9090", v4, false},
      {"localhost:+9090", v4, false},
      {"localhost:09090x", v4, false},
      {"localhost:75626", v4, false},  // 9090 modulo 65536
      {"localhost.", v4, false},
      {"localhost.evil.example", v4, false},
      {"evil.localhost", v4, false},
      {"127.0.0.1.evil.example", v4, false},
      {"127.1", v4, false},
      {"0x7f.0.0.1", v4, false},
      {"2130706433", v4, false},
      {"0.0.0.0:9090", v4, false},
      {"[::]:9090", v6, false},
      {"0.0.0.0:9090", any, false},
      {"192.168.1.5:9090", v4, false},
      {"192.168.1.6:9090", lan, false},
      {"::1", v6, false},
      {"[127.0.0.1]", v4, false},
      {"[localhost]", v4, false},
      {"[::1", v6, false},
      {"[::1]x", v6, false},
      {"[]", v6, false},
      {"", v4, false},
      {":9090", v4, false},
      {"user@localhost", v4, false},
      {"localhost/", v4, false},
      {" localhost", v4, false},
  };
  const std::vector<std::string> names = {"gw.test"};
  for (const Row& row : rows) EXPECT_EQ(host_allowed(row.host, row.bound, names), row.allowed) << row.host;
  EXPECT_FALSE(host_allowed(std::string_view("127.0.0.1\0.evil", 15), v4, names));
  EXPECT_FALSE(host_allowed(std::string_view("localhost\0", 10), v4, names));
  EXPECT_FALSE(host_allowed("", v4, {""}));
}

TEST(Origin, OnlyListedOnesAndNoOtherSite) {
  using Header = std::optional<std::string_view>;
  struct Row {
    Header origin, site;
    bool allowed;
  };
  const std::vector<Row> rows = {
      {{}, {}, true},
      {{}, "none", true},
      {{}, "same-origin", true},
      {{}, "same-site", false},
      {{}, "cross-site", false},
      {{}, "", false},
      {{}, "None", false},
      {"http://ui.test", {}, true},
      {"HTTP://UI.test", "cross-site", true},
      {"https://ui.test", {}, false},
      {"http://ui.test:81", {}, false},
      {"http://ui.test.evil", {}, false},
      {"http://127.0.0.1:9090", {}, false},
      {"http://127.0.0.1:9090", "same-origin", false},
      {"null", {}, false},
      {"", {}, false},
  };
  for (const Row& row : rows)
    EXPECT_EQ(origin_allowed(row.origin, row.site, {"http://ui.test", "null", ""}), row.allowed)
        << row.origin.value_or("-") << " " << row.site.value_or("-");
  EXPECT_FALSE(origin_allowed("http://ui.test", {}, {}));
}

WrongKeys::Time at(milliseconds since) { return WrongKeys::Time{} + std::chrono::hours(1) + since; }

TEST(WrongKey, IsSlowedDownPerPeer) {
  WrongKeys wrong({3, 1, 100});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(wrong.wrong("10.0.0.1", at(seconds(0))));
  EXPECT_EQ(wrong.wrong("10.0.0.1", at(seconds(0))), seconds(1));
  EXPECT_FALSE(wrong.wrong("10.0.0.2", at(seconds(0)))) << "another peer";
  EXPECT_EQ(wrong.wrong("10.0.0.1", at(milliseconds(900))), seconds(1));
  EXPECT_FALSE(wrong.wrong("10.0.0.1", at(milliseconds(1100))));
  EXPECT_TRUE(wrong.wrong("10.0.0.1", at(milliseconds(1100))));
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(wrong.wrong("10.0.0.1", at(seconds(100)))) << "no more than the burst";
  EXPECT_TRUE(wrong.wrong("10.0.0.1", at(seconds(100))));
}

TEST(WrongKey, SaysHowLongToWait) {
  WrongKeys wrong({1, 0.1, 100});
  EXPECT_FALSE(wrong.wrong("10.0.0.1", at(seconds(0))));
  EXPECT_EQ(wrong.wrong("10.0.0.1", at(seconds(0))), seconds(10));
}

TEST(WrongKey, SaysWhoMustWaitAndCountsNothing) {
  WrongKeys wrong({1, 0.1, 100});
  EXPECT_FALSE(wrong.must_wait("10.0.0.1", at(seconds(0))));
  EXPECT_EQ(wrong.peers(), 0U);
  EXPECT_FALSE(wrong.wrong("10.0.0.1", at(seconds(0))));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(wrong.must_wait("10.0.0.1", at(seconds(0))), seconds(10));
  EXPECT_FALSE(wrong.must_wait("10.0.0.2", at(seconds(0)))) << "another peer";
  EXPECT_FALSE(wrong.must_wait("10.0.0.1", at(seconds(10))));
}

TEST(WrongKey, CountsAnIpv6NetworkAsOnePeer) {
  WrongKeys wrong({1, 1, 100});
  EXPECT_FALSE(wrong.wrong("2001:db8::1", at(seconds(0))));
  EXPECT_TRUE(wrong.wrong("2001:db8::2", at(seconds(0))));
  EXPECT_TRUE(wrong.wrong("2001:db8:0:0:ffff::", at(seconds(0))));
  EXPECT_FALSE(wrong.wrong("2001:db8:0:1::1", at(seconds(0))));
  EXPECT_FALSE(wrong.wrong("10.0.0.1", at(seconds(0))));
  EXPECT_TRUE(wrong.wrong("::ffff:10.0.0.1", at(seconds(0)))) << "the same peer";
}

TEST(WrongKey, ForgetsTheLongestUnusedPeerFirst) {
  WrongKeys wrong({1, 0.001, 3});
  EXPECT_FALSE(wrong.wrong("10.0.0.1", at(seconds(0))));
  EXPECT_FALSE(wrong.wrong("10.0.0.2", at(seconds(0))));
  EXPECT_FALSE(wrong.wrong("10.0.0.3", at(seconds(0))));
  EXPECT_TRUE(wrong.wrong("10.0.0.1", at(seconds(1))));
  EXPECT_FALSE(wrong.wrong("10.0.0.4", at(seconds(1))));
  EXPECT_TRUE(wrong.wrong("10.0.0.1", at(seconds(1)))) << "used of late, so still known";
  EXPECT_FALSE(wrong.wrong("10.0.0.2", at(seconds(1)))) << "forgotten";
  for (int i = 0; i < 100000; ++i) wrong.wrong("peer " + std::to_string(i), at(seconds(2)));
  EXPECT_EQ(wrong.peers(), 3u);
}

TEST(WrongKey, AClockThatStandsStillOrGoesBackGivesNothing) {
  WrongKeys wrong({1, 1, 3});
  EXPECT_FALSE(wrong.wrong("a", at(seconds(10))));
  EXPECT_TRUE(wrong.wrong("a", at(seconds(5))));
  EXPECT_TRUE(wrong.wrong("a", at(seconds(5))));
}

TEST(Proxies, AreKnownByTheHeadersTheyAdd) {
  for (const char* name :
       {"Forwarded", "forwarded", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Anything",
        "X-Forwarded", "X-Real-IP", "Via", "VIA", "True-Client-IP", "CF-Connecting-IP"})
    EXPECT_TRUE(names_a_proxy(name)) << name;
  for (const char* name : {"Host", "X-Agent-Id", "X-Real", "Viable", "X-Forward", "Authorization", ""})
    EXPECT_FALSE(names_a_proxy(name)) << name;
}

}  // namespace
}  // namespace isogate::front
