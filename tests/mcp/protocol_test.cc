#include "tests/mcp/mcp.h"

// The protocol itself: the kinds of clients, what a message must have, and how refusals are reported.
namespace isogate::test {
namespace {

using McpProtocol = Mcp;

TEST_F(McpProtocol, ClientsOfBothKindsGetTheSameTools) {
  const Answer old = legacy(message("tools/list")), now = modern("tools/list");
  ASSERT_EQ(old.status, 200);
  ASSERT_EQ(now.status, 200);
  EXPECT_EQ(old.body["result"]["tools"], now.body["result"]["tools"]);
  std::set<std::string> names;
  for (const Json& each : now.body["result"]["tools"]) {
    names.insert(each["name"]);
    EXPECT_EQ(each["inputSchema"]["type"], "object");
    EXPECT_EQ(each["outputSchema"]["type"], "object");
    EXPECT_FALSE(each["description"].get<std::string>().empty());
  }
  EXPECT_EQ(names, (std::set<std::string>{"sandbox_status", "exec", "search_files", "read_file", "write_file",
                                          "edit_file", "list_files", "end_sandbox"}));
  EXPECT_EQ(now.body["result"]["tools"][0]["name"], "sandbox_status") << "clients try the first one";
  EXPECT_EQ(now.body["result"]["resultType"], "complete");
  EXPECT_GE(now.body["result"]["ttlMs"].get<int>(), 0);
  EXPECT_EQ(now.body["result"]["cacheScope"], "private");
  for (const char* member : {"resultType", "ttlMs", "cacheScope", "_meta"})
    EXPECT_FALSE(old.body["result"].contains(member)) << member;
}

TEST_F(McpProtocol, InitializeAgreesOnARevisionOf2025) {
  const std::pair<const char*, const char*> revisions[] = {{"2025-11-25", "2025-11-25"},
                                                           {"2025-06-18", "2025-06-18"},
                                                           {"2025-03-26", "2025-03-26"},
                                                           {"2024-11-05", "2025-11-25"},
                                                           {kModernMcp, "2025-11-25"}};
  for (const auto& [asked, expected] : revisions) {
    const Answer answer =
        legacy(message("initialize", {{"protocolVersion", asked}, {"capabilities", Json::object()}}));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body["result"]["protocolVersion"], expected) << asked;
    EXPECT_EQ(answer.body["result"]["serverInfo"]["name"], "isogate");
    EXPECT_EQ(answer.header("Mcp-Session-Id"), "");
  }
  const Answer none = legacy(message("initialize"));
  EXPECT_EQ(none.status, 200) << "clients of 2025 read the reason of no other status";
  EXPECT_EQ(code_of(none), -32602);
  EXPECT_EQ(legacy(message("ping")).body["result"], Json::object());
}

TEST_F(McpProtocol, DiscoverSaysWhatIsServed) {
  const Answer answer = modern("server/discover");
  ASSERT_EQ(answer.status, 200) << answer.text;
  const Json& result = answer.body["result"];
  EXPECT_EQ(result["supportedVersions"][0], kModernMcp);
  EXPECT_TRUE(result["capabilities"].contains("tools"));
  EXPECT_TRUE(result["capabilities"]["extensions"].contains("io.modelcontextprotocol/tasks"));
  EXPECT_EQ(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "isogate");
  EXPECT_TRUE(gateway_->get("/sandboxes").body.find("agent_id") == std::string::npos)
      << "it creates no sandbox";
}

TEST_F(McpProtocol, AnIdComesBackAsItCame) {
  for (const Json& id : {Json(0), Json(7), Json("a\"b\n\u00fc"), Json(-3), Json("")}) {
    const Answer answer = legacy(message("ping", Json::object(), id));
    EXPECT_EQ(answer.body["id"], id);
    EXPECT_EQ(answer.body.size(), 3u) << "only jsonrpc, id and result: " << answer.text;
  }
  for (const Json& id : {Json(nullptr), Json(1.5), Json::array(), Json(true)}) {
    const Answer answer = legacy(message("ping", Json::object(), id));
    EXPECT_EQ(answer.status, 400) << id;
    EXPECT_EQ(code_of(answer), -32600);
  }
}

TEST_F(McpProtocol, NotificationsAndResponsesAreTakenInSilence) {
  const Json notified = {
      {"jsonrpc", "2.0"}, {"method", "notifications/cancelled"}, {"params", {{"requestId", 1}}}};
  const Json odd = {{"jsonrpc", "2.0"}, {"method", "x"}, {"params", Json::array()}};
  for (const Json& each : {notified, odd, Json{{"jsonrpc", "2.0"}, {"id", 4}, {"result", Json::object()}}}) {
    const Answer answer = legacy(each);
    EXPECT_EQ(answer.status, 202) << answer.text;
    EXPECT_EQ(answer.text, "");
  }
}

TEST_F(McpProtocol, AResponseIsRefusedIn2026WhichSendsNoRequests) {
  const Json posted = {{"jsonrpc", "2.0"}, {"id", 4}, {"result", Json::object()}};
  const Answer answer = post(modern_headers("tools/list"), posted.dump());
  EXPECT_EQ(answer.status, 400) << answer.text;
  EXPECT_EQ(code_of(answer), -32600);
  EXPECT_TRUE(answer.body.contains("id") && answer.body["id"].is_null()) << answer.text;
}

TEST_F(McpProtocol, WhatHoldsANulIsRefusedWithItsId) {
  const std::string nul("a\0b", 3);
  for (const Json& arguments : {Json{{"command", nul}}, Json{{"argv", {"true", nul}}}, Json{{nul, 1}}}) {
    Json params = tool("exec", arguments);
    const Answer old = legacy(message("tools/call", params, "x"));
    EXPECT_EQ(old.status, 200);
    params["_meta"] = meta();
    const Answer now = post(modern_headers("tools/call", "exec"), message("tools/call", params, "x").dump());
    EXPECT_EQ(now.status, 400);
    for (const Answer& answer : {old, now}) {
      EXPECT_EQ(answer.body.value("id", Json()), "x") << answer.text;
      EXPECT_EQ(code_of(answer), -32602) << answer.text;
    }
  }
}

TEST_F(McpProtocol, ASlashAtTheEndOfThePathChangesNothing) {
  for (const char* path : {"/mcp/", "/mcp/one/"})
    EXPECT_EQ(post(json_headers(), message("ping").dump(), path).status, 200) << path;
  const Answer status =
      post(json_headers(), message("tools/call", tool("sandbox_status", Json::object())).dump(), "/mcp/one/");
  EXPECT_EQ(status.body["result"]["structuredContent"]["agent_id"], "one") << status.text;
  EXPECT_EQ(http_call(gateway_->url(), "GET", "/mcp/", json_headers(), "").status, 405);
  EXPECT_EQ(post(json_headers(), message("ping").dump(), "/mcp//").status, 404);
}

TEST_F(McpProtocol, WhatIsNoMessageIsRefusedWithItsReason) {
  const std::pair<const char*, int> bodies[] = {
      {"{", -32700},
      {"\xff", -32700},
      {R"({"jsonrpc":"2.0","id":1,"id":2,"method":"ping"})", -32700},
      {R"({"id":1,"method":"ping"})", -32600},
      {R"({"jsonrpc":"1.0","id":1,"method":"ping"})", -32600},
      {R"({"jsonrpc":"2.0","id":1})", -32600},
      {R"({"jsonrpc":"2.0","id":1,"method":3})", -32600},
      {"[]", -32600},
      {"null", -32600},
      {"3", -32600},
      {"\"ping\"", -32600},
      {"true", -32600},
      {"[3]", 0},
      {R"([{"jsonrpc":"2.0","id":1,"method":"initialize"}])", -32600}};
  for (const auto& [body, code] : bodies) {
    const Answer answer = post(json_headers(), body);
    if (code == 0) {  // a batch whose only element is no message
      EXPECT_EQ(answer.body[0]["error"]["code"], -32600) << answer.text;
      continue;
    }
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(code_of(answer), code) << body << answer.text;
    EXPECT_TRUE(answer.body.contains("id"));
  }
  EXPECT_EQ(
      post({{"Authorization", "Bearer " + gateway_->key()}, {"Content-Type", "text/plain"}}, "{}").status,
      415);
  for (const char* method : {"GET", "DELETE", "PUT"}) {
    const Answer answer = answer_of(http_call(gateway_->url(), method, "/mcp", json_headers(), ""));
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.header("Allow"), "POST");
  }
}

