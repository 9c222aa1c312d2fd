#include <algorithm>

#include "tests/contract/contract.h"

// Promise 7: a named backend serves or the call fails; and nothing runs below min_isolation.
namespace isogate::test {
namespace {

void the_named_backend_serves(World& w) {
  EXPECT_EQ(w.me.run("true", {{"backend", w.backend}}).at("backend"), w.backend);
  EXPECT_EQ(ExecStream(w.me, {{"command", "true"}, {"backend", w.backend}}).next()->at("backend"), w.backend);
}

void an_unknown_backend_is_refused(World& w) {
  for (const char* name : {"no-such-backend", "../local", "", "LOCAL"}) {
    const Answer answer = w.me.exec("touch ran", {{"backend", name}});
    EXPECT_TRUE(refused(answer, 400, "invalid_request")) << name;
  }
  EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found"));
}

// The reasons of every backend that was looked at, for a person and for a program.
testing::AssertionResult tells_what_was_tried(const Answer& answer,
                                              const std::vector<std::string>& backends) {
  const Json tried = answer.body.value("/error/details/tried"_json_pointer, Json::array());
  for (const std::string& name : backends) {
    bool found = false;
    for (const Json& each : tried)
      found = found || (each.value("backend", "") == name && !each.value("reason", "").empty());
    if (!found) return testing::AssertionFailure() << "not a word on `" << name << "` in " << answer.text;
  }
  return testing::AssertionSuccess();
}

void a_named_backend_that_is_down_is_an_error(World& w) {
  const auto own = w.another("backends:\n  - name: gone\n    plugin: no-such-plugin\n  - name: " + w.backend);
  Caller me(*own, "a");
  const Answer answer = me.exec("touch ran", {{"backend", "gone"}});
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_TRUE(tells_what_was_tried(answer, {"gone"}));
  EXPECT_EQ(me.run("ls -A").at("stdout"), "") << "another backend took it";
  EXPECT_EQ(me.run("true").at("backend"), w.backend) << "a call that names none gets the first eligible one";
}

void a_sandbox_stays_on_its_backend(World& w) {
  const auto own = w.another("backends:\n  - name: one\n    plugin: " + w.backend +
                             "\n  - name: two\n    plugin: " + w.backend);
  Caller first(*own, "first"), second(*own, "second");
  ASSERT_TRUE(eventually(60, [&] {  // a gateway is ready with the first of them that is
    const Json backends = first.get("/backends").body.at("backends");
    return std::all_of(backends.begin(), backends.end(),
                       [](const Json& each) { return each.at("eligible") == true; });
  }));
  EXPECT_EQ(first.run("echo mine > file").at("backend"), "one") << "the operator's order";
  EXPECT_EQ(second.run("true", {{"backend", "two"}}).at("backend"), "two");
  const Answer moved = first.exec("touch ran", {{"backend", "two"}});
  EXPECT_TRUE(refused(moved, 400, "invalid_request"));
  EXPECT_NE(moved.text.find("one"), std::string::npos)
      << "it does not say where the sandbox is: " << moved.text;
  EXPECT_EQ(second.run("true").at("backend"), "two");
  EXPECT_EQ(first.out("ls -A"), "file\n");
}

void a_floor_of_isolation_holds(World& w) {
  const std::vector<std::string> levels = {"none", "namespace", "container", "vm"};
  const size_t have =
      static_cast<size_t>(std::find(levels.begin(), levels.end(), w.isolation) - levels.begin());
  for (size_t i = 0; i < levels.size(); ++i) {
    const Answer answer = w.me.exec("touch ran-" + levels[i], {{"min_isolation", levels[i]}});
    if (i <= have) {
      EXPECT_TRUE(succeeded(answer)) << levels[i];
      continue;
    }
    // 503: a plugin that may give it is configured for less.
    EXPECT_TRUE(answer.status == 503 || refused(answer, 501, "unsupported")) << levels[i];
    EXPECT_FALSE(answer.body.value("/error/retryable"_json_pointer, true)) << answer.text;
    EXPECT_EQ(answer.header("Retry-After"), "");
    EXPECT_TRUE(tells_what_was_tried(answer, {w.backend}));
    EXPECT_TRUE(refused(w.me.read("ran-" + levels[i]), 404, "file_not_found"));
  }
  EXPECT_TRUE(refused(w.me.exec("true", {{"min_isolation", "total"}}), 400, "invalid_request"));
}

void the_operator_s_floor_holds_for_every_call(World& w) {
  GatewayOptions options = options_for(w.backend, w.starter, "min_isolation: vm");
  options.wait_ready = false;
  Gateway own(options);
  Caller me(own, "a");
  if (w.isolation == "vm") GTEST_SKIP() << "this backend has all the isolation there is";
  for (const Answer& answer :
       {me.exec("true"), me.exec("true", {{"min_isolation", "none"}}),
        me.exec("true", {{"backend", w.backend}}), me.read("x"), me.write("x", "y"), me.get("/readyz")}) {
    EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
    EXPECT_TRUE(tells_what_was_tried(answer, {w.backend}));
  }
  EXPECT_EQ(me.get("/livez").status, 200);
}

// Only `allow_unisolated: true` lets a backend without isolation serve.
void nothing_runs_unisolated_by_itself(World& w) {
  if (w.isolation != "none") GTEST_SKIP() << "this backend isolates";
  GatewayOptions options = options_for(w.backend, w.starter, "allow_unisolated: false");
  options.wait_ready = false;
  Gateway own(options);
  Caller me(own, "a");
  for (const Answer& answer :
       {me.exec("true"), me.exec("true", {{"backend", w.backend}}),
        me.exec("true", {{"min_isolation", "none"}}), me.write("x", "y"), me.get("/readyz")}) {
    EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
    EXPECT_NE(answer.text.find("allow_unisolated"), std::string::npos)
        << "it does not say what to do: " << answer.text;
  }
  EXPECT_EQ(me.get("/backends").body.at("backends").at(0).at("eligible"), false);
}

// A setting that every open would refuse is a reason not to be ready.
void an_egress_that_cannot_be_had_is_not_ready(World& w) {
  const std::string other = w.can("egress_deny") ? "allow" : "deny";
  for (const std::string& egress : {std::string("proxy"), other}) {
    GatewayOptions options =
        options_for(w.backend, w.starter, "backends:\n  - name: " + w.backend + "\n    egress: " + egress);
    options.wait_ready = false;
    Gateway own(options);
    Caller me(own, "a");
    const auto says_why = [&](const Answer& answer) {
      return answer.text.find("egress") != std::string::npos;
    };
    EXPECT_TRUE(eventually(20, [&] { return says_why(me.get("/readyz")); })) << egress;
    for (const Answer& answer : {me.get("/readyz"), me.exec("true"), me.write("x", "y")}) {
      EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
      EXPECT_TRUE(says_why(answer)) << answer.text;
    }
    EXPECT_EQ(me.get("/backends").body.at("backends").at(0).at("eligible"), false);
  }
}

void developer_mode_is_logged_at_the_start(World& w) {
  EXPECT_NE(w.gateway.log().find("allow_unisolated"), std::string::npos);
}

void backends_tell_why(World& w) {
  const auto own = w.another("backends:\n  - name: gone\n    plugin: no-such-plugin\n  - name: " + w.backend +
                             "\n  - name: spare\n    plugin: " + w.backend);
  Caller me(*own, "");
  Answer answer;
  ASSERT_TRUE(eventually(60, [&] {
    answer = me.get("/backends");
    const Json& rows = answer.body.at("backends");
    return rows.at(0).at("verdict") == "down" && rows.at(1).at("eligible") == true &&
           rows.at(2).at("eligible") == true;
  })) << answer.text;
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.body.at("policy"),
            (Json{{"require_remote", false}, {"min_isolation", "none"}, {"allow_unisolated", true}}));
  const Json& rows = answer.body.at("backends");
  ASSERT_EQ(rows.size(), 3u);
  for (const Json& row : rows) {
    EXPECT_EQ(row.size(), 13u) << row;
    EXPECT_FALSE(row.at("reason").get<std::string>().empty());
  }
  EXPECT_EQ(rows[0].at("verdict"), "down");
  EXPECT_EQ(rows[0].at("eligible"), false);
  EXPECT_NE(rows[0].dump().find("no-such-plugin"), std::string::npos) << rows[0];
  EXPECT_EQ(rows[1].at("eligible"), true);
  EXPECT_EQ(rows[1].at("chosen"), true);
  EXPECT_EQ(rows[1].at("isolation"), w.isolation);
  EXPECT_EQ(rows[1].at("locality"), w.locality);
  EXPECT_GE(rows[1].at("generation").get<int>(), 1);
  EXPECT_EQ(rows[1].at("restarts"), 0);
  EXPECT_EQ(rows[2].at("eligible"), true);
  EXPECT_EQ(rows[2].at("chosen"), false);
}

const Case kSelectionCases[] = {
    {"the_named_backend_serves", 7, the_named_backend_serves},
    {"an_unknown_backend_is_refused", 7, an_unknown_backend_is_refused},
    {"a_named_backend_that_is_down_is_an_error", 7, a_named_backend_that_is_down_is_an_error},
    {"a_sandbox_stays_on_its_backend", 7, a_sandbox_stays_on_its_backend},
    {"a_floor_of_isolation_holds", 8, a_floor_of_isolation_holds},
    {"the_operator_s_floor_holds_for_every_call", 8, the_operator_s_floor_holds_for_every_call},
    {"nothing_runs_unisolated_by_itself", 8, nothing_runs_unisolated_by_itself},
    {"an_egress_that_cannot_be_had_is_not_ready", 8, an_egress_that_cannot_be_had_is_not_ready},
    {"developer_mode_is_logged_at_the_start", 8, developer_mode_is_logged_at_the_start},
    {"backends_tell_why", 9, backends_tell_why},
};

}  // namespace

std::span<const Case> selection_cases() { return kSelectionCases; }

}  // namespace isogate::test
