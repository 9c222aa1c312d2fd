#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>

#include "tests/contract/contract.h"

// GET /workspace/watch: what changes in a directory, while it changes.
namespace isogate::test {
namespace {

struct WatchEvent {
  std::string name;
  Json data;
};

std::string watch_url(const Caller& me, const std::string& query) {
  return "/workspace/watch?agent_id=" + me.agent() + (query.empty() ? "" : "&" + query);
}

// A response of Server-Sent Events, read one by one; comments are skipped.
class Watched {
 public:
  explicit Watched(const Caller& me, const std::string& query = {}, double timeout_sec = 120)
      : connection(me.url(), timeout_sec) {
    connection.send_request_head("GET", watch_url(me, query), me.headers());
    head = connection.read_head();
    for (std::string more = "more"; head.status != 200 && !more.empty();) {
      more = connection.read_some();
      head.body += more;
    }
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // nullopt: the response has ended, or only comments arrived for that long.
  std::optional<WatchEvent> next() {
    for (const auto until = std::chrono::steady_clock::now() + kPatience;;) {
      if (std::chrono::steady_clock::now() > until) return std::nullopt;
      const size_t end = text_.find("\n\n");
      if (end == std::string::npos) {
        const std::string more = connection.read_some();
        if (more.empty()) return std::nullopt;
        text_ += more;
        continue;
      }
      const std::string block = text_.substr(0, end);
      text_.erase(0, end + 2);
      if (block.starts_with(":")) continue;
      const std::string event = "event: ", data = "\ndata: ";
      const size_t at = block.find(data);
      if (!block.starts_with(event) || at == std::string::npos)
        throw std::runtime_error("no event: " + block);
      return WatchEvent{block.substr(event.size(), at - event.size()),
                        Json::parse(block.substr(at + data.size()))};
    }
  }
  [[nodiscard]] bool ready() {
    if (head.status != 200) return false;
    const auto first = next();
    return first && first->name == "ready";
  }
  // Takes events up to that change; the others are seen(), too.
  testing::AssertionResult reports(const std::string& type, const std::string& path, bool directory = false) {
    while (const auto event = next()) {
      if (event->name != "change")
        return testing::AssertionFailure() << event->name << " " << event->data << " instead of " << path;
      changes_.push_back(event->data);
      if (event->data.at("path") != path || event->data.at("type") != type) continue;
      if (event->data.at("directory") == directory) return testing::AssertionSuccess();
      return testing::AssertionFailure() << event->data;
    }
    return testing::AssertionFailure() << "the answer ended without " << type << " " << path;
  }
  // Takes the rest; returns why it ended.
  std::string reason() {
    std::optional<WatchEvent> last;
    while (auto event = next()) {
      if (last && last->name == "end") return "more came after the end";
      last = std::move(event);
    }
    return last && last->name == "end" ? last->data.at("reason").get<std::string>() : "it has no end";
  }
  [[nodiscard]] const std::vector<Json>& changes() const { return changes_; }
  [[nodiscard]] bool saw(const std::function<bool(const Json&)>& what) const {
    return std::any_of(changes_.begin(), changes_.end(), what);
  }

  HttpConnection connection;
  HttpResponse head;

 private:
  static constexpr std::chrono::seconds kPatience{90};
  std::string text_;
  std::vector<Json> changes_;
};

bool has_watches(World& w) { return w.can("watch"); }
#define SKIP_WITHOUT_WATCHES(w) \
  if (!has_watches(w)) GTEST_SKIP() << "its sandboxes cannot be watched here"

void a_watch_reports_each_kind_of_change(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  Watched watch(w.me, "recursive=true");
  ASSERT_EQ(watch.head.status, 200) << watch.head.body;
  EXPECT_EQ(watch.head.header("Content-Type"), "text/event-stream");
  ASSERT_TRUE(watch.ready());
  w.me.run("echo one > file");
  ASSERT_TRUE(watch.reports("created", "file"));
  ASSERT_TRUE(watch.reports("written", "file"));
  w.me.run("mkdir dir");
  ASSERT_TRUE(watch.reports("created", "dir", true));
  w.me.run("mv file dir/moved");
  ASSERT_TRUE(watch.reports("renamed", "dir/moved"));
  EXPECT_EQ(watch.changes().back().at("from"), "file");
  w.me.run("echo two >> dir/moved");
  ASSERT_TRUE(watch.reports("written", "dir/moved"));
  w.me.run("chmod 600 dir/moved");
  ASSERT_TRUE(watch.reports("attributes", "dir/moved"));
  w.me.run("mv dir other");
  ASSERT_TRUE(watch.reports("renamed", "other", true));
  EXPECT_EQ(watch.changes().back().at("from"), "dir");
  w.me.run("echo three >> other/moved");
  ASSERT_TRUE(watch.reports("written", "other/moved")) << "a renamed directory is still watched";
  w.me.run("rm -r other");
  ASSERT_TRUE(watch.reports("removed", "other/moved"));
  ASSERT_TRUE(watch.reports("removed", "other", true));
}

void a_new_tree_is_reported_whole(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  Watched watch(w.me, "recursive=true");
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  w.me.run("for i in 1 2 3 4 5; do mkdir -p $i/a/b/c; echo x > $i/a/b/c/f; done; touch last");
  // In any order: directories are looked into as they are found.
  const auto is_created = [&](const std::string& path) {
    return watch.saw(
        [&](const Json& each) { return each.at("path") == path && each.at("type") == "created"; });
  };
  const auto all_there = [&] {
    for (const char* first : {"1", "2", "3", "4", "5"})
      for (const char* rest : {"", "/a", "/a/b", "/a/b/c", "/a/b/c/f"})
        if (!is_created(std::string(first) + rest)) return false;
    return true;
  };
  for (int probe = 0; !all_there() && probe < 100; ++probe) {
    const std::string name = "probe" + std::to_string(probe);
    w.me.run("touch " + name);
    ASSERT_TRUE(watch.reports("created", name));
  }
  EXPECT_TRUE(all_there()) << Json(watch.changes());
}

void what_lies_below_is_reported_only_recursively(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  w.me.run("mkdir -p dir/sub");
  Watched flat(w.me, "path=dir"), deep(w.me, "path=/workspace/./dir/&recursive=true");
  ASSERT_TRUE(flat.ready()) << flat.head.body;
  ASSERT_TRUE(deep.ready()) << deep.head.body;
  w.me.run("touch outside; touch dir/sub/below; touch dir/last");
  ASSERT_TRUE(deep.reports("created", "dir/sub/below"));
  ASSERT_TRUE(deep.reports("created", "dir/last"));
  ASSERT_TRUE(flat.reports("created", "dir/last"));
  for (const Watched* each : {&flat, &deep})
    EXPECT_FALSE(each->saw([](const Json& one) { return one.at("path") == "outside"; }));
  EXPECT_FALSE(flat.saw([](const Json& one) { return one.at("path") == "dir/sub/below"; }));
}

void a_write_of_the_gateway_appears_whole(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  Watched watch(w.me, "recursive=true");
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  ASSERT_TRUE(succeeded(w.me.write("new/file", "text")));
  ASSERT_TRUE(watch.reports("created", "new/file"));
  ASSERT_TRUE(succeeded(w.me.write("new/file", "more", {{"append", true}})));
  ASSERT_TRUE(watch.reports("created", "new/file"));
  ASSERT_TRUE(succeeded(w.me.post("/workspace/move", {{"path", "new/file"}, {"to", "moved"}})));
  ASSERT_TRUE(watch.reports("renamed", "moved"));
  ASSERT_TRUE(succeeded(w.me.post("/workspace/remove", {{"path", "moved"}})));
  ASSERT_TRUE(watch.reports("removed", "moved"));
  const auto is_staged = [](const Json& one) { return one.dump().find(".isogate-") != std::string::npos; };
  EXPECT_FALSE(watch.saw(is_staged)) << Json(watch.changes());
}

void names_that_are_not_utf8_come_as_base64(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  Watched watch(w.me);
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  w.me.run("touch \"$(printf 'odd\\377')\"");
  ASSERT_TRUE(watch.reports("created", base64("odd\xff")));
  EXPECT_EQ(watch.changes().back().at("path_encoding"), "base64");
  w.me.run("mv odd* even");
  ASSERT_TRUE(watch.reports("renamed", "even"));
  EXPECT_EQ(watch.changes().back().at("from"), base64("odd\xff"));
  EXPECT_EQ(watch.changes().back().at("from_encoding"), "base64");
  EXPECT_FALSE(watch.changes().back().contains("path_encoding"));
}

void a_watch_of_the_sandbox_has_absolute_paths(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  std::string place = w.me.out("mkdir -p dir; cd dir; pwd");
  place.pop_back();
  if (!w.can("scope_sandbox")) {
    EXPECT_TRUE(refused(w.me.get(watch_url(w.me, "scope=sandbox&path=" + place)), 501, "unsupported"));
    return;
  }
  Watched watch(w.me, "scope=sandbox&path=" + place);
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  w.me.run("touch dir/file");
  ASSERT_TRUE(watch.reports("created", place + "/file"));
}

void a_watch_is_refused_as_a_listing_is(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  w.me.run("echo x > file; ln -s / way-out; mkdir dir; ln -s dir way-in");
  for (const std::string path :
       {"missing", "file", "way-out", "../up", "dir/../file", "/etc", "missing/below"}) {
    const Answer listing = w.me.post("/workspace/list", {{"path", path}});
    const Answer watch = w.me.get(watch_url(w.me, "path=" + path));
    EXPECT_TRUE(refused(watch, listing.status, listing.body.at("error").at("code"))) << path << watch.text;
  }
  for (const std::string query :
       {"recursive=perhaps", "scope=elsewhere", "depth=3", "path=a&path=b", "path=a%00b", "agent_id=other"})
    EXPECT_TRUE(refused(w.me.get(watch_url(w.me, query)), 400, "invalid_request")) << query;
  EXPECT_GE(w.me.get(watch_url(w.me, "user=no-such-user")).status, 400);
  EXPECT_TRUE(refused(w.me.call("POST", "/workspace/watch"), 405, "method_not_allowed"));
  Watched inside(w.me, "path=way-in");
  ASSERT_TRUE(inside.ready()) << inside.head.body;
  w.me.run("touch dir/one");
  EXPECT_TRUE(inside.reports("created", "way-in/one")) << "the path that was asked for";
}

void a_watch_ends_with_its_directory(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  w.me.run("mkdir -p gone moved above/below");
  Watched gone(w.me, "path=gone"), moved(w.me, "path=moved&recursive=true"), below(w.me, "path=above/below");
  ASSERT_TRUE(gone.ready() && moved.ready() && below.ready());
  w.me.run("rmdir gone; mv moved elsewhere; mv above beside");
  EXPECT_EQ(gone.reason(), "removed");
  EXPECT_EQ(moved.reason(), "removed");
  EXPECT_EQ(below.reason(), "removed");
}

// Ending neither waits for a watch nor loses it.
void ending_a_sandbox_ends_its_watches(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  const Caller me = w.stranger();
  for (const std::string how : {"", "?purge=true"}) {
    Watched watch(me, "recursive=true"), another(me);
    ASSERT_TRUE(watch.ready() && another.ready());
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + me.agent() + how)));
    EXPECT_EQ(watch.reason(), "sandbox_ended");
    EXPECT_EQ(another.reason(), "sandbox_ended");
  }
}

