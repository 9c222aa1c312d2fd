#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "tests/contract/contract.h"

namespace isogate::test {
namespace {

Json stat_of(const Caller& me, const std::string& path) {
  const Answer answer = me.post("/workspace/stat", {{"path", path}});
  EXPECT_TRUE(succeeded(answer)) << path;
  return answer.status == 200 ? answer.body : Json::object();
}

std::map<std::string, Json> list_of(const Caller& me, Json request) {
  const Answer answer = me.post("/workspace/list", std::move(request));
  EXPECT_TRUE(succeeded(answer));
  std::map<std::string, Json> entries;
  if (answer.status != 200) return entries;
  for (const Json& entry : answer.body.at("entries")) {
    const std::string name = entry.at("name");
    entries[entry.contains("name_encoding") ? from_base64(name) : name] = entry;
  }
  return entries;
}

void what_is_written_is_read(World& w) {
  for (const std::string& text :
       {std::string("plain\n"), std::string(), std::string("é€😀\r\n\ttab \\ \" "), std::string("\x1b[0m")}) {
    const Answer written = w.me.write("a/file", text);
    ASSERT_TRUE(succeeded(written));
    EXPECT_EQ(written.body, (Json{{"bytes_written", text.size()}}));
    const Answer read = w.me.read("a/file");
    ASSERT_TRUE(succeeded(read));
    EXPECT_EQ(
        read.body,
        (Json{{"content", text}, {"encoding", "utf-8"}, {"bytes", text.size()}, {"size", text.size()}}));
    EXPECT_EQ(w.me.content("/workspace/a/file"), text) << "/workspace/… is the same file";
    EXPECT_EQ(w.me.content("./a//./file"), text);
  }
}

void bytes_go_in_and_out_as_base64(World& w) {
  const std::string bytes = noise(70000, 3);
  ASSERT_TRUE(succeeded(w.me.write("blob", base64(bytes), {{"encoding", "base64"}})));
  const Answer read = w.me.read("blob");
  EXPECT_EQ(read.body.at("encoding"), "base64");
  EXPECT_EQ(read.body.at("bytes"), bytes.size());
  EXPECT_TRUE(w.me.content("blob") == bytes);
  EXPECT_TRUE(refused(w.me.read("blob", {{"encoding", "utf-8"}}), 400, "invalid_request"))
      << "it is no text, and text was asked for";
  ASSERT_TRUE(succeeded(w.me.write("text", "text")));
  EXPECT_EQ(w.me.read("text", {{"encoding", "base64"}}).body.at("content"), base64("text"));
  EXPECT_TRUE(refused(w.me.write("text", "!!", {{"encoding", "base64"}}), 400, "invalid_request"));
  EXPECT_EQ(w.me.content("text"), "text");
}

void parts_of_a_file_are_read(World& w) {
  ASSERT_TRUE(succeeded(w.me.write("digits", "0123456789")));
  const auto part = [&](Json range) { return w.me.read("digits", std::move(range)).body; };
  EXPECT_EQ(part({{"offset", 3}, {"limit", 4}}),
            (Json{{"content", "3456"}, {"encoding", "utf-8"}, {"bytes", 4}, {"size", 10}}));
  EXPECT_EQ(part({{"offset", 8}}).at("content"), "89");
  EXPECT_EQ(part({{"limit", 0}}).at("content"), "");
  EXPECT_EQ(part({{"offset", 10}}).at("bytes"), 0);
  EXPECT_EQ(part({{"offset", 1ull << 40}}).at("bytes"), 0);
  EXPECT_TRUE(refused(w.me.read("digits", {{"offset", -1}}), 400, "invalid_request"));
}

void append_adds_to_the_end(World& w) {
  ASSERT_TRUE(succeeded(w.me.write("log", "one\n", {{"append", true}})));
  const Answer second = w.me.write("log", "two\n", {{"append", true}});
  EXPECT_EQ(second.body.at("bytes_written"), 4);
  EXPECT_EQ(w.me.content("log"), "one\ntwo\n");
  w.me.run("printf 'three\\n' >> log");
  ASSERT_TRUE(succeeded(w.me.write("log", "four\n", {{"append", true}, {"durable", true}})));
  EXPECT_EQ(w.me.content("log"), "one\ntwo\nthree\nfour\n");
}

void no_append_is_lost(World& w) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i)
    writers.emplace_back([&w, i] {
      for (int j = 0; j < 10; ++j)
        EXPECT_TRUE(succeeded(w.me.write("log", std::to_string(i) + "\n", {{"append", true}})));
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(w.me.content("log").size(), 160u);
}

void exclusive_never_replaces(World& w) {
  ASSERT_TRUE(succeeded(w.me.write("once", "first", {{"exclusive", true}})));
  EXPECT_TRUE(refused(w.me.write("once", "second", {{"exclusive", true}}), 409, "already_exists"));
  w.me.run("ln -s nowhere dangling");
  EXPECT_TRUE(refused(w.me.write("dangling", "x", {{"exclusive", true}}), 409, "already_exists"))
      << "the link is there";
  EXPECT_EQ(w.me.content("once"), "first");
}

void parents_are_made_unless_told_otherwise(World& w) {
  ASSERT_TRUE(succeeded(w.me.write("p/q/r", "deep")));
  EXPECT_TRUE(refused(w.me.write("s/t", "x", {{"parents", false}}), 404, "file_not_found"));
  EXPECT_TRUE(refused(w.me.read("s"), 404, "file_not_found"));
  EXPECT_NE(w.me.write("p/q/r/below", "x").status, 200) << "a file is no directory";
  EXPECT_EQ(w.me.content("p/q/r"), "deep");
}

void a_mode_is_given_and_kept(World& w) {
  const auto mode = [&](const std::string& path) { return stat_of(w.me, path).value("mode", ""); };
  ASSERT_TRUE(succeeded(w.me.write("plain", "x")));
  EXPECT_EQ(mode("plain"), "0644");
  ASSERT_TRUE(succeeded(w.me.write("run.sh", "#!/bin/sh\necho ran\n", {{"mode", "0755"}})));
  EXPECT_EQ(w.me.out("./run.sh"), "ran\n");
  ASSERT_TRUE(succeeded(w.me.write("run.sh", "#!/bin/sh\necho again\n")));
  EXPECT_EQ(mode("run.sh"), "0755") << "an overwrite keeps the mode";
  EXPECT_EQ(w.me.out("./run.sh"), "again\n");
  ASSERT_TRUE(succeeded(w.me.write("run.sh", "x", {{"mode", "600"}})));
  EXPECT_EQ(mode("run.sh"), "0600");
  for (const char* wrong : {"4755", "1777", "888", "rwx", "", "-1", "07777777"})
    EXPECT_TRUE(refused(w.me.write("run.sh", "no", {{"mode", wrong}}), 400, "invalid_request")) << wrong;
  EXPECT_EQ(w.me.content("run.sh"), "x");
}

void a_read_only_file_is_replaced_only_when_asked(World& w) {
  const auto with = [&](const std::string& query, const std::string& bytes) {
    return w.me.call("PUT", w.me.file_url("ro") + query, {}, bytes);
  };
  w.me.run("printf old > ro; chmod 444 ro; printf other > other");
  const Answer refusal = w.me.write("ro", "new");
  EXPECT_TRUE(refused(refusal, 403, "permission_denied"));
  EXPECT_NE(refusal.text.find("replace=true"), std::string::npos) << refusal.text;
  EXPECT_TRUE(refused(with("", "new"), 403, "permission_denied"));
  EXPECT_TRUE(refused(with("?append=true", "new"), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.write("ro", "new", {{"append", true}}), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.write("ro", "new", {{"mode", "0644"}}), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.write("ro", "new", {{"exclusive", true}}), 409, "already_exists"));
  EXPECT_TRUE(
      refused(w.me.post("/workspace/move", {{"path", "other"}, {"to", "ro"}}), 403, "permission_denied"));
  EXPECT_EQ(w.me.out("stat -c %a ro; cat ro other"), "444\noldother");
  ASSERT_TRUE(succeeded(w.me.write("ro", "new", {{"replace", true}})));
  EXPECT_EQ(w.me.out("stat -c %a ro; cat ro"), "444\nnew") << "the mode is kept";
  ASSERT_TRUE(succeeded(with("?replace=true&append=true", "er")));
  EXPECT_EQ(w.me.content("ro"), "newer");
  ASSERT_TRUE(succeeded(w.me.post("/workspace/move", {{"path", "other"}, {"to", "ro"}, {"replace", true}})));
  EXPECT_EQ(w.me.content("ro"), "other");
  EXPECT_TRUE(refused(with("?replace=maybe", "x"), 400, "invalid_request"));
}

// Promise 5: a reader sees the old content or the new one, and one that holds the old file keeps it.
void a_write_is_whole_or_not_at_all(World& w) {
  const std::string a(300000, 'a'), b(300000, 'b');
  ASSERT_TRUE(succeeded(w.me.write("file", a)));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < 30; ++i) EXPECT_TRUE(succeeded(w.me.write("file", i % 2 == 0 ? b : a)));
    done = true;
  });
  int reads = 0;
  for (; !done || reads < 10; ++reads) {
    const std::string seen = w.me.content("file");
    EXPECT_TRUE(seen == a || seen == b) << "a mixture of " << seen.size() << " bytes";
  }
  writer.join();
  EXPECT_EQ(w.me.out("ls -A | tr '\\n' ' '"), "file ") << "something of the writes is left";
}

