#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/contract/contract.h"

namespace isogate::test {
namespace {

void a_stream_starts_with_start_and_ends_with_exit(World& w) {
  ExecStream stream(w.me, {{"command", "echo out; echo err >&2; exit 5"}});
  ASSERT_EQ(stream.status(), 200) << stream.head.body;
  EXPECT_EQ(stream.head.header("Content-Type"), "application/x-ndjson");
  EXPECT_FALSE(stream.head.header("X-Request-Id").empty());
  const auto events = stream.rest();
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.front().at("event"), "start");
  EXPECT_EQ(events.front().at("exec_id").get<std::string>().size(), 32u);
  EXPECT_EQ(events.front().at("backend"), w.backend);
  EXPECT_EQ(events.front().at("isolation"), w.isolation);
  EXPECT_EQ(data_of(events, "stdout"), "out\n");
  EXPECT_EQ(data_of(events, "stderr"), "err\n");
  const Json& end = events.back();
  EXPECT_EQ(end.at("event"), "exit");
  EXPECT_EQ(end.at("outcome"), "exited");
  EXPECT_EQ(end.at("exit_code"), 5);
  EXPECT_TRUE(end.at("signal").is_null());
  EXPECT_EQ(end.at("stdout_bytes"), 4);
  EXPECT_EQ(end.at("truncated"), false);
  for (const char* field : {"stderr_bytes", "duration_ms", "cpu_ms", "max_rss_bytes", "artifacts"})
    EXPECT_TRUE(end.contains(field)) << field;
}

// A status of 200 is never followed by a cut because the call was refused.
void what_a_backend_refuses_is_answered_as_for_exec(World& w) {
  const std::vector<std::pair<std::string, Json>> wrong = {
      {"a cwd outside", {{"cwd", "../.."}}},
      {"a cwd that is not there", {{"cwd", "no/such/directory"}}},
      {"a user", {{"user", "no-such-user"}}},
      {"memory", {{"cgroup", {{"memory_mb", 64}}}}},
      {"processes", {{"cgroup", {{"max_pids", 64}}}}},
  };
  for (const auto& [what, more] : wrong) {
    SCOPED_TRACE(what);
    Json body = more;
    body["command"] = "touch ran";
    const Answer whole = w.me.exec("touch ran", more);
    ExecStream stream(w.me, body);
    if (whole.status == 200) {
      ASSERT_EQ(stream.status(), 200) << stream.head.body;
      EXPECT_EQ(stream.rest().back().at("outcome"), "exited");
      EXPECT_TRUE(succeeded(w.me.post("/workspace/remove", {{"path", "ran"}})));
      continue;
    }
    Json last;
    if (stream.status() == 200) {  // a slow backend: it reports that at the end
      last = stream.rest().back();
      EXPECT_EQ(last.at("event"), "exit");
      EXPECT_EQ(last.at("outcome"), "not_started");
    } else {
      EXPECT_EQ(stream.status(), whole.status) << stream.head.body;
      last = Json::parse(stream.head.body, nullptr, false);
    }
    ASSERT_TRUE(last.is_object()) << stream.head.body;
    EXPECT_EQ(last.at("error").at("code"), whole.body.at("error").at("code"));
    EXPECT_EQ(last.at("error").at("message"), whole.body.at("error").at("message"));
    EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found"));
  }
}

void a_silent_program_is_announced(World& w) {
  ExecStream stream(w.me, {{"command", "while [ ! -e go ]; do sleep 0.05; done"}});
  ASSERT_EQ(stream.status(), 200) << stream.head.body;
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_EQ(stream.rest().back().at("exit_code"), 0);
}

void a_stream_carries_every_byte_in_order(World& w) {
  const std::string bytes = noise(3000000, 7);
  ASSERT_TRUE(succeeded(w.me.call("PUT", w.me.file_url("noise"), {}, bytes)));
  const auto events = ExecStream(w.me, {{"command", "cat noise; cat noise >&2"}}).rest();
  EXPECT_TRUE(data_of(events, "stdout") == bytes) << "stdout differs";
  EXPECT_TRUE(data_of(events, "stderr") == bytes) << "stderr differs";
  EXPECT_EQ(events.back().at("stdout_bytes"), bytes.size());
  EXPECT_EQ(events.back().at("truncated"), false) << "without max_output_bytes a stream is not cut";
}

void output_comes_while_the_program_runs(World& w) {
  ExecStream stream(w.me, {{"command", "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  const Json first = *stream.next();
  EXPECT_EQ(first.at("data"), "first\n");
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  const auto events = stream.rest();
  EXPECT_EQ(data_of(events, "stdout"), "second\n");
  EXPECT_EQ(events.back().at("exit_code"), 0);
}

void lines_come_one_by_one(World& w) {
  const auto events =
      ExecStream(w.me, {{"command", "printf 'one\\n\\n three \\r\\nlast'"}, {"lines", true}}).rest();
  std::vector<std::string> lines;
  for (const Json& event : events)
    if (event.at("event") == "stdout") {
      lines.push_back(event.at("data"));
      EXPECT_FALSE(event.contains("partial"));
    }
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", " three \r", "last"}));
  EXPECT_EQ(events.back().at("stdout_bytes"), 18);
}

void a_long_line_comes_in_marked_parts(World& w) {
  const auto events =
      ExecStream(w.me,
                 {{"command", "head -c 200000 /dev/zero | tr '\\0' y; echo; echo short"}, {"lines", true}})
          .rest();
  std::string line;
  std::vector<std::string> lines;
  for (const Json& event : events) {
    if (event.at("event") != "stdout") continue;
    const std::string part = event.at("data");
    EXPECT_LE(part.size(), 65536u);
    line += part;
    if (event.value("partial", false)) continue;
    lines.push_back(std::exchange(line, {}));
  }
  EXPECT_EQ(lines, (std::vector<std::string>{std::string(200000, 'y'), "short"}));
}

void text_is_cut_between_characters(World& w) {
  const auto events = ExecStream(w.me, {{"command",
                                         "printf 'a\\303'; sleep 0.2; printf '\\251b\\360\\237'; sleep 0.2; "
                                         "printf '\\230\\200'; sleep 0.1; printf '\\342\\202'"}})
                          .rest();
  std::string text;
  std::vector<std::string> odd;
  for (const Json& event : events) {
    if (event.at("event") != "stdout") continue;
    if (event.at("encoding") == "utf-8")
      text += event.at("data");
    else
      odd.push_back(bytes_of(event, "data"));
  }
  EXPECT_EQ(text, "aéb😀");
  EXPECT_EQ(odd, std::vector<std::string>{"\xe2\x82"}) << "what is never completed comes as base64";
}

void an_exit_event_tells_timeouts_and_signals(World& w) {
  EXPECT_EQ(ExecStream(w.me, {{"command", "sleep 50"}, {"timeout_sec", 0.3}}).rest().back().at("outcome"),
            "timed_out");
  const Json end = ExecStream(w.me, {{"command", "kill -SEGV $$"}}).rest().back();
  EXPECT_EQ(end.at("outcome"), "signaled");
  EXPECT_EQ(end.at("signal"), "SIGSEGV");
  EXPECT_EQ(end.at("exit_code"), 139);
}

void a_cap_cuts_a_stream_where_one_was_asked_for(World& w) {
  const auto events = ExecStream(w.me, {{"command", "head -c 100000 /dev/zero | tr '\\0' z; exit 2"},
                                        {"max_output_bytes", 1000}})
                          .rest();
  EXPECT_EQ(data_of(events, "stdout"), std::string(1000, 'z'));
  EXPECT_EQ(events.back().at("stdout_bytes"), 100000);
  EXPECT_EQ(events.back().at("truncated"), true);
  EXPECT_EQ(events.back().at("exit_code"), 2);
}

void a_stream_is_refused_as_an_exec_is(World& w) {
  for (const Json& request :
       {Json{{"command", ""}}, Json{{"command", "true"}, {"unknown", 1}}, Json{{"argv", Json::array()}},
        Json{{"command", "true"}, {"background", true}}, Json{{"command", "true"}, {"wait_sec", 1}}}) {
    ExecStream stream(w.me, request);
    EXPECT_TRUE(refused(answer_of(stream.head), 400, "invalid_request"));
  }
}

void a_reader_that_leaves_ends_the_program(World& w) {
  if (!w.shares_processes()) GTEST_SKIP() << "its programs are not seen from here";
  for (const char* command : {"sleep MARK", "setsid -f sleep MARK; yes MARK"}) {
    const std::string mark = new_mark();
    std::string text = command;
    for (size_t at; (at = text.find("MARK")) != std::string::npos;) text.replace(at, 4, mark);
    ExecStream stream(w.me, {{"command", text}, {"timeout_sec", 300}});
    ASSERT_EQ(stream.status(), 200);
    ASSERT_TRUE(there_within(30, mark));
    stream.connection.close();
    EXPECT_TRUE(gone_within(5, mark)) << command;
  }
}

void silence_is_broken_by_pings(World& w) {
  if (!slow_tests()) GTEST_SKIP() << "takes 16 s: set ISOGATE_SLOW_TESTS=1";
  const auto events = ExecStream(w.me, {{"command", "sleep 16; echo late"}, {"timeout_sec", 30}}).rest();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1], (Json{{"event", "ping"}}));
  EXPECT_EQ(events[2].at("data"), "late\n");
}

// How many blocks the program has written, by what it keeps in a file.
long written(const Caller& me) {
  const Answer answer = me.read("progress");
  if (answer.status != 200) return 0;
  const std::string text = answer.body.at("content");
  return text.empty() ? 0 : std::stol(text);
}

// Bytes of output in the line of one event whose only escape is a newline.
size_t bytes_in(const std::string& line) {
  const size_t start = line.find("\"data\":\"") + 8, end = line.rfind("\",\"encoding\"");
  return end - start - (line.find("\\n") == std::string::npos ? 0 : 1);
}

// A reader that stalls stops the program; nothing piles up in between, and nothing is lost.
void a_slow_reader_holds_the_program(World& w) {
  constexpr size_t kBlock = 131072, kBlocks = 8192;  // 1 GiB in all
  const size_t most = slow_tests() ? kBlock * kBlocks : kBlock * kBlocks / 8;
  w.me.run("true");
  const pid_t front = front_of(w.gateway);
  const long before = resident_kib(front);
  ExecStream stream(w.me,
                    {{"timeout_sec", 300},
                     {"command",
                      "block=$(head -c 131071 /dev/zero | tr '\\0' q); "
                      "for i in $(seq 8192); do echo \"$block\"; echo $i > progress; done"}},
                    120);
  ASSERT_EQ(stream.next()->at("event"), "start");
  long held = 0;
  EXPECT_TRUE(eventually(30,
                         [&] {
                           const long earlier = written(w.me);
                           std::this_thread::sleep_for(std::chrono::milliseconds(300));
                           held = written(w.me);
                           return earlier > 0 && earlier == held;
                         }))
      << "the program is not held: it wrote " << held << " blocks";
  EXPECT_LT(held, 128) << "blocks of 128 KiB are somewhere between the program and its reader";
  EXPECT_LT(resident_kib(front) - before, kib_bound(4096)) << "KiB more in the front";
  size_t got = 0;
  long grown = 0;
  for (size_t sampled = 0; got < most;) {
    const std::string line = stream.connection.read_line();
    ASSERT_EQ(line.rfind("{\"event\":\"stdout\"", 0), 0u)
        << line.substr(0, 200) << " after " << got << " bytes";
    got += bytes_in(line);
    if (got - sampled < 8u << 20) continue;
    sampled = got;
    grown = std::max(grown, resident_kib(front) - before);
  }
  EXPECT_LT(grown, kib_bound(4096)) << "KiB more in the front";
  if (!slow_tests()) return;  // the rest is not waited for
  EXPECT_EQ(got, most);
  EXPECT_EQ(stream.rest().back().at("stdout_bytes"), most);
}

const Case kStreamCases[] = {
    {"a_stream_starts_with_start_and_ends_with_exit", 3, a_stream_starts_with_start_and_ends_with_exit},
    {"what_a_backend_refuses_is_answered_as_for_exec", 9, what_a_backend_refuses_is_answered_as_for_exec},
    {"a_silent_program_is_announced", 4, a_silent_program_is_announced},
    {"a_stream_carries_every_byte_in_order", 4, a_stream_carries_every_byte_in_order},
    {"output_comes_while_the_program_runs", 4, output_comes_while_the_program_runs},
    {"lines_come_one_by_one", 4, lines_come_one_by_one},
    {"a_long_line_comes_in_marked_parts", 4, a_long_line_comes_in_marked_parts},
    {"text_is_cut_between_characters", 4, text_is_cut_between_characters},
    {"an_exit_event_tells_timeouts_and_signals", 3, an_exit_event_tells_timeouts_and_signals},
    {"a_cap_cuts_a_stream_where_one_was_asked_for", 4, a_cap_cuts_a_stream_where_one_was_asked_for},
    {"a_stream_is_refused_as_an_exec_is", 9, a_stream_is_refused_as_an_exec_is},
    {"a_reader_that_leaves_ends_the_program", 1, a_reader_that_leaves_ends_the_program},
    {"silence_is_broken_by_pings", 4, silence_is_broken_by_pings},
    {"a_slow_reader_holds_the_program", 4, a_slow_reader_holds_the_program},
};

}  // namespace

std::span<const Case> stream_cases() { return kStreamCases; }

}  // namespace isogate::test
