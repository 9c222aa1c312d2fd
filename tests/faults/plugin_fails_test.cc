#include <signal.h>

#include <array>
#include <fstream>
#include <thread>

#include "tests/faults/faults.h"
#include "tests_dirs.h"

// A plugin that crashes, hangs or throws costs its own calls in flight, and nothing else.
namespace isogate::test {
namespace {

class PluginFails : public testing::Test {
 protected:
  void SetUp() override { SKIP_UNLESS_STARTABLE(); }

  static std::string yaml(const std::string& config = "{}") {
    return "allow_unisolated: true\nprobe_interval_sec: 1\nbackends:\n  - {name: local}\n  - name: faulty\n  "
           "  plugin: " ISOGATE_BUILD_DIR "/test_plugins/faulty.so\n    config: " +
           config + "\n";
  }
  static Answer call(const Gateway& gateway, const std::string& how, const std::string& agent = "faulty") {
    return Caller(gateway, agent)
        .post("/exec", {{"argv", {how}}, {"backend", "faulty"}, {"timeout_sec", 20}});
  }
  static std::string yaml_of_tenants(const std::string& config = "{}") {
    return yaml(config) + keys_yaml("abc");
  }
  static Caller of(const Gateway& gateway, char tenant, const std::string& agent) {
    return {gateway.url(), tenant_key(tenant), agent};
  }
  // Execs that nothing ends, cancelled after a second.
  static void hang(const Gateway& gateway, char tenant, int count,
                   std::vector<std::unique_ptr<ExecStream>>& streams) {
    for (int i = 0; i < count; ++i)
      streams.push_back(
          std::make_unique<ExecStream>(of(gateway, tenant, "h" + std::to_string(i)),
                                       Json{{"argv", {"hang"}}, {"backend", "faulty"}, {"timeout_sec", 1}}));
  }
  static bool works(const Gateway& gateway, char tenant) {
    return of(gateway, tenant, "works").post("/exec", {{"argv", {"fine"}}, {"backend", "faulty"}}).status ==
           200;
  }
  // Restarted, and accepting calls.
  static bool up_within(double seconds, const Gateway& gateway) {
    return eventually(seconds, [&] { return call(gateway, "fine").status == 200; });
  }
};

// A program on the other backend that must survive all of it.
class Witness {
 public:
  explicit Witness(const Gateway& gateway)
      : me_(gateway, "witness"),
        host_(host_of(gateway, "local")),
        gateway_(gateway),
        stream_(me_,
                {{"command", "while [ ! -e stop ]; do sleep 0.05; done; echo lived"},
                 {"backend", "local"},
                 {"timeout_sec", 120}},
                120) {}
  void expect_unhurt() {
    EXPECT_TRUE(succeeded(me_.write("stop", "")));
    const auto events = stream_.rest();
    EXPECT_EQ(data_of(events, "stdout"), "lived\n");
    EXPECT_EQ(events.back().at("outcome"), "exited");
    EXPECT_EQ(host_of(gateway_, "local"), host_);
    EXPECT_EQ(backend_row(me_, "local").at("restarts"), 0);
  }

 private:
  Caller me_;
  pid_t host_;
  const Gateway& gateway_;
  ExecStream stream_;
};

TEST_F(PluginFails, ACrashMidCallIsUnknownAndRestarted) {
  const auto gateway = start(yaml());
  Witness witness(*gateway);
  ASSERT_TRUE(up_within(10, *gateway));
  const pid_t front = front_of(*gateway);
  int crashes = 0;
  for (const char* how : {"segv", "abort", "exit"}) {
    const Answer answer = call(*gateway, how);
    EXPECT_TRUE(refused(answer, 502, "outcome_unknown")) << how;
    const Json partial = answer.body.value("/error/details"_json_pointer, Json::object());
    EXPECT_EQ(partial.value("outcome", ""), "unknown") << answer.text;
    EXPECT_EQ(partial.value("stdout", ""), "half\n") << "what was written before is kept: " << answer.text;
    EXPECT_TRUE(up_within(2, *gateway)) << how << ": not restarted within 2 s";
    EXPECT_EQ(backend_row(Caller(*gateway, ""), "faulty").at("restarts"), ++crashes);
  }
  EXPECT_EQ(front_of(*gateway), front);
  witness.expect_unhurt();
}

TEST_F(PluginFails, AnExceptionStopsAtTheAbiAndAnotherThreadSKillsTheHost) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const pid_t host = host_of(*gateway, "faulty");
  EXPECT_TRUE(refused(call(*gateway, "throw"), 502, "outcome_unknown")) << "it may have run";
  EXPECT_EQ(host_of(*gateway, "faulty"), host) << "it was caught, so nothing had to die";
  EXPECT_TRUE(refused(call(*gateway, "thread_throws"), 502, "outcome_unknown"));
  EXPECT_TRUE(up_within(2, *gateway));
}

// A caller repeats what was not started.
TEST_F(PluginFails, AnErrorAfterOutputIsUnknown) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Answer answer = call(*gateway, "half_unavailable");
  EXPECT_TRUE(refused(answer, 502, "outcome_unknown"));
  EXPECT_NE(answer.text.find("the machine went away"), std::string::npos) << answer.text;
}

