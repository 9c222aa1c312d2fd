#include <signal.h>

#include <chrono>
#include <future>
#include <list>
#include <optional>
#include <thread>

#include "tests/contract/contract.h"
#include "tests/support/websocket.h"

// Execs that continue without their client: their state, output from an offset, input, signals, terminals,
// ends.
namespace isogate::test {
namespace {

constexpr const char* kMemoryOnly = "exec: {spool_bytes: 0}";  // no output is kept on disk
constexpr const char* kUntilGo = "while [ ! -e go ]; do sleep 0.02; done; ";

void sleep_sec(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::set<std::string> members_of(const Json& object) {
  std::set<std::string> names;
  for (const auto& item : object.items()) names.insert(item.key());
  return names;
}

// Its output as read, event by event or message by message. Each begins where the one before it ended.
struct Heard {
  std::string out, error;
  Json start, exit;  // null: none came

  explicit Heard(std::optional<uint64_t> out_from = 0, std::optional<uint64_t> error_from = 0)
      : out_offset(out_from), error_offset(error_from) {}

  void add(bool of_error, uint64_t offset, const std::string& data) {
    std::optional<uint64_t>& next = of_error ? error_offset : out_offset;
    EXPECT_EQ(offset, next.value_or(offset)) << (of_error ? "stderr" : "stdout");
    EXPECT_TRUE(exit.is_null()) << "output after the exit event";
    next = offset + data.size();
    (of_error ? error : out) += data;
  }
  void take(const Json& event) {
    const std::string kind = event.at("event");
    if (kind == "start") start = event;
    if (kind == "exit") exit = event;
    if (kind == "stdout" || kind == "stderr")
      add(kind == "stderr", event.at("offset").get<uint64_t>(), bytes_of(event, "data"));
  }

  std::optional<uint64_t> out_offset, error_offset;  // of what comes next; nullopt: any
};

// An exec that the case starts, and that ends with it.
class LongLived {
 public:
  // With `background`, unless it has `wait_sec`.
  LongLived(const Caller& me, Json request) : me_(me) {
    if (!request.contains("wait_sec")) request["background"] = true;
    started = me_.post("/exec", std::move(request));
    if (started.body.is_object()) id = started.body.value("exec_id", "");
  }
  // An existing one.
  LongLived(const Caller& me, std::string exec_id) : id(std::move(exec_id)), me_(me) {}
  LongLived(const LongLived&) = delete;
  LongLived& operator=(const LongLived&) = delete;
  ~LongLived() {
    try {
      if (!id.empty()) me_.call("DELETE", url());
    } catch (const std::exception&) {
      // its gateway has ended, and it with it
    }
  }

  [[nodiscard]] std::string url(const std::string& rest = {}) const { return "/execs/" + id + rest; }
  [[nodiscard]] const Caller& caller() const { return me_; }

  [[nodiscard]] Json state(const std::string& query = {}) const {
    const Answer answer = me_.get(url(query));
    if (answer.status != 200) throw std::runtime_error("its state: " + answer.text);
    return answer.body;
  }
  // Its state, once it has ended.
  [[nodiscard]] Json ended() const {
    for (int tries = 0; tries < 15; ++tries) {
      Json now = state("?wait_sec=20");
      if (now.at("state") == "ended") return now;
    }
    throw std::runtime_error("it does not end: " + started.text);
  }
  [[nodiscard]] Answer output(const std::string& query = {}) const { return me_.get(url("/output" + query)); }
  // The output so far, added to what was already read.
  void hear(Heard& heard) const {
    const Answer answer = output("?stdout_offset=" + std::to_string(*heard.out_offset) +
                                 "&stderr_offset=" + std::to_string(*heard.error_offset));
    if (answer.status != 200) throw std::runtime_error("its output: " + answer.text);
    take_all(answer, heard);
  }
  static void take_all(const Answer& answer, Heard& heard) {
    for (size_t at = 0; at < answer.text.size();) {
      const size_t end = answer.text.find('\n', at);
      heard.take(Json::parse(answer.text.substr(at, end - at)));
      at = end == std::string::npos ? end : end + 1;
    }
  }
  [[nodiscard]] Heard heard() const {
    Heard all;
    hear(all);
    return all;
  }
  bool says(const std::string& text) const {
    return eventually(60, [&] {
      const Answer answer = output("?stdout_offset=0&stderr_offset=0");
      // One that another host or gateway began may be looked for longer than a call waits.
      if (refused(answer, 503, "backend_unavailable")) return false;
      if (answer.status != 200) throw std::runtime_error("its output: " + answer.text);
      Heard all;
      take_all(answer, all);
      return all.out.find(text) != std::string::npos;
    });
  }

  [[nodiscard]] Answer type(const std::string& bytes, bool close = false) const {
    return me_.call("POST", url(close ? "/stdin?close=true" : "/stdin"),
                    {{"Content-Type", "application/octet-stream"}}, bytes);
  }
  [[nodiscard]] Answer control(const std::string& what, const Json& body) const {
    return me_.call("POST", url("/" + what), {{"Content-Type", "application/json"}}, body.dump());
  }
  [[nodiscard]] Answer signal(const std::string& name) const { return control("signal", {{"signal", name}}); }
  [[nodiscard]] Answer kill() const { return me_.call("DELETE", url()); }

  Answer started;
  std::string id;

 private:
  const Caller me_;
};

// Who reads an exec's output while it runs.
class Reader {
 public:
  explicit Reader(Heard from) : heard(std::move(from)) {}
  // False: the end came first.
  bool hears(const std::string& text) {
    while (heard.out.find(text) == std::string::npos)
      if (!next()) return false;
    return true;
  }
  void rest() {
    while (next()) {
    }
  }
  Heard heard;

 protected:
  ~Reader() = default;
  virtual bool next() = 0;  // false: it was the end
};

class Follower final : public Reader {
 public:
  explicit Follower(const LongLived& exec)
      : Reader(Heard()), stream_(exec.caller(), "GET", exec.url("/output?follow=true"), "", 300) {}
  [[nodiscard]] const HttpResponse& head() const { return stream_.head; }
  void leave() { stream_.connection.close(); }

 private:
  bool next() override {
    const auto event = stream_.next();
    if (event) heard.take(*event);
    return event.has_value();
  }
  EventStream stream_;
};

class Attached final : public Reader {
 public:
  Attached(const LongLived& exec, const std::string& query = {}, Heard from = Heard())
      : Reader(std::move(from)),
        socket(exec.caller().url(), exec.url("/attach" + query), exec.caller().headers(), 300) {}

  void control(const Json& what) { socket.send_text(what.dump()); }

  WebSocket socket;

 private:
  bool next() override {
    const auto message = socket.next();
    if (!message) return false;
    if (message->text) {
      heard.take(Json::parse(message->bytes));
      return true;
    }
    if (message->bytes.size() < 9 || (message->bytes[0] != 1 && message->bytes[0] != 2))
      throw std::runtime_error("not a message of output: " + base64(message->bytes.substr(0, 16)));
    uint64_t offset = 0;
    for (size_t i = 1; i < 9; ++i) offset = offset << 8 | static_cast<unsigned char>(message->bytes[i]);
    heard.add(message->bytes[0] == 2, offset, message->bytes.substr(9));
    return true;
  }
};

std::string numbers_to(int last) {
  std::string text;
  for (int i = 1; i <= last; ++i) text += std::to_string(i) + "\n";
  return text;
}

void background_answers_at_once_with_a_state(World& w) {
  w.me.run("true");  // opening a sandbox may take longer than the rest
  std::optional<LongLived> exec;
  const double took = seconds_of([&] { exec.emplace(w.me, Json{{"command", "sleep 300"}}); });
  ASSERT_EQ(exec->started.status, 202) << exec->started.text;
  EXPECT_LT(took, 20.0);
  const Json& state = exec->started.body;
  EXPECT_EQ(members_of(state),
            (std::set<std::string>{"exec_id", "agent_id", "state", "command", "backend", "isolation",
                                   "started_ms", "pty", "stdin", "stdout", "stderr"}));
  EXPECT_EQ(state.at("agent_id"), w.me.agent());
  EXPECT_EQ(state.at("state"), "running");
  EXPECT_EQ(state.at("command"), "sleep 300");
  EXPECT_EQ(state.at("backend"), w.backend);
  EXPECT_EQ(state.at("isolation"), w.isolation);
  EXPECT_GT(state.at("started_ms").get<int64_t>(), 1600000000000);
  EXPECT_EQ(state.at("pty"), false);
  EXPECT_EQ(state.at("stdin"), "closed");
  EXPECT_EQ(state.at("stdout"), (Json{{"first_offset", 0}, {"next_offset", 0}}));
  EXPECT_EQ(state.at("stderr"), (Json{{"first_offset", 0}, {"next_offset", 0}}));
  EXPECT_EQ(members_of(exec->state()), members_of(state));
}

void an_ended_exec_has_its_result(World& w) {
  const LongLived exec(w.me, {{"command", "mkdir out; echo x > out/made; echo hi; echo oops >&2; exit 3"},
                              {"artifact_dir", "out"}});
  const Json end = exec.ended();
  EXPECT_EQ(members_of(end),
            (std::set<std::string>{"exec_id",      "agent_id",     "state",     "command",     "backend",
                                   "isolation",    "started_ms",   "pty",       "stdin",       "stdout",
                                   "stderr",       "outcome",      "exit_code", "signal",      "truncated",
                                   "stdout_bytes", "stderr_bytes", "artifacts", "duration_ms", "cpu_ms",
                                   "max_rss_bytes"}));
  EXPECT_EQ(end.at("exec_id"), exec.id);
  EXPECT_EQ(end.at("outcome"), "exited");
  EXPECT_EQ(end.at("exit_code"), 3);
  EXPECT_TRUE(end.at("signal").is_null());
  EXPECT_EQ(end.at("stdout_bytes"), 3);
  EXPECT_EQ(end.at("stdout"), (Json{{"first_offset", 0}, {"next_offset", 3}}));
  EXPECT_EQ(end.at("stderr"), (Json{{"first_offset", 0}, {"next_offset", 5}}));
  EXPECT_EQ(end.at("truncated"), false);
  ASSERT_EQ(end.at("artifacts").size(), 1u) << end;
  EXPECT_EQ(end.at("artifacts")[0].at("path"), "out/made");
}

// Its client disconnects while it waits for the response.
void a_long_lived_exec_goes_on_without_its_client(World& w) {
  const std::string body = Json{
      {"command", "touch begun; " + std::string(kUntilGo) + "touch over"},
      {"agent_id", w.me.agent()},
      {"timeout_sec", 300},
      {"wait_sec", 300}}.dump();
  Headers headers = w.me.headers();
  headers.emplace_back("Content-Length", std::to_string(body.size()));
  HttpConnection client(w.gateway.url());
  client.send_request_head("POST", "/exec", headers);
  client.send(body);
  ASSERT_TRUE(eventually(120, [&] { return w.me.read("begun").status == 200; }));
  client.close();
  sleep_sec(0.5);
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_TRUE(eventually(60, [&] { return w.me.read("over").status == 200; })) << "it ended with its client";
}

void a_wait_answers_with_the_result_when_the_program_ends(World& w) {
  w.me.run("true");
  std::optional<LongLived> exec;
  const double took = seconds_of([&] {
    exec.emplace(w.me, Json{{"command", "echo hello; echo oops >&2; exit 3"}, {"wait_sec", 300}});
  });
  ASSERT_TRUE(succeeded(exec->started));
  EXPECT_LT(took, 60.0);
  const Json& result = exec->started.body;
  EXPECT_EQ(members_of(result), members_of(w.me.run("true"))) << "it is the response of any exec";
  EXPECT_EQ(result.at("stdout"), "hello\n");
  EXPECT_EQ(result.at("stderr"), "oops\n");
  EXPECT_EQ(result.at("exit_code"), 3);
  EXPECT_EQ(exec->state().at("exit_code"), 3) << "and its state is there, too";
}

void a_wait_answers_with_a_state_when_its_time_has_passed(World& w) {
  w.me.run("true");
  std::optional<LongLived> exec;
  const double took = seconds_of([&] {
    exec.emplace(w.me, Json{{"command", "sleep 300"}, {"wait_sec", 0.7}});
  });
  ASSERT_EQ(exec->started.status, 202) << exec->started.text;
  EXPECT_EQ(exec->started.body.at("state"), "running");
  EXPECT_GE(took, 0.7);
  EXPECT_LT(took, 30.0);
}

void a_state_can_be_waited_for(World& w) {
  const LongLived exec(w.me, {{"command", std::string(kUntilGo) + "exit 4"}});
  Json early;
  const double took = seconds_of([&] { early = exec.state("?wait_sec=0.5"); });
  EXPECT_EQ(early.at("state"), "running");
  EXPECT_GE(took, 0.5);
  auto poll = std::async(std::launch::async, [&exec] { return exec.state("?wait_sec=240"); });
  EXPECT_EQ(poll.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_EQ(poll.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(poll.get().at("exit_code"), 4);
  for (const char* wait : {"-1", "x", "1e9", "nan", ""})
    EXPECT_TRUE(refused(w.me.get(exec.url("?wait_sec=" + std::string(wait))), 400, "invalid_request"))
        << wait;
}

void the_end_of_a_stream_can_be_waited_for(World& w) {
  ExecStream stream(w.me, {{"command", "echo up; " + std::string(kUntilGo) + "exit 4"}});
  ASSERT_EQ(stream.status(), 200) << stream.head.body;
  const auto start = stream.next();
  ASSERT_TRUE(start);
  const std::string url = "/execs/" + start->at("exec_id").get<std::string>();
  Json early;
  const double took = seconds_of([&] { early = w.me.get(url + "?wait_sec=1.5").body; });
  EXPECT_EQ(early.value("state", ""), "running") << early;
  EXPECT_GE(took, 1.5);
  auto poll = std::async(std::launch::async, [&] { return w.me.get(url + "?wait_sec=240").body; });
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_EQ(stream.rest().back().value("exit_code", 0), 4);
  EXPECT_EQ(poll.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(poll.get().value("exit_code", 0), 4);
}

void output_is_the_same_from_every_offset(World& w) {
  const std::string bytes = noise(100000, 11);
  ASSERT_TRUE(succeeded(w.me.call("PUT", w.me.file_url("noise"), {}, bytes)));
  const LongLived exec(w.me, {{"command", "cat noise; cat noise >&2"}});
  ASSERT_EQ(exec.ended().at("outcome"), "exited");
  for (const size_t offset : {0u, 1u, 4095u, 32768u, 99999u, 100000u}) {
    Heard part(offset, bytes.size() - offset);
    exec.hear(part);
    EXPECT_TRUE(part.out == bytes.substr(offset)) << "stdout from " << offset;
    EXPECT_TRUE(part.error == bytes.substr(bytes.size() - offset)) << "stderr from the other end";
  }
  const std::string text =
      "a\xc3\xa9"
      "b\xf0\x9f\x98\x80";
  const LongLived letters(w.me, {{"command", "printf '" + text + "'"}});
  ASSERT_EQ(letters.ended().at("outcome"), "exited");
  for (size_t offset = 0; offset <= text.size(); ++offset) {
    Heard part(offset);
    letters.hear(part);
    EXPECT_EQ(part.out, text.substr(offset)) << "from inside of a character";
  }
}

void a_reader_goes_on_where_it_stopped(World& w) {
  const LongLived exec(w.me, {{"command",
                               "printf 'a\\303'; sleep 0.3; printf '\\251b\\360\\237'; echo odd >&2; sleep "
                               "0.3; printf '\\230\\200'; sleep 0.2; printf '\\342\\202'"}});
  Heard all;
  const auto whole = [&] {
    const bool over = exec.state().at("state") == "ended";
    exec.hear(all);
    return over;
  };
  EXPECT_TRUE(eventually(60, whole));
  EXPECT_EQ(all.out,
            "a\xc3\xa9"
            "b\xf0\x9f\x98\x80\xe2\x82");
  EXPECT_EQ(all.error, "odd\n");
}

void older_output_is_kept_on_disk(World& w) {
  const std::string all = numbers_to(300000);
  const LongLived exec(w.me, {{"command", "seq 300000"}, {"max_output_bytes", 5000}, {"wait_sec", 60}});
  const Json end = exec.ended();
  EXPECT_EQ(end.at("stdout"), (Json{{"first_offset", 0}, {"next_offset", all.size()}}));
  EXPECT_EQ(end.at("truncated"), false);
  if (exec.started.status == 200) {
    EXPECT_EQ(exec.started.body.at("stdout"), all.substr(all.size() - 5000));
    EXPECT_EQ(exec.started.body.at("truncated"), true) << "of what the answer carries";
  }
  EXPECT_TRUE(exec.heard().out == all);
  for (const uint64_t offset : {uint64_t{1}, uint64_t{1000000}, all.size() - 5001, all.size() - 5000}) {
    Heard late(offset);
    exec.hear(late);
    EXPECT_TRUE(late.out == all.substr(offset)) << offset;
  }
}

void output_beyond_the_quota_of_the_disk_is_dropped(World& w) {
  constexpr uint64_t kQuota = 1 << 20, kMemory = 5000;
  const Own own(w, "limits: {max_spool_bytes: " + std::to_string(kQuota) + "}");
  const std::string all = numbers_to(300000);
  const Json request = {{"command", "seq 300000"}, {"max_output_bytes", kMemory}};
  const LongLived exec(own.me, request);
  const Json end = exec.ended();
  const auto first = end.at("stdout").at("first_offset").get<uint64_t>();
  EXPECT_LE(first, all.size() - kQuota);
  EXPECT_GE(first, all.size() - kQuota - kMemory);
  EXPECT_EQ(end.at("truncated"), true);
  EXPECT_TRUE(refused(exec.output("?stdout_offset=" + std::to_string(first - 1)), 410, "output_dropped"));
  Heard kept(first);
  exec.hear(kept);
  EXPECT_TRUE(kept.out == all.substr(first));
  const LongLived next(own.me, request);
  EXPECT_LE(next.ended().at("stdout").at("first_offset").get<uint64_t>(), all.size() - kQuota)
      << "it has the space of the one that ended";
  EXPECT_TRUE(refused(exec.output(), 404, "exec_not_found"));
  EXPECT_EQ(exec.state().at("stdout_bytes"), all.size());
}

// One tenant's flood, of execs that run and of one that has ended, leaves the other its share.
void a_flood_leaves_other_tenants_their_share_of_the_disk(World& w) {
  constexpr uint64_t kQuota = 4 << 20;
  const auto own = w.another("limits: {max_spool_bytes: " + std::to_string(kQuota) + "}\n" + two_keys());
  const Caller alpha(own->url(), key_of('A'), "flood"), beta(own->url(), key_of('B'), "quiet");
  const LongLived ended(alpha, {{"command", "head -c 3000000 /dev/zero"}});
  EXPECT_EQ(ended.ended().at("outcome"), "exited");
  const LongLived one(alpha, {{"command", "exec yes one"}}), two(alpha, {{"command", "exec yes two"}});
  const auto spooled = [&beta] {
    const std::string text = beta.get("/metrics").text;
    const size_t at = text.find("what=\"spool_bytes\"} ");
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + 20));
  };
  ASSERT_TRUE(eventually(60, [&] { return spooled() >= kQuota / 2; })) << spooled();
  const std::string all = numbers_to(200000);
  const LongLived exec(beta, {{"command", "seq 200000"}, {"max_output_bytes", 5000}});
  EXPECT_EQ(exec.ended().at("stdout"), (Json{{"first_offset", 0}, {"next_offset", all.size()}}));
  EXPECT_TRUE(exec.heard().out == all);
  EXPECT_LE(spooled(), kQuota);
}

void output_that_was_dropped_is_410_with_what_is_there(World& w) {
  const Own own(w, kMemoryOnly);
  const std::string all = numbers_to(20000);
  const LongLived exec(own.me, {{"command", "seq 20000; echo why >&2"}, {"max_output_bytes", 1000}});
  const Json end = exec.ended();
  EXPECT_EQ(end.at("truncated"), true);
  EXPECT_EQ(end.at("stdout_bytes"), all.size());
  const uint64_t first = all.size() - 1000;
  EXPECT_EQ(end.at("stdout"), (Json{{"first_offset", first}, {"next_offset", all.size()}}));
  for (const std::string& query :
       {std::string("?stdout_offset=0"), "?stdout_offset=" + std::to_string(first - 1)}) {
    const Answer answer = exec.output(query);
    ASSERT_TRUE(refused(answer, 410, "output_dropped")) << query;
    const Json& error = answer.body.at("error");
    EXPECT_EQ(error.at("details"), (Json{{"stdout_first_offset", first}, {"stderr_first_offset", 0}}));
    EXPECT_EQ(error.at("retryable"), false);
  }
  Heard kept(first);
  exec.hear(kept);
  EXPECT_EQ(kept.out, all.substr(first));
  EXPECT_EQ(kept.error, "why\n");
  Follower whatever(exec);
  whatever.heard.out_offset = first;
  whatever.rest();
  EXPECT_EQ(whatever.heard.out, all.substr(first)) << "without an offset it begins with the oldest byte";
  for (const char* query : {"?stdout_offset=-1", "?stderr_offset=x", "?follow=perhaps", "?stdout_offset="})
    EXPECT_TRUE(refused(exec.output(query), 400, "invalid_request")) << query;
}

void a_follower_reads_on_to_the_exit_event(World& w) {
  const LongLived exec(w.me, {{"command", "echo first; " + std::string(kUntilGo) + "echo second; exit 6"}});
  Follower follower(exec);
  ASSERT_EQ(follower.head().status, 200) << follower.head().body;
  EXPECT_EQ(follower.head().header("Content-Type"), "application/x-ndjson");
  ASSERT_TRUE(follower.hears("first\n"));
  EXPECT_TRUE(exec.heard().exit.is_null()) << "without follow, the response ends with the output so far";
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  follower.rest();
  EXPECT_EQ(follower.heard.out, "first\nsecond\n");
  EXPECT_EQ(follower.heard.exit.value("outcome", ""), "exited");
  EXPECT_EQ(follower.heard.exit.value("exit_code", 0), 6);
  Follower late(exec);
  late.rest();
  EXPECT_EQ(late.heard.out, "first\nsecond\n");
  EXPECT_EQ(late.heard.exit.value("exit_code", 0), 6);
}

// It is the output at the time of the call, whatever the program writes meanwhile.
void without_follow_an_answer_ends_while_output_goes_on(World& w) {
  constexpr uint64_t kKept = 16 << 20;
  const LongLived exec(w.me, {{"command", "yes"}, {"timeout_sec", 120}, {"max_output_bytes", kKept}});
  std::optional<EventStream> answer;
  ASSERT_TRUE(eventually(60, [&] {  // an offset may be dropped before it is asked for
    const std::string offset = exec.state().at("stdout").at("next_offset").dump();
    answer.emplace(w.me, "GET", exec.url("/output?stdout_offset=" + offset), "", 120);
    return answer->status() == 200;
  })) << answer->head.body;
  uint64_t got = 0;
  while (const auto event = answer->next()) {
    ASSERT_NE(event->at("event"), "exit") << "it lasted as long as the program";
    if (event->contains("data")) got += bytes_of(*event, "data").size();
    ASSERT_LE(got, 4 * kKept) << "it does not end";
  }
  EXPECT_EQ(exec.state().at("state"), "running");
}

// More than is kept, while one of them stalls.
void the_program_waits_for_its_followers(World& w) {
  const Own own(w, kMemoryOnly);
  const std::string all = "ready\n" + numbers_to(100000);
  const LongLived exec(own.me, {{"command", "echo ready; " + std::string(kUntilGo) + "seq 100000"},
                                {"max_output_bytes", 5000}});
  Follower slow(exec), fast(exec);
  ASSERT_TRUE(slow.hears("ready\n"));
  ASSERT_TRUE(fast.hears("ready\n"));
  auto all_of_fast = std::async(std::launch::async, [&fast] { fast.rest(); });
  ASSERT_TRUE(succeeded(own.me.write("go", "")));
  sleep_sec(0.7);
  slow.rest();
  all_of_fast.get();
  EXPECT_TRUE(slow.heard.out == all) << slow.heard.out.size() << " bytes of " << all.size();
  EXPECT_TRUE(fast.heard.out == all) << fast.heard.out.size() << " bytes of " << all.size();
  EXPECT_EQ(slow.heard.exit.value("outcome", ""), "exited");
}

void who_leaves_holds_the_program_no_longer(World& w) {
  const Own own(w, kMemoryOnly);
  const std::string flood = "echo ready; " + std::string(kUntilGo) + "head -c 50000000 /dev/zero; exit 2";
  const LongLived exec(own.me, {{"command", flood}, {"max_output_bytes", 5000}});
  Follower follower(exec);
  Attached attached(exec);
  ASSERT_TRUE(follower.hears("ready\n"));
  ASSERT_TRUE(attached.hears("ready\n"));
  ASSERT_TRUE(succeeded(own.me.write("go", "")));
  EXPECT_EQ(exec.state("?wait_sec=1").at("state"), "running") << "the program does not wait for its readers";
  follower.leave();
  attached.socket.drop();
  EXPECT_EQ(exec.ended().at("exit_code"), 2);
}

void what_fits_the_disk_waits_for_no_reader(World& w) {
  constexpr size_t kFlood = 20000000;  // more than sockets hold
  const std::string flood =
      "echo ready; " + std::string(kUntilGo) + "head -c " + std::to_string(kFlood) + " /dev/zero; exit 2";
  const LongLived exec(w.me, {{"command", flood}, {"max_output_bytes", 5000}});
  Attached stalled(exec);
  ASSERT_TRUE(stalled.hears("ready\n"));
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_EQ(exec.ended().at("exit_code"), 2);
  stalled.rest();
  EXPECT_EQ(stalled.heard.out.size(), 6 + kFlood);
}

void a_stalled_reader_does_not_save_an_exec(World& w) {
  const std::string mark = new_mark();
  const LongLived exec(w.me, {{"command", "echo ready; " + std::string(kUntilGo) + "yes " + mark},
                              {"max_output_bytes", 5000}});
  Follower follower(exec);
  ASSERT_TRUE(follower.hears("ready\n"));
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  sleep_sec(0.5);
  const Answer answer = exec.kill();
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.body.at("outcome"), "killed");
  EXPECT_TRUE(nothing_left(w, mark));
}

void stdin_comes_in_parts_and_is_closed(World& w) {
  const LongLived exec(w.me,
                       {{"command", "cat; exit 5"}, {"stdin", "of the request\n"}, {"stdin_open", true}});
  EXPECT_EQ(exec.started.body.value("stdin", ""), "open");
  ASSERT_TRUE(exec.says("of the request\n"));
  ASSERT_TRUE(succeeded(exec.type("more\n")));
  ASSERT_TRUE(exec.says("more\n"));
  EXPECT_EQ(exec.state().at("state"), "running");
  ASSERT_TRUE(succeeded(exec.type("last", true)));
  const Json end = exec.ended();
  EXPECT_EQ(end.at("exit_code"), 5);
  EXPECT_EQ(end.at("stdin"), "closed");
  EXPECT_EQ(exec.heard().out, "of the request\nmore\nlast");
}

void stdin_carries_every_byte(World& w) {
  const std::string bytes = noise(600000, 5);
  const LongLived exec(w.me, {{"command", "cat > copy"}, {"stdin_open", true}});
  for (size_t at = 0; at < bytes.size(); at += 200000)
    ASSERT_TRUE(succeeded(exec.type(bytes.substr(at, 200000))));
  ASSERT_TRUE(succeeded(exec.type("", true)));
  EXPECT_EQ(exec.ended().at("exit_code"), 0);
  EXPECT_TRUE(w.me.call("GET", w.me.file_url("copy")).text == bytes);
}

void stdin_that_is_closed_takes_nothing_more(World& w) {
  const LongLived never(w.me, {{"command", "cat; echo over; sleep 300"}});
  const LongLived once(w.me, {{"command", "cat; echo over; sleep 300"}, {"stdin_open", true}});
  ASSERT_TRUE(succeeded(once.type("x\n", true)));
  for (const LongLived* exec : {&never, &once}) {
    ASSERT_TRUE(exec->says("over\n")) << "its stdin does not end";
    const Answer answer = exec->type("more");
    EXPECT_TRUE(refused(answer, 409, "exec_ended"));
    EXPECT_NE(answer.text.find("stdin"), std::string::npos) << answer.text;
    EXPECT_EQ(exec->state().at("stdin"), "closed");
    EXPECT_EQ(exec->state().at("state"), "running");
  }
}

void what_has_ended_takes_neither_input_nor_signals(World& w) {
  const LongLived exec(w.me, {{"command", "exit 7"}, {"stdin_open", true}});
  ASSERT_EQ(exec.ended().at("exit_code"), 7);
  EXPECT_TRUE(refused(exec.type("x"), 409, "exec_ended"));
  EXPECT_TRUE(refused(exec.signal("TERM"), 409, "exec_ended"));
  const Answer killed = exec.kill();
  ASSERT_TRUE(succeeded(killed));
  EXPECT_EQ(killed.body.at("outcome"), "exited") << "it ended by itself";
  EXPECT_EQ(killed.body.at("exit_code"), 7);
}

void a_signal_ends_a_program(World& w) {
  const LongLived exec(w.me, {{"command", "echo up; exec sleep 300"}});
  ASSERT_TRUE(exec.says("up\n"));
  ASSERT_TRUE(succeeded(exec.signal("TERM")));
  const Json end = exec.ended();
  EXPECT_EQ(end.at("outcome"), "signaled");
  EXPECT_EQ(end.at("signal"), "SIGTERM");
  EXPECT_EQ(end.at("exit_code"), 143);
}

void a_signal_that_is_trapped_reaches_the_program(World& w) {
  const LongLived exec(
      w.me, {{"command", "trap 'echo caught; exit 9' USR1; echo up; while :; do sleep 0.05; done"}});
  ASSERT_TRUE(exec.says("up\n"));
  ASSERT_TRUE(succeeded(exec.signal("USR1")));
  EXPECT_EQ(exec.ended().at("exit_code"), 9);
  EXPECT_EQ(exec.heard().out, "up\ncaught\n");
}

void signals_and_sizes_that_make_no_sense_are_refused(World& w) {
  const LongLived exec(w.me, {{"command", "sleep 300"}});
  for (const Json& body :
       {Json{{"signal", "NOSUCH"}}, Json{{"signal", ""}}, Json{{"signal", 15}}, Json{{"signal", "TERM "}},
        Json{{"signal", "-9"}}, Json::object(), Json{{"signal", "TERM"}, {"more", 1}}})
    EXPECT_TRUE(refused(exec.control("signal", body), 400, "invalid_request")) << body;
  for (const Json& body :
       {Json{{"cols", 80}}, Json{{"cols", 0}, {"rows", 24}}, Json{{"cols", "80"}, {"rows", 24}},
        Json{{"cols", 1 << 20}, {"rows", 24}}, Json{{"cols", 80}, {"rows", 24}}})
    EXPECT_TRUE(refused(exec.control("resize", body), 400, "invalid_request")) << "it has no terminal";
  EXPECT_EQ(exec.state().at("state"), "running");
}

void deleting_an_exec_kills_all_that_it_started(World& w) {
  const std::string mark = new_mark();
  const LongLived exec(w.me,
                       {{"command", "trap '' TERM INT HUP; setsid -f sleep " + mark + "; ( ( sleep " + mark +
                                        " & ) & ); echo up; while :; do sleep " + mark + "; done"}});
  ASSERT_TRUE(exec.says("up\n"));
  const Answer answer = exec.kill();
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.body.at("state"), "ended");
  EXPECT_EQ(answer.body.at("outcome"), "killed");
  EXPECT_EQ(answer.body.at("exit_code"), 137);
  EXPECT_TRUE(nothing_left(w, mark));
  EXPECT_EQ(exec.heard().out, "up\n") << "its output is still there";
}

void a_long_lived_exec_has_a_timeout(World& w) {
  const std::string mark = new_mark(), command = "echo part; touch said; sleep " + mark;
  // It counts from the call: on a busy machine it may be over before the program has said anything.
  bool said = false;
  for (double timeout = 4; !said && timeout < 100; timeout *= 4) {
    const LongLived exec(w.me, {{"command", command}, {"timeout_sec", timeout}});
    const Json end = exec.ended();
    EXPECT_EQ(end.at("outcome"), "timed_out");
    EXPECT_EQ(end.at("exit_code"), 124);
    EXPECT_TRUE(nothing_left(w, mark));
    said = w.me.read("said").status == 200;
    if (said) {
      EXPECT_EQ(exec.heard().out, "part\n");
    }
  }
  EXPECT_TRUE(said);
}

void deleting_its_sandbox_kills_a_long_lived_exec(World& w) {
  const std::string mark = new_mark();
  const Caller me = w.stranger();
  const LongLived exec(me, {{"command", "echo up; setsid -f sleep " + mark + "; sleep " + mark}});
  ASSERT_TRUE(exec.says("up\n"));
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + me.agent() + "?purge=true")));
  const Json end = exec.ended();
  EXPECT_EQ(end.at("outcome"), "killed");
  EXPECT_EQ(end.at("exit_code"), 137);
  EXPECT_EQ(exec.heard().out, "up\n");
  if (!w.shares_processes()) return;
  EXPECT_TRUE(gone_within(1, mark));
}