TEST_F(McpProtocol, AnUnknownMethodIs200For2025And404For2026) {
  for (const char* method : {"resources/list", "prompts/list", "logging/setLevel", "no/such", "tasks/list"}) {
    const Answer old = legacy(message(method)), now = modern(method);
    EXPECT_EQ(old.status, 200) << method;
    EXPECT_EQ(now.status, 404) << method;
    EXPECT_EQ(code_of(old), -32601) << method;
    EXPECT_EQ(code_of(now), -32601) << method;
    EXPECT_EQ(now.body["id"], 1);
  }
  EXPECT_EQ(modern("initialize").status, 404);
  EXPECT_EQ(modern("ping").status, 404);
}

TEST_F(McpProtocol, TheMetadataOfAMessageOf2026MustBeCompleteAndMatchItsHeaders) {
  Json params = {{"_meta", meta()}};
  const std::string list = message("tools/list", params).dump();
  const auto refused_as = [&](const Headers& headers, const std::string& body) {
    const Answer answer = post(headers, body);
    EXPECT_EQ(answer.status, 400) << answer.text;
    EXPECT_EQ(answer.body["id"], 1);
    return code_of(answer);
  };
  EXPECT_EQ(post(modern_headers("tools/list"), list).status, 200);
  EXPECT_EQ(refused_as(modern_headers("tools/call"), list), -32020) << "another method";
  EXPECT_EQ(refused_as(json_headers({{"Mcp-Method", "tools/list"}}), list), -32020) << "no version";
  EXPECT_EQ(refused_as(json_headers({{"MCP-Protocol-Version", kModernMcp}}), list), -32020) << "no method";
  EXPECT_EQ(refused_as(modern_headers("tools/list"), message("tools/list").dump()), -32602) << "no _meta";
  params["_meta"].erase("io.modelcontextprotocol/clientCapabilities");
  EXPECT_EQ(refused_as(modern_headers("tools/list"), message("tools/list", params).dump()), -32602);
  params["_meta"] = meta();
  params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "v999.0.0";
  const std::string other = message("tools/list", params).dump();
  EXPECT_EQ(refused_as(modern_headers("tools/list"), other), -32020) << "the header has another version";
  const Answer unknown =
      post(json_headers({{"MCP-Protocol-Version", "v999.0.0"}, {"Mcp-Method", "tools/list"}}), other);
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(code_of(unknown), -32022);
  EXPECT_EQ(unknown.body["error"]["data"]["supported"][0], kModernMcp);
  EXPECT_EQ(unknown.body["error"]["data"]["requested"], "v999.0.0");
}