// An operator reads the log alone. What a caller did wrong is its own matter.
TEST_F(PluginFails, AFaultHasItsReasonInTheLogAndAMistakeHasNone) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Caller me(*gateway, "faulty");
  const Answer broken = me.read("broken");
  EXPECT_TRUE(refused(broken, 500, "internal"));
  const Json line = logged(*gateway, {"\"event\":\"request\"", broken.header("X-Request-Id")});
  ASSERT_FALSE(line.is_null()) << gateway->log();
  EXPECT_EQ(line.at("operation"), "readFile");
  EXPECT_EQ(line.at("agent_id"), "faulty");
  EXPECT_EQ(line.at("backend"), "faulty");
  EXPECT_EQ(line.at("code"), "internal");
  EXPECT_EQ(line.at("reason"), "Input/output error: `…`") << "no log has a path of a caller's";
  const Answer absent = me.read("absent");
  EXPECT_TRUE(refused(absent, 404, "file_not_found"));
  const Json mistake = logged(*gateway, {"\"event\":\"request\"", absent.header("X-Request-Id")});
  ASSERT_FALSE(mistake.is_null()) << gateway->log();
  EXPECT_EQ(mistake.at("code"), "file_not_found");
  EXPECT_EQ(mistake.at("backend"), "");
  EXPECT_EQ(mistake.at("reason"), "");
}

TEST_F(PluginFails, AFaultOfAToolHasItsReasonInTheLogOfItsRequest) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Json body = {{"jsonrpc", "2.0"},
                     {"id", 1},
                     {"method", "tools/call"},
                     {"params", {{"name", "read_file"}, {"arguments", {{"path", "broken"}}}}}};
  const Headers headers = {{"Authorization", "Bearer " + gateway->key()},
                           {"Content-Type", "application/json"},
                           {"Accept", "application/json, text/event-stream"}};
  const Answer answer = answer_of(http_call(gateway->url(), "POST", "/mcp/faulty", headers, body.dump()));
  EXPECT_EQ(answer.status, 200) << answer.text;
  const Json line = logged(*gateway, {"\"event\":\"request\"", answer.header("X-Request-Id")});
  ASSERT_FALSE(line.is_null()) << gateway->log();
  EXPECT_EQ(line.at("code"), "internal");
  EXPECT_EQ(line.at("backend"), "faulty");
  EXPECT_EQ(line.at("reason"), "Input/output error: `…`") << "no log has a path of a caller's";
}

TEST_F(PluginFails, APathOfTheHostGoesToTheLogAndNotToTheCaller) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Caller me(*gateway, "faulty");
  const Answer broken = me.read("broken");
  EXPECT_EQ(broken.body.at("/error/message"_json_pointer), "Input/output error: `broken`") << broken.text;
  EXPECT_EQ(me.read("absent").body.at("/error/message"_json_pointer), "No such file or directory: `absent`");
  const Json whole = logged(*gateway, {"\"event\":\"plugin_message\"", "Input/output error"});
  ASSERT_FALSE(whole.is_null()) << gateway->log();
  EXPECT_EQ(whole.at("level"), "warn");
  EXPECT_EQ(whole.at("backend"), "faulty");
  EXPECT_EQ(whole.at("message"), "filesystem error: cannot read: Input/output error [/srv/of-the-host]");
  EXPECT_EQ(gateway->log().find("No such file or directory [/srv"), std::string::npos);
}

