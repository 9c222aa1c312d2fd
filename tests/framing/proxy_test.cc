// The same bytes through a real nginx in front: proxy and gateway see the same requests, or none. Every
// request that the gateway logs must be one that nginx logs, by the id in its response, with the same status.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <sstream>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

// How the proxy treats its input; the second is its most lenient mode.
struct Manner {
  const char* name;
  const char* directives;
};
constexpr Manner kManners[] = {
    {"as_installed", ""},
    {"lax_and_unbuffered",
     "ignore_invalid_headers off; underscores_in_headers on; proxy_request_buffering off; merge_slashes "
     "off;\n"},
};

// A port that nobody else gets while this exists: nginx may listen on it, too, since both reuse addresses.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    text = std::to_string(ntohs(address.sin_port));
  }
  std::string text;

 private:
  Fd socket_;
};

class Nginx {
 public:
  Nginx(const Gateway& gateway, const Manner& manner) {
    ::chmod(directory_.path().c_str(), 0755);
    const std::string config = directory_.file(
        "nginx.conf",
        "daemon off; master_process off; pid nginx.pid; error_log error.log;\n"
        "events { worker_connections 256; }\n"
        "http {\n  log_format ids '$upstream_http_x_request_id $upstream_status';\n"
        "  access_log access.log ids;\n  client_header_timeout 2; client_body_timeout 2;\n"
        "  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u;\n"
        "  scgi_temp_path s;\n  " +
            std::string(manner.directives) + "  upstream gateway { server " + gateway.url().substr(7) +
            "; keepalive 4; }\n  server {\n    listen 127.0.0.1:" + port_.text +
            ";\n    location / { proxy_pass http://gateway; proxy_http_version 1.1;\n"
            "      proxy_set_header Connection ''; proxy_next_upstream off; proxy_ignore_client_abort on; "
            "}\n  }\n}\n");
    program_ = std::make_unique<Program>(
        std::vector<std::string>{"nginx", "-p", directory_.path(), "-c", config, "-e", "error.log"},
        ProgramOptions{});
    if (!eventually(10, [&] { return answers(); }))
      throw std::runtime_error("nginx does not answer:\n" + read_whole(directory_.path() + "/error.log"));
  }

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + port_.text; }
  // id → status of what it passed on.
  [[nodiscard]] std::map<std::string, int> passed() const {
    std::map<std::string, int> found;
    std::istringstream lines(read_whole(directory_.path() + "/access.log"));
    for (std::string id, status; lines >> id >> status;)
      if (id != "-" && status != "-") found[id] = std::stoi(status);
    return found;
  }

 private:
  [[nodiscard]] bool answers() const {
    try {
      return http_call(url(), "GET", "/livez").status == 200;
    } catch (const std::runtime_error&) {
      return false;
    }
  }
  TemporaryDirectory directory_;
  ReservedPort port_;
  std::unique_ptr<Program> program_;
};

// id → status of every request the gateway saw through TCP.
std::map<std::string, int> seen_by(const Gateway& gateway) {
  std::map<std::string, int> found;
  std::istringstream lines(gateway.log());
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"event\":\"request\"") == std::string::npos) continue;
    const Json entry = Json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;  // half of the last one
    found[entry.at("request_id")] = entry.at("status");
  }
  return found;
}

// How many requests it answered in total before this question, which becomes one of `own`. The log does not
// have a line for each: it only counts those of a peer that has no key.
size_t answered_by(const Gateway& gateway, std::map<std::string, int>& own) {
  const Answer answer = Caller(gateway, "me").get("/metrics");
  own.emplace(answer.header("X-Request-Id"), answer.status);
  std::istringstream lines(answer.text);
  size_t count = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("isogate_requests_total{") && line.find("status=\"0\"") == std::string::npos)
      count += std::stoul(line.substr(line.rfind(' ') + 1));
  return count;
}

class BehindAProxy : public testing::TestWithParam<Manner> {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
    if (::access("/usr/sbin/nginx", X_OK) != 0) GTEST_SKIP() << "nginx is not installed";
  }
};

TEST_P(BehindAProxy, BothSeeTheSameRequests) {
  GatewayOptions options;
  options.yaml =
      "allow_unisolated: true\nbackends: [{name: local}]\n"
      "limits: {header_timeout_sec: 2, body_idle_timeout_sec: 2}\n";
  const Gateway gateway(options);
  // The requests during its start.
  const Caller me(gateway, "me");
  const std::string first = me.get("/sandboxes").header("X-Request-Id");
  std::map<std::string, int> own;
  ASSERT_TRUE(eventually(5, [&] { return (own = seen_by(gateway)).count(first) > 0; }));
  const size_t before = answered_by(gateway, own) + 1;
  const Nginx proxy(gateway, GetParam());
  std::vector<Row> rows(hostile_rows().begin(), hostile_rows().end());
  rows.insert(rows.end(), fine_rows().begin(), fine_rows().end());
  for (const Row& row : rows) {
    const std::string agent = "p-" + std::string(row.name).substr(0, 50);
    const Said said =
        say(proxy.url(), filled(row.bytes, gateway, agent) + marker_request(gateway, agent), true);
    EXPECT_TRUE(said.closed) << row.name;
    EXPECT_EQ(http_call(proxy.url(), "GET", "/livez").status, 200) << "out of step after " << row.name;
  }
  std::map<std::string, int> seen, passed;
  size_t asked = 0, answered = 0;
  EXPECT_TRUE(eventually(5,
                         [&] {
                           passed = proxy.passed();
                           answered = answered_by(gateway, own) - before - asked++;
                           return answered == passed.size();
                         }))
      << answered << " answered, " << passed.size() << " passed";
  const std::string last = me.get("/sandboxes").header("X-Request-Id");
  own.emplace(last, 200);
  EXPECT_TRUE(eventually(5, [&] { return (seen = seen_by(gateway)).count(last) > 0; }));
  EXPECT_GT(passed.size(), rows.size()) << "hardly any request passed";
  for (const auto& [id, status] : seen) {
    if (own.count(id) > 0 || status == 0) continue;  // 0: cut before the response
    ASSERT_EQ(passed.count(id), 1u) << "a request that nginx never made, answered " << status;
    EXPECT_EQ(passed[id], status);
  }
}

void PrintTo(const Manner& manner, std::ostream* out) { *out << manner.name; }

INSTANTIATE_TEST_SUITE_P(Nginx, BehindAProxy, testing::ValuesIn(kManners),
                         [](const testing::TestParamInfo<Manner>& row) {
                           return std::string(row.param.name);
                         });

}  // namespace
}  // namespace isogate::test
