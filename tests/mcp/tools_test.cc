#include <signal.h>

#include <thread>

#include "tests/mcp/mcp.h"

// What the tools do, and in whose sandbox.
namespace isogate::test {
namespace {

using McpTools = Mcp;

TEST_F(McpTools, AProgramRunsAndItsEndIsReported) {
  const Json good = call("exec", {{"command", "echo out; echo error >&2"}});
  EXPECT_EQ(good["isError"], false);
  EXPECT_EQ(good["structuredContent"]["stdout"], "out\n");
  EXPECT_EQ(good["structuredContent"]["stderr"], "error\n");
  EXPECT_EQ(good["structuredContent"]["exit_code"], 0);
  EXPECT_EQ(good["content"][0]["text"], "out\n[stderr]\nerror\n[exit code 0]");
  const Json bad = call("exec", {{"argv", {"sh", "-c", "exit 7"}}}, false);
  EXPECT_EQ(bad["isError"], true) << "a model must see it";
  EXPECT_EQ(bad["structuredContent"]["exit_code"], 7);
  EXPECT_FALSE(bad.contains("resultType"));
  const Json late = call("exec", {{"command", "sleep 100"}, {"timeout_sec", 0.2}});
  EXPECT_EQ(late["structuredContent"]["outcome"], "timed_out");
  EXPECT_EQ(late["isError"], true);
  const Json fed = call("exec", {{"command", "cat"}, {"stdin", "AP8="}, {"stdin_encoding", "base64"}});
  EXPECT_EQ(fed["structuredContent"]["stdout"], "AP8=");
  EXPECT_EQ(fed["structuredContent"]["stdout_encoding"], "base64");
  EXPECT_EQ(fed["content"][0]["text"], "[2 bytes, not UTF-8; see structuredContent]\n[exit code 0]");
}

TEST_F(McpTools, OfMuchOutputTheEndIsKept) {
  const Json result = call("exec", {{"command", "seq 1 100000"}, {"max_output_bytes", 1000}});
  const std::string kept = result["structuredContent"]["stdout"];
  EXPECT_EQ(kept.size(), 1000u);
  EXPECT_TRUE(kept.ends_with("99999\n100000\n"));
  EXPECT_EQ(result["structuredContent"]["truncated"], true);
  EXPECT_EQ(result["structuredContent"]["stdout_bytes"], 588895);
  EXPECT_NE(result["content"][0]["text"].get<std::string>().find("is left out"), std::string::npos);
}

TEST_F(McpTools, FilesAreWrittenReadEditedListedAndSearched) {
  EXPECT_EQ(call("write_file", {{"path", "src/a.txt"}, {"content", "one\ntwo\none\n"}})["structuredContent"],
            (Json{{"bytes_written", 12}}));
  const Json twice = call("edit_file", {{"path", "src/a.txt"}, {"old_text", "one"}, {"new_text", "1"}});
  EXPECT_EQ(twice["isError"], true);
  EXPECT_NE(twice["content"][0]["text"].get<std::string>().find("2 times"), std::string::npos);
  EXPECT_EQ(call("edit_file", {{"path", "src/a.txt"}, {"old_text", "no"}, {"new_text", "1"}})["isError"],
            true);
  EXPECT_EQ(call("edit_file", {{"path", "src/a.txt"},
                               {"old_text", "one"},
                               {"new_text", "1"},
                               {"replace_all", true}})["structuredContent"]["replacements"],
            2);
  EXPECT_EQ(call("edit_file", {{"path", "src/a.txt"}, {"old_text", "two\n"}, {"new_text", ""}})["isError"],
            false);
  const Json read = call("read_file", {{"path", "src/a.txt"}});
  EXPECT_EQ(read["structuredContent"]["content"], "1\n1\n");
  EXPECT_EQ(read["content"][0]["text"], "1\n1\n");
  const Json part = call("read_file", {{"path", "src/a.txt"}, {"offset", 1}, {"limit", 2}});
  EXPECT_EQ(part["structuredContent"]["content"], "\n1");
  EXPECT_EQ(part["structuredContent"]["size"], 4);
  EXPECT_NE(part["content"][0]["text"].get<std::string>().find("read on with offset"), std::string::npos);
  call("write_file", {{"path", "src/b:7:c"}, {"content", "find me\nand not me\n"}});
  const Json found = call("search_files", {{"pattern", "FIND"}, {"ignore_case", true}});
  ASSERT_EQ(found["structuredContent"]["matches"].size(), 1u) << found;
  EXPECT_EQ(found["structuredContent"]["matches"][0]["text"], "find me");
  EXPECT_EQ(call("search_files", {{"pattern", "a.d"}})["structuredContent"]["matches"].size(), 0u)
      << "a text, no pattern";
  EXPECT_EQ(
      call("search_files", {{"pattern", "a.d"}, {"regex", true}})["structuredContent"]["matches"].size(), 1u);
  EXPECT_EQ(call("search_files",
                 {{"pattern", "1"}, {"path", "/workspace/src/a.txt"}})["structuredContent"]["matches"]
                .size(),
            2u);
  for (const char* outside : {"/etc", "../x", "src/../../x", "/workspace/../etc", "/workspacex"})
    EXPECT_EQ(call("search_files", {{"pattern", "1"}, {"path", outside}})["isError"], true) << outside;
  const Json few = call("search_files", {{"pattern", "e"}, {"limit", 1}});
  EXPECT_EQ(few["structuredContent"]["truncated"], true);
  const Json listed = call("list_files", {{"path", "src"}});
  std::set<std::string> names;
  for (const Json& each : listed["structuredContent"]["entries"]) names.insert(each["name"]);
  EXPECT_EQ(names, (std::set<std::string>{"a.txt", "b:7:c"}));
  EXPECT_EQ(call("list_files", {{"recursive", true}, {"limit", 1}})["structuredContent"]["truncated"], true);
}

TEST_F(McpTools, AReadOnlyFileIsReplacedWhereThatIsAskedFor) {
  call("exec", {{"command", "echo one > f; chmod 444 f"}});
  const Json refused = call("write_file", {{"path", "f"}, {"content", "two\n"}});
  EXPECT_EQ(refused["isError"], true);
  EXPECT_NE(refused["content"][0]["text"].get<std::string>().find("`replace=true`"), std::string::npos);
  const Json replaced = call("write_file", {{"path", "f"}, {"content", "two\n"}, {"replace", true}});
  EXPECT_EQ(replaced["isError"], false) << replaced;
  const Json edited = call("edit_file", {{"path", "f"}, {"old_text", "two"}, {"new_text", "three"}});
  EXPECT_EQ(edited["isError"], false) << edited;
  const Json seen = call("exec", {{"command", "cat f; stat -c %a f"}});
  EXPECT_EQ(seen["structuredContent"]["stdout"], "three\n444\n") << "it keeps its mode";
}

TEST_F(McpTools, EditsAtOnceAreAllMade) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "<" + std::to_string(i) + ">\n";
  call("write_file", {{"path", "f"}, {"content", text}});
  std::vector<std::jthread> edits;
  for (int i = 0; i < 20; ++i)
    edits.emplace_back([&, i] {
      const Json made = call("edit_file", {{"path", i % 2 == 0 ? "f" : "/workspace/f"},
                                           {"old_text", "<" + std::to_string(i) + ">"},
                                           {"new_text", "done"}});
      EXPECT_EQ(made["isError"], false) << made;
    });
  edits.clear();
  const std::string content = call("read_file", {{"path", "f"}})["structuredContent"]["content"];
  EXPECT_EQ(content.find('<'), std::string::npos) << content;
}

TEST_F(McpTools, APartOfATextIsAText) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u00e9";
  call("write_file", {{"path", "f"}, {"content", text}});
  const Json part = call("read_file", {{"path", "f"}, {"limit", 1001}})["structuredContent"];
  EXPECT_EQ(part["encoding"], "utf-8");
  EXPECT_EQ(part["bytes"], 1000);
}