// True: this backend has terminals. Otherwise it must refuse them.
bool has_terminals(World& w) {
  if (w.can("pty")) return true;
  EXPECT_TRUE(refused(w.me.exec("true", {{"wait_sec", 60}, {"pty", Json::object()}}), 501, "unsupported"));
  return false;
}

void a_terminal_has_the_size_that_was_asked_for(World& w) {
  if (!has_terminals(w)) return;
  const std::string look =
      "test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; echo $TERM; echo oops >&2";
  const Json pty{{"cols", 111}, {"rows", 33}};
  const LongLived exec(w.me, {{"command", look}, {"pty", pty}, {"wait_sec", 300}});
  ASSERT_TRUE(succeeded(exec.started));
  EXPECT_EQ(exec.started.body.at("stdout"), "terminal\r\n33 111\r\nxterm-256color\r\noops\r\n");
  EXPECT_EQ(exec.started.body.at("stderr"), "") << "all its output is stdout";
  EXPECT_EQ(exec.state().at("pty"), true);
  const LongLived dumb(
      w.me, {{"command", "echo $TERM"}, {"pty", pty}, {"wait_sec", 300}, {"env", {{"TERM", "dumb"}}}});
  EXPECT_EQ(dumb.started.body.value("stdout", ""), "dumb\r\n");
}

