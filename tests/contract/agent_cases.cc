#include "tests/contract/contract.h"

// Whose sandbox it is: agents and tenants, and how a request names them.
namespace isogate::test {

std::string key_of(char c) { return "isg_" + std::string(43, c); }

std::string two_keys() {
  return "keys:\n  - {name: alpha, tenant: alpha, sha256: " + sha256_hex(key_of('A')) +
         "}\n  - {name: beta, tenant: beta, sha256: " + sha256_hex(key_of('B')) + "}\n";
}

namespace {

void an_agent_may_be_named_in_three_places(World& w) {
  ASSERT_TRUE(succeeded(w.me.write("file", "mine")));
  const Caller nameless = w.me.as("");
  const Json read{{"path", "file"}};
  const Headers header{{"X-Agent-Id", w.me.agent()}, {"Content-Type", "application/json"}};
  EXPECT_EQ(nameless.call("POST", "/workspace/read", header, read.dump()).body.at("content"), "mine");
  EXPECT_EQ(nameless.call("POST", "/exec", header, R"({"command":"cat file"})").body.at("stdout"), "mine");
  EXPECT_EQ(nameless.exec("cat file", {{"env", {{"AGENT_ID", w.me.agent()}}}}).body.at("stdout"), "mine");
  const Json all{{"command", "cat file"}, {"agent_id", w.me.agent()}, {"env", {{"AGENT_ID", w.me.agent()}}}};
  EXPECT_EQ(nameless.call("POST", "/exec", header, all.dump()).body.at("stdout"), "mine");
}

void names_that_differ_are_refused(World& w) {
  const Headers header{{"X-Agent-Id", "somebody-else"}, {"Content-Type", "application/json"}};
  const Json body{{"command", "touch ran"}, {"agent_id", w.me.agent()}};
  EXPECT_TRUE(refused(w.me.call("POST", "/exec", header, body.dump()), 400, "invalid_request"));
  EXPECT_TRUE(
      refused(w.me.exec("touch ran", {{"env", {{"AGENT_ID", "somebody-else"}}}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.call("POST", "/workspace/write", header,
                                Json{{"path", "ran"}, {"content", ""}, {"agent_id", w.me.agent()}}.dump()),
                      400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found"));
}

void an_empty_name_is_no_name(World& w) {
  const Headers header{{"X-Agent-Id", ""}, {"Content-Type", "application/json"}};
  const Caller nameless = w.me.as("");
  for (const std::string& agent : {std::string(), w.me.agent()}) {
    Json body{{"command", "touch ran"}};
    if (!agent.empty()) body["agent_id"] = agent;
    EXPECT_TRUE(refused(nameless.call("POST", "/exec", header, body.dump()), 400, "invalid_request"));
  }
  EXPECT_TRUE(refused(nameless.call("POST", "/workspace/read", header, Json{{"path", "x"}}.dump()), 400,
                      "invalid_request"));
  EXPECT_TRUE(refused(nameless.exec("true", {{"env", {{"AGENT_ID", ""}}}}), 400, "invalid_request"));
}

void without_a_name_it_is_the_default_agent(World& w) {
  const Caller nameless = w.me.as("");
  ASSERT_TRUE(succeeded(nameless.write("of-default", "x")));
  EXPECT_EQ(w.me.as("default").content("of-default"), "x");
  EXPECT_TRUE(refused(w.me.read("of-default"), 404, "file_not_found"));
}

void multi_agent_asks_for_a_name(World& w) {
  const auto own = w.another("multi_agent: true");
  const Caller nameless(*own, "");
  EXPECT_TRUE(refused(nameless.exec("true"), 400, "invalid_request"));
  EXPECT_TRUE(refused(nameless.write("x", "y"), 400, "invalid_request"));
  EXPECT_TRUE(refused(nameless.post("/workspace/list", {{"path", "."}}), 400, "invalid_request"));
  EXPECT_EQ(nameless.as("named").run("true").at("exit_code"), 0);
  EXPECT_EQ(nameless.get("/sandboxes").body.at("sandboxes").size(), 1u);
}

// Attack 107.
void an_agent_s_name_keeps_to_its_grammar(World& w) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("a/b"),
        std::string("a%2fb"), std::string(64, 'a'), std::string(10000, 'a'), std::string("\xd0\xb0lice"),
        std::string("-a"), std::string("_a"), std::string("a b"), std::string("a.b"), std::string("a\n"),
        std::string("a\0b", 3)}) {
    const Answer answer = w.me.exec("true", {{"agent_id", name}});
    EXPECT_TRUE(refused(answer, 400, "invalid_request")) << name.substr(0, 40);
  }
  for (const std::string& name :
       {std::string("con"), std::string("0"), std::string("A-_z"), std::string(63, 'a')})
    EXPECT_TRUE(succeeded(w.me.exec("true", {{"agent_id", name}}))) << name;
}

// Attacks 107 and 122: names that look alike.
void names_that_look_alike_share_nothing(World& w) {
  const std::vector<std::string> names = {"Bob", "bob", "a_b", "a-b", "ab", "a-b-c"};
  for (const std::string& name : names) ASSERT_TRUE(succeeded(w.me.as(name).write("name", name)));
  std::set<std::string> ids;
  for (const std::string& name : names) {
    EXPECT_EQ(w.me.as(name).content("name"), name);
    ids.insert(row_of(w.me.as(name)).at("sandbox_id"));
  }
  EXPECT_EQ(ids.size(), names.size());
}

void two_agents_do_not_see_each_other_s_files(World& w) {
  const Caller other = w.stranger();
  ASSERT_TRUE(succeeded(w.me.write("secret", "of me", {{"mode", "0666"}})));
  EXPECT_EQ(other.out("ls -A"), "");
  EXPECT_TRUE(refused(other.read("secret"), 404, "file_not_found"));
  if (w.starter == Starter::kUser && !w.can("uid_per_sandbox") && w.isolation == "none")
    GTEST_SKIP() << "all agents share the uid of the user that started the gateway";
  std::string place = w.me.run("chmod 777 .; pwd").at("stdout");
  place.pop_back();
  if (other.out("pwd") == place + "\n") {  // of its own view: the other's is elsewhere, if it is on this host
    const std::string here = directory_of(w.gateway, row_of(w.me).at("sandbox_id"), "secret");
    place = here.empty() ? "/nowhere" : here;
  }
  const Json tried = other.run("cat '" + place + "/secret'; ls '" + place + "'");
  EXPECT_NE(tried.at("exit_code"), 0);
  EXPECT_EQ(tried.at("stdout"), "") << "another agent's exec read it";
  if (!w.can("uid_per_sandbox")) return;
  EXPECT_NE(w.me.out("id -u"), other.out("id -u"));
}

void two_tenants_do_not_see_each_other(World& w) {
  const auto own = w.another(two_keys());
  const Caller alpha(own->url(), key_of('A'), "same"), beta(own->url(), key_of('B'), "same");
  ASSERT_TRUE(succeeded(alpha.write("file", "of alpha")));
  EXPECT_TRUE(refused(beta.read("file"), 404, "file_not_found"));
  EXPECT_EQ(beta.out("ls -A"), "");
  ASSERT_TRUE(succeeded(beta.write("file", "of beta")));
  EXPECT_EQ(alpha.content("file"), "of alpha");
  ASSERT_EQ(alpha.get("/sandboxes").body.at("sandboxes").size(), 1u);
  EXPECT_NE(alpha.get("/sandboxes").body.at("sandboxes")[0].at("sandbox_id"),
            beta.get("/sandboxes").body.at("sandboxes")[0].at("sandbox_id"));
  ASSERT_TRUE(succeeded(alpha.as("alone").write("x", "y")));
  EXPECT_TRUE(refused(beta.call("DELETE", "/sandboxes/alone"), 404, "sandbox_not_found"));
  EXPECT_TRUE(succeeded(beta.call("DELETE", "/sandboxes/same?purge=true")));
  EXPECT_EQ(alpha.content("file"), "of alpha");
  if (!w.can("uid_per_sandbox")) return;
  EXPECT_NE(alpha.out("id -u"), beta.out("id -u"));
}

void with_configured_keys_there_is_no_local_key(World& w) {
  const auto own = w.another(two_keys());
  EXPECT_EQ(own->key(), "");
  EXPECT_TRUE(refused(Caller(own->url(), w.gateway.key(), "a").exec("true"), 401, "unauthenticated"));
  EXPECT_EQ(Caller(own->url(), key_of('A'), "a").run("true").at("exit_code"), 0);
  EXPECT_EQ(own->log().find(key_of('A')), std::string::npos);
}

const Case kAgentCases[] = {
    {"an_agent_may_be_named_in_three_places", 0, an_agent_may_be_named_in_three_places},
    {"names_that_differ_are_refused", 9, names_that_differ_are_refused},
    {"an_empty_name_is_no_name", 0, an_empty_name_is_no_name},
    {"without_a_name_it_is_the_default_agent", 0, without_a_name_it_is_the_default_agent},
    {"multi_agent_asks_for_a_name", 9, multi_agent_asks_for_a_name},
    {"an_agent_s_name_keeps_to_its_grammar", 9, an_agent_s_name_keeps_to_its_grammar},
    {"names_that_look_alike_share_nothing", 5, names_that_look_alike_share_nothing},
    {"two_agents_do_not_see_each_other_s_files", 5, two_agents_do_not_see_each_other_s_files},
    {"two_tenants_do_not_see_each_other", 5, two_tenants_do_not_see_each_other},
    {"with_configured_keys_there_is_no_local_key", 0, with_configured_keys_there_is_no_local_key},
};

}  // namespace

std::span<const Case> agent_cases() { return kAgentCases; }

}  // namespace isogate::test