void a_watched_sandbox_is_idle_all_the_same(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  const Own own(w, "sandbox_idle_timeout_sec: 1");
  Watched watch(own.me, "recursive=true");
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  EXPECT_EQ(watch.reason(), "sandbox_ended");
  EXPECT_TRUE(own.gateway->logs("sandbox_stopped_idle", 60));
  Watched again(own.me);
  EXPECT_TRUE(again.ready()) << "a watch opens what was stopped";
}

void a_gateway_that_ends_says_so(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  const Own own(w);
  Watched watch(own.me, "recursive=true");
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  own.gateway->signal(SIGTERM);
  EXPECT_EQ(watch.reason(), "draining");
  EXPECT_EQ(own.gateway->wait(45), 0) << own.gateway->log();
}

void a_reload_is_not_held_up_by_a_watch(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  const std::string instance = "instance: watched-" + new_mark();
  const Own own(w, instance);
  Watched watch(own.me, "recursive=true");
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  const pid_t before = host_of(*own.gateway, w.backend);
  own.gateway->reload(options_for(w.backend, w.starter, instance + "\nlog: {level: debug}").yaml);
  EXPECT_EQ(watch.reason(), "reloaded");
  EXPECT_TRUE(eventually(30, [&] { return !alive(before); })) << "the old host still runs";
  Watched again(own.me);
  ASSERT_TRUE(again.ready()) << again.head.body;
  own.me.run("touch after");
  EXPECT_TRUE(again.reports("created", "after"));
}

