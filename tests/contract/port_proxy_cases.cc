#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "tests/contract/contract.h"
#include "tests/support/http.h"

// Plain HTTP to ports of a sandbox by the name of the host: what reaches the program, and what never does.
namespace isogate::test {
namespace {

constexpr const char* kDomain = "ports: {domain: sbx.test}\n";
constexpr const char* kHost = "8080-web.sbx.test";

// A gateway with two tenants, and a server in the sandbox `web` of alpha.
struct PortSite {
  explicit PortSite(World& w, const std::string& more = {})
      : gateway(w.another(two_keys() + kDomain + more)), alpha(gateway->url(), key_of('A'), "web") {
    start_port_server(alpha, "http");
  }
  // With alpha's key, unless `headers` have another.
  [[nodiscard]] Answer ask(const std::string& method, const std::string& target, Headers headers = {},
                           const std::string& body = {}, const std::string& host = kHost) const {
    headers.emplace_back("Host", host);
    bool has_key = false;
    for (const auto& [name, value] : headers)
      has_key = has_key || name == "Authorization" || name == "X-Isogate-Key";
    if (!has_key) headers.emplace_back("Authorization", "Bearer " + key_of('A'));
    return answer_of(http_call(gateway->url(), method, target, headers, body));
  }
  // Raw bytes, and all that comes back.
  [[nodiscard]] std::string raw(const std::string& bytes) const {
    HttpConnection connection(gateway->url());
    connection.send(bytes);
    return connection.read_until_closed();
  }
  // The answer's head.
  static HttpResponse upgrade(HttpConnection& connection, const std::string& protocol,
                              const std::string& host) {
    connection.send_request_head("GET", "/",
                                 {{"Host", host},
                                  {"Authorization", "Bearer " + key_of('A')},
                                  {"Connection", "Upgrade"},
                                  {"Upgrade", protocol}});
    return connection.read_head();
  }