TEST_F(PluginFails, AnExecThatWasNotStartedHasTheReasonInTheLogUnlessItsCallerIsWrong) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const auto end_of = [&](const char* how, int status, const std::string& code) {
    const Answer answer = call(*gateway, how);
    EXPECT_TRUE(refused(answer, status, code));
    return logged(*gateway, {"\"event\":\"exec_ended\"", answer.header("X-Request-Id")});
  };
  const Json denied = end_of("denied", 403, "permission_denied"),
             away = end_of("unavailable", 503, "backend_unavailable");
  ASSERT_TRUE(denied.is_object() && away.is_object()) << gateway->log();
  EXPECT_EQ(denied.at("outcome"), "not_started");
  EXPECT_EQ(denied.at("reason"), "");
  EXPECT_EQ(away.at("outcome"), "not_started");
  EXPECT_EQ(away.at("reason"), "the machine is away");
}

TEST_F(PluginFails, AWatchThatFailsEndsWithTheBackendsOwnWords) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Answer answer = Caller(*gateway, "faulty").get("/workspace/watch?agent_id=faulty");
  const std::string mark = "event: end\ndata: ", why = R"(the share \\server\files is "away")";
  const size_t at = answer.text.find(mark);
  ASSERT_NE(at, std::string::npos) << answer.text;
  const size_t begin = at + mark.size();
  const Json end = Json::parse(answer.text.substr(begin, answer.text.find("\n\n", begin) - begin));
  EXPECT_EQ(end.at("reason"), "failed");
  EXPECT_EQ(end.at("message"), why);
  const Json line = logged(*gateway, {"\"event\":\"request\"", answer.header("X-Request-Id")});
  ASSERT_FALSE(line.is_null()) << gateway->log();
  EXPECT_EQ(line.at("code"), "backend_unavailable");
  EXPECT_EQ(line.at("reason"), why);
}

TEST_F(PluginFails, AWatchThatFailsHasNoPathInTheLog) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Answer answer = Caller(*gateway, "faulty").get("/workspace/watch?agent_id=faulty&path=broken");
  EXPECT_NE(answer.text.find("Input/output error: `broken`"), std::string::npos) << answer.text;
  const Json line = logged(*gateway, {"\"event\":\"request\"", answer.header("X-Request-Id")});
  ASSERT_FALSE(line.is_null()) << gateway->log();
  EXPECT_EQ(line.at("reason"), "Input/output error: `…`") << "no log has a path of a caller's";
}

TEST_F(PluginFails, AWriteOfAnotherSizeIsNoSuccess) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  EXPECT_TRUE(refused(Caller(*gateway, "faulty").write("file", "content"), 502, "outcome_unknown"));
}

// A process that the plugin has forked keeps the socket open.
TEST_F(PluginFails, ACrashIsNoticedThoughAForkedProcessLives) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  ExecStream waits(Caller(*gateway, "waits"),
                   {{"argv", {"wait"}}, {"backend", "faulty"}, {"timeout_sec", 60}}, 60);
  ASSERT_EQ(waits.next()->at("event"), "start");
  EXPECT_LT(seconds_of([&] { EXPECT_TRUE(refused(call(*gateway, "fork_segv"), 502, "outcome_unknown")); }),
            10.0);
  EXPECT_EQ(waits.rest().back().at("outcome"), "unknown");
  EXPECT_TRUE(up_within(5, *gateway));
  gateway->signal(SIGTERM);
  EXPECT_GE(gateway->wait(45), 0) << "the forked process is killed then";
}

TEST_F(PluginFails, ACrashInOpenOrReadIsNoSuccess) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Answer opened = call(*gateway, "fine", "segv");
  EXPECT_TRUE(refused(opened, 503, "backend_unavailable")) << "no program of the tenant had started";
  ASSERT_TRUE(up_within(2, *gateway));
  // The next host ends the same way once, when it is to remove what that open may have left.
  ASSERT_TRUE(gateway->logs("\"event\":\"sandbox_not_ended\"")) << gateway->log();
  ASSERT_TRUE(up_within(2, *gateway));
  EXPECT_TRUE(refused(Caller(*gateway, "faulty").read("abort"), 502, "outcome_unknown"));
  EXPECT_TRUE(up_within(2, *gateway));
}

