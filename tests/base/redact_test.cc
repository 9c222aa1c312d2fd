#include "lib/redact.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

namespace isogate {
namespace {

struct Case {
  const char *text, *clean;
};

// Assembled, so that no scanner takes this file for a leak.
const std::string kModelKey = std::string("sk") + "-proj-abc123DEF456ghi789";
const std::string kGithub = std::string("ghp") + "_0123456789abcdefghij0123456789ABCDEF";
const std::string kAws = std::string("AKIA") + "IOSFODNN7EXAMPL3";
const std::string kJwt = std::string("eyJ") + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";

TEST(Redact, TakesKnownTokensOutOfText) {
  EXPECT_EQ(redact("key " + kModelKey + " used"), "key [redacted:model_api_key] used");
  EXPECT_EQ(redact("(" + kGithub + ")"), "([redacted:github_token])");
  EXPECT_EQ(redact(std::string("github_pat") + "_11ABCDEFG0123456789_abc"), "[redacted:github_token]");
  EXPECT_EQ(redact("id=" + kAws + ", region"), "id=[redacted:aws_access_key], region");
  EXPECT_EQ(redact("got " + kJwt + "."), "got [redacted:jwt]");
  EXPECT_EQ(redact("isg_abcdefghijkl234567mnop"), "[redacted:isogate_key]");
  const std::string hex = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(redact("E2B_KEY=e2b_" + hex + hex + " run"), "E2B_KEY=[redacted:e2b_key] run");
  EXPECT_EQ(redact("no such call: /foo/isg_abcdefghijkl234567mnop"),
            "no such call: /foo/[redacted:isogate_key]");
  const std::string secret = "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst";
  EXPECT_EQ(redact("curl https://host/iabcdefghijklmnop2345x" + secret + "/x"),
            "curl https://host/[redacted:e2b_token]/x");
  EXPECT_EQ(redact("(" + secret + ")"), "([redacted:e2b_token])");
  EXPECT_EQ(redact(std::string("glpat") + "-0123456789abcdefghij"), "[redacted:gitlab_token]");
  EXPECT_EQ(redact(std::string("xoxb") + "-123456789012-abcdef"), "[redacted:slack_token]");
  EXPECT_EQ(redact(std::string("sk_live") + "_0123456789abcdef"), "[redacted:stripe_key]");
  EXPECT_EQ(redact(std::string("npm") + "_abcdefghijklmnopqrstuvwxyz0123456789"), "[redacted:npm_token]");
  EXPECT_EQ(redact(std::string("AIza") + "SyA0123456789abcdefghijklmnopqrstuv"), "[redacted:google_api_key]");
}

TEST(Redact, TakesCredentialsOfHeadersAndUrls) {
  EXPECT_EQ(redact("sent Bearer abcdef123456, refused"), "sent Bearer [redacted:bearer_token], refused");
  EXPECT_EQ(redact("basic dXNlcjpwYXNz"), "basic [redacted:basic_credentials]");
  EXPECT_EQ(redact("Authorization: Digest a b c\r\nHost: x"),
            "Authorization: [redacted:assignment]\r\nHost: x");
  EXPECT_EQ(redact("curl -H \"authorization: token abcdef\" x"),
            "curl -H \"authorization: [redacted:assignment]\" x");
  EXPECT_EQ(redact("https://user:pass@host/path"), "https://[redacted:url_userinfo]@host/path");
  EXPECT_EQ(redact("postgres://me@db:5432"), "postgres://[redacted:url_userinfo]@db:5432");
}

TEST(Redact, TakesPrivateKeysWhole) {
  std::string key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----";
  EXPECT_EQ(redact("a " + key + " b"), "a [redacted:private_key] b");
  EXPECT_EQ(redact("a -----BEGIN PRIVATE KEY-----\nMIIE"), "a [redacted:private_key]");
  std::string certificate = "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----";
  EXPECT_EQ(redact(certificate), certificate);
}

TEST(Redact, TakesWhatItsNameCallsSecret) {
  const Case cases[] = {
      {"password=hunter2 next", "password=[redacted:assignment] next"},
      {"DB_PASSWORD=x", "DB_PASSWORD=[redacted:assignment]"},
      {"DB_PASS=x y", "DB_PASS=[redacted:assignment] y"},
      {"DB_PASSWORD_2=x y", "DB_PASSWORD_2=[redacted:assignment] y"},
      {"--token x\\\npassword: zq-hunter2", "--token [redacted:assignment]\npassword: [redacted:assignment]"},
      {"token='x'\\\npassword='a'\" zq-hunter2'",
       "token='[redacted:assignment]'\\\npassword='[redacted:assignment]"},
      {"token='a'b\\\npassword='a'\" zq-hunter2'",
       "token='[redacted:assignment]\npassword='[redacted:assignment]"},
      {"MYSQL_PWD=x y", "MYSQL_PWD=[redacted:assignment] y"},
      {"ENCRYPTION_KEY=x y", "ENCRYPTION_KEY=[redacted:assignment] y"},
      {"encryptionKey: abcdef", "encryptionKey: [redacted:assignment]"},
      {"password+=x y", "password+=[redacted:assignment] y"},
      {"password += 'x' y", "password += '[redacted:assignment]' y"},
      {"api-key = abc;", "api-key = [redacted:assignment];"},
      {"{\"apiKey\": \"a b\\\"c\", \"n\": 1}", "{\"apiKey\": \"[redacted:assignment]\", \"n\": 1}"},
      {"{\\\"token\\\":\\\"abc\\\"}", "{\\\"token\\\":\\\"[redacted:assignment]\\\"}"},
      {"--client-secret s3 run", "--client-secret [redacted:assignment] run"},
      {"--token=abc", "--token=[redacted:assignment]"},
      {"token: abcdef", "token: [redacted:assignment]"},
      {"secret='never ends", "secret='[redacted:assignment]"},
      {"?access_token=abc&x=1", "?access_token=[redacted:assignment]&x=1"},
      {"Cookie: a=b; c=d", "Cookie: [redacted:assignment]"},
      {"//registry.npmjs.org/:_authToken=0aa1-22", "//registry.npmjs.org/:_authToken=[redacted:assignment]"},
      {"_password=aGV5 x", "_password=[redacted:assignment] x"},
      {"password == \"x\"", "password == \"[redacted:assignment]\""},
      {"$password === 'x'", "$password === '[redacted:assignment]'"},
      {"password := x", "password := [redacted:assignment]"},
      {":password => \"x\"", ":password => \"[redacted:assignment]\""},
      {"config['password'] = 'hunter2' x", "config['password'] = '[redacted:assignment]' x"},
      {"os.environ[\"DB_PASSWORD\"] = \"a b\" x",
       "os.environ[\"DB_PASSWORD\"] = \"[redacted:assignment]\" x"},
      {"HTTP_AUTHORIZATION=Bearer abcdef123456 x", "HTTP_AUTHORIZATION=Bearer [redacted:assignment] x"},
  };
  for (const Case& one : cases) EXPECT_EQ(redact(one.text), one.clean);
}

TEST(Redact, TakesEveryQuotedPartOfAValue) {
  const Case cases[] = {
      {"password=b'hunter2' x", "password=[redacted:assignment] x"},
      {"{'password': b'hunter2', 'n': 1}", "{'password': [redacted:assignment], 'n': 1}"},
      {"TOKEN=$'s3cret word' x", "TOKEN=[redacted:assignment] x"},
      {"api_key=f\"a b\", x", "api_key=[redacted:assignment], x"},
      {"PW_TOKEN=abc\"d e\"'f g' x", "PW_TOKEN=[redacted:assignment] x"},
      {"password='it'\\''s' x", "password='[redacted:assignment] x"},
      {"password='it'\"'\"'s' x", "password='[redacted:assignment] x"},
      {"password=b\\\"hunter 2\\\", x", "password=[redacted:assignment], x"},
      {"password=b'never ends", "password=[redacted:assignment]"},
      {"Authorization: Digest username=\"me\", response=\"66\"\nHost: x",
       "Authorization: [redacted:assignment]\nHost: x"},
      {"Cookie: a=\"b\"; c=d", "Cookie: [redacted:assignment]"},
      {"password='it'\\'' s' x", "password='[redacted:assignment] x"},
      {"password = \"\"\"hunter two\"\"\" x", "password = \"[redacted:assignment] x"},
      {"password = \"\"\"a \"big\" secret\"\"\" x", "password = \"[redacted:assignment] x"},
      {"TOKEN=''s3cr3t x", "TOKEN='[redacted:assignment] x"},
      {"TOKEN=\"$P\"s3cr3tvalue x", "TOKEN=\"[redacted:assignment] x"},
      {"PASSWORD='abc'hunter2! x", "PASSWORD='[redacted:assignment] x"},
      {"TOKEN=\"$P\"abc\" d\" x", "TOKEN=\"[redacted:assignment] x"},
      {"password: it'shunter2 x", "password: [redacted:assignment] x"},
      {"PGPASSWORD='o'\"'\"', hunter2' psql", "PGPASSWORD='[redacted:assignment] psql"},
      {"X_TOKEN='it'\"'\"' s3cr3t' x", "X_TOKEN='[redacted:assignment] x"},
      {"sh -c \"PASSWORD='o'\\\"'\\\"', hunter2' psql\"", "sh -c \"PASSWORD='[redacted:assignment] psql\""},
      {"don't docker run -e 'DB_PASSWORD=abc' -e 'FOO=bar' image",
       "don't docker run -e 'DB_PASSWORD=[redacted:assignment]' -e 'FOO=bar' image"},
      {"docker run -e 'DB_PASSWORD=a b' img", "docker run -e 'DB_PASSWORD=[redacted:assignment]' img"},
      {"sh -c \"env \\\"X_TOKEN=a b\\\" x\"", "sh -c \"env \\\"X_TOKEN=[redacted:assignment]\\\" x\""},
      {"PASSWORD=correct\\ horse\\ battery x", "PASSWORD=[redacted:assignment] x"},
      {"PASSWORD=ab\\;cd; ls", "PASSWORD=[redacted:assignment]; ls"},
      {"echo 'foo'bar TOKEN=abc' s3cr3t'", "echo 'foo'bar TOKEN=[redacted:assignment]"},
      {"X_TOKEN='abc'\" s3cr3t\" x", "X_TOKEN='[redacted:assignment] x"},
      {"say \"a\"; X_TOKEN=abc\" s3cr3t\" x", "say \"a\"; X_TOKEN=[redacted:assignment] x"},
      {"don't X_TOKEN='it'\"'\"' s3cr3t' x", "don't X_TOKEN='[redacted:assignment] x"},
      // A quote that ends a text around it is no part of it, and what follows is looked at.
      {"{\"cmd\":\"run --token=abc\",\"n\":1}", "{\"cmd\":\"run --token=[redacted:assignment]\",\"n\":1}"},
      {"\"--token=abc\": no such file", "\"--token=[redacted:assignment]\": no such file"},
      {"\"--token=abc\"|x --password \"d e\" f", "\"--token=[redacted:assignment]\" f"},
      {"token: couldn't parse it", "token: [redacted:assignment] parse it"},
      {"mysql -e \"SET PASSWORD='x'\" && rm -rf /srv/data && echo done",
       "mysql -e \"SET PASSWORD='[redacted:assignment]'\" && rm -rf /srv/data && echo done"},
      {"sh -c \"X_TOKEN='a'\" && rm x", "sh -c \"X_TOKEN='[redacted:assignment]'\" && rm x"},
      {"{\"cmd\":\"sh -c \\\"X_TOKEN='a'\\\" && rm x\"}",
       "{\"cmd\":\"sh -c \\\"X_TOKEN='[redacted:assignment]'\\\" && rm x\"}"},
      {"{\"env\":[\"TOKEN='a'\",\"PATH=/bin\"],\"image\":\"alpine\"}",
       "{\"env\":[\"TOKEN='[redacted:assignment]'\",\"PATH=/bin\"],\"image\":\"alpine\"}"},
      {"{\"cmd\":\"TOKEN='a'b\",\"n\":1}", "{\"cmd\":\"TOKEN='[redacted:assignment]\",\"n\":1}"},
      {"cannot run \"curl --token='abc'\": No such file or directory",
       "cannot run \"curl --token='[redacted:assignment]'\": No such file or directory"},
      {"--token='abc': no such host", "--token='[redacted:assignment]': no such host"},
      {"<input password=\"x\"/>", "<input password=\"[redacted:assignment]\"/>"},
  };
  for (const Case& one : cases) EXPECT_EQ(redact(one.text), one.clean);
}

TEST(Redact, KeepsOrdinaryText) {
  for (const char* text : {"",
                           "plain text",
                           "task-1234567890123456789",
                           "disk-full-1234567890123456",
                           "max_tokens=4096",
                           "PWD=/home/me",
                           "OLDPWD=/home/me",
                           "e2b_sandbox_2024",
                           "e2b_0123456789abcdef",
                           "iabcdefghijklmnop2345",
                           "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrstu",
                           "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST",
                           "password+",
                           "token_count: 512",
                           "bearer authentication required",
                           "Basic authentication required",
                           "password:",
                           "password=",
                           "token: no",
                           "invalid token: can't parse it",
                           "password =>",
                           "password==",
                           "{\"password\":\"\",\"n\":1}",
                           "<input password=\"\"/>",
                           "sh -c 'X_TOKEN=\"\"' && true",
                           "if token == \"\": fail()",
                           "[\"run\", \"--token\"] exited",
                           "invalid token: can't parse 'x'",
                           "\"invalid token: wrong\": no",
                           "isg-abcdefghijklmnopqrstuvwxyz",
                           "AKIA",
                           "AKIAIOSFODNN7EXAMPLETOOLONG",
                           "https://host/a@b",
                           "a://b c@d",
                           "user@host",
                           "eyJhbGciOiJIUzI1NiJ9",
                           "sk-learn-is-a-package-of-python",
                           "ghp_short1",
                           "-----BEGIN",
                           "://",
                           "e3b0c44298fc1c14",
                           "keys[0].sha256",
                           "secret",
                           "the password was wrong",
                           "--token",
                           "------------------"})
    EXPECT_EQ(redact(text), text);
}

TEST(Redact, FindsRegisteredSecretsInEveryForm) {
  EXPECT_FALSE(register_secret("short"));
  std::string secret = "tr0ub4dor & three?";
  ASSERT_TRUE(register_secret(secret));
  EXPECT_EQ(redact("a " + secret + " b"), "a [redacted:registered] b");
  EXPECT_EQ(redact("q=tr0ub4dor%20%26%20three%3F"), "q=[redacted:registered]");
  EXPECT_EQ(redact("q=tr0ub4dor%20%26%20three%3f"), "q=[redacted:registered]");
  // base64 of it, also after one and two bytes
  for (const char* encoded :
       {"dHIwdWI0ZG9yICYgdGhyZWU/", "eHRyMHViNGRvciAmIHRocmVlPw==", "eHh0cjB1YjRkb3IgJiB0aHJlZT8="}) {
    std::string clean = redact(std::string("b64 ") + encoded);
    EXPECT_NE(clean.find("[redacted:registered]"), std::string::npos) << clean;
    EXPECT_EQ(clean.find("dWI0ZG9y"), std::string::npos) << clean;
  }
}

TEST(Redact, CoversASecretThatALargerMatchOnlyTouches) {
  ASSERT_TRUE(register_secret("hunter2 and more"));
  EXPECT_EQ(redact("password=hunter2 and more, end"), "password=[redacted:registered], end");
}

TEST(Redact, IsLinearInHostileText) {
  // Each would take far longer if redaction were quadratic: a pattern may begin at every position.
  for (std::string part : {"sk-",
                           "eyJ.",
                           "eyJ",
                           "://",
                           "password ",
                           "password=\"",
                           "token\\\"",
                           "bearer ",
                           "-----BEGIN ",
                           "a_",
                           "a-",
                           "Authorization: ",
                           "-----BEGIN PRIVATE KEY-----x",
                           "AKIA",
                           "--token ",
                           "://a",
                           "token=a\"b",
                           "token=b'",
                           "token=a\\\"b",
                           "token='x''",
                           "token=''",
                           "token=''x\"",
                           "token: a'b\"",
                           "token:a'",
                           "token='a'\\\"b",
                           "token='x'\" ",
                           "token='x'\"'\"",
                           "token=a' ",
                           "x['token']='",
                           "'\\''token='",
                           "Cookie: a\"b",
                           "_token==",
                           "token+=",
                           "e2b_",
                           "iabcdefghijklmnopqrstx",
                           "_"}) {
    std::string text;
    while (text.size() < (256 << 10)) text += part;
    auto start = std::chrono::steady_clock::now();
    redact(text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << part;
  }
}

TEST(Redact, KnowsNamesOfSecrets) {
  for (const char* name :
       {"password", "X-Api-Key", "DB_PASSWORD", "accessToken", "client-secret", "Authorization", "privateKey",
        "DB_PASS", "MYSQL_PWD", "ENCRYPTION_KEY", "PASS", "PASSWORD1", "token-2", "API_KEY_12"})
    EXPECT_TRUE(is_secret_name(name)) << name;
  for (const char* name : {"", "key", "name", "tokens", "path", "PWD", "OLDPWD", "compass", "sha256", "pass",
                           "42", "_1", "tokens2"})
    EXPECT_FALSE(is_secret_name(name)) << name;
}

}  // namespace
}  // namespace isogate