TEST_F(McpTools, ASearchIsNotHeldUpByWhatIsNoText) {
  call("exec", {{"command",
                 "mkfifo pipe; echo needle > -; head -c 3000000 /dev/zero | tr '\\0' n > long; echo needle "
                 ">> long; echo needle > x:1:y"}});
  EXPECT_EQ(call("search_files", {{"pattern", "needle"}, {"path", "pipe"}})["isError"], false);
  EXPECT_EQ(
      call("search_files", {{"pattern", "needle"}, {"path", "-"}})["structuredContent"]["matches"].size(),
      1u);
  std::set<std::string> paths;
  const Json found = call("search_files", {{"pattern", "needle"}})["structuredContent"]["matches"];
  for (const Json& each : found) paths.insert(each["path"]);
  EXPECT_EQ(paths, (std::set<std::string>{"-", "long", "x:1:y"}));
}

TEST_F(McpTools, ASearchSaysWhichOfItIsMissing) {
  call("exec", {{"command", "echo needle > a; echo needle > b; mkdir d; echo needle > d/c"}});
  const Json all = call("search_files", {{"pattern", "needle"}});
  EXPECT_EQ(all["structuredContent"]["matches"].size(), 3u) << all;
  EXPECT_TRUE(all["structuredContent"]["incomplete"].is_null()) << all;
  const Json locked = call("exec", {{"command", "chmod 0 b d; ! cat b"}});
  if (locked["structuredContent"]["exit_code"] != 0) GTEST_SKIP() << "programs of the sandbox read any file";
  const Json some = call("search_files", {{"pattern", "needle"}});
  EXPECT_EQ(some["structuredContent"]["matches"].size(), 1u) << some;
  EXPECT_EQ(some["isError"], false);
  for (const char* path : {"b", "d"}) {
    const Json none = call("search_files", {{"pattern", "needle"}, {"path", path}});
    for (const Json& each : {some, none}) {
      const std::string reason = each["structuredContent"].value("incomplete", "");
      EXPECT_NE(reason.find("may not read"), std::string::npos) << each;
      EXPECT_NE(each["content"][0]["text"].get<std::string>().find(reason), std::string::npos) << each;
    }
  }
  call("exec", {{"command", "chmod 700 b d"}});
  const Json first = call("search_files", {{"pattern", "needle"}, {"limit", 1}});
  EXPECT_EQ(first["structuredContent"]["truncated"], true) << first;
  EXPECT_TRUE(first["structuredContent"]["incomplete"].is_null()) << "it ended because enough was found";
}