TEST_F(PluginFails, AllCallsInFlightAreUnknown) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  std::vector<std::unique_ptr<ExecStream>> streams;
  for (int i = 0; i < 20; ++i) {
    streams.push_back(
        std::make_unique<ExecStream>(Caller(*gateway, "a" + std::to_string(i)),
                                     Json{{"argv", {"wait"}}, {"backend", "faulty"}, {"timeout_sec", 60}}));
    ASSERT_EQ(streams.back()->status(), 200) << streams.back()->head.body;
    ASSERT_EQ(streams.back()->next()->at("event"), "start");
    ASSERT_EQ(streams.back()->next()->at("data"), "half\n");
  }
  EXPECT_TRUE(refused(call(*gateway, "segv"), 502, "outcome_unknown"));
  for (auto& stream : streams) {
    const Json end = stream->rest().back();
    EXPECT_EQ(end.at("event"), "exit");
    EXPECT_EQ(end.at("outcome"), "unknown");
    EXPECT_TRUE(end.at("exit_code").is_null());
  }
  EXPECT_TRUE(up_within(2, *gateway));
  EXPECT_EQ(Caller(*gateway, "a0")
                .post("/exec", {{"argv", {"fine"}}, {"backend", "faulty"}})
                .body.value("stdout", ""),
            "half\n");
}

TEST_F(PluginFails, FiveCrashesQuarantineIt) {
  const auto gateway = start(yaml());
  Witness witness(*gateway);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(up_within(10, *gateway)) << "after " << i << " crashes";
    EXPECT_TRUE(refused(call(*gateway, "segv"), 502, "outcome_unknown"));
  }
  const Caller me(*gateway, "");
  EXPECT_TRUE(eventually(5, [&] { return backend_row(me, "faulty").at("verdict") == "quarantined"; }))
      << backend_row(me, "faulty");
  EXPECT_NE(backend_row(me, "faulty").dump().find("SIGSEGV"), std::string::npos) << backend_row(me, "faulty");
  const Answer answer = call(*gateway, "fine");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_NE(answer.text.find("quarantined"), std::string::npos) << answer.text;
  const Answer ended = me.call("DELETE", "/sandboxes/faulty");
  EXPECT_TRUE(refused(ended, 503, "backend_unavailable"));
  EXPECT_NE(ended.text.find("backend `faulty` is down: "), std::string::npos) << ended.text;
  EXPECT_EQ(ended.body.at("/error/retryable"_json_pointer), false) << ended.text;
  EXPECT_EQ(me.get("/readyz").status, 200) << "the other backend serves";
  EXPECT_EQ(host_of(*gateway, "faulty"), -1);
  gateway->signal(SIGHUP);
  EXPECT_TRUE(up_within(10, *gateway)) << "a reload does not bring it back";
  witness.expect_unhurt();
}

TEST_F(PluginFails, OneThatOpensNothingIsReportedAndTriedAtOnceWithAnotherConfiguration) {
  const auto gateway = start(yaml("{open: unavailable}"));
  const Caller me(*gateway, "me");
  ASSERT_TRUE(eventually(10, [&] { return backend_row(me, "faulty").at("eligible"); }));
  const auto reason = [&] { return backend_row(me, "faulty").at("reason").get<std::string>(); };
  EXPECT_EQ(reason(), "eligible, but another comes first in the configured order");
  EXPECT_TRUE(refused(call(*gateway, "fine", "a"), 503, "backend_unavailable"));
  EXPECT_NE(reason().find("the last call failed: there is no such image"), std::string::npos) << reason();
  EXPECT_TRUE(backend_row(me, "faulty").at("eligible"));
  for (const char* agent : {"b", "c"})
    EXPECT_TRUE(refused(call(*gateway, "fine", agent), 503, "backend_unavailable"));
  EXPECT_NE(reason().find("its circuit breaker is open: 3 failures"), std::string::npos) << reason();
  EXPECT_FALSE(backend_row(me, "faulty").at("eligible"));
  gateway->reload(yaml());
  EXPECT_EQ(call(*gateway, "fine", "a").status, 200);
  EXPECT_EQ(reason(), "eligible, but another comes first in the configured order");
}

