#include <signal.h>

#include <map>
#include <regex>

#include "tests/contract/contract.h"

// Sandboxes over time: listed, ended, found again after the gateway came back.
namespace isogate::test {

Json row_of(const Caller& me) {
  const Answer answer = me.get("/sandboxes");
  EXPECT_TRUE(succeeded(answer));
  for (const Json& row : answer.body.at("sandboxes"))
    if (row.at("agent_id") == me.agent()) return row;
  return nullptr;
}

namespace {

void a_sandbox_is_listed_with_what_runs_in_it(World& w) {
  EXPECT_TRUE(row_of(w.me).is_null()) << "before the first use there is none";
  ExecStream stream(w.me, {{"command", "while [ ! -e go ]; do sleep 0.02; done"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  EXPECT_TRUE(eventually(5, [&] { return row_of(w.me).value("running_execs", 0) == 1; }));
  const Json row = row_of(w.me);
  EXPECT_EQ(row.size(), 10u) << row;
  EXPECT_TRUE(std::regex_match(row.at("sandbox_id").get<std::string>(), std::regex("isg-[a-z2-7]{26}")));
  EXPECT_EQ(row.at("backend"), w.backend);
  EXPECT_EQ(row.at("isolation"), w.isolation);
  EXPECT_EQ(row.at("state"), "active");
  EXPECT_GT(row.at("created_ms").get<int64_t>(), 1600000000000);
  EXPECT_GE(row.at("last_used_ms").get<int64_t>(), row.at("created_ms").get<int64_t>());
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_EQ(stream.rest().back().at("outcome"), "exited");
  EXPECT_TRUE(eventually(5, [&] { return row_of(w.me).value("running_execs", 1) == 0; }));
}

void a_sandbox_is_created_before_its_first_use(World& w) {
  const Answer created = w.me.post("/sandboxes", Json::object());
  ASSERT_TRUE(succeeded(created));
  Json made = created.body, listed = row_of(w.me);
  ASSERT_TRUE(listed.is_object());
  for (Json* each : {&made, &listed}) each->erase("disk");  // it was counted again in between
  EXPECT_EQ(made, listed);
  EXPECT_EQ(created.body.at("image"), nullptr);
  ASSERT_TRUE(succeeded(w.me.write("kept", "x")));
  const Answer again = w.me.post("/sandboxes", {{"backend", w.backend}});
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(again.body.at("created_ms"), created.body.at("created_ms"));
  EXPECT_EQ(w.me.content("kept"), "x");
  EXPECT_TRUE(refused(w.me.post("/sandboxes", {{"min_isolation", "most"}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.post("/sandboxes", {{"command", "true"}}), 400, "invalid_request"));
  for (const char* bad : {"", "-rm", "a b", "a\nb", "../x y"})
    EXPECT_TRUE(refused(w.me.post("/sandboxes", {{"image", bad}}), 400, "invalid_request")) << bad;
}

// The engines of the tests have the image isogate-test:small in addition to the configured one.
void a_sandbox_has_the_image_that_it_was_created_with(World& w) {
  const Json small{{"image", "isogate-test:small"}};
  if (!w.can("image")) {
    EXPECT_TRUE(refused(w.me.post("/sandboxes", small), 501, "unsupported"));
    EXPECT_TRUE(row_of(w.me).is_null());
    return;
  }
  EXPECT_TRUE(refused(w.me.post("/sandboxes", small), 403, "permission_denied"));
  EXPECT_TRUE(row_of(w.me).is_null());
  const std::string admitted = "\nbackends:\n  - name: " + w.backend + "\n    images: [\"isogate-test:*\"]";
  auto first = w.another(admitted);
  const Caller me(*first, w.me.agent());
  const auto python_of = [](const Caller& of) -> std::string {  // there is no bash in it
    return of.run_argv({"/bin/sh", "-c", "command -v python3 || echo none"}).at("stdout");
  };
  ASSERT_TRUE(succeeded(me.post("/sandboxes", small)));
  EXPECT_EQ(python_of(me), "none\n");
  EXPECT_EQ(row_of(me).at("image"), "isogate-test:small");
  EXPECT_TRUE(succeeded(me.post("/sandboxes", small)));
  EXPECT_TRUE(succeeded(me.post("/sandboxes", Json::object())));
  EXPECT_TRUE(refused(me.post("/sandboxes", {{"image", "isogate-test:base"}}), 409, "already_exists"));
  const Caller other(*first, "other-" + w.me.agent());
  EXPECT_TRUE(refused(other.post("/sandboxes", {{"image", "python:3"}}), 403, "permission_denied"));
  EXPECT_FALSE(succeeded(other.post("/sandboxes", {{"image", "isogate-test:absent"}})));
  EXPECT_NE(python_of(other), "none\n") << "what failed leaves nothing behind";
  EXPECT_TRUE(refused(other.post("/sandboxes", small), 409, "already_exists"));
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + w.me.agent())));
  EXPECT_EQ(python_of(me), "none\n") << "it is the sandbox's, not the container's";
  first->kill();
  auto second = w.another(admitted, first->state_dir());
  EXPECT_EQ(python_of(Caller(*second, w.me.agent())), "none\n");
  second->stop();
  auto third = w.another({}, first->state_dir());
  const Caller later(*third, w.me.agent());
  EXPECT_TRUE(refused(later.exec("true"), 403, "permission_denied")) << "it is not admitted any more";
  EXPECT_TRUE(succeeded(later.call("DELETE", "/sandboxes/" + w.me.agent() + "?purge=true")));
  EXPECT_NE(python_of(later), "none\n");
}

void deleting_a_sandbox_keeps_its_workspace(World& w) {
  SKIP_WITHOUT_PERSISTENCE(w);
  ASSERT_TRUE(succeeded(w.me.write("kept", "still here")));
  EXPECT_TRUE(succeeded(w.me.call("DELETE", "/sandboxes/" + w.me.agent())));
  EXPECT_EQ(w.me.out("cat kept"), "still here");
  EXPECT_TRUE(succeeded(w.me.call("DELETE", "/sandboxes/" + w.me.agent() + "?purge=false")));
  EXPECT_EQ(w.me.content("kept"), "still here");
}

void purging_a_sandbox_removes_every_trace(World& w) {
  w.me.run(
      "mkdir -p a/b; echo x > a/b/c; mkdir locked; touch locked/x; chmod 000 locked; ln -s /etc/passwd link");
  const std::string id = row_of(w.me).at("sandbox_id");
  EXPECT_TRUE(succeeded(w.me.call("DELETE", "/sandboxes/" + w.me.agent() + "?purge=true")));
  EXPECT_TRUE(row_of(w.me).is_null());
  EXPECT_TRUE(run_program({"find", w.gateway.state_dir() + "/sandboxes", "-name", id}).out.empty());
  EXPECT_EQ(w.me.out("ls -A"), "") << "the next use starts empty";
  EXPECT_TRUE(
      refused(w.me.call("DELETE", "/sandboxes/" + w.me.agent() + "?purge=perhaps"), 400, "invalid_request"));
}

void deleting_what_is_not_there_is_404(World& w) {
  EXPECT_TRUE(refused(w.me.call("DELETE", "/sandboxes/" + w.me.agent()), 404, "sandbox_not_found"));
  EXPECT_TRUE(
      refused(w.me.call("DELETE", "/sandboxes/" + w.me.agent() + "?purge=true"), 404, "sandbox_not_found"));
  w.me.run("true");
  EXPECT_TRUE(succeeded(w.me.call("DELETE", "/sandboxes/" + w.me.agent() + "?purge=true")));
  EXPECT_TRUE(refused(w.me.call("DELETE", "/sandboxes/" + w.me.agent()), 404, "sandbox_not_found"));
}

void deleting_ends_what_runs(World& w) {
  const std::string mark = new_mark();
  ExecStream stream(w.me, {{"command", "echo up; setsid -f sleep " + mark + "; sleep " + mark}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(stream.next()->at("data"), "up\n");
  EXPECT_TRUE(succeeded(w.me.call("DELETE", "/sandboxes/" + w.me.agent())));
  const Json end = stream.rest().back();
  EXPECT_EQ(end.at("event"), "exit");
  EXPECT_EQ(end.at("outcome"), "killed");
  EXPECT_EQ(end.at("exit_code"), 137);
  if (!w.shares_processes()) return;
  EXPECT_TRUE(gone_within(1, mark));
}

// A pin survives the gateway, however it ended.
void a_workspace_outlives_the_gateway(World& w, int how) {
  SKIP_WITHOUT_PERSISTENCE(w);
  auto first = w.another();
  Caller before(*first, w.me.agent());
  ASSERT_TRUE(succeeded(before.write("file", "from before", {{"durable", true}})));
  const std::string owner = before.out("id -u");
  const Json row = row_of(before);
  first->signal(how);
  EXPECT_EQ(first->wait(45), how == SIGKILL ? 128 + SIGKILL : 0) << first->log();
  auto second = w.another({}, first->state_dir());
  Caller after(*second, w.me.agent());
  EXPECT_EQ(second->key(), first->key());
  EXPECT_EQ(row_of(after).at("sandbox_id"), row.at("sandbox_id")) << "it is listed before its next use";
  EXPECT_EQ(after.content("file"), "from before");
  EXPECT_EQ(after.out("id -u; cat file"), owner + "from before");
  EXPECT_EQ(row_of(after).at("created_ms"), row.at("created_ms"));
  second->stop();
}

void a_workspace_outlives_sigterm(World& w) { a_workspace_outlives_the_gateway(w, SIGTERM); }
void a_workspace_outlives_sigkill(World& w) { a_workspace_outlives_the_gateway(w, SIGKILL); }

void a_lost_workspace_is_said_to_be_lost(World& w) {
  SKIP_WITHOUT_PERSISTENCE(w);
  if (!w.shares_processes()) GTEST_SKIP() << "its workspace is not on this host";
  auto own = w.another();
  Caller me(*own, w.me.agent());
  me.run("echo x > file");
  const std::string id = row_of(me).at("sandbox_id");
  own->signal(SIGTERM);
  ASSERT_EQ(own->wait(45), 0);
  std::string place = directory_of(*own, id, "file");
  if (place.empty() && is_ours()) place = own->state_dir() + "/sandboxes/" + id + "/workspace";
  if (place.empty()) GTEST_SKIP() << "its workspace is not below the directory of sandboxes";
  ASSERT_EQ(run_program({"rm", "-rf", place}).exit_code, 0);
  auto next = w.another({}, own->state_dir());
  Caller again(*next, w.me.agent());
  EXPECT_TRUE(refused(again.exec("true"), 410, "sandbox_lost"));
  EXPECT_TRUE(refused(again.read("file"), 410, "sandbox_lost"));
  EXPECT_EQ(row_of(again).at("state"), "lost");
  EXPECT_TRUE(succeeded(again.call("DELETE", "/sandboxes/" + w.me.agent())));
  EXPECT_EQ(again.out("ls -A"), "");
  EXPECT_EQ(Caller(*next, "another").out("echo works"), "works\n");
}

// No backend has a proxy: each refuses that egress.
void a_sandbox_that_is_refused_now_can_be_ended(World& w) {
  const std::string instance = "instance: refused-" + new_mark();
  const auto own = w.another(instance);
  const std::vector<std::string> agents = {"stopped", "running"};
  std::map<std::string, std::string> ids;
  for (const std::string& agent : agents) {
    const Caller me(*own, agent);
    me.run("echo x > kept");
    ids[agent] = row_of(me).at("sandbox_id");
    if (agent == "stopped") {
      EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + agent)));
    }
  }
  const std::string proxy = "\nbackends:\n  - name: " + w.backend + "\n    egress: proxy";
  own->reload(options_for(w.backend, w.starter, instance + proxy).yaml);
  for (const std::string& agent : agents) {
    const Caller me(*own, agent);
    EXPECT_NE(me.exec("true").status, 200) << agent;
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + agent))) << agent;
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + agent + "?purge=true"))) << agent;
    EXPECT_TRUE(row_of(me).is_null()) << agent;
    EXPECT_TRUE(run_program({"find", own->state_dir() + "/sandboxes", "-name", ids[agent]}).out.empty());
  }
}