void a_terminal_takes_another_size(World& w) {
  if (!has_terminals(w)) return;
  // bash forgets a signal that comes while its trap runs.
  const std::string script =
      "trap changed=1 WINCH; echo ready; while [ ! -e go ]; do sleep 0.02; "
      "if [ -n \"$changed\" ]; then changed=; stty size; fi; done";
  const LongLived exec(w.me, {{"command", script}, {"pty", {{"cols", 80}, {"rows", 24}}}});
  ASSERT_TRUE(exec.says("ready"));
  ASSERT_TRUE(succeeded(exec.control("resize", {{"cols", 132}, {"rows", 50}})));
  EXPECT_TRUE(exec.says("50 132\r\n"));
  Attached attached(exec);
  attached.control({{"type", "resize"}, {"cols", 90}, {"rows", 21}});
  EXPECT_TRUE(attached.hears("21 90\r\n"));
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_EQ(exec.ended().at("exit_code"), 0);
  EXPECT_TRUE(refused(exec.control("resize", {{"cols", 80}, {"rows", 24}}), 409, "exec_ended"));
}

void control_c_interrupts_on_a_terminal(World& w) {
  if (!has_terminals(w)) return;
  const std::string script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done";
  const LongLived exec(w.me, {{"command", script}, {"pty", {{"cols", 80}, {"rows", 24}}}});
  ASSERT_TRUE(exec.says("ready"));
  ASSERT_TRUE(succeeded(exec.type("\x03")));
  EXPECT_EQ(exec.ended().at("exit_code"), 7);
  EXPECT_TRUE(exec.says("caught"));
}

