#include "tests/contract/contract.h"

// How execs end, and that nothing of them is left.
namespace isogate::test {

bool nothing_left(World& w, const std::string& mark) {
  if (w.shares_processes()) return gone_within(1, mark);
  // Its own shell has the mark in its arguments, and the list of files is made before there is a grep.
  const std::string look =
      "for one in /proc/[0-9]*/cmdline; do [ $one = /proc/$$/cmdline ] && continue; "
      "grep -qF " +
      mark + " $one 2>/dev/null && exit 0; done; exit 1";
  return eventually(1, [&] { return w.me.run(look).at("exit_code") == 1; });
}

namespace {

void the_exit_code_is_the_program_s(World& w) {
  for (const int code : {0, 1, 7, 126, 127, 255}) {
    const Json result = w.me.run("exit " + std::to_string(code));
    EXPECT_EQ(result.at("outcome"), "exited");
    EXPECT_EQ(result.at("exit_code"), code);
  }
  EXPECT_EQ(w.me.run("exit 256").at("exit_code"), 0) << "the kernel keeps eight bits";
}

void a_signal_is_named_and_128_more(World& w) {
  for (const auto& [name, number] :
       std::vector<std::pair<std::string, int>>{{"KILL", 9}, {"SEGV", 11}, {"TERM", 15}, {"ABRT", 6}}) {
    const Json result = w.me.run("kill -" + name + " $$; sleep 5");
    EXPECT_EQ(result.at("outcome"), "signaled") << name;
    EXPECT_EQ(result.at("exit_code"), 128 + number) << name;
    EXPECT_EQ(result.at("signal"), "SIG" + name);
  }
}

void a_program_that_is_not_there_is_127(World& w) {
  for (const char* program : {"/no/such/program", "no-such-program", "./absent"}) {
    const Json result = w.me.run_argv({program});
    EXPECT_EQ(result.at("outcome"), "exited") << program;
    EXPECT_EQ(result.at("exit_code"), 127) << program;
  }
}

void a_program_that_cannot_be_run_is_126(World& w) {
  w.me.run(
      "echo plain > plain; chmod 644 plain; mkdir directory; printf '\\1\\2\\3 not a program' > blob; chmod "
      "755 blob");
  for (const char* program : {"./plain", "./directory", "./blob"})
    EXPECT_EQ(w.me.run_argv({program}).at("exit_code"), 126) << program;
}

void a_timeout_is_124_and_keeps_what_was_said(World& w) {
  const std::string mark = new_mark();
  const std::string command = "echo part; echo why >&2; touch said; sleep " + mark;
  w.me.run("true");
  // The time counts from the call: on a busy machine it may be over before the program has said anything.
  bool said = false;
  for (double timeout = 0.4; !said && timeout < 100; timeout *= 4) {
    Json result;
    const double took = seconds_of([&] { result = w.me.run(command, {{"timeout_sec", timeout}}); });
    EXPECT_EQ(result.at("outcome"), "timed_out");
    EXPECT_EQ(result.at("exit_code"), 124);
    EXPECT_GE(took, timeout);
    EXPECT_LE(result.at("duration_ms").get<double>(), 1000 * timeout + 8000);
    EXPECT_TRUE(nothing_left(w, mark));
    said = w.me.read("said").status == 200;
    if (!said) continue;
    EXPECT_EQ(result.at("stdout"), "part\n");
    EXPECT_EQ(result.at("stderr"), "why\n");
  }
  EXPECT_TRUE(said);
}

void who_ignores_signals_dies_at_the_timeout(World& w) {
  const std::string mark = new_mark();
  const Json result =
      w.me.run("trap '' TERM INT HUP QUIT; while :; do sleep " + mark + "; done", {{"timeout_sec", 0.4}});
  EXPECT_EQ(result.at("outcome"), "timed_out");
  EXPECT_TRUE(nothing_left(w, mark));
}

void who_stopped_itself_dies_at_the_timeout(World& w) {
  std::string mark;
  const auto stop = [&] {
    mark = new_mark();
    return w.me.exec("setsid sleep " + mark + " & sleep 0.1; kill -STOP $! $$", {{"timeout_sec", 0.6}});
  };
  Answer answer = stop();
  // What is late is ended from outside, and a busy engine may be late for that, too.
  if (answer.status == 502) answer = stop();
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.body.at("outcome"), "timed_out");
  EXPECT_TRUE(nothing_left(w, mark));
}

// Promise 2: a child that keeps stdout open does not delay the response.
void a_background_child_does_not_hold_the_answer(World& w) {
  const std::string mark = new_mark();
  w.me.run("true");  // the time to open the sandbox is not measured
  Json result;
  const double took = seconds_of([&] { result = w.me.run("sleep " + mark + " & echo hi"); });
  EXPECT_LT(took, 20.0);  // its time is 30 s
  EXPECT_EQ(result.at("stdout"), "hi\n");
  EXPECT_EQ(result.at("exit_code"), 0);
  EXPECT_TRUE(nothing_left(w, mark));
}

// Promise 1: however it detached itself.
void no_daemon_outlives_its_exec(World& w) {
  for (const std::string& start :
       {std::string("setsid sleep MARK &"), std::string("setsid -f sleep MARK"),
        std::string("nohup sleep MARK >/dev/null 2>&1 & disown"), std::string("( ( sleep MARK & ) & )"),
        std::string("( setsid bash -c 'setsid sleep MARK & exec sleep MARK' & )"),
        std::string("( trap '' HUP TERM; exec setsid -f sleep MARK ) </dev/null >/dev/null 2>&1")}) {
    const std::string mark = new_mark();
    std::string command = start;
    for (size_t at; (at = command.find("MARK")) != std::string::npos;) command.replace(at, 4, mark);
    const Json result = w.me.run(command + "\necho done");
    EXPECT_EQ(result.at("stdout"), "done\n") << start;
    EXPECT_TRUE(nothing_left(w, mark)) << start;
  }
}

void no_daemon_outlives_a_timeout(World& w) {
  const std::string mark = new_mark();
  const Json result = w.me.run(
      "for i in 1 2 3; do setsid -f sleep " + mark + "; ( ( sleep " + mark + " & ) & ); done; sleep " + mark,
      {{"timeout_sec", 0.6}});
  EXPECT_EQ(result.at("outcome"), "timed_out");
  EXPECT_TRUE(nothing_left(w, mark));
}

void closing_stdout_is_not_the_end(World& w) {
  const Json result = w.me.run("exec >&- 2>&-; sleep 0.5; exit 9");
  EXPECT_EQ(result.at("exit_code"), 9);
  EXPECT_GE(result.at("duration_ms").get<double>(), 490);
}

void bytes_written_at_the_very_end_arrive(World& w) {
  for (int i = 0; i < 20; ++i) {
    const Json result =
        w.me.run("head -c 60000 /dev/zero | tr '\\0' x & wait; printf end", {{"max_output_bytes", 100000}});
    ASSERT_EQ(result.at("stdout_bytes"), 60003);
    ASSERT_EQ(result.at("stdout").get<std::string>().substr(59998), "xxend");
  }
}

void a_client_that_leaves_ends_its_exec(World& w) {
  if (!w.shares_processes()) GTEST_SKIP() << "its programs are not seen from here";
  const std::string mark = new_mark();
  HttpConnection connection(w.gateway.url());
  const std::string body =
      Json{{"command", "sleep " + mark}, {"agent_id", w.me.agent()}, {"timeout_sec", 300}}.dump();
  Headers headers = w.me.headers();
  headers.emplace_back("Content-Length", std::to_string(body.size()));
  connection.send_request_head("POST", "/exec", headers);
  connection.send(body);
  ASSERT_TRUE(there_within(30, mark));
  connection.close();
  EXPECT_TRUE(gone_within(5, mark));
}

void the_exec_beside_it_is_not_touched(World& w) {
  const std::string mark = new_mark();
  ExecStream long_one(w.me, {{"command", "sleep 0.1; echo up; read line; echo $line; sleep 0.7; echo fine"}});
  ASSERT_EQ(long_one.status(), 200);
  EXPECT_EQ(w.me.run("sleep " + mark, {{"timeout_sec", 0.3}}).at("outcome"), "timed_out");
  EXPECT_EQ(w.me.run("sleep " + mark + " & exit 0").at("outcome"), "exited");
  const auto events = long_one.rest();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().at("outcome"), "exited");
  EXPECT_EQ(data_of(events, "stdout"), "up\n\nfine\n");
}