// Its reader has stopped reading; it delays neither the sandbox nor its end.
void deleting_does_not_wait_for_a_stalled_download(World& w) {
  ASSERT_EQ(w.me.run("head -c 64M /dev/zero > big").at("exit_code"), 0);
  HttpConnection reader(w.gateway.url());
  reader.send_request_head("GET", w.me.file_url("big"), {{"Authorization", "Bearer " + w.gateway.key()}});
  EXPECT_EQ(reader.read_head().status, 200);
  const double took = seconds_of(
      [&] { EXPECT_TRUE(succeeded(w.me.call("DELETE", "/sandboxes/" + w.me.agent() + "?purge=true"))); });
  EXPECT_LT(took, w.shares_processes() ? 30.0 : 40.0);  // a busy cluster takes its time to end a pod
  EXPECT_EQ(w.me.out("ls -A"), "");
}

void sandboxes_are_bounded(World& w) {
  const auto own = w.another("limits: {max_sandboxes_per_tenant: 2}");
  const Caller first(*own, "first"), second(*own, "second"), third(*own, "third");
  EXPECT_EQ(first.out("echo 1"), "1\n");
  EXPECT_EQ(second.out("echo 2"), "2\n");
  const Answer refusal = third.exec("true");
  EXPECT_TRUE(refused(refusal, 507, "quota_exceeded"));
  EXPECT_NE(refusal.text.find("max_sandboxes_per_tenant"), std::string::npos) << refusal.text;
  EXPECT_EQ(first.out("echo 1"), "1\n") << "existing ones continue";
  EXPECT_TRUE(succeeded(second.call("DELETE", "/sandboxes/second?purge=true")));
  EXPECT_EQ(third.out("echo 3"), "3\n");
}

