#include "tests/contract/contract.h"

// Promise 6: a limit that was asked for is enforced, or the exec is refused and the missing controller named.
namespace isogate::test {
namespace {

// True: this backend enforces it. Otherwise it must refuse it.
bool enforces(World& w, const std::string& controller, const Json& cgroup) {
  if (w.can("limit_" + controller)) return true;
  const Answer answer = w.me.exec("touch ran", {{"cgroup", cgroup}});
  EXPECT_TRUE(refused(answer, 501, "unsupported"));
  EXPECT_NE(answer.text.find(controller), std::string::npos) << answer.text;
  if (w.can("limit_" + controller + "_sampled")) {
    EXPECT_NE(answer.text.find("limits.exec: sampled"), std::string::npos) << answer.text;
  }
  EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found")) << "it ran without its limit";
  return false;
}

void a_memory_limit_kills_and_says_so(World& w) {
  const Json cgroup{{"memory_mb", 48}};
  if (!enforces(w, "memory", cgroup)) return;
  const Json result = w.me.run("head -c 300000000 /dev/zero | tail -c 300000000 | wc -c",
                               {{"cgroup", cgroup}, {"timeout_sec", 30}});
  EXPECT_EQ(result.at("outcome"), "oom_killed") << result;
  EXPECT_EQ(result.at("exit_code"), 137);
  EXPECT_EQ(
      w.me.run("head -c 1000000 /dev/zero | tail -c 1000000 | wc -c", {{"cgroup", cgroup}}).at("stdout"),
      "1000000\n");
}

void a_limit_of_processes_holds(World& w) {
  const Json cgroup{{"max_pids", 12}};
  if (!enforces(w, "pids", cgroup)) return;
  const std::string mark = new_mark();
  const std::string many = "for i in $(seq 40); do sleep " + mark + " & done; echo all";
  const Json bound = w.me.run_argv({"sh", "-c", many}, {{"cgroup", cgroup}, {"timeout_sec", 10}});
  EXPECT_EQ(bound.at("stdout"), "") << "40 processes came into being under a limit of 12";
  EXPECT_NE(bound.at("exit_code"), 0);
  const Json free = w.me.run_argv({"sh", "-c", many}, {{"timeout_sec", 10}});
  EXPECT_EQ(free.at("stdout"), "all\n") << "the limit of another exec binds this one";
  if (!w.shares_processes()) return;
  EXPECT_TRUE(gone_within(1, mark));
}

void a_limit_of_cpu_holds(World& w) {
  const Json cgroup{{"cpu_percent", 20}};
  if (!enforces(w, "cpu", cgroup)) return;
  // The time counts from the call, and the first period of a quota proves nothing.
  double ran = 0;
  for (double timeout = 1.5; ran < 1000 && timeout < 100; timeout *= 4) {
    const Json result = w.me.run("while :; do :; done", {{"cgroup", cgroup}, {"timeout_sec", timeout}});
    EXPECT_EQ(result.at("outcome"), "timed_out");
    ran = result.at("duration_ms").get<double>();
    if (ran < 1000) continue;
    EXPECT_LT(result.at("cpu_ms").get<double>(), 0.45 * ran);
  }
  EXPECT_GE(ran, 1000);
}

void all_limits_may_be_asked_for_together(World& w) {
  const Json cgroup{{"memory_mb", 128}, {"cpu_percent", 150}, {"max_pids", 64}};
  const bool can = w.can("limit_memory") && w.can("limit_cpu") && w.can("limit_pids");
  const Answer answer = w.me.exec("echo fine", {{"cgroup", cgroup}});
  if (!can) {
    EXPECT_TRUE(refused(answer, 501, "unsupported"));
    return;
  }
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.body.at("stdout"), "fine\n");
}

void sampled_memory_holds(Caller& me) {
  const Json much = me.run("sleep 100 & head -c 300000000 /dev/zero | tail -c 300000000 | wc -c",
                           {{"cgroup", {{"memory_mb", 48}}}, {"timeout_sec", 30}});
  EXPECT_EQ(much.at("outcome"), "oom_killed") << much;
  EXPECT_EQ(much.at("exit_code"), 137);
}

void sampled_processes_hold(World& w, Caller& me) {
  const std::string mark = new_mark();
  const std::string many = "for i in $(seq 40); do sleep " + mark + " & done; echo all; wait";
  const Json bound = me.run_argv({"sh", "-c", many}, {{"cgroup", {{"max_pids", 12}}}, {"timeout_sec", 30}});
  EXPECT_EQ(bound.at("outcome"), "killed") << bound;
  EXPECT_EQ(bound.at("exit_code"), 137);
  EXPECT_NE(bound.value("reason", "").find("max_pids"), std::string::npos) << bound;
  if (!w.shares_processes()) return;
  EXPECT_TRUE(gone_within(1, mark));
}

void sampled_cpu_holds(Caller& me) {
  const Json spun = me.run("while :; do :; done", {{"cgroup", {{"cpu_percent", 20}}}, {"timeout_sec", 3}});
  EXPECT_EQ(spun.at("outcome"), "timed_out");
  EXPECT_LT(spun.at("cpu_ms").get<double>(), 0.45 * spun.at("duration_ms").get<double>());
}

// If the kernel cannot limit one exec, its use is sampled, but only if the configuration says so.
void limits_are_sampled_where_that_is_written_down(World& w) {
  const bool samples =
      w.can("limit_memory_sampled") || w.can("limit_cpu_sampled") || w.can("limit_pids_sampled");
  for (const char* what : {"limit_memory", "limit_cpu", "limit_pids"}) {
    if (w.can(what)) GTEST_SKIP() << "this backend enforces the limits of one exec";
    if (!w.can(std::string(what) + "_sampled") && (w.locality == "host" || (!samples && !is_ours())))
      GTEST_SKIP() << "this backend cannot limit one exec here, and refuses it";
    ASSERT_TRUE(w.can(std::string(what) + "_sampled")) << "it has neither " << what << " nor samples it";
  }
  const auto sampling = w.another("backends:\n  - name: " + w.backend + "\n    limits: {exec: sampled}");
  Caller me(*sampling, w.me.agent());
  sampled_memory_holds(me);
  sampled_processes_hold(w, me);
  sampled_cpu_holds(me);
  const Json fine = me.run("echo fine; sleep 0.1",
                           {{"cgroup", {{"memory_mb", 128}, {"cpu_percent", 150}, {"max_pids", 64}}}});
  EXPECT_EQ(fine.at("outcome"), "exited") << fine;
  EXPECT_EQ(fine.at("stdout"), "fine\n");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + me.agent() + "?purge=true")));
}