  std::unique_ptr<Gateway> gateway;
  Caller alpha;
};

// Whatever comes, a reset is its end.
bool ends_with_a_reset(const HttpConnection& connection) {
  pollfd watch{connection.fd(), POLLIN, 0};
  char bytes[64];
  ssize_t n = 1;
  while (n > 0 && ::poll(&watch, 1, 60'000) == 1) n = ::recv(connection.fd(), bytes, sizeof bytes, 0);
  return n == -1 && errno == ECONNRESET;
}

bool text_has(const Answer& answer, const std::string& text) {
  return answer.text.find(text) != std::string::npos;
}

void a_request_by_host_reaches_the_port_without_our_headers(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  const Answer got = site.ask("GET", "/a%20b?c=d&c=e",
                              {{"X-Mine", "1"},
                               {"X-Agent-Id", "web"},
                               {"Connection", "keep-alive, X-Hop"},
                               {"X-Hop", "secret"},
                               {"TE", "trailers"},
                               {"Proxy-Authorization", "Basic eDp5"}});
  ASSERT_EQ(got.status, 200) << got.text;
  EXPECT_EQ(got.header("X-Own"), "yes");
  for (const auto& [name, value] : got.headers) EXPECT_NE(value, "theirs") << name << " is the gateway's own";
  EXPECT_EQ(got.header("Content-Type"), "text/plain");
  EXPECT_TRUE(got.header("Content-Security-Policy").empty()) << "it is the program's own page";
  EXPECT_TRUE(text_has(got, "GET /a%20b?c=d&c=e HTTP/1.1\r\n")) << got.text;
  EXPECT_TRUE(text_has(got, std::string("Host: ") + kHost)) << got.text;
  EXPECT_TRUE(text_has(got, "X-Mine: 1")) << got.text;
  for (const char* never : {"Authorization", "Bearer", "X-Agent-Id", "X-Hop", "TE:", "Proxy-", "keep-alive"})
    EXPECT_FALSE(text_has(got, never)) << never << "\n" << got.text;
  const Answer apart =
      site.ask("GET", "/", {{"X-Isogate-Key", key_of('A')}, {"Authorization", "Basic cHJvZ3JhbQ=="}});
  ASSERT_EQ(apart.status, 200) << apart.text;
  EXPECT_TRUE(text_has(apart, "Authorization: Basic cHJvZ3JhbQ==")) << "the program's own passes";
  EXPECT_FALSE(text_has(apart, "X-Isogate-Key"));
  EXPECT_FALSE(text_has(apart, key_of('A')));
}

void bodies_reach_the_port_whole(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  const std::string body = noise(200 << 10, 5);  // what fits in between: this client reads when it has sent
  const Answer sized = site.ask("POST", "/", {}, body);
  ASSERT_EQ(sized.status, 200);
  EXPECT_TRUE(sized.text.ends_with("\r\n\r\n" + body));
  HttpConnection connection(site.gateway->url());
  connection.send_request_head(
      "POST", "/",
      {{"Host", kHost}, {"Authorization", "Bearer " + key_of('A')}, {"Transfer-Encoding", "chunked"}});
  connection.send("5;x=y\r\nhello\r\n");
  connection.send("6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n");
  const HttpResponse chunked = connection.read_response("POST");
  ASSERT_EQ(chunked.status, 200);
  EXPECT_NE(chunked.body.find("hello"), std::string::npos);
  EXPECT_NE(chunked.body.find(" world"), std::string::npos);
  EXPECT_EQ(chunked.body.find("x=y"), std::string::npos) << "its chunks are composed again";
  EXPECT_TRUE(chunked.body.ends_with("0\r\n\r\n")) << chunked.body;
  EXPECT_EQ(chunked.body.find("X-Trailer"), std::string::npos);
  const Answer head = site.ask("HEAD", "/");
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.text.empty());
}

void a_switch_of_protocols_goes_through(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  HttpConnection connection(site.gateway->url());
  const HttpResponse head = site.upgrade(connection, "echo", kHost);
  ASSERT_EQ(head.status, 101);
  EXPECT_EQ(head.header("Upgrade"), "echo");
  connection.send("through and back");
  connection.finish_sending();
  EXPECT_EQ(connection.read_until_closed(), "through and back");
}

void what_is_sent_after_the_other_end_reaches_the_port(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  const std::string output = start_port_server(site.alpha, "last", 8082);
  HttpConnection connection(site.gateway->url());
  ASSERT_EQ(site.upgrade(connection, "raw", "8082-web.sbx.test").status, 101);
  EXPECT_EQ(connection.read_until_closed(), "done");
  connection.send(noise(500'000, 5));
  connection.close();
  EXPECT_TRUE(eventually(60, [&] {
    return site.alpha.get(output).text.find("500000\\n") != std::string::npos;
  })) << site.alpha.get(output).text;
}

// Its protocol may have no framing of its own: an end must not look like that of whole output.
void a_switched_connection_that_breaks_off_is_reset(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  start_port_server(site.alpha, "half", 8082);
  HttpConnection broken(site.gateway->url());
  ASSERT_EQ(site.upgrade(broken, "raw", "8082-web.sbx.test").status, 101);
  broken.send("x");
  EXPECT_TRUE(ends_with_a_reset(broken));
  HttpConnection ended(site.gateway->url());
  ASSERT_EQ(site.upgrade(ended, "raw", "8082-web.sbx.test").status, 101);
  ASSERT_TRUE(succeeded(site.alpha.call("DELETE", "/sandboxes/web")));
  EXPECT_TRUE(ends_with_a_reset(ended));
}

// Both directions of one may last, as may the wait for its answer.
void a_removed_key_reaches_no_port_any_more(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const std::string named = "instance: removed-" + new_mark() + "\n";
  const PortSite site(w, named);
  start_port_server(site.alpha, "hold", 8082);
  HttpConnection passing(site.gateway->url(), 60), waiting(site.gateway->url(), 60);
  passing.send_request_head(
      "POST", "/",
      {{"Host", kHost}, {"Authorization", "Bearer " + key_of('A')}, {"Transfer-Encoding", "chunked"}});
  passing.send("5\r\nhello\r\n");
  ASSERT_EQ(passing.read_head("POST").status, 200);
  waiting.send_request_head("GET", "/",
                            {{"Host", "8082-web.sbx.test"},
                             {"Authorization", "Bearer " + key_of('A')},
                             {"Connection", "Upgrade"},
                             {"Upgrade", "echo"}});
  const std::string beta = "keys:\n  - {name: beta, tenant: beta, sha256: " + sha256_hex(key_of('B')) + "}\n";
  site.gateway->reload(options_for(w.backend, w.starter, beta + kDomain + named).yaml);
  EXPECT_TRUE(ends_with_a_reset(passing));
  EXPECT_EQ(waiting.read_response().status, 401);
}

void a_strangers_host_name_is_not_there(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  EXPECT_TRUE(
      refused(site.ask("GET", "/", {{"Authorization", "Bearer " + key_of('B')}}), 404, "sandbox_not_found"));
  EXPECT_TRUE(refused(site.ask("GET", "/", {{"X-Isogate-Key", key_of('B')}}), 404, "sandbox_not_found"));
  EXPECT_TRUE(refused(site.ask("GET", "/", {{"X-Isogate-Key", "isg_wrong"}}), 401, "unauthenticated"));
  EXPECT_TRUE(refused(site.ask("GET", "/", {{"Authorization", "Basic eDp5"}}), 401, "unauthenticated"));
  for (const char* host : {"web.sbx.test", "0-web.sbx.test", "70000-web.sbx.test", "8080-.sbx.test",
                           "08080-web.sbx.test", "8080-a.b.sbx.test", "-web.sbx.test", "8080.sbx.test"})
    EXPECT_TRUE(refused(site.ask("GET", "/", {}, {}, host), 400, "invalid_request")) << host;
  EXPECT_TRUE(refused(site.ask("GET", "/", {}, {}, "8081-web.sbx.test"), 502, "port_closed"));
  EXPECT_EQ(site.ask("GET", "/", {}, {}, "8080-web.SBX.test:9090").status, 200);
  EXPECT_EQ(site.ask("GET", "/sandboxes", {}, {}, "sbx.test").status, 200)
      << "the domain itself is the gateway";
}

// A request that two readers could understand differently reaches no program.
void a_smuggled_request_is_refused(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  const std::string begin =
      "POST / HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\nAuthorization: Bearer " + key_of('A') + "\r\n";
  const std::string inner = "GET /inner HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const std::string& doubt :
       {std::string("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        std::string("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
        std::string("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        std::string("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), std::string("X-A: b\r\n c: d\r\n\r\n"),
        std::string("X-A: b\n\r\n"), std::string("Host: other\r\n\r\n"),
        std::string("X-Isogate-Key: a\r\nX-Isogate-Key: b\r\n\r\n")}) {
    const std::string answer = site.raw(begin + doubt + inner);
    EXPECT_EQ(answer.compare(0, 12, "HTTP/1.1 400"), 0) << doubt << answer;
    EXPECT_EQ(answer.find("/inner"), std::string::npos) << doubt;
  }
  const std::string chunk = site.raw(begin + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + inner);
  EXPECT_EQ(chunk.find("/inner"), std::string::npos) << chunk;
  // Two requests in one connection are two connections to the port.
  const std::string get = "GET /one HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\nAuthorization: Bearer " +
                          key_of('A') + "\r\n\r\n";
  const std::string both = site.raw(get + "GET /two HTTP/1.1\r\nHost: sbx.test\r\nConnection: close\r\n\r\n");
  EXPECT_NE(both.find("GET /one"), std::string::npos);
  EXPECT_EQ(both.find("GET /two"), std::string::npos);
}

void an_answer_in_doubt_is_not_passed_on(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const PortSite site(w);
  start_port_server(site.alpha, "echo", 8082);  // its answer is the request
  EXPECT_TRUE(refused(site.ask("GET", "/", {}, {}, "8082-web.sbx.test"), 502, "port_closed"));
  start_port_server(site.alpha, "flood", 8083);
  EXPECT_TRUE(refused(site.ask("GET", "/", {}, {}, "8083-web.sbx.test"), 502, "port_closed"));
}

// A browser sends no key, and pages of other origins must not benefit from a gateway that requires none.
void without_a_key_host_names_are_not_served(World& w) {
  SKIP_WITHOUT_PORTS(w);
  const auto own = w.another(std::string("anonymous: loopback\n") + kDomain);
  const Caller me(*own, "web");
  me.run("true");
  const auto ask = [&](Headers headers) {
    headers.emplace_back("Host", kHost);
    return answer_of(http_call(own->url(), "GET", "/", headers));
  };
  EXPECT_TRUE(refused(ask({}), 421, "misdirected_request"));
  EXPECT_TRUE(refused(ask({{"Origin", "http://evil.test"}}), 421, "misdirected_request"));
}

constexpr Case kPortProxyCases[] = {
    {"a_request_by_host_reaches_the_port_without_our_headers", 8,
     a_request_by_host_reaches_the_port_without_our_headers},
    {"bodies_reach_the_port_whole", 4, bodies_reach_the_port_whole},
    {"a_switch_of_protocols_goes_through", 0, a_switch_of_protocols_goes_through},
    {"what_is_sent_after_the_other_end_reaches_the_port", 0,
     what_is_sent_after_the_other_end_reaches_the_port},
    {"a_switched_connection_that_breaks_off_is_reset", 9, a_switched_connection_that_breaks_off_is_reset},
    {"a_removed_key_reaches_no_port_any_more", 8, a_removed_key_reaches_no_port_any_more},
    {"a_strangers_host_name_is_not_there", 8, a_strangers_host_name_is_not_there},
    {"a_smuggled_request_is_refused", 8, a_smuggled_request_is_refused},
    {"an_answer_in_doubt_is_not_passed_on", 9, an_answer_in_doubt_is_not_passed_on},
    {"without_a_key_host_names_are_not_served", 8, without_a_key_host_names_are_not_served},
};

}  // namespace

std::span<const Case> port_proxy_cases() { return kPortProxyCases; }

}  // namespace isogate::test