void an_idle_sandbox_is_stopped_and_comes_back(World& w) {
  const auto own = w.another("sandbox_idle_timeout_sec: 1");
  const Caller quiet(*own, "quiet"), busy(*own, "busy");
  ASSERT_TRUE(succeeded(quiet.write("kept", "still here")));
  ExecStream stream(busy, {{"command", "while [ ! -e go ]; do sleep 0.1; done; echo done"}});
  EXPECT_TRUE(own->logs("sandbox_stopped_idle", 10));
  EXPECT_EQ(own->log().find("\"agent_id\":\"busy\",\"limit_sec\""), std::string::npos)
      << "something runs there";
  EXPECT_EQ(quiet.out("cat kept"), w.can("persistent") || is_ours() ? "still here" : "");
  ASSERT_TRUE(succeeded(busy.write("go", "")));
  const std::vector<Json> events = stream.rest();
  EXPECT_EQ(data_of(events, "stdout"), "done\n");
  EXPECT_EQ(events.back().at("outcome"), "exited");
}

const Case kSandboxCases[] = {
    {"a_sandbox_is_listed_with_what_runs_in_it", 8, a_sandbox_is_listed_with_what_runs_in_it},
    {"a_sandbox_is_created_before_its_first_use", 8, a_sandbox_is_created_before_its_first_use},
    {"a_sandbox_has_the_image_that_it_was_created_with", 8, a_sandbox_has_the_image_that_it_was_created_with},
    {"deleting_a_sandbox_keeps_its_workspace", 5, deleting_a_sandbox_keeps_its_workspace},
    {"purging_a_sandbox_removes_every_trace", 5, purging_a_sandbox_removes_every_trace},
    {"deleting_what_is_not_there_is_404", 9, deleting_what_is_not_there_is_404},
    {"deleting_ends_what_runs", 1, deleting_ends_what_runs},
    {"a_sandbox_that_is_refused_now_can_be_ended", 5, a_sandbox_that_is_refused_now_can_be_ended},
    {"deleting_does_not_wait_for_a_stalled_download", 1, deleting_does_not_wait_for_a_stalled_download},
    {"sandboxes_are_bounded", 8, sandboxes_are_bounded},
    {"an_idle_sandbox_is_stopped_and_comes_back", 5, an_idle_sandbox_is_stopped_and_comes_back},
    {"a_workspace_outlives_sigterm", 5, a_workspace_outlives_sigterm},
    {"a_workspace_outlives_sigkill", 5, a_workspace_outlives_sigkill},
    {"a_lost_workspace_is_said_to_be_lost", 9, a_lost_workspace_is_said_to_be_lost},
};

}  // namespace

std::span<const Case> sandbox_cases() { return kSandboxCases; }

}  // namespace isogate::test