void a_limit_that_makes_no_sense_is_refused(World& w) {
  for (const Json& cgroup : {Json{{"memory_mb", 0}}, Json{{"memory_mb", -1}}, Json{{"memory_mb", "64"}},
                             Json{{"memory_mb", 1.5}}, Json{{"cpu_percent", 0}}, Json{{"max_pids", 0}},
                             Json{{"max_pids", 1e30}}, Json{{"memory", 64}}, Json::array({1}), Json("64M")})
    EXPECT_TRUE(refused(w.me.exec("true", {{"cgroup", cgroup}}), 400, "invalid_request")) << cgroup;
  const Answer one = w.me.exec("true", {{"cgroup", {{"max_pids", 1}}}});
  EXPECT_TRUE(refused(one, 400, "invalid_request"));
  EXPECT_NE(one.text.find("from 2 to"), std::string::npos) << "it does not say what would do: " << one.text;
  EXPECT_FALSE(one.body.at("error").at("retryable").get<bool>());
}

// A limit of the sandbox that cannot be enforced refuses it; only the configuration can accept less.
void a_sandbox_limit_is_enforced_or_refuses_the_sandbox(World& w) {
  const std::string backend = "backends:\n  - name: " + w.backend + "\n    limits: {disk_mb: 64";
  if (w.can("sandbox_limit_disk")) GTEST_SKIP() << "this backend enforces disk limits";
  const auto strict = w.another(backend + "}");
  const Answer answer = Caller(*strict, "a").exec("true");
  EXPECT_NE(answer.status, 200) << "the sandbox was opened without the limit that was asked for";
  EXPECT_NE(answer.text.find("disk"), std::string::npos) << answer.text;
  const auto lenient = w.another(backend + ", mode: best_effort}");
  EXPECT_EQ(Caller(*lenient, "a").run("echo served").at("stdout"), "served\n");
}

// Its numbers: what is used, the limit, what was attempted.
void expect_quota_refusal(const Answer& answer, uint64_t limit) {
  ASSERT_TRUE(refused(answer, 507, "quota_exceeded"));
  const Json& details = answer.body.at("error").at("details");
  EXPECT_LE(details.at("limit_bytes").get<uint64_t>(), limit) << details;
  EXPECT_LE(details.at("used_bytes").get<uint64_t>(), limit) << details;
  EXPECT_GT(details.at("attempted_bytes").get<uint64_t>(), 0u) << details;
}