TEST_F(McpTools, ASearchWhoseGrepIsKilledIsAnError) {
  const std::string mark = new_mark();
  call("exec", {{"command", "mkdir d; echo " + mark +
                                " > d/a; head -c 401 /dev/zero | tr '\\0' a > slow; echo b >> slow"}});
  Json found;
  std::jthread search([&] {
    found = call("search_files",
                 {{"pattern", mark + "|^(a*)(a*)(a*)(a*)(a*)\\1\\2\\3\\4\\5b$"}, {"regex", true}});
  });
  pid_t grep = -1;
  ASSERT_TRUE(eventually(30, [&] {
    for (const pid_t each : marked(mark))
      if (command_line(each).starts_with("grep ")) grep = each;
    return grep > 0;
  }));
  ::kill(grep, SIGKILL);
  search.join();
  EXPECT_EQ(found["isError"], true) << found;
  EXPECT_NE(found["structuredContent"].value("incomplete", ""), "") << found;
  EXPECT_NE(found["content"][0]["text"].get<std::string>().find("incomplete"), std::string::npos) << found;
}

TEST_F(McpTools, ToolsOfAnAgentsOwnPathTakeNoOther) {
  const std::string list = message("tools/list").dump();
  const auto offered = [](const Answer& answer) {
    size_t count = 0;
    for (const Json& each : answer.body["result"]["tools"])
      count += each["inputSchema"]["properties"].contains("agent_id") ? 1 : 0;
    return count;
  };
  EXPECT_EQ(offered(post(json_headers(), list)), 8u);
  EXPECT_EQ(offered(post(json_headers(), list, "/mcp/one")), 0u);
  const std::string same = message("tools/call", tool("sandbox_status", {{"agent_id", "one"}})).dump();
  EXPECT_EQ(post(json_headers(), same, "/mcp/one").body["result"]["isError"], false);
}

TEST_F(McpTools, TheEnvironmentNamesNoOtherAgent) {
  const Json other = call("exec", {{"command", "true"}, {"agent_id", "one"}, {"env", {{"AGENT_ID", "two"}}}});
  EXPECT_EQ(other["isError"], true) << other;
  EXPECT_EQ(
      call("exec", {{"command", "true"}, {"agent_id", "one"}, {"env", {{"AGENT_ID", "one"}}}})["isError"],
      false);
}