void the_end_of_input_reaches_a_program_on_a_terminal(World& w) {
  if (!has_terminals(w)) return;
  const LongLived exec(
      w.me, {{"command", "stty -echo; echo ready; cat; echo over"}, {"pty", {{"cols", 80}, {"rows", 24}}}});
  EXPECT_EQ(exec.started.body.value("stdin", ""), "open");
  ASSERT_TRUE(exec.says("ready"));
  ASSERT_TRUE(succeeded(exec.type("line\n", true)));
  EXPECT_EQ(exec.ended().at("exit_code"), 0);
  EXPECT_EQ(exec.heard().out, "ready\r\nline\r\nover\r\n");
}

void what_could_not_start_says_why(World& w) {
  const LongLived missing(w.me, {{"argv", Json::array({"no-such-program"})}});
  const Json ran = missing.ended();
  EXPECT_EQ(ran.at("outcome"), "exited") << "as of any exec";
  EXPECT_EQ(ran.at("exit_code"), 127);

  const LongLived lost(w.me, {{"command", "touch ran"}, {"cwd", "absent"}});
  ASSERT_EQ(lost.started.status, 202) << lost.started.text;
  const Json end = lost.ended();
  EXPECT_EQ(end.at("outcome"), "not_started");
  const Json refusal = w.me.exec("touch ran", {{"cwd", "absent"}}).body.at("error");
  EXPECT_EQ(end.at("error"), (Json{{"code", refusal.at("code")}, {"message", refusal.at("message")}}));
  EXPECT_TRUE(end.at("exit_code").is_null());

  const LongLived waited(w.me, {{"command", "touch ran"}, {"cwd", "absent"}, {"wait_sec", 300}});
  EXPECT_TRUE(refused(waited.started, 400, "invalid_request")) << "a waiting call is refused as for any exec";
  EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found"));
}