void list_tells_names_and_kinds(World& w) {
  w.me.run(
      "mkdir -p d/sub; printf 12345 > d/file; chmod 640 d/file; ln -s file d/link; mkfifo d/fifo; printf x > "
      "d/sub/in; printf y > $'d/odd\\nname'");
  const auto entries = list_of(w.me, {{"path", "d"}});
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries.at("file").at("type"), "file");
  EXPECT_EQ(entries.at("file").at("size"), 5);
  EXPECT_EQ(entries.at("file").at("mode"), "0640");
  EXPECT_GT(entries.at("file").at("mtime_ms").get<int64_t>(), 1600000000000);
  EXPECT_EQ(entries.at("sub").at("type"), "directory");
  EXPECT_EQ(entries.at("link").at("type"), "symlink");
  EXPECT_EQ(entries.at("fifo").at("type"), "other");
  EXPECT_EQ(entries.count("odd\nname"), 1u);
  const auto tree = list_of(w.me, {{"path", "."}, {"recursive", true}});
  EXPECT_EQ(tree.count("d"), 1u);
  EXPECT_EQ(tree.count("d/sub/in"), 1u);
  EXPECT_EQ(tree.size(), 7u);
}

void a_name_that_is_no_text_comes_as_base64(World& w) {
  w.me.run("mkdir d; touch $'d/\\377\\376'");
  const Answer answer = w.me.post("/workspace/list", {{"path", "d"}});
  ASSERT_EQ(answer.body.at("entries").size(), 1u) << answer.text;
  const Json& entry = answer.body.at("entries")[0];
  EXPECT_EQ(entry.at("name_encoding"), "base64");
  EXPECT_EQ(from_base64(entry.at("name")), "\xff\xfe");
}

