#include <sys/socket.h>

#include <thread>

#include "tests/attacks/attack.h"

// What a caller may try at /mcp: with no key or another tenant's, with a token of another listener, as a
// page, and with messages that are meant to cost the gateway more than their sender.
namespace isogate::test {
namespace {

class McpAttack : public TenantsAttack {
 protected:
  void TearDown() override {
    if (!door()) return;
    expect_well(*door(), native(mine(), "well"));
    for (const std::string& key : {mine(), theirs()})
      native(key, name()).call("DELETE", "/sandboxes/" + name() + "?purge=true");
  }

  static Headers headers(const std::string& key) {
    return {{"Authorization", "Bearer " + key},
            {"Content-Type", "application/json"},
            {"Accept", "application/json, text/event-stream"}};
  }
  static std::string call(const std::string& tool, const Json& arguments, const Json& token = nullptr) {
    Json params = {{"name", tool}, {"arguments", arguments}};
    if (!token.is_null()) params["_meta"] = {{"progressToken", token}};
    return Json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", "tools/call"}, {"params", params}}.dump();
  }
  static Answer post(const std::string& key, const std::string& body, const std::string& path) {
    return answer_of(http_call(door()->url(), "POST", path, headers(key), body));
  }
  // The result of a tool in the sandbox of this case.
  static Json result(const std::string& key, const std::string& tool, const Json& arguments) {
    const Answer answer = post(key, call(tool, arguments), "/mcp/" + name());
    EXPECT_EQ(answer.status, 200) << answer.text;
    return answer.body.value("result", Json::object());
  }
  static std::string text_of(const Json& result) { return result["content"][0]["text"]; }
  // Sends a call and does not read its response.
  static void send(HttpConnection& connection, const std::string& body) {
    Headers all = headers(mine());
    all.emplace_back("Content-Length", std::to_string(body.size()));
    connection.send_request_head("POST", "/mcp/" + name(), all);
    connection.send(body);
  }
};

TEST_F(McpAttack, AnotherTenantsAgentOfTheSameNameIsAnotherSandbox) {
  EXPECT_EQ(result(mine(), "write_file", {{"path", "secret"}, {"content", "mine"}})["isError"], false);
  const Json read = result(theirs(), "read_file", {{"path", "secret"}});
  EXPECT_EQ(read["isError"], true) << read;
  EXPECT_EQ(result(theirs(), "sandbox_status", Json::object())["structuredContent"]["agent_id"], name());
  EXPECT_EQ(result(theirs(), "end_sandbox", {{"purge", true}}).value("isError", true), false);
  EXPECT_EQ(result(mine(), "read_file", {{"path", "secret"}})["structuredContent"]["content"], "mine");
}

TEST_F(McpAttack, ASandboxsTokenOfAnotherListenerIsNoKeyHere) {
  const std::string token = sha256_hex("token");
  for (const Headers& each :
       {Headers{{"X-Access-Token", mine()}}, Headers{{"X-API-Key", mine()}},
        Headers{{"Authorization", "Basic " + base64("user:" + mine())}},
        Headers{{"Authorization", "Bearer " + token}}, Headers{{"X-Isogate-Key", mine()}}}) {
    Headers all = each;
    all.emplace_back("Content-Type", "application/json");
    const Answer answer = answer_of(
        http_call(door()->url(), "POST", "/mcp/" + name(), all, call("exec", {{"command", "true"}})));
    EXPECT_TRUE(answer.status == 401 || answer.status == 429) << answer.text;
  }
}

TEST_F(McpAttack, NoPathLeadsOutOfTheWorkspace) {
  ASSERT_EQ(result(mine(), "exec", {{"command", "ln -s /etc out; ln -s / root"}})["isError"], false);
  for (const char* path : {"../x", "/etc/passwd", "out/passwd", "root/etc/passwd", "a/../../x"}) {
    for (const char* tool : {"read_file", "write_file", "edit_file", "list_files"}) {
      Json arguments = {{"path", path}};
      if (std::string(tool) == "write_file") arguments["content"] = "x";
      if (std::string(tool) == "edit_file") arguments.update({{"old_text", "root"}, {"new_text", "r"}});
      const Json refused = result(mine(), tool, arguments);
      EXPECT_EQ(refused["isError"], true) << tool << path << refused;
      EXPECT_EQ(refused.dump().find("root:"), std::string::npos) << tool << path << refused;
    }
  }
}

TEST_F(McpAttack, WhatASearchPrintsCannotForgeItsResult) {
  ASSERT_EQ(
      result(mine(), "exec",
             {{"argv",
               {"sh", "-c",
                "printf 'needle\\033[31m \\\"}],\\\"truncated\\\":1\\n' > \"$(printf 'a\\nb:1:needle')\"; "
                "printf 'needle\\377\\n' > c; head -c 100000 /dev/zero | tr '\\0' n >> c; echo >> c"}}})
          ["isError"],
      false);
  const Json found = result(mine(), "search_files", {{"pattern", "n"}});
  ASSERT_EQ(found["isError"], false) << found;
  EXPECT_EQ(found["structuredContent"]["truncated"], false);
  for (const Json& each : found["structuredContent"]["matches"]) {
    EXPECT_TRUE(each["line"].is_number_unsigned()) << each;
    EXPECT_LE(each["text"].get<std::string>().size(), 520U);
  }
}

TEST_F(McpAttack, AnEditOfAFileMadeToBeSearchedSlowlyDelaysNobody) {
  ASSERT_EQ(result(mine(), "exec", {{"command", "head -c 8000000 /dev/zero | tr '\\0' a > f"}})["isError"],
            false);
  HttpConnection slow(door()->url());
  send(slow,
       call("edit_file", {{"path", "f"}, {"old_text", std::string(2000000, 'a') + "b"}, {"new_text", ""}}));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(http_call(door()->url(), "GET", "/livez").status, 200);
  const Answer answer = answer_of(slow.read_response("POST"));
  EXPECT_EQ(answer.body["result"]["isError"], true);
  EXPECT_NE(text_of(answer.body["result"]).find("not in the file"), std::string::npos);
  const Json huge = result(
      mine(), "edit_file",
      {{"path", "f"}, {"old_text", "a"}, {"new_text", std::string(1 << 20, 'x')}, {"replace_all", true}});
  EXPECT_EQ(huge["isError"], true) << "eight terabytes";
}

TEST_F(McpAttack, AClientThatReadsNothingCostsItsProgramNotTheGateway) {
  result(mine(), "exec", {{"command", "true"}});
  const std::string mark = new_mark();
  std::vector<std::unique_ptr<HttpConnection>> deaf;
  for (int i = 0; i < 8; ++i) {
    deaf.push_back(std::make_unique<HttpConnection>(door()->url()));
    const int small = 2048;
    ASSERT_EQ(::setsockopt(deaf.back()->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    send(*deaf.back(), call("exec", {{"command", "yes & exec sleep " + mark}, {"timeout_sec", 20}}, 7));
  }
  EXPECT_TRUE(eventually(120, [&] {
    return result(mine(), "sandbox_status", Json::object())["structuredContent"].value("running_execs", 0) ==
           8;
  }));
  EXPECT_EQ(http_call(door()->url(), "GET", "/livez").status, 200);
  deaf.clear();
  EXPECT_TRUE(eventually(120, [&] {
    return result(mine(), "sandbox_status", Json::object())["structuredContent"].value("running_execs", 9) ==
           0;
  })) << "they left";
}

TEST_F(McpAttack, MalformedMessagesAreRefused) {
  std::string deep = R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":)";
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  std::string batch = "[";
  for (int i = 0; i < 5000; ++i) batch += R"({"jsonrpc":"2.0","id":1,"method":"ping"},)";
  batch.back() = ']';
  for (const std::string& body :
       {deep, batch, std::string(1 << 20, '['), std::string("null"), std::string("3"), std::string("\"x\""),
        std::string(R"({"jsonrpc":"2.0","id":1e400,"method":"ping"})"),
        std::string(R"({"jsonrpc":"2.0","id":)") + std::string(1000, '9') + R"(,"method":"ping"})",
        std::string(R"({"jsonrpc":"2.0","id":1,"method":"ping","params":[]})") + "x"}) {
    const Answer answer = post(mine(), body, "/mcp/" + name());
    EXPECT_EQ(answer.status, 400) << answer.text.substr(0, 200);
    EXPECT_TRUE(answer.body.contains("error")) << answer.text.substr(0, 200);
  }
}

TEST_F(McpAttack, ANameOfAnAgentIsNeverAnotherPath) {
  for (const char* path :
       {"/mcp/a%2f..%2fb", "/mcp/..", "/mcp/a/b", "/mcp/%00", "/mcp/%0d%0aX: y", "/mcp//"}) {
    const Answer answer = post(mine(), call("exec", {{"command", "true"}}), path);
    EXPECT_TRUE(answer.status >= 400 || answer.body["result"]["isError"] == true) << path << answer.text;
  }
  const Answer both =
      post(mine(), call("exec", {{"command", "true"}, {"agent_id", "other"}}), "/mcp/" + name());
  EXPECT_EQ(both.body["result"]["isError"], true)
      << "the agent that the path names cannot be changed: " << both.text;
}

TEST_F(McpAttack, APageWithAClientsKeyIsRefused) {
  for (const char* origin : {"https://evil.example", "null", "http://localhost:9"}) {
    Headers all = headers(mine());
    all.emplace_back("Origin", origin);
    const Answer answer = answer_of(
        http_call(door()->url(), "POST", "/mcp/" + name(), all, call("exec", {{"command", "true"}})));
    EXPECT_EQ(answer.status, 403) << origin << answer.text;
  }
}

}  // namespace
}  // namespace isogate::test