TEST_F(McpProtocol, TheNameOfAToolIsInItsHeaderToo) {
  const std::string body = [&] {
    Json params = tool("sandbox_status", Json::object());
    params["_meta"] = meta();
    return message("tools/call", params).dump();
  }();
  EXPECT_EQ(post(modern_headers("tools/call", "sandbox_status"), body).status, 200);
  EXPECT_EQ(post(modern_headers("tools/call", "=?base64?" + base64("sandbox_status") + "?="), body).status,
            200);
  for (const char* name : {"", "exec", "SANDBOX_STATUS", "=?base64?####?=", "=?base64?"}) {
    const Answer answer = post(modern_headers("tools/call", name), body);
    EXPECT_EQ(answer.status, 400) << name;
    EXPECT_EQ(code_of(answer), -32020) << name;
  }
}

TEST_F(McpProtocol, BatchesAreOnlyInOneRevision) {
  const Json batch = {message("ping", Json::object(), 1),
                      message("tools/call", tool("exec", {{"command", "echo one"}}), 2),
                      {{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}},
                      message("no/such", Json::object(), 3)};
  const Answer answer = legacy(batch);
  ASSERT_EQ(answer.status, 200) << answer.text;
  ASSERT_EQ(answer.body.size(), 3u) << answer.text;
  EXPECT_EQ(answer.body[0]["id"], 1);
  EXPECT_EQ(answer.body[1]["result"]["structuredContent"]["stdout"], "one\n");
  EXPECT_EQ(answer.body[2]["error"]["code"], -32601);
  EXPECT_EQ(legacy(batch, {{"MCP-Protocol-Version", "2025-03-26"}}).status, 200);
  EXPECT_EQ(legacy(Json::array({batch[0], 1})).status, 200) << "the others' answers are in it";
  EXPECT_EQ(legacy(Json::array({batch[2]})).status, 202);
  for (const char* version : {"2025-06-18", "2025-11-25", kModernMcp})
    EXPECT_EQ(legacy(batch, {{"MCP-Protocol-Version", version}}).status, 400) << version;
  Json many = Json::array();
  for (int i = 0; i < 33; ++i) many.push_back(message("ping", Json::object(), i));
  EXPECT_EQ(legacy(many).status, 400);
}