const Case kEndingCases[] = {
    {"the_exit_code_is_the_program_s", 3, the_exit_code_is_the_program_s},
    {"a_signal_is_named_and_128_more", 3, a_signal_is_named_and_128_more},
    {"a_program_that_is_not_there_is_127", 3, a_program_that_is_not_there_is_127},
    {"a_program_that_cannot_be_run_is_126", 3, a_program_that_cannot_be_run_is_126},
    {"a_timeout_is_124_and_keeps_what_was_said", 3, a_timeout_is_124_and_keeps_what_was_said},
    {"who_ignores_signals_dies_at_the_timeout", 1, who_ignores_signals_dies_at_the_timeout},
    {"who_stopped_itself_dies_at_the_timeout", 1, who_stopped_itself_dies_at_the_timeout},
    {"a_background_child_does_not_hold_the_answer", 2, a_background_child_does_not_hold_the_answer},
    {"no_daemon_outlives_its_exec", 1, no_daemon_outlives_its_exec},
    {"no_daemon_outlives_a_timeout", 1, no_daemon_outlives_a_timeout},
    {"closing_stdout_is_not_the_end", 2, closing_stdout_is_not_the_end},
    {"bytes_written_at_the_very_end_arrive", 2, bytes_written_at_the_very_end_arrive},
    {"a_client_that_leaves_ends_its_exec", 1, a_client_that_leaves_ends_its_exec},
    {"the_exec_beside_it_is_not_touched", 1, the_exec_beside_it_is_not_touched},
};

}  // namespace

std::span<const Case> ending_cases() { return kEndingCases; }

}  // namespace isogate::test