TEST_F(PluginFails, OneThatCannotBeCreatedIsQuarantined) {
  const auto gateway = start(yaml("{create: segv}"));
  Witness witness(*gateway);
  const Caller me(*gateway, "");
  EXPECT_TRUE(eventually(15, [&] { return backend_row(me, "faulty").at("verdict") == "quarantined"; }))
      << backend_row(me, "faulty");
  EXPECT_EQ(me.get("/readyz").status, 200);
  witness.expect_unhurt();
}

TEST_F(PluginFails, AProbeThatNeverEndsIsEnded) {
  const TemporaryDirectory place;
  const std::string file = place.file("how", "");
  const auto gateway = start(yaml("{probe_file: " + file + "}"));
  Witness witness(*gateway);
  ASSERT_TRUE(up_within(10, *gateway));
  ExecStream waiting(Caller(*gateway, "waits"),
                     {{"argv", {"wait"}}, {"backend", "faulty"}, {"timeout_sec", 100}}, 100);
  ASSERT_EQ(waiting.next()->at("event"), "start");
  const pid_t host = host_of(*gateway, "faulty");
  place.file("how", "spin");
  const Caller me(*gateway, "");
  EXPECT_TRUE(eventually(60, [&] { return backend_row(me, "faulty").at("eligible") == false; }))
      << "a backend whose probe hangs counts as healthy";
  EXPECT_EQ(me.get("/livez").status, 200);
  EXPECT_TRUE(eventually(60, [&] { return !alive(host); })) << "the spinning host is not killed";
  place.file("how", "");
  EXPECT_TRUE(up_within(20, *gateway)) << "it does not recover with its plugin";
  witness.expect_unhurt();
}

TEST_F(PluginFails, AHangingProbeDelaysNoCallOfABackendThatComesBefore) {
  const TemporaryDirectory place;
  const auto gateway = start(yaml("{probe_file: " + place.file("how", "slow45") + "}"));
  const Caller me(*gateway, "new");
  ASSERT_EQ(backend_row(me, "faulty").at("verdict"), "starting");
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(me.out("echo served"), "served\n"); }), 10.0);
  EXPECT_EQ(backend_row(me, "faulty").at("verdict"), "starting") << "its probe has ended";
  place.file("how", "");
  EXPECT_TRUE(up_within(20, *gateway));
}

// Each takes 37 s: two at most are crashes in a minute.
TEST_F(PluginFails, FiveHostsThatNeverAnswerAProbeQuarantineIt) {
  const TemporaryDirectory place;
  const auto gateway = start(yaml("{probe_file: " + place.file("how", "slow45") + "}"));
  ASSERT_TRUE(gateway->logs("\"backend_quarantined\"", 280)) << gateway->log();
  const Caller me(*gateway, "");
  EXPECT_TRUE(eventually(5, [&] { return backend_row(me, "faulty").at("verdict") == "quarantined"; }))
      << backend_row(me, "faulty");
  EXPECT_EQ(backend_row(me, "faulty").at("restarts"), 4);
  EXPECT_NE(backend_row(me, "faulty").dump().find("neither its probe"), std::string::npos)
      << backend_row(me, "faulty");
  EXPECT_TRUE(refused(call(*gateway, "fine"), 503, "backend_unavailable"));
  EXPECT_EQ(backend_row(me, "local").at("restarts"), 0);
  place.file("how", "");
  gateway->signal(SIGHUP);
  EXPECT_TRUE(up_within(10, *gateway)) << "a reload does not bring it back";
}

TEST_F(PluginFails, ASlowProbeDelaysNoOtherBackends) {
  const TemporaryDirectory place;
  const std::string slow = place.file("slow", ""), other = place.file("other", "");
  const std::string plugin = "plugin: " ISOGATE_BUILD_DIR "/test_plugins/faulty.so";
  const auto gateway = start("allow_unisolated: true\nprobe_interval_sec: 1\nbackends:\n  - {name: slow, " +
                             plugin + ", config: {probe_file: " + slow + "}}\n  - {name: other, " + plugin +
                             ", config: {probe_file: " + other + "}}\n");
  const Caller me(*gateway, "");
  ASSERT_TRUE(eventually(10, [&] {
    return backend_row(me, "slow").at("eligible") == true && backend_row(me, "other").at("eligible") == true;
  }));
  place.file("slow", "slow");
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // its probe, of 8 s, has begun
  place.file("other", "gone");
  EXPECT_TRUE(eventually(3, [&] { return backend_row(me, "other").at("eligible") == false; }))
      << "it waits for the slow backend";
  EXPECT_EQ(backend_row(me, "slow").at("eligible"), true) << "a slow backend stays eligible";
  place.file("slow", "");
}

