// POST /mcp of a real gateway on `local`, called like a client of either kind of revision.
#pragma once

#include <set>
#include <utility>

#include "tests/support/api.h"
#include "tests/support/processes.h"

namespace isogate::test {

inline constexpr const char* kModernMcp = "2026-07-28";

class Mcp : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
    start("");
  }
  void start(const std::string& more) {
    gateway_.reset();
    gateway_ = std::make_unique<Gateway>("allow_unisolated: true\nbackends: [{name: local}]\n" + more);
    key_ = gateway_->key();
  }

  static Json meta(bool tasks = false) {
    Json capabilities = Json::object();
    if (tasks) capabilities["extensions"]["io.modelcontextprotocol/tasks"] = Json::object();
    return {{"io.modelcontextprotocol/protocolVersion", kModernMcp},
            {"io.modelcontextprotocol/clientCapabilities", capabilities}};
  }
  static Json message(const std::string& method, Json params = Json::object(), const Json& id = 1) {
    return {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}};
  }
  static Json tool(const std::string& name, Json arguments) {
    return {{"name", name}, {"arguments", std::move(arguments)}};
  }
  [[nodiscard]] Headers json_headers(Headers more = {}) const {
    Headers headers = {{"Authorization", "Bearer " + key_},
                       {"Content-Type", "application/json"},
                       {"Accept", "application/json, text/event-stream"}};
    headers.insert(headers.end(), more.begin(), more.end());
    return headers;
  }
  [[nodiscard]] Headers modern_headers(const std::string& method, const std::string& name = "") const {
    Headers headers = json_headers({{"MCP-Protocol-Version", kModernMcp}, {"Mcp-Method", method}});
    if (!name.empty()) headers.emplace_back("Mcp-Name", name);
    return headers;
  }
  Answer post(const Headers& headers, const std::string& body, const std::string& path = "/mcp") const {
    return answer_of(http_call(gateway_->url(), "POST", path, headers, body));
  }
  void send(HttpConnection& connection, const Json& body) const {
    const std::string text = body.dump();
    connection.send_request_head("POST", "/mcp",
                                 json_headers({{"Content-Length", std::to_string(text.size())}}));
    connection.send(text);
  }
  // As clients of 2025 do.
  Answer legacy(const Json& body, const Headers& more = {}) const {
    return post(json_headers(more), body.dump());
  }
  // As clients of 2026-07-28 do.
  Answer modern(const std::string& method, Json params = Json::object(), bool tasks = false) const {
    params["_meta"] = meta(tasks);
    const Json name = params.value("name", params.value("taskId", Json()));
    return post(modern_headers(method, name.is_string() ? name.get<std::string>() : ""),
                message(method, params).dump());
  }
  // The result of a tool in either way.
  Json call(const std::string& name, Json arguments, bool as_modern = true) const {
    Json params = tool(name, std::move(arguments));
    const Answer answer = as_modern ? modern("tools/call", params) : legacy(message("tools/call", params));
    EXPECT_EQ(answer.status, 200) << answer.text;
    return answer.body.value("result", Json());
  }
  static int code_of(const Answer& answer) {
    return answer.body.is_object() && answer.body.contains("error") ? answer.body["error"].value("code", 0)
                                                                    : 0;
  }

  std::unique_ptr<Gateway> gateway_;
  std::string key_;
};

// The messages of a text/event-stream.
inline std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> all;
  const std::string opening = "data: ";
  for (size_t at = 0; (at = stream.find(opening, at)) != std::string::npos;) {
    const size_t end = stream.find('\n', at);
    all.push_back(Json::parse(stream.substr(at + opening.size(), end - at - opening.size())));
    at = end;
  }
  return all;
}

}  // namespace isogate::test