void what_an_exec_may_not_ask_for_is_refused_at_once(World& w) {
  for (const Json& more :
       {Json{{"stdin_open", true}}, Json{{"pty", Json::object()}}, Json{{"background", true}, {"pty", true}},
        Json{{"background", true}, {"pty", {{"cols", 0}}}}, Json{{"background", true}, {"pty", {{"x", 1}}}},
        Json{{"wait_sec", -1}}, Json{{"wait_sec", "1"}}, Json{{"wait_sec", 1e9}},
        Json{{"background", true}, {"stdin_open", "yes"}}, Json{{"background", true}, {"timeout_sec", 0}}})
    EXPECT_TRUE(refused(w.me.exec("touch ran", more), 400, "invalid_request")) << more;
  EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found"));
}

void an_exec_of_another_tenant_is_not_there(World& w) {
  const auto own = w.another(two_keys());
  const Caller alpha(own->url(), key_of('A'), "same"), beta(own->url(), key_of('B'), "same");
  const LongLived exec(alpha, {{"command", "cat; sleep 300"}, {"stdin_open", true}});
  ASSERT_EQ(exec.started.status, 202) << exec.started.text;
  const Headers json{{"Content-Type", "application/json"}};
  for (const std::string& path : {exec.url(), "/execs/" + std::string(32, '0'), std::string("/execs/x")}) {
    SCOPED_TRACE(path);
    const auto is_absent = [](const Answer& answer) { return refused(answer, 404, "exec_not_found"); };
    EXPECT_TRUE(is_absent(beta.get(path)));
    EXPECT_TRUE(is_absent(beta.get(path + "?wait_sec=1")));
    EXPECT_TRUE(is_absent(beta.get(path + "/output")));
    EXPECT_TRUE(is_absent(beta.get(path + "/output?follow=true")));
    EXPECT_TRUE(is_absent(beta.call("POST", path + "/stdin?close=true", {}, "x")));
    EXPECT_TRUE(is_absent(beta.call("POST", path + "/signal", json, R"({"signal":"KILL"})")));
    EXPECT_TRUE(is_absent(beta.call("POST", path + "/resize", json, R"({"cols":80,"rows":24})")));
    EXPECT_TRUE(is_absent(beta.call("DELETE", path)));
    const WebSocket socket(beta.url(), path + "/attach", beta.headers());
    EXPECT_TRUE(is_absent(answer_of(socket.answer())));
  }
  EXPECT_EQ(beta.get("/execs").body.at("execs"), Json::array());
  EXPECT_EQ(alpha.get("/execs").body.at("execs").size(), 1u);
  const Json state = exec.state();
  EXPECT_EQ(state.at("state"), "running");
  EXPECT_EQ(state.at("stdin"), "open");
}

void execs_are_listed_by_agent(World& w) {
  const LongLived runs(w.me, {{"command", "sleep 300"}}), over(w.me, {{"command", "exit 3"}});
  const LongLived other(w.stranger(), {{"command", "sleep 300"}});
  ASSERT_EQ(over.ended().at("exit_code"), 3);
  const auto listed = [&](const std::string& query) {
    const Answer answer = w.me.get("/execs" + query);
    EXPECT_TRUE(succeeded(answer));
    std::map<std::string, Json> rows;
    for (const Json& row : answer.body.at("execs")) rows[row.at("exec_id")] = row;
    return rows;
  };
  const auto all = listed(""), mine = listed("?agent_id=" + w.me.agent());
  for (const LongLived* each : {&runs, &over, &other}) EXPECT_EQ(all.count(each->id), 1u);
  EXPECT_EQ(mine.count(other.id), 0u);
  ASSERT_EQ(mine.count(runs.id) + mine.count(over.id), 2u);
  EXPECT_EQ(mine.at(runs.id), runs.state());
  Json state = over.state();
  state.erase("artifacts");
  EXPECT_EQ(mine.at(over.id), state);
  for (const auto& [id, row] : mine) EXPECT_EQ(row.at("agent_id"), w.me.agent());
  EXPECT_TRUE(listed("?agent_id=nobody-has-this-one").empty());
  EXPECT_TRUE(succeeded(other.kill()));
  w.me.call("DELETE", "/sandboxes/" + w.stranger().agent() + "?purge=true");
}

void who_attaches_hears_what_was_and_what_comes(World& w) {
  const LongLived exec(
      w.me, {{"command", "echo one; echo err >&2; " + std::string(kUntilGo) + "echo two; exit 5"}});
  ASSERT_TRUE(exec.says("one\n"));
  Attached attached(exec, "?stdout_offset=1&stderr_offset=0", Heard(1, 0));
  ASSERT_TRUE(attached.socket.open()) << attached.socket.answer().body;
  ASSERT_TRUE(attached.hears("ne\n"));
  EXPECT_EQ(attached.heard.start.value("exec_id", ""), exec.id);
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  attached.rest();
  EXPECT_EQ(attached.heard.out, "ne\ntwo\n");
  EXPECT_EQ(attached.heard.error, "err\n");
  EXPECT_EQ(attached.heard.exit.value("outcome", ""), "exited");
  EXPECT_EQ(attached.heard.exit.value("exit_code", 0), 5);
  EXPECT_EQ(attached.socket.close_code(), 1000);
  Attached late(exec);
  ASSERT_TRUE(late.socket.open()) << late.socket.answer().body;
  late.rest();
  EXPECT_EQ(late.heard.out, "one\ntwo\n");
  EXPECT_EQ(late.heard.error, "err\n");
  EXPECT_EQ(late.heard.exit.value("exit_code", 0), 5);
  EXPECT_EQ(late.socket.close_code(), 1000);
}

void who_attaches_writes_to_stdin(World& w) {
  const std::string bytes = noise(200000, 3);
  const LongLived exec(w.me, {{"command", "cat; echo over"}, {"stdin_open", true}});
  Attached attached(exec);
  ASSERT_TRUE(attached.socket.open()) << attached.socket.answer().body;
  attached.socket.send_binary("first\n");
  ASSERT_TRUE(attached.hears("first\n"));
  attached.socket.send_binary(bytes.substr(0, 1));
  for (size_t at = 1; at < bytes.size(); at += 65536) attached.socket.send_binary(bytes.substr(at, 65536));
  attached.control({{"type", "close_stdin"}});
  attached.rest();
  EXPECT_TRUE(attached.heard.out == "first\n" + bytes + "over\n") << attached.heard.out.size();
  EXPECT_EQ(attached.heard.exit.value("exit_code", -1), 0);
}