TEST_F(McpTools, NothingOfABatchRunsAfterItsClientHasLeft) {
  const std::string mark = new_mark();
  call("write_file", {{"path", "kept"}, {"content", "x"}});
  {
    HttpConnection connection(gateway_->url(), 60);
    send(connection,
         Json::array({message("tools/call", tool("exec", {{"command", "sleep " + mark}}), 1),
                      message("tools/call", tool("write_file", {{"path", "late"}, {"content", ""}}), 2),
                      message("tools/call", tool("end_sandbox", {{"purge", true}}), 3)}));
    ASSERT_TRUE(there_within(30, mark));
  }
  EXPECT_TRUE(gone_within(30, mark));
  ASSERT_TRUE(eventually(
      30, [&] { return call("sandbox_status", Json::object())["structuredContent"]["running_execs"] == 0; }));
  EXPECT_EQ(call("read_file", {{"path", "kept"}})["isError"], false);
  EXPECT_EQ(call("read_file", {{"path", "late"}})["isError"], true);
}

TEST_F(McpTools, APatternIsNeverAnOption) {
  call("write_file", {{"path", "-e"}, {"content", "--help\n$(touch bad)\n"}});
  for (const char* pattern :
       {"--help", "-f/etc/passwd", "$(touch bad)", "`touch bad`", "\"; touch bad; \""}) {
    const Json found = call("search_files", {{"pattern", pattern}});
    EXPECT_EQ(found["isError"], false) << found;
  }
  EXPECT_EQ(call("search_files", {{"pattern", "x"}, {"path", "--version"}})["isError"], true);
  EXPECT_EQ(call("search_files", {{"pattern", "x"}, {"path", "no/such"}})["isError"], true);
  EXPECT_EQ(call("read_file", {{"path", "bad"}})["isError"], true) << "nothing of a pattern was run";
}

TEST_F(McpTools, ARefusalIsAResultThatAModelReads) {
  const std::pair<Json, const char*> calls[] = {
      {tool("read_file", {{"path", "no"}}), "file_not_found"},
      {tool("read_file", Json::object()), "`path` is missing"},
      {tool("exec", Json::object()), "invalid_request"},
      {tool("exec", {{"command", "true"}, {"shell", "no"}}), "it takes"},
      {tool("exec", {{"command", "true"}, {"background", true}}), "it takes"},
      {tool("exec", {{"command", 3}}), "`command`"},
      {tool("exec", {{"command", "true"}, {"timeout_sec", -1}}), "timeout_sec"},
      {tool("exec", {{"command", "true"}, {"max_output_bytes", 10000000}}), "max_output_bytes"},
      {tool("search_files", {{"pattern", "a\n"}}), "one line"},
      {tool("write_file", {{"path", "../a"}, {"content", ""}}), "invalid_request"},
      {tool("write_file", {{"path", "a"}, {"content", "!"}, {"encoding", "base64"}}), "base64"},
      {tool("exec", {{"command", "true"}, {"agent_id", "a/b"}}), "agent_id"}};
  for (const auto& [params, expected] : calls) {
    const Answer answer = modern("tools/call", params);
    EXPECT_EQ(answer.status, 200) << params;
    EXPECT_EQ(answer.body["result"]["isError"], true) << params;
    const std::string text = answer.body["result"]["content"][0]["text"];
    EXPECT_NE(text.find(expected), std::string::npos) << params << text;
    EXPECT_FALSE(answer.body["result"].contains("structuredContent"))
        << "a client checks it against the schema";
  }
  EXPECT_EQ(code_of(modern("tools/call", tool("no_such", Json::object()))), -32602);
  EXPECT_EQ(code_of(legacy(message("tools/call", {{"name", "exec"}, {"arguments", 3}}))), -32602);
}

TEST_F(McpTools, TheAgentIsAnArgumentAHeaderOrThePath) {
  const auto where = [&](const Answer& answer) {
    return answer.body["result"]["structuredContent"].value("agent_id", "");
  };
  const auto body = [](const Json& arguments) {
    return message("tools/call", tool("sandbox_status", arguments)).dump();
  };
  EXPECT_EQ(where(post(json_headers(), body(Json::object()))), "default");
  EXPECT_EQ(where(post(json_headers(), body({{"agent_id", "one"}}))), "one");
  EXPECT_EQ(where(post(json_headers({{"X-Agent-Id", "two"}}), body(Json::object()))), "two");
  EXPECT_EQ(where(post(json_headers(), body(Json::object()), "/mcp/three")), "three");
  const Answer both = post(json_headers(), body({{"agent_id", "one"}}), "/mcp/three");
  EXPECT_EQ(both.body["result"]["isError"], true)
      << "a connection that names an agent is only for that agent: " << both.text;
  call("write_file", {{"path", "mine"}, {"content", "x"}, {"agent_id", "one"}});
  EXPECT_EQ(call("read_file", {{"path", "mine"}, {"agent_id", "two"}})["isError"], true);
  start("multi_agent: true\n");
  const Answer none = legacy(message("tools/call", tool("exec", {{"command", "true"}})));
  EXPECT_EQ(none.body["result"]["isError"], true) << none.text;
}