// A backend that is slow with a file is cancelled when nobody waits for it any more.
TEST_F(PluginFails, AFileCallWhoseClientHasGoneIsCancelled) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Caller me(*gateway, "faulty");
  const auto leave = [&](const std::string& method, const std::string& path, const std::string& body) {
    HttpConnection connection(gateway->url(), 10);
    Headers headers = me.headers();
    if (!body.empty()) headers.emplace_back("Content-Length", std::to_string(body.size()));
    connection.send_request_head(method, path, headers);
    connection.send(body);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the backend has the call
  };
  const std::string body = R"({"agent_id":"faulty","path":"wait"})";
  leave("POST", "/workspace/read", body);
  leave("POST", "/workspace/list", body);
  leave("GET", "/workspace/files/faulty/wait", "");
  for (const char* operation : {"readFile", "listDirectory", "downloadFile"})
    EXPECT_TRUE(eventually(5,
                           [&] {
                             const std::string log = gateway->log();
                             const size_t at = log.find("\"operation\":\"" + std::string(operation));
                             return at != std::string::npos &&
                                    log.substr(at, 200).find("\"complete\":false") != std::string::npos;
                           }))
        << operation << " continues though nobody waits\n";
}

TEST_F(PluginFails, ACallThatIgnoresItsCancellationIsAnswered) {
  const auto gateway = start(yaml());
  Witness witness(*gateway);
  ASSERT_TRUE(up_within(10, *gateway));
  Answer answer;
  const double took = seconds_of([&] {
    try {
      answer = Caller(*gateway, "stuck")
                   .post("/exec", {{"argv", {"spin"}}, {"backend", "faulty"}, {"timeout_sec", 1}});
    } catch (const std::runtime_error& error) {
      ADD_FAILURE() << "no answer to a timeout of 1 s: " << error.what();
    }
  });
  EXPECT_LT(took, 30.0);
  EXPECT_TRUE(refused(answer, 502, "outcome_unknown"));
  witness.expect_unhurt();
  gateway->signal(SIGTERM);
  EXPECT_EQ(gateway->wait(45), 1) << "the exit code reports a host that had to be killed";
}

TEST_F(PluginFails, ASandboxOfARemovedBackendCanBeForgotten) {
  const auto before = start(yaml());
  ASSERT_TRUE(up_within(10, *before));
  before->stop();
  const auto gateway = start(kLocal, before->state_dir());
  const Caller me(*gateway, "faulty");
  const Answer tied = me.exec("true");
  EXPECT_TRUE(refused(tied, 503, "backend_unavailable"));
  EXPECT_NE(tied.text.find("no longer configured"), std::string::npos) << tied.text;
  EXPECT_TRUE(refused(me.call("DELETE", "/sandboxes/faulty?purge=true"), 503, "backend_unavailable"));
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/faulty")));
  EXPECT_EQ(me.out("echo anew"), "anew\n");
}

TEST_F(PluginFails, WhatRunsInASandboxOfARemovedBackendEndsWithIt) {
  const auto gateway = start(yaml());
  ASSERT_TRUE(up_within(10, *gateway));
  const Caller me(*gateway, "loops");
  const Answer started =
      me.post("/exec", {{"command", "echo begun; sleep 3600"}, {"backend", "local"}, {"background", true}});
  ASSERT_EQ(started.status, 202) << started.text;
  const std::string url = "/execs/" + started.body.at("exec_id").get<std::string>();
  ASSERT_TRUE(eventually(10, [&] { return me.get(url).body.at("stdout").at("next_offset") == 6; }));
  gateway->reload("allow_unisolated: true\nbackends: [{name: faulty, plugin: " ISOGATE_BUILD_DIR
                  "/test_plugins/faulty.so}]\n");
  EXPECT_EQ(me.get(url).body.at("state"), "running") << "a reload ends nothing";
  EXPECT_TRUE(refused(me.call("DELETE", "/sandboxes/loops?purge=true"), 503, "backend_unavailable"));
  EXPECT_EQ(me.get(url).body.at("state"), "running") << "what is refused ends nothing";
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/loops")));
  EXPECT_EQ(me.get(url + "?wait_sec=30").body.value("outcome", ""), "killed");
}