void a_write_over_the_disk_limit_changes_nothing(World& w) {
  if (!w.can("sandbox_limit_disk") && !w.can("sandbox_disk_advisory"))
    GTEST_SKIP() << "this backend neither limits nor counts disks";
  constexpr uint64_t kLimit = 8 << 20;
  const auto own =
      w.another("backends:\n  - name: " + w.backend + "\n    limits: {disk_mb: 8, mode: best_effort}");
  const Caller me(*own, "a");
  ASSERT_TRUE(succeeded(me.write("kept", "old")));
  const std::string big(12 << 20, 'x'), half(5 << 20, 'y');
  expect_quota_refusal(me.write("kept", big), kLimit);
  expect_quota_refusal(me.call("PUT", me.file_url("kept"), {}, big), kLimit);
  EXPECT_EQ(me.content("kept"), "old") << "a write that was refused has changed it";
  ASSERT_TRUE(succeeded(me.call("PUT", me.file_url("half"), {}, half)));
  expect_quota_refusal(me.call("PUT", me.file_url("other"), {}, half), kLimit);
  expect_quota_refusal(me.write("half", half, {{"append", true}}), kLimit);
  EXPECT_EQ(me.run("stat -c %s half; ls").at("stdout"), "5242880\nhalf\nkept\n");
  // What a program wrote counts, at once or a moment later; what was removed no longer counts.
  me.run("head -c 3M /dev/zero > of-program; sync of-program");
  EXPECT_TRUE(eventually(10, [&] { return me.write("more", std::string(2 << 20, 'z')).status == 507; }));
  EXPECT_EQ(me.content("kept"), "old");
  EXPECT_TRUE(succeeded(me.post("/workspace/list", {{"path", "."}})));
  EXPECT_TRUE(succeeded(me.post("/workspace/remove", {{"path", "half"}})));
  EXPECT_TRUE(eventually(10, [&] { return me.write("more", "fits").status == 200; }));
  const Json row = me.get("/sandboxes").body.at("sandboxes").at(0);
  // A claim may be a separate volume, which is known only once it exists.
  const std::string enforcement = row.at("disk").at("enforcement");
  if (!w.can("sandbox_limit_disk")) {
    EXPECT_EQ(enforcement, "advisory") << row;
  } else if (w.locality != "cluster") {
    EXPECT_EQ(enforcement, "enforced") << row;
  }
  EXPECT_LE(row.at("disk").at("limit_bytes").get<uint64_t>(), kLimit) << row;
  EXPECT_GE(row.at("disk").at("used_bytes").get<uint64_t>(), 3u << 20) << row;
  const Answer metrics = me.get("/metrics");
  EXPECT_NE(metrics.text.find("isogate_disk_bytes{tenant="), std::string::npos) << metrics.text;
}

void the_sandboxes_of_a_tenant_have_so_much_disk_together(World& w) {
  const std::string both =
      "limits: {max_disk_mb_per_tenant: 20}\nbackends:\n  - name: " + w.backend + "\n    limits: ";
  const auto own = w.another(both + "{disk_mb: 8, mode: best_effort}");
  const Caller first(*own, "first"), second(*own, "second"), third(*own, "third");
  if (!w.can("sandbox_limit_disk") && !w.can("sandbox_disk_advisory")) {
    EXPECT_TRUE(refused(first.exec("true"), 507, "quota_exceeded")) << "a limit that nobody keeps";
    return;
  }
  EXPECT_EQ(first.out("echo 1"), "1\n");
  EXPECT_EQ(second.out("echo 2"), "2\n");
  const Answer refusal = third.exec("true");
  EXPECT_TRUE(refused(refusal, 507, "quota_exceeded"));
  EXPECT_NE(refusal.text.find("max_disk_mb_per_tenant"), std::string::npos) << refusal.text;
  EXPECT_EQ(first.out("echo 1"), "1\n") << "existing ones continue";
  EXPECT_TRUE(succeeded(second.call("DELETE", "/sandboxes/second?purge=true")));
  EXPECT_EQ(third.out("echo 3"), "3\n");
}

const Case kLimitCases[] = {
    {"a_memory_limit_kills_and_says_so", 6, a_memory_limit_kills_and_says_so},
    {"a_limit_of_processes_holds", 6, a_limit_of_processes_holds},
    {"a_limit_of_cpu_holds", 6, a_limit_of_cpu_holds},
    {"all_limits_may_be_asked_for_together", 6, all_limits_may_be_asked_for_together},
    {"limits_are_sampled_where_that_is_written_down", 6, limits_are_sampled_where_that_is_written_down},
    {"a_limit_that_makes_no_sense_is_refused", 9, a_limit_that_makes_no_sense_is_refused},
    {"a_sandbox_limit_is_enforced_or_refuses_the_sandbox", 6,
     a_sandbox_limit_is_enforced_or_refuses_the_sandbox},
    {"a_write_over_the_disk_limit_changes_nothing", 6, a_write_over_the_disk_limit_changes_nothing},
    {"the_sandboxes_of_a_tenant_have_so_much_disk_together", 6,
     the_sandboxes_of_a_tenant_have_so_much_disk_together},
};

}  // namespace

std::span<const Case> limit_cases() { return kLimitCases; }

}  // namespace isogate::test
