#include "tests/mcp/mcp.h"

// Execs that continue after their call, for clients that know tasks.
namespace isogate::test {
namespace {

class McpTasks : public Mcp {
 protected:
  Json begin(const std::string& command) const {
    const Answer answer = modern("tools/call", tool("exec", {{"command", command}}), true);
    EXPECT_EQ(answer.status, 200) << answer.text;
    return answer.body["result"];
  }
  Json get(const std::string& id) const { return modern("tasks/get", {{"taskId", id}}, true).body["result"]; }
};

TEST_F(McpTasks, AShortProgramIsAnsweredAtOnce) {
  Json result = begin("echo short");
  for (int i = 0; i < 4 && result["resultType"] != "complete"; ++i) result = begin("echo short");
  EXPECT_EQ(result["resultType"], "complete");
  EXPECT_EQ(result["structuredContent"]["stdout"], "short\n");
}

TEST_F(McpTasks, ALongOneGoesOnAsATaskAndItsResultIsAskedFor) {
  const Json task = begin("echo begun; until [ -e go ]; do sleep 0.05; done; echo done");
  EXPECT_EQ(task["resultType"], "task");
  EXPECT_EQ(task["status"], "working");
  EXPECT_FALSE(task.contains("content"));
  const std::string id = task["taskId"];
  EXPECT_EQ(get(id)["status"], "working");
  EXPECT_EQ(get(id)["resultType"], "complete");
  const Answer native = answer_of(gateway_->get("/execs/" + id));
  EXPECT_EQ(native.body["state"], "running") << "its id is the exec's: " << native.text;
  call("write_file", {{"path", "go"}, {"content", ""}});
  ASSERT_TRUE(eventually(30, [&] { return get(id)["status"] != "working"; }));
  const Json ended = get(id);
  EXPECT_EQ(ended["status"], "completed");
  EXPECT_EQ(ended["result"]["structuredContent"]["stdout"], "begun\ndone\n");
  EXPECT_EQ(ended["result"]["isError"], false);
  EXPECT_GE(ended["lastUpdatedAt"].get<std::string>(), ended["createdAt"].get<std::string>());
}

TEST_F(McpTasks, ACancelledOneEnds) {
  const std::string mark = new_mark();
  const std::string id = begin("sleep " + mark)["taskId"];
  EXPECT_TRUE(there_within(5, mark)) << "its client has left, and it continues";
  EXPECT_EQ(modern("tasks/cancel", {{"taskId", id}}, true).body["result"]["resultType"], "complete");
  EXPECT_TRUE(gone_within(30, mark));
  ASSERT_TRUE(eventually(30, [&] { return get(id)["status"] == "cancelled"; })) << get(id);
  EXPECT_EQ(modern("tasks/cancel", {{"taskId", id}}, true).status, 200) << "a second cancel does no harm";
}

TEST_F(McpTasks, ShortOnesForgetNoTask) {
  const std::string id = begin("until [ -e go ]; do sleep 0.05; done; echo late")["taskId"];
  call("write_file", {{"path", "go"}, {"content", ""}});
  ASSERT_TRUE(eventually(30, [&] { return get(id)["status"] == "completed"; }));
  for (int i = 0; i < 300; ++i) begin("true");
  EXPECT_EQ(get(id)["status"], "completed");
}

TEST_F(McpTasks, AConnectionOfAnotherAgentDoesNotSeeIt) {
  const std::string mark = new_mark();
  const std::string id = begin("sleep " + mark)["taskId"];
  const Json params = {{"taskId", id}, {"_meta", meta(true)}};
  for (const char* method : {"tasks/get", "tasks/cancel"})
    EXPECT_EQ(code_of(post(modern_headers(method, id), message(method, params).dump(), "/mcp/other")),
              -32602);
  EXPECT_EQ(post(modern_headers("tasks/get", id), message("tasks/get", params).dump(), "/mcp/default").status,
            200);
  EXPECT_TRUE(there_within(5, mark));
  modern("tasks/cancel", {{"taskId", id}}, true);
}

TEST_F(McpTasks, OnlyAClientThatKnowsTasksGetsOne) {
  const Answer answer = modern("tools/call", tool("exec", {{"command", "sleep 3; echo late"}}));
  EXPECT_EQ(events_of("data: " + answer.body.dump() + "\n")[0]["result"]["structuredContent"]["stdout"],
            "late\n");
  for (const char* method : {"tasks/get", "tasks/cancel", "tasks/update"}) {
    const Answer refusal = modern(method, {{"taskId", "x"}});
    EXPECT_EQ(refusal.status, 400);
    EXPECT_EQ(code_of(refusal), -32021);
    EXPECT_TRUE(refusal.body["error"]["data"]["requiredCapabilities"]["extensions"].contains(
        "io.modelcontextprotocol/tasks"));
    EXPECT_EQ(code_of(modern(method, {{"taskId", "x"}}, true)), -32602);
    EXPECT_EQ(code_of(modern(method, Json::object(), true)), -32602);
  }
  EXPECT_EQ(code_of(legacy(message("tasks/get", {{"taskId", "x"}}))), -32601);
}

TEST_F(McpTasks, AnotherTenantsTaskIsNotThere) {
  start("keys:\n  - {name: mine, tenant: mine, sha256: " + sha256_hex("mine-0123456789") +
        "}\n  - {name: theirs, tenant: theirs, sha256: " + sha256_hex("theirs-0123456789") + "}\n");
  key_ = "mine-0123456789";
  const std::string mark = new_mark();
  const std::string id = begin("sleep " + mark)["taskId"];
  key_ = "theirs-0123456789";
  for (const char* method : {"tasks/get", "tasks/cancel", "tasks/update"})
    EXPECT_EQ(code_of(modern(method, {{"taskId", id}}, true)), -32602) << method;
  EXPECT_TRUE(there_within(5, mark));
  key_ = "mine-0123456789";
  EXPECT_EQ(get(id)["status"], "working");
  modern("tasks/cancel", {{"taskId", id}}, true);
  EXPECT_TRUE(gone_within(30, mark));
}

}  // namespace
}  // namespace isogate::test