// Calls may hang because of what their tenant does.
TEST_F(PluginFails, CallsOfOneTenantThatHangEndNobodyElses) {
  const auto gateway = start(yaml_of_tenants());
  ASSERT_TRUE(eventually(10, [&] { return works(*gateway, 'b'); }));
  const pid_t host = host_of(*gateway, "faulty");
  ExecStream witness(of(*gateway, 'b', "waits"),
                     {{"argv", {"wait"}}, {"backend", "faulty"}, {"timeout_sec", 30}}, 60);
  ASSERT_EQ(witness.next()->at("event"), "start");
  std::vector<std::unique_ptr<ExecStream>> streams;
  hang(*gateway, 'a', 24, streams);
  for (auto& stream : streams) EXPECT_EQ(stream->rest().back().at("outcome"), "unknown");
  EXPECT_TRUE(works(*gateway, 'a'));
  EXPECT_TRUE(works(*gateway, 'b'));
  EXPECT_EQ(host_of(*gateway, "faulty"), host) << "the host was replaced";
  EXPECT_EQ(witness.rest().back().at("outcome"), "timed_out");
  gateway->signal(SIGTERM);
  EXPECT_GE(gateway->wait(60), 0);
}

TEST_F(PluginFails, CallsOfSeveralTenantsThatHangReplaceTheHost) {
  const auto gateway = start(yaml_of_tenants());
  ASSERT_TRUE(eventually(10, [&] { return works(*gateway, 'b'); }));
  const pid_t host = host_of(*gateway, "faulty");
  std::vector<std::unique_ptr<ExecStream>> streams;
  for (const char tenant : {'a', 'b', 'c'}) hang(*gateway, tenant, 6, streams);
  for (auto& stream : streams) EXPECT_EQ(stream->rest().back().at("outcome"), "unknown");
  EXPECT_TRUE(eventually(10, [&] { return !alive(host); }));
  EXPECT_TRUE(eventually(10, [&] { return works(*gateway, 'b'); }));
}

// An engine that is busy with opens answers no probe either, even a cancelled one.
TEST_F(PluginFails, AHostThatIsSlowToOpenIsNotReplaced) {
  const TemporaryDirectory place;
  const std::string file = place.file("how", "");
  const auto gateway = start(yaml("{probe_file: " + file + "}"));
  ASSERT_TRUE(up_within(10, *gateway));
  const pid_t host = host_of(*gateway, "faulty");
  place.file("how", "slow45");
  std::vector<std::thread> opening;
  std::array<Answer, 20> answers;
  for (size_t i = 0; i < answers.size(); ++i)
    opening.emplace_back([&, i] {
      const Caller me(*gateway, "slow45-" + std::to_string(i));
      HttpConnection connection(gateway->url(), 100);
      answers[i] = answer_of(connection.request(
          "POST", "/exec", me.headers(),
          Json{{"argv", {"fine"}}, {"backend", "faulty"}, {"agent_id", me.agent()}}.dump()));
    });
  for (std::thread& each : opening) each.join();
  place.file("how", "");
  for (const Answer& answer : answers) EXPECT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(host_of(*gateway, "faulty"), host) << "the host was replaced";
  EXPECT_TRUE(up_within(60, *gateway));
}

// It reads nothing and answers nothing; only the front can notice that.
TEST_F(PluginFails, AHostThatStandsStillIsReplaced) {
  const auto gateway = start(yaml());
  Witness witness(*gateway);
  ASSERT_TRUE(up_within(10, *gateway));
  const pid_t host = host_of(*gateway, "faulty");
  ASSERT_EQ(::kill(host, SIGSTOP), 0);
  ASSERT_TRUE(eventually(10, [&] { return stands_still(host); }));
  Answer answer;
  const double took = seconds_of([&] {
    answer = Caller(*gateway, "faulty")
                 .post("/exec", {{"argv", {"fine"}}, {"backend", "faulty"}, {"timeout_sec", 1}});
  });
  EXPECT_GE(answer.status, 500) << answer.text;
  EXPECT_LT(took, 30.0);
  EXPECT_TRUE(eventually(60, [&] { return !alive(host); })) << "the stopped host is not killed";
  EXPECT_TRUE(up_within(20, *gateway));
  witness.expect_unhurt();
}

}  // namespace
}  // namespace isogate::test
