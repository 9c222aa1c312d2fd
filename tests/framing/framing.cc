#include "tests/framing/framing.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>

namespace isogate::test {

std::unique_ptr<Gateway> Framing::gateway_;

void Framing::SetUpTestSuite() {
  if (is_root() && !root_gateway_obstacle().empty()) return;
  gateway_ = std::make_unique<Gateway>(
      "allow_unisolated: true\nbackends: [{name: local}]\n"
      "limits: {header_timeout_sec: 30, body_idle_timeout_sec: 30}\n");
}

void Framing::TearDownTestSuite() { gateway_.reset(); }

void Framing::SetUp() {
  if (!gateway_) GTEST_SKIP() << root_gateway_obstacle();
}

std::string Framing::agent() {
  std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  for (char& c : name)
    if (c == '/') c = '-';
  return name.substr(0, 60);
}

Json e2b_box(const Gateway& gateway) {
  const Headers headers = {{"X-API-Key", tenant_key('a')}, {"Content-Type", "application/json"}};
  return Json::parse(http_call(gateway.e2b_url(), "POST", "/sandboxes", headers, "{}").body);
}

Headers e2b_headers(const Json& box, const std::string& type) {
  return {{"E2b-Sandbox-Id", box.at("sandboxID")},
          {"X-Access-Token", box.at("envdAccessToken")},
          {"Content-Type", type}};
}

Answer e2b_processes(const Gateway& gateway, const Json& box) {
  const Headers headers = e2b_headers(box, "application/json");
  return answer_of(http_call(gateway.e2b_url(), "POST", "/process.Process/List", headers, "{}"));
}

std::unique_ptr<HttpConnection> e2b_start(const Gateway& gateway, const Json& box, const Json& start,
                                          const Headers& more) {
  const std::string text = start.dump();
  std::string message(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) message += static_cast<char>(text.size() >> shift & 0xFF);
  Headers headers = e2b_headers(box, "application/connect+json");
  headers.emplace_back("Content-Length", std::to_string(message.size() + text.size()));
  headers.insert(headers.end(), more.begin(), more.end());
  auto stream = std::make_unique<HttpConnection>(gateway.e2b_url(), 20);
  stream->send_request_head("POST", "/process.Process/Start", headers);
  stream->send(message + text);
  EXPECT_EQ(stream->read_head("POST").status, 200);
  return stream;
}

std::string filled(std::string bytes, const Gateway& gateway, const std::string& agent) {
  for (const auto& [word, with] :
       {std::pair<std::string, std::string>{"KEY", gateway.key()}, {"AGENT", agent}})
    for (size_t at = 0; (at = bytes.find(word, at)) != std::string::npos; at += with.size())
      bytes.replace(at, word.size(), with);
  return bytes;
}

std::string marker_request(const Gateway& gateway, const std::string& agent) {
  return filled(
      "PUT /workspace/files/AGENT/smuggled HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer KEY\r\n"
      "Content-Length: 1\r\n\r\nx",
      gateway, agent);
}

int Said::answers() const {
  int count = 0;
  for (size_t at = 0; (at = bytes.find("\r\nX-Request-Id: ", at)) != std::string::npos; ++at) ++count;
  return count;
}

int Said::status() const {
  return bytes.rfind("HTTP/1.1 ", 0) == 0 && bytes.size() > 12 ? std::stoi(bytes.substr(9, 3)) : 0;
}

Said say(const std::string& url, const std::string& bytes, bool then_close, double seconds) {
  HttpConnection connection(url, seconds);
  try {
    connection.send(bytes);
  } catch (const std::runtime_error&) {  // the gateway closed while the test was still sending
  }
  if (then_close) connection.finish_sending();
  Said said;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
    pollfd waiting{connection.fd(), POLLIN, 0};
    if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left * 1000)) != 1) return said;
    char part[65536];
    const ssize_t n = ::recv(connection.fd(), part, sizeof part, 0);
    if (n <= 0) break;
    said.bytes.append(part, static_cast<size_t>(n));
  }
  said.closed = true;
  return said;
}

}  // namespace isogate::test