void who_attaches_sends_signals(World& w) {
  const LongLived exec(
      w.me, {{"command", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done"}});
  Attached attached(exec);
  ASSERT_TRUE(attached.socket.open()) << attached.socket.answer().body;
  ASSERT_TRUE(attached.hears("up\n"));
  attached.control({{"type", "signal"}, {"signal", "INT"}});
  attached.rest();
  EXPECT_EQ(attached.heard.out, "up\ncaught\n");
  EXPECT_EQ(attached.heard.exit.value("exit_code", 0), 9);
}

void the_program_waits_for_who_is_attached(World& w) {
  const Own own(w, kMemoryOnly);
  const std::string all = "ready\n" + numbers_to(100000);
  const LongLived exec(own.me, {{"command", "echo ready; " + std::string(kUntilGo) + "seq 100000"},
                                {"max_output_bytes", 5000}});
  Attached attached(exec);
  ASSERT_TRUE(attached.hears("ready\n"));
  ASSERT_TRUE(succeeded(own.me.write("go", "")));
  sleep_sec(0.7);
  attached.rest();
  EXPECT_TRUE(attached.heard.out == all) << attached.heard.out.size() << " bytes of " << all.size();
  EXPECT_EQ(attached.socket.close_code(), 1000);
  Attached late(exec, "", Heard(std::nullopt));
  late.rest();
  EXPECT_EQ(late.heard.out, all.substr(all.size() - 5000)) << "it begins with the oldest byte that is kept";
  const WebSocket dropped(own.me.url(), exec.url("/attach?stdout_offset=0"), own.me.headers());
  EXPECT_TRUE(refused(answer_of(dropped.answer()), 410, "output_dropped"));
}

void an_exec_that_keeps_no_output_waits_for_no_reader(World& w) {
  const LongLived exec(w.me,
                       {{"command", std::string(kUntilGo) + "echo lost; exit 5"}, {"max_output_bytes", 0}});
  Attached attached(exec);
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  attached.rest();
  EXPECT_EQ(attached.heard.out, "");
  const Json end = exec.ended();
  EXPECT_EQ(end.at("exit_code"), 5);
  EXPECT_EQ(end.at("stdout_bytes"), 5);
  EXPECT_EQ(end.at("truncated"), true);
}

// What fits into the pipe is more than what is kept.
void an_end_waits_for_no_reader(World& w) {
  const std::string all = numbers_to(4000);
  const LongLived exec(w.me,
                       {{"command", std::string(kUntilGo) + "seq 4000; exit 6"}, {"max_output_bytes", 1000}});
  Attached stalled(exec);
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  EXPECT_EQ(exec.ended().at("exit_code"), 6) << "while a reader has taken nothing";
  stalled.control({{"type", "resize"}, {"rows", 10}, {"cols", 10}});
  stalled.rest();
  EXPECT_TRUE(stalled.heard.out == all) << stalled.heard.out.size();
  EXPECT_EQ(stalled.socket.close_code(), 1000);
}

void who_detaches_leaves_the_program_running(World& w) {
  const LongLived exec(w.me, {{"command", "echo up; " + std::string(kUntilGo) + "read line; echo $line"},
                              {"stdin_open", true}});
  Attached polite(exec);
  ASSERT_TRUE(polite.hears("up\n"));
  polite.socket.close();
  {
    std::optional<Attached> rude;
    ASSERT_TRUE(eventually(30, [&] {  // until the gateway has noticed
      rude.emplace(exec);
      return rude->socket.open();
    })) << rude->socket.answer().body;
    ASSERT_TRUE(rude->hears("up\n"));
    rude->socket.drop();
  }
  const Json state = exec.state("?wait_sec=1");
  EXPECT_EQ(state.at("state"), "running");
  EXPECT_EQ(state.at("stdin"), "open");
  ASSERT_TRUE(succeeded(w.me.write("go", "")));
  Answer typed;
  EXPECT_TRUE(eventually(30, [&] {
    typed = exec.type("words\n");
    return typed.status == 200;
  })) << typed.text;
  EXPECT_EQ(exec.ended().at("exit_code"), 0);
  EXPECT_EQ(exec.heard().out, "up\nwords\n");
}

void one_client_writes_and_many_read(World& w) {
  const LongLived exec(w.me, {{"command", "echo up; cat"}, {"stdin_open", true}});
  Attached writer(exec);
  ASSERT_TRUE(writer.hears("up\n"));
  const WebSocket second(w.me.url(), exec.url("/attach"), w.me.headers());
  const Answer answer = answer_of(second.answer());
  ASSERT_TRUE(refused(answer, 409, "already_attached"));
  EXPECT_EQ(answer.body.at("error").at("retryable"), true);
  EXPECT_TRUE(refused(exec.type("x"), 409, "already_attached"));
  Attached one(exec, "?read_only=true"), other(exec, "?read_only=true");
  writer.socket.send_binary("to all\n");
  for (Attached* each : {&writer, &one, &other}) {
    ASSERT_TRUE(each->socket.open()) << each->socket.answer().body;
    EXPECT_TRUE(each->hears("to all\n"));
  }
  writer.socket.send_binary(std::string((128 << 10) + 1, 'x'));
  one.socket.send_binary(std::string((4 << 10) + 1, 'x'));
  for (Attached* each : {&writer, &one}) {
    each->rest();
    EXPECT_EQ(each->socket.close_code(), 1009) << "the message is too large";
  }
  EXPECT_TRUE(eventually(30, [&] { return Attached(exec).socket.open(); })) << "the writer has gone";
  const Answer none = w.me.get(exec.url("/attach?read_only=true"));
  EXPECT_TRUE(refused(none, 400, "invalid_request")) << "no WebSocket was asked for";
  EXPECT_EQ(none.header("Sec-WebSocket-Version"), "13");
}

void a_long_lived_exec_keeps_its_sandbox_from_being_idle(World& w) {
  const auto own = w.another("sandbox_idle_timeout_sec: 1");
  const Caller quiet(*own, "quiet"), busy(*own, "busy");
  ASSERT_TRUE(succeeded(quiet.write("kept", "")));
  const LongLived exec(busy, {{"command", "echo up; cat; exit 3"}, {"stdin_open", true}});
  ASSERT_TRUE(exec.says("up\n"));
  EXPECT_EQ(row_of(busy).value("running_execs", 0), 1);
  EXPECT_TRUE(own->logs("sandbox_stopped_idle", 60));
  sleep_sec(2);
  EXPECT_EQ(own->log().find("\"agent_id\":\"busy\",\"limit_sec\""), std::string::npos);
  EXPECT_EQ(exec.state().at("state"), "running");
  ASSERT_TRUE(succeeded(exec.type("", true)));
  EXPECT_EQ(exec.ended().at("exit_code"), 3);
  EXPECT_TRUE(eventually(10, [&] { return row_of(busy).value("running_execs", 1) == 0; }));
}

void a_result_is_kept_longer_than_the_output(World& w) {
  const Own own(w, "exec: {keep_ended_sec: 1, max_background_sec: 5}");
  EXPECT_TRUE(
      refused(own.me.exec("true", {{"background", true}, {"timeout_sec", 6}}), 400, "invalid_request"));
  const LongLived exec(own.me, {{"command", "echo out; sleep 300"}});
  EXPECT_EQ(exec.ended().at("outcome"), "timed_out") << "without a timeout it gets the maximum";
  EXPECT_TRUE(eventually(30, [&] { return exec.output().status == 404; })) << exec.output().text;
  const Json left = exec.state();
  EXPECT_EQ(left.at("state"), "ended");
  EXPECT_EQ(left.at("agent_id"), own.me.agent());
  EXPECT_EQ(left.at("outcome"), "timed_out");
  EXPECT_EQ(left.at("exit_code"), 124);
  EXPECT_EQ(left.at("stdout_bytes"), 4);
  EXPECT_EQ(own.me.get("/execs").body.at("execs"), Json::array());
}

bool finds_execs_again(World& w) { return w.can("kept_execs"); }

// Kills the gateway before it can record how its execs ended; `exec_id` is the last of them.
void let_die(Gateway& gateway, const std::string& exec_id) {
  ASSERT_TRUE(eventually(30, [&] { return gateway.has_journaled(exec_id); }));
  const pid_t front = front_of(gateway);
  ASSERT_GT(front, 0) << "-1 would be every process";
  ASSERT_EQ(::kill(front, SIGKILL), 0);
  gateway.signal(SIGKILL);
  ASSERT_EQ(gateway.wait(45), 128 + SIGKILL);
}

void an_exec_of_a_gateway_that_died_is_unknown(World& w) {
  if (finds_execs_again(w)) GTEST_SKIP() << "this backend finds it again";
  const Own first(w);
  const LongLived exec(first.me, {{"command", "echo up; sleep 300"}});
  ASSERT_TRUE(exec.says("up\n"));
  let_die(*first.gateway, exec.id);
  const Own second(w, {}, first.gateway->state_dir());
  const Answer answer = second.me.get(exec.url());
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.body.at("state"), "ended");
  EXPECT_EQ(answer.body.at("outcome"), "unknown");
  EXPECT_TRUE(answer.body.at("exit_code").is_null());
  EXPECT_FALSE(answer.body.contains("stdout_bytes")) << "nobody knows how much it wrote: " << answer.text;
  second.gateway->stop();
}

const char* const kTalk =
    "echo up; read line; echo got $line; echo oops >&2; read more; echo over $more; exit 3";

void an_exec_of_a_gateway_that_died_is_found_again(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own first(w);
  const LongLived exec(first.me, {{"command", kTalk}, {"stdin_open", true}});
  ASSERT_TRUE(exec.says("up\n"));
  ASSERT_TRUE(succeeded(exec.type("one\n")));
  ASSERT_TRUE(exec.says("got one\n"));
  let_die(*first.gateway, exec.id);
  const Own second(w, {}, first.gateway->state_dir());
  const LongLived again(second.me, exec.id);
  EXPECT_EQ(again.state().at("state"), "running");
  EXPECT_TRUE(again.says("up\ngot one\n"));
  EXPECT_EQ(again.state().at("isolation"), exec.started.body.at("isolation"));
  EXPECT_EQ(again.state().at("started_ms"), exec.started.body.at("started_ms"));
  ASSERT_TRUE(succeeded(again.type("two\n")));
  const Json end = again.ended();
  EXPECT_EQ(end.at("outcome"), "exited") << end;
  EXPECT_EQ(end.at("exit_code"), 3);
  EXPECT_EQ(end.at("stdout_bytes"), 20);
  EXPECT_EQ(again.heard().out, "up\ngot one\nover two\n");
  EXPECT_EQ(again.heard().error, "oops\n");
  second.gateway->stop();
}

// All of a gateway whose memory is nearly full.
void execs_that_are_found_again_claim_no_more_memory_than_before(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const std::string little =
      "limits: {max_held_bytes: 2097152, max_json_bytes: 65536}\n"
      "exec: {max_output_bytes: 65536, max_max_output_bytes: 65536}";
  const Own first(w, little);
  std::list<LongLived> execs, found;
  for (int i = 0; i < 4; ++i) {
    const LongLived& exec = execs.emplace_back(
        first.me, Json{{"command", "echo up; cat"}, {"stdin_open", true}, {"max_output_bytes", 1000}});
    ASSERT_TRUE(exec.says("up\n"));
  }
  let_die(*first.gateway, execs.back().id);
  const Own second(w, little, first.gateway->state_dir());
  for (const LongLived& exec : execs) {
    const LongLived& again = found.emplace_back(second.me, exec.id);
    EXPECT_TRUE(succeeded(again.type("still\n")));
    EXPECT_TRUE(again.says("up\nstill\n"));
  }
  second.gateway->stop();
}

void an_exec_that_ended_while_no_gateway_was_there_has_its_result(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own first(w);
  const LongLived exec(first.me, {{"command", "echo up; sleep 8; echo late; exit 4"}});
  ASSERT_TRUE(exec.says("up\n"));
  let_die(*first.gateway, exec.id);
  sleep_sec(8);
  const Own second(w, {}, first.gateway->state_dir());
  const LongLived again(second.me, exec.id);
  const Json end = again.ended();
  EXPECT_EQ(end.at("outcome"), "exited") << end;
  EXPECT_EQ(end.at("exit_code"), 4);
  EXPECT_EQ(again.heard().out, "up\nlate\n");
  second.gateway->stop();
}

void an_exec_that_was_found_again_keeps_its_deadline_and_can_be_killed(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own first(w);
  const std::string mark = new_mark();
  const LongLived late(first.me, {{"command", "echo up; sleep 300"}, {"timeout_sec", 8}});
  const LongLived long_one(first.me, {{"command", "echo up; setsid -f sleep " + mark + "; sleep " + mark},
                                      {"pty", {{"cols", 80}, {"rows", 24}}}});
  ASSERT_TRUE(late.says("up\n"));
  ASSERT_TRUE(long_one.says("up\r\n"));
  let_die(*first.gateway, long_one.id);
  const Own second(w, {}, first.gateway->state_dir());
  const LongLived again(second.me, long_one.id);
  EXPECT_TRUE(again.says("up\r\n"));
  EXPECT_EQ(again.state().at("pty"), true);
  EXPECT_TRUE(succeeded(again.control("resize", {{"cols", 90}, {"rows", 30}})));
  EXPECT_EQ(LongLived(second.me, late.id).ended().at("outcome"), "timed_out");
  const Answer killed = again.kill();
  EXPECT_EQ(killed.body.at("outcome"), "killed") << killed.text;
  if (w.shares_processes()) {
    EXPECT_TRUE(gone_within(1, mark));
  }
  second.gateway->stop();
}

void an_orderly_stop_leaves_execs_where_it_keeps_sandboxes(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own first(w, "on_shutdown: keep");
  const LongLived exec(first.me, {{"command", kTalk}, {"stdin_open", true}});
  ASSERT_TRUE(exec.says("up\n"));
  Follower follower(exec);
  ASSERT_TRUE(follower.hears("up\n"));
  Attached attached(exec);
  ASSERT_TRUE(attached.hears("up\n"));
  auto poll =
      std::async(std::launch::async, [&exec] { return exec.caller().get(exec.url("?wait_sec=240")); });
  EXPECT_EQ(poll.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  first.gateway->stop();
  EXPECT_TRUE(refused(poll.get(), 503, "draining"));
  follower.rest();
  EXPECT_TRUE(follower.heard.exit.is_null()) << follower.heard.exit;
  attached.rest();
  EXPECT_TRUE(attached.heard.exit.is_null()) << attached.heard.exit;
  EXPECT_EQ(attached.socket.close_code(), 1001);
  const Own second(w, {}, first.gateway->state_dir());
  const LongLived again(second.me, exec.id);
  ASSERT_TRUE(again.says("up\n"));
  ASSERT_TRUE(succeeded(again.type("one\ntwo\n")));
  EXPECT_EQ(again.ended().at("exit_code"), 3);
  EXPECT_EQ(again.heard().out, "up\ngot one\nover two\n");
  second.gateway->stop();
}

// Its descriptors are closed then.
void kill_host(const Gateway& gateway, const std::string& backend) {
  const pid_t host = host_of(gateway, backend);
  ASSERT_GT(host, 0);
  ASSERT_EQ(::kill(host, SIGKILL), 0);
  ASSERT_TRUE(eventually(10, [&] { return ::kill(host, 0) != 0; }));
}

// Its front keeps running, and has the earlier output.
void an_exec_outlives_its_backend_host(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own own(w);
  const LongLived exec(
      own.me,
      {{"command", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo $i; [ -e go ] || sleep 0.02; done"}});
  ASSERT_TRUE(exec.says("5\n"));
  Follower follower(exec);
  ASSERT_TRUE(follower.hears("8\n"));
  kill_host(*own.gateway, w.backend);
  EXPECT_TRUE(eventually(60, [&] { return own.me.write("go", "").status < 300; }));
  const Json end = exec.ended();
  EXPECT_EQ(end.at("outcome"), "exited") << end;
  follower.rest();
  EXPECT_EQ(follower.heard.out, numbers_to(2000));
  EXPECT_EQ(end.at("stdout_bytes"), numbers_to(2000).size());
  own.gateway->stop();
}

void input_goes_on_after_its_backend_host_ended(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own own(w, "limits: {max_execs_per_sandbox: 1}");
  const LongLived exec(own.me, {{"command", "echo ready; cat; echo over"}, {"stdin_open", true}});
  Attached attached(exec);
  ASSERT_TRUE(attached.hears("ready\n"));
  attached.socket.send_binary("before\n");
  ASSERT_TRUE(attached.hears("before\n"));
  const pid_t host = host_of(*own.gateway, w.backend);
  ASSERT_GT(host, 0);
  // It waits for a slot, which it must not take from the exec that continues.
  std::jthread newcomer([&own] { own.me.post("/exec", {{"command", "sleep 5"}}); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(::kill(host, SIGKILL), 0);
  EXPECT_TRUE(eventually(60, [&] { return own.me.write("go", "").status < 300; }));
  attached.socket.send_binary("after\n");
  EXPECT_TRUE(attached.hears("after\n"));
  EXPECT_TRUE(refused(exec.type("x"), 409, "already_attached"));
  attached.control({{"type", "close_stdin"}});
  attached.rest();
  EXPECT_TRUE(attached.heard.out.ends_with("after\nover\n")) << attached.heard.out;
  EXPECT_EQ(exec.ended().at("outcome"), "exited");
  newcomer.join();
  own.gateway->stop();
}

// Until no backend host is started any more.
void quarantine(const Gateway& gateway, const std::string& backend) {
  const auto killed = [&] {
    if (const pid_t host = host_of(gateway, backend); host > 0) ::kill(host, SIGKILL);
    return gateway.log().find("backend_quarantined") != std::string::npos;
  };
  ASSERT_TRUE(eventually(60, killed)) << gateway.log();
}

void input_and_its_end_follow_the_end_of_the_backend_host(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own own(w);
  const LongLived exec(own.me, {{"command", "echo ready; cat; echo over"}, {"stdin_open", true}});
  Attached attached(exec);
  ASSERT_TRUE(attached.hears("ready\n"));
  kill_host(*own.gateway, w.backend);
  attached.socket.send_binary("after\n");
  attached.control({{"type", "close_stdin"}});
  attached.rest();
  EXPECT_EQ(attached.heard.out, "ready\nafter\nover\n");
  EXPECT_EQ(exec.ended().at("outcome"), "exited");
  own.gateway->stop();
}

void an_exec_outlives_the_quarantine_of_its_backend(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own own(w);
  const LongLived exec(own.me, {{"command", "echo ready; " + std::string(kUntilGo) + "echo over; exit 3"}});
  ASSERT_TRUE(exec.says("ready\n"));
  quarantine(*own.gateway, w.backend);
  sleep_sec(2);
  EXPECT_EQ(exec.state().at("state"), "running");
  own.gateway->signal(SIGHUP);
  EXPECT_TRUE(eventually(60, [&] { return own.me.write("go", "").status < 300; }));
  const Json end = exec.ended();
  EXPECT_EQ(end.value("exit_code", Json()), 3) << end;
  EXPECT_EQ(exec.heard().out, "ready\nover\n");
  own.gateway->stop();
}

void a_kill_that_a_stop_precedes_is_refused(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own first(w, "on_shutdown: keep");
  const LongLived exec(first.me, {{"command", "echo ready; sleep 300"}});
  ASSERT_TRUE(exec.says("ready\n"));
  quarantine(*first.gateway, w.backend);
  auto kill = std::async(std::launch::async, [&exec] { return exec.kill(); });
  EXPECT_EQ(kill.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  first.gateway->signal(SIGTERM);
  EXPECT_TRUE(refused(kill.get(), 503, "draining"));
  EXPECT_GE(first.gateway->wait(45), 0) << "it does not end";
  const Own second(w, {}, first.gateway->state_dir());
  const LongLived again(second.me, exec.id);
  EXPECT_EQ(again.state().at("state"), "running");
  EXPECT_EQ(again.kill().body.value("outcome", ""), "killed");
  second.gateway->stop();
}

void input_and_its_end_wait_for_the_next_backend_host(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own own(w);
  const LongLived exec(own.me, {{"command", "echo ready; cat; echo over"}, {"stdin_open", true}});
  ASSERT_TRUE(exec.says("ready\n"));
  quarantine(*own.gateway, w.backend);
  EXPECT_TRUE(eventually(60, [&] { return exec.type("last words\n", true).status < 300; }));
  sleep_sec(2);  // it is looked for more than once
  own.gateway->signal(SIGHUP);
  EXPECT_EQ(exec.ended().at("outcome"), "exited");
  EXPECT_EQ(exec.heard().out, "ready\nlast words\nover\n");
  own.gateway->stop();
}

// What the ended host had received may be missing.
void stdin_of_the_request_goes_on_after_its_backend_host_ended(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own own(w);
  const LongLived exec(own.me, {{"command", "echo ready; " + std::string(kUntilGo) + "tail -n 2"},
                                {"stdin", std::string(4000000, 'x') + "\nlast of the request\n"},
                                {"stdin_open", true}});
  ASSERT_TRUE(exec.says("ready\n"));
  kill_host(*own.gateway, w.backend);
  EXPECT_TRUE(eventually(60, [&] { return own.me.write("go", "").status < 300; }));
  EXPECT_TRUE(eventually(60, [&] { return exec.type("and more\n", true).status < 300; }));
  EXPECT_EQ(exec.ended().at("outcome"), "exited");
  EXPECT_EQ(exec.heard().out, "ready\nlast of the request\nand more\n");
  own.gateway->stop();
}

void a_stalled_reader_does_not_keep_an_exec_from_the_next_backend_host(World& w) {
  if (!finds_execs_again(w)) GTEST_SKIP() << "its programs end with the gateway";
  const Own own(w, kMemoryOnly);
  const LongLived exec(own.me, {{"command", "trap 'touch caught' USR1; echo ready; " + std::string(kUntilGo) +
                                                "yes & while :; do sleep 0.1; done"},
                                {"max_output_bytes", 5000}});
  Attached stalled(exec);
  ASSERT_TRUE(stalled.hears("ready\n"));
  ASSERT_TRUE(succeeded(own.me.write("go", "")));
  const auto written = [&] { return exec.state().at("stdout").at("next_offset").get<uint64_t>(); };
  uint64_t last = 0;
  ASSERT_TRUE(eventually(60, [&] {
    const uint64_t before = std::exchange(last, written());
    sleep_sec(0.5);
    return before > 0 && before == last;
  })) << "its reader does not stall";
  kill_host(*own.gateway, w.backend);
  EXPECT_TRUE(eventually(30, [&] { return exec.signal("USR1").status < 300; }));
  EXPECT_TRUE(eventually(30, [&] { return own.me.read("caught").status == 200; }));
  stalled.socket.drop();
  own.gateway->stop();
}

const Case kLongExecCases[] = {
    {"background_answers_at_once_with_a_state", 3, background_answers_at_once_with_a_state},
    {"an_ended_exec_has_its_result", 3, an_ended_exec_has_its_result},
    {"a_long_lived_exec_goes_on_without_its_client", 3, a_long_lived_exec_goes_on_without_its_client},
    {"a_wait_answers_with_the_result_when_the_program_ends", 2,
     a_wait_answers_with_the_result_when_the_program_ends},
    {"a_wait_answers_with_a_state_when_its_time_has_passed", 2,
     a_wait_answers_with_a_state_when_its_time_has_passed},
    {"a_state_can_be_waited_for", 2, a_state_can_be_waited_for},
    {"the_end_of_a_stream_can_be_waited_for", 2, the_end_of_a_stream_can_be_waited_for},
    {"output_is_the_same_from_every_offset", 4, output_is_the_same_from_every_offset},
    {"a_reader_goes_on_where_it_stopped", 4, a_reader_goes_on_where_it_stopped},
    {"older_output_is_kept_on_disk", 4, older_output_is_kept_on_disk},
    {"output_beyond_the_quota_of_the_disk_is_dropped", 4, output_beyond_the_quota_of_the_disk_is_dropped},
    {"a_flood_leaves_other_tenants_their_share_of_the_disk", 4,
     a_flood_leaves_other_tenants_their_share_of_the_disk},
    {"output_that_was_dropped_is_410_with_what_is_there", 4,
     output_that_was_dropped_is_410_with_what_is_there},
    {"a_follower_reads_on_to_the_exit_event", 4, a_follower_reads_on_to_the_exit_event},
    {"without_follow_an_answer_ends_while_output_goes_on", 4,
     without_follow_an_answer_ends_while_output_goes_on},
    {"the_program_waits_for_its_followers", 4, the_program_waits_for_its_followers},
    {"who_leaves_holds_the_program_no_longer", 4, who_leaves_holds_the_program_no_longer},
    {"what_fits_the_disk_waits_for_no_reader", 4, what_fits_the_disk_waits_for_no_reader},
    {"a_stalled_reader_does_not_save_an_exec", 1, a_stalled_reader_does_not_save_an_exec},
    {"stdin_comes_in_parts_and_is_closed", 4, stdin_comes_in_parts_and_is_closed},
    {"stdin_carries_every_byte", 4, stdin_carries_every_byte},
    {"stdin_that_is_closed_takes_nothing_more", 9, stdin_that_is_closed_takes_nothing_more},
    {"what_has_ended_takes_neither_input_nor_signals", 9, what_has_ended_takes_neither_input_nor_signals},
    {"a_signal_ends_a_program", 3, a_signal_ends_a_program},
    {"a_signal_that_is_trapped_reaches_the_program", 3, a_signal_that_is_trapped_reaches_the_program},
    {"signals_and_sizes_that_make_no_sense_are_refused", 9, signals_and_sizes_that_make_no_sense_are_refused},
    {"deleting_an_exec_kills_all_that_it_started", 1, deleting_an_exec_kills_all_that_it_started},
    {"a_long_lived_exec_has_a_timeout", 1, a_long_lived_exec_has_a_timeout},
    {"deleting_its_sandbox_kills_a_long_lived_exec", 1, deleting_its_sandbox_kills_a_long_lived_exec},
    {"a_terminal_has_the_size_that_was_asked_for", 4, a_terminal_has_the_size_that_was_asked_for},
    {"a_terminal_takes_another_size", 4, a_terminal_takes_another_size},
    {"control_c_interrupts_on_a_terminal", 4, control_c_interrupts_on_a_terminal},
    {"the_end_of_input_reaches_a_program_on_a_terminal", 4, the_end_of_input_reaches_a_program_on_a_terminal},
    {"what_could_not_start_says_why", 9, what_could_not_start_says_why},
    {"what_an_exec_may_not_ask_for_is_refused_at_once", 9, what_an_exec_may_not_ask_for_is_refused_at_once},
    {"an_exec_of_another_tenant_is_not_there", 5, an_exec_of_another_tenant_is_not_there},
    {"execs_are_listed_by_agent", 0, execs_are_listed_by_agent},
    {"who_attaches_hears_what_was_and_what_comes", 4, who_attaches_hears_what_was_and_what_comes},
    {"who_attaches_writes_to_stdin", 4, who_attaches_writes_to_stdin},
    {"who_attaches_sends_signals", 3, who_attaches_sends_signals},
    {"the_program_waits_for_who_is_attached", 4, the_program_waits_for_who_is_attached},
    {"an_exec_that_keeps_no_output_waits_for_no_reader", 4, an_exec_that_keeps_no_output_waits_for_no_reader},
    {"an_end_waits_for_no_reader", 4, an_end_waits_for_no_reader},
    {"who_detaches_leaves_the_program_running", 3, who_detaches_leaves_the_program_running},
    {"one_client_writes_and_many_read", 0, one_client_writes_and_many_read},
    {"a_long_lived_exec_keeps_its_sandbox_from_being_idle", 5,
     a_long_lived_exec_keeps_its_sandbox_from_being_idle},
    {"a_result_is_kept_longer_than_the_output", 3, a_result_is_kept_longer_than_the_output},
    {"an_exec_of_a_gateway_that_died_is_unknown", 3, an_exec_of_a_gateway_that_died_is_unknown},
    {"an_exec_of_a_gateway_that_died_is_found_again", 3, an_exec_of_a_gateway_that_died_is_found_again},
    {"execs_that_are_found_again_claim_no_more_memory_than_before", 3,
     execs_that_are_found_again_claim_no_more_memory_than_before},
    {"an_exec_that_ended_while_no_gateway_was_there_has_its_result", 3,
     an_exec_that_ended_while_no_gateway_was_there_has_its_result},
    {"an_exec_that_was_found_again_keeps_its_deadline_and_can_be_killed", 1,
     an_exec_that_was_found_again_keeps_its_deadline_and_can_be_killed},
    {"an_orderly_stop_leaves_execs_where_it_keeps_sandboxes", 9,
     an_orderly_stop_leaves_execs_where_it_keeps_sandboxes},
    {"an_exec_outlives_its_backend_host", 3, an_exec_outlives_its_backend_host},
    {"input_goes_on_after_its_backend_host_ended", 3, input_goes_on_after_its_backend_host_ended},
    {"input_and_its_end_follow_the_end_of_the_backend_host", 3,
     input_and_its_end_follow_the_end_of_the_backend_host},
    {"an_exec_outlives_the_quarantine_of_its_backend", 3, an_exec_outlives_the_quarantine_of_its_backend},
    {"a_kill_that_a_stop_precedes_is_refused", 3, a_kill_that_a_stop_precedes_is_refused},
    {"input_and_its_end_wait_for_the_next_backend_host", 3, input_and_its_end_wait_for_the_next_backend_host},
    {"stdin_of_the_request_goes_on_after_its_backend_host_ended", 3,
     stdin_of_the_request_goes_on_after_its_backend_host_ended},
    {"a_stalled_reader_does_not_keep_an_exec_from_the_next_backend_host", 4,
     a_stalled_reader_does_not_keep_an_exec_from_the_next_backend_host},
};

}  // namespace

std::span<const Case> long_exec_cases() { return kLongExecCases; }

}  // namespace isogate::test