void a_listing_is_in_order(World& w) {
  w.me.run("mkdir d; cd d; touch b a-b Z; mkdir a; touch a/2 a/10");
  const auto names = [&](const char* path) {
    std::vector<std::string> all;
    const Answer answer = w.me.post("/workspace/list", {{"path", path}, {"recursive", true}});
    for (const Json& entry : answer.body.at("entries")) all.push_back(entry.at("name"));
    return all;
  };
  EXPECT_EQ(names("d"), (std::vector<std::string>{"Z", "a", "a/10", "a/2", "a-b", "b"}));
  w.me.run(
      "mkdir many; cd many; l=$(printf %0100d 0); for i in {1..3000}; do : > $((i * 7919 % 9973))$l; done");
  const std::vector<std::string> many = names("many");
  EXPECT_EQ(many.size(), 3000u);
  EXPECT_TRUE(std::is_sorted(many.begin(), many.end()));
}

void a_listing_is_cut_and_says_so(World& w) {
  w.me.run("mkdir d; touch d/{1..30}");
  const Answer some = w.me.post("/workspace/list", {{"path", "d"}, {"limit", 10}});
  EXPECT_EQ(some.body.at("entries").size(), 10u);
  EXPECT_EQ(some.body.at("truncated"), true);
  const Answer all = w.me.post("/workspace/list", {{"path", "d"}, {"limit", 30}});
  EXPECT_EQ(all.body.at("entries").size(), 30u);
  EXPECT_EQ(all.body.at("truncated"), false);
  EXPECT_TRUE(refused(w.me.post("/workspace/list", {{"path", "d"}, {"limit", 0}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.post("/workspace/list", {{"path", "absent"}}), 404, "file_not_found"));
  const int of_a_file = w.me.post("/workspace/list", {{"path", "d/1"}}).status;
  EXPECT_TRUE(of_a_file == 400 || of_a_file == 404) << of_a_file;
}

void stat_does_not_follow(World& w) {
  w.me.run("printf abc > file; ln -s file link; mkdir dir");
  const Json file = stat_of(w.me, "file");
  EXPECT_EQ(file.value("type", ""), "file");
  EXPECT_EQ(file.value("size", 0), 3);
  EXPECT_EQ(file.value("name", ""), "file") << "docs/openapi.yaml requires `name` of every Entry";
  EXPECT_EQ(stat_of(w.me, "link").value("type", ""), "symlink");
  EXPECT_EQ(stat_of(w.me, "dir").value("type", ""), "directory");
  EXPECT_EQ(stat_of(w.me, ".").value("type", ""), "directory");
  EXPECT_TRUE(refused(w.me.post("/workspace/stat", {{"path", "absent"}}), 404, "file_not_found"));
}

void mkdir_makes_directories(World& w) {
  const auto mkdir = [&](Json request) { return w.me.post("/workspace/mkdir", std::move(request)); };
  EXPECT_TRUE(succeeded(mkdir({{"path", "a/b/c"}})));
  EXPECT_TRUE(succeeded(mkdir({{"path", "a/b/c"}}))) << "an existing one is fine";
  EXPECT_TRUE(refused(mkdir({{"path", "a/b/c"}, {"exclusive", true}}), 409, "already_exists"));
  EXPECT_TRUE(refused(mkdir({{"path", "x/y"}, {"parents", false}}), 404, "file_not_found"));
  EXPECT_TRUE(succeeded(mkdir({{"path", "private"}, {"mode", "0700"}})));
  EXPECT_EQ(stat_of(w.me, "private").value("mode", ""), "0700");
  ASSERT_TRUE(succeeded(w.me.write("file", "")));
  EXPECT_TRUE(refused(mkdir({{"path", "file"}}), 409, "already_exists"));
  EXPECT_EQ(w.me.out("touch a/b/c/mine private/mine && echo ok"), "ok\n");
}

void move_replaces_unless_exclusive(World& w) {
  const auto move = [&](Json request) { return w.me.post("/workspace/move", std::move(request)); };
  w.me.run("echo one > one; echo two > two; mkdir dir; echo in > dir/in");
  EXPECT_TRUE(refused(move({{"path", "one"}, {"to", "two"}, {"exclusive", true}}), 409, "already_exists"));
  EXPECT_TRUE(succeeded(move({{"path", "one"}, {"to", "two"}})));
  EXPECT_EQ(w.me.content("two"), "one\n");
  EXPECT_TRUE(refused(w.me.read("one"), 404, "file_not_found"));
  EXPECT_TRUE(succeeded(move({{"path", "dir"}, {"to", "far/away"}})));
  EXPECT_EQ(w.me.content("far/away/in"), "in\n");
  EXPECT_TRUE(
      refused(move({{"path", "two"}, {"to", "not/there"}, {"parents", false}}), 404, "file_not_found"));
  EXPECT_TRUE(refused(move({{"path", "absent"}, {"to", "x"}}), 404, "file_not_found"));
  EXPECT_TRUE(refused(move({{"path", "two"}}), 400, "invalid_request"));
}

void remove_takes_trees_only_when_asked(World& w) {
  const auto remove = [&](Json request) { return w.me.post("/workspace/remove", std::move(request)); };
  w.me.run(
      "mkdir -p full/sub empty; echo x > full/sub/x; chmod 000 full/sub; echo keep > keep; ln -s keep link; "
      "ln -s /etc out");
  EXPECT_NE(remove({{"path", "full"}}).status, 200) << "it is not empty";
  EXPECT_TRUE(succeeded(remove({{"path", "full"}, {"recursive", true}})));
  EXPECT_TRUE(succeeded(remove({{"path", "empty"}})));
  EXPECT_TRUE(succeeded(remove({{"path", "link"}}))) << "the link itself";
  EXPECT_TRUE(succeeded(remove({{"path", "out"}, {"recursive", true}})));
  EXPECT_EQ(w.me.content("keep"), "keep\n");
  EXPECT_EQ(w.me.out("ls; ls /etc/hostname /etc/passwd | wc -l").substr(0, 5), "keep\n");
  EXPECT_TRUE(refused(remove({{"path", "absent"}}), 404, "file_not_found"));
  EXPECT_TRUE(refused(remove({{"path", "."}, {"recursive", true}}), 400, "invalid_request"));
}

void files_of_the_api_and_of_execs_are_one(World& w) {
  ASSERT_TRUE(succeeded(w.me.write("api", "from the api\n")));
  EXPECT_EQ(w.me.out("echo more >> api && chmod 600 api && cat api && [ -O api ] && echo mine"),
            "from the api\nmore\nmine\n");
  w.me.run("umask 077; echo secret > private; mkdir -m 700 locked; echo in > locked/in");
  EXPECT_EQ(w.me.content("private"), "secret\n");
  EXPECT_EQ(w.me.content("locked/in"), "in\n");
}

const Case kFileCases[] = {
    {"what_is_written_is_read", 5, what_is_written_is_read},
    {"bytes_go_in_and_out_as_base64", 4, bytes_go_in_and_out_as_base64},
    {"parts_of_a_file_are_read", 5, parts_of_a_file_are_read},
    {"append_adds_to_the_end", 5, append_adds_to_the_end},
    {"no_append_is_lost", 5, no_append_is_lost},
    {"exclusive_never_replaces", 5, exclusive_never_replaces},
    {"parents_are_made_unless_told_otherwise", 5, parents_are_made_unless_told_otherwise},
    {"a_mode_is_given_and_kept", 5, a_mode_is_given_and_kept},
    {"a_read_only_file_is_replaced_only_when_asked", 5, a_read_only_file_is_replaced_only_when_asked},
    {"a_write_is_whole_or_not_at_all", 5, a_write_is_whole_or_not_at_all},
    {"list_tells_names_and_kinds", 5, list_tells_names_and_kinds},
    {"a_name_that_is_no_text_comes_as_base64", 4, a_name_that_is_no_text_comes_as_base64},
    {"a_listing_is_in_order", 5, a_listing_is_in_order},
    {"a_listing_is_cut_and_says_so", 5, a_listing_is_cut_and_says_so},
    {"stat_does_not_follow", 5, stat_does_not_follow},
    {"mkdir_makes_directories", 5, mkdir_makes_directories},
    {"move_replaces_unless_exclusive", 5, move_replaces_unless_exclusive},
    {"remove_takes_trees_only_when_asked", 5, remove_takes_trees_only_when_asked},
    {"files_of_the_api_and_of_execs_are_one", 5, files_of_the_api_and_of_execs_are_one},
};

}  // namespace

std::span<const Case> file_cases() { return kFileCases; }

}  // namespace isogate::test