TEST_F(McpProtocol, WhatIsGivenBackIsShort) {
  EXPECT_EQ(legacy(message("ping", Json::object(), std::string(256, 'i'))).status, 200);
  EXPECT_EQ(code_of(legacy(message("ping", Json::object(), std::string(257, 'i')))), -32600);
  for (const Json& token :
       {Json(std::string(257, 't')), Json::array(), Json::object(), Json(true), Json(1.5)})
    EXPECT_EQ(code_of(legacy(message("ping", {{"_meta", {{"progressToken", token}}}}))), -32602) << token;
}

TEST_F(McpProtocol, OfTwoHeadersOfOneNameNoneIsTaken) {
  Json params = tool("sandbox_status", Json::object());
  params["_meta"] = meta();
  Headers headers = modern_headers("tools/call", "sandbox_status");
  headers.emplace_back("Mcp-Name", "exec");
  EXPECT_EQ(post(headers, message("tools/call", params).dump()).status, 400);
}

TEST_F(McpProtocol, AnUnknownRevisionInAHeaderIsRefused) {
  for (const char* version : {"2025-11-25", "2025-06-18", "2025-03-26"})
    EXPECT_EQ(legacy(message("ping"), {{"MCP-Protocol-Version", version}}).status, 200) << version;
  const Answer answer = legacy(message("ping"), {{"MCP-Protocol-Version", "2024-11-05"}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(code_of(answer), -32022);
}

TEST_F(McpProtocol, APageThatIsNotListedGetsNothingEvenWithAKey) {
  start("cors: {origins: ['https://console.example.org']}\n");
  EXPECT_EQ(legacy(message("ping"), {{"Origin", "https://console.example.org"}}).status, 200);
  for (const char* origin : {"https://evil.example", "null", "http://localhost:1", ""})
    EXPECT_EQ(legacy(message("ping"), {{"Origin", origin}}).status, 403) << origin;
}

TEST_F(McpProtocol, CallsOfToolsAreCountedAndLogged) {
  call("exec", {{"command", "true"}});
  call("exec", {{"command", "exit 3"}});
  call("read_file", {{"path", "no"}, {"agent_id", "one"}});
  modern("tools/call", tool("no_such_tool", Json::object()));
  modern("tools/call", tool("exec", {{"command", "until [ -e go ]; do sleep 0.05; done"}}), true);
  call("write_file", {{"path", "go"}, {"content", ""}});
  const std::string metrics = gateway_->get("/metrics").body;
  for (const char* line : {R"({outcome="ok",tool="exec"} 1)", R"({outcome="error",tool="exec"} 1)",
                           R"({outcome="task",tool="exec"} 1)", R"({outcome="error",tool="read_file"} 1)",
                           R"({outcome="refused",tool="none"} 1)"})
    EXPECT_NE(metrics.find("isogate_mcp_calls_total" + std::string(line)), std::string::npos)
        << line << metrics;
  EXPECT_EQ(metrics.find("no_such_tool"), std::string::npos) << "callers would choose the labels";
  const std::string log = gateway_->log();
  const size_t at = log.find(R"("tool":"read_file")");
  ASSERT_NE(at, std::string::npos) << log;
  const size_t begin = log.rfind('\n', at) + 1;
  const Json line = Json::parse(log.substr(begin, log.find('\n', at) - begin));
  EXPECT_EQ(line["event"], "mcp_call");
  EXPECT_EQ(line["outcome"], "error");
  EXPECT_EQ(line["agent_id"], "one");
  EXPECT_FALSE(line["request_id"].get<std::string>().empty());
}

TEST_F(McpProtocol, WithoutAKeyNothingIsAnswered) {
  const Headers headers = {{"Content-Type", "application/json"}};
  const Answer answer = post(headers, message("ping").dump());
  EXPECT_TRUE(refused(answer, 401, "unauthenticated"));
  EXPECT_EQ(answer.header("WWW-Authenticate").substr(0, 6), "Bearer");
  EXPECT_TRUE(refused(post(headers, message("tools/list").dump(), "/mcp/agent"), 401, "unauthenticated"));
}

}  // namespace
}  // namespace isogate::test