TEST_F(McpTools, StatusMakesNoSandboxAndEndEndsIt) {
  EXPECT_EQ(call("sandbox_status", Json::object())["structuredContent"],
            (Json{{"agent_id", "default"}, {"exists", false}}));
  call("write_file", {{"path", "kept"}, {"content", "x"}});
  const Json status = call("sandbox_status", Json::object())["structuredContent"];
  EXPECT_EQ(status["exists"], true);
  EXPECT_EQ(status["backend"], "local");
  EXPECT_EQ(status["isolation"], "none");
  EXPECT_EQ(call("end_sandbox", Json::object())["structuredContent"],
            (Json{{"ended", true}, {"purged", false}}));
  EXPECT_EQ(call("read_file", {{"path", "kept"}})["structuredContent"]["content"], "x");
  EXPECT_EQ(call("end_sandbox", {{"purge", true}})["isError"], false);
  EXPECT_EQ(call("read_file", {{"path", "kept"}})["isError"], true);
}

TEST_F(McpTools, ProgressIsReportedWhileOutputComes) {
  Json params = tool("exec", {{"command", "echo begun; until [ -e go ]; do sleep 0.05; done; echo done"}});
  params["_meta"] = {{"progressToken", 0}};
  HttpConnection connection(gateway_->url(), 60);
  send(connection, message("tools/call", params));
  const HttpResponse head = connection.read_head();
  EXPECT_EQ(head.status, 200);
  std::string stream;
  while (stream.find("begun") == std::string::npos) {
    const std::string more = connection.read_some();
    ASSERT_FALSE(more.empty()) << stream;
    stream += more;
  }
  call("write_file", {{"path", "go"}, {"content", ""}});
  for (std::string more = connection.read_some(); !more.empty(); more = connection.read_some())
    stream += more;
  const auto events = events_of(stream);
  ASSERT_GE(events.size(), 2u) << stream;
  EXPECT_EQ(events[0]["method"], "notifications/progress");
  EXPECT_EQ(events[0]["params"]["progressToken"], 0);
  EXPECT_EQ(events[0]["params"]["message"], "begun\n");
  for (size_t i = 1; i + 1 < events.size(); ++i)
    EXPECT_GT(events[i]["params"]["progress"].get<int>(), events[i - 1]["params"]["progress"].get<int>());
  EXPECT_EQ(events.back()["result"]["structuredContent"]["stdout"], "begun\ndone\n");
  EXPECT_EQ(stream.find("\nid:"), std::string::npos) << "clients would reconnect for what they missed";
}

TEST_F(McpTools, ASilentProgramIsReportedAsRunning) {
  Json params = tool("exec", {{"command", "sleep 17; echo over >&2; until [ -e go ]; do sleep 0.05; done"}});
  params["_meta"] = {{"progressToken", "t"}};
  HttpConnection connection(gateway_->url(), 60);
  send(connection, message("tools/call", params));
  ASSERT_EQ(connection.read_head().status, 200);
  std::string stream;
  for (std::string more = connection.read_some(); !more.empty(); more = connection.read_some()) {
    const bool silent = stream.find("over") == std::string::npos;
    stream += more;
    if (silent && stream.find("over") != std::string::npos)
      call("write_file", {{"path", "go"}, {"content", ""}});
  }
  const auto events = events_of(stream);
  ASSERT_GE(events.size(), 3u);
  EXPECT_TRUE(events[0]["params"]["message"].get<std::string>().starts_with("running for 1")) << events[0];
  EXPECT_EQ(events[events.size() - 2]["params"]["message"], "over\n");
}

TEST_F(McpTools, AClientThatLeavesEndsItsProgram) {
  const std::string mark = new_mark();
  {
    HttpConnection connection(gateway_->url(), 60);
    send(connection, message("tools/call", tool("exec", {{"command", "sleep " + mark}})));
    ASSERT_TRUE(there_within(30, mark));
  }
  EXPECT_TRUE(gone_within(30, mark));
}

}  // namespace
}  // namespace isogate::test