void a_slow_reader_is_told_that_it_missed_something(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  const std::string part(200, 'd');
  std::string deep = part;
  for (int i = 0; i < 9; ++i) deep += "/" + part;
  w.me.run("mkdir -p " + deep);
  Watched watch(w.me, "recursive=true");
  ASSERT_TRUE(watch.ready()) << watch.head.body;
  // Some 12 MB of events: more than pipes and sockets hold.
  const int small = 64 << 10;
  ASSERT_EQ(::setsockopt(watch.connection.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  const Json done = w.me.run("cd " + deep + "; i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done");
  EXPECT_EQ(done.at("exit_code"), 0);
  bool missed = false;
  for (auto event = watch.next(); event; event = watch.next())
    if (missed = event->name == "overflow"; missed) break;
  EXPECT_TRUE(missed);
  // What is created before the rest is read may also be missed, which is reported again.
  bool last = false;
  for (int tries = 0; missed && !last; ++tries) {
    missed = false;
    const std::string name = "last-" + std::to_string(tries);
    w.me.run("touch " + name);
    while (!last && !missed) {
      const auto event = watch.next();
      if (!event) break;
      missed = event->name == "overflow";
      last = event->name == "change" && event->data.at("path") == name;
    }
  }
  EXPECT_TRUE(last) << "the watch continues";
}

void watches_are_bounded_and_given_back(World& w) {
  SKIP_WITHOUT_WATCHES(w);
  {
    std::vector<std::unique_ptr<Watched>> all;
    for (int i = 0; i < 16; ++i) {
      all.push_back(std::make_unique<Watched>(w.me));
      ASSERT_TRUE(all.back()->ready()) << all.back()->head.body;
    }
    EXPECT_TRUE(refused(w.me.get(watch_url(w.me, "")), 429, "rate_limited"));
    EXPECT_EQ(w.me.out("echo works"), "works\n");
    EXPECT_TRUE(succeeded(w.me.write("file", "works")));
  }
  EXPECT_TRUE(eventually(30, [&] { return Watched(w.me).head.status == 200; }))
      << "those whose clients left are still there";
}

const Case kWatchCases[] = {
    {"a_watch_reports_each_kind_of_change", 5, a_watch_reports_each_kind_of_change},
    {"a_new_tree_is_reported_whole", 5, a_new_tree_is_reported_whole},
    {"what_lies_below_is_reported_only_recursively", 5, what_lies_below_is_reported_only_recursively},
    {"a_write_of_the_gateway_appears_whole", 5, a_write_of_the_gateway_appears_whole},
    {"names_that_are_not_utf8_come_as_base64", 5, names_that_are_not_utf8_come_as_base64},
    {"a_watch_of_the_sandbox_has_absolute_paths", 5, a_watch_of_the_sandbox_has_absolute_paths},
    {"a_watch_is_refused_as_a_listing_is", 9, a_watch_is_refused_as_a_listing_is},
    {"a_watch_ends_with_its_directory", 5, a_watch_ends_with_its_directory},
    {"ending_a_sandbox_ends_its_watches", 1, ending_a_sandbox_ends_its_watches},
    {"a_watched_sandbox_is_idle_all_the_same", 5, a_watched_sandbox_is_idle_all_the_same},
    {"a_gateway_that_ends_says_so", 9, a_gateway_that_ends_says_so},
    {"a_reload_is_not_held_up_by_a_watch", 5, a_reload_is_not_held_up_by_a_watch},
    {"a_slow_reader_is_told_that_it_missed_something", 4, a_slow_reader_is_told_that_it_missed_something},
    {"watches_are_bounded_and_given_back", 4, watches_are_bounded_and_given_back},
};

}  // namespace

std::span<const Case> watch_cases() { return kWatchCases; }

}  // namespace isogate::test
