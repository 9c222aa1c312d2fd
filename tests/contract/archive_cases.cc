#include <map>
#include <thread>

#include "lib/tar/tar_reader.h"
#include "lib/tar/tar_writer.h"
#include "tests/contract/contract.h"

// /workspace/archive: a tree as a tar, streamed both ways.
namespace isogate::test {
namespace {

std::string archive_url(const Caller& me, const std::string& path) {
  return "/workspace/archive?agent_id=" + me.agent() + "&path=" + path;
}

Answer get_archive(const Caller& me, const std::string& path) { return me.get(archive_url(me, path)); }

Answer put_archive(const Caller& me, const std::string& path, const std::string& tar) {
  return me.call("PUT", archive_url(me, path), {{"Content-Type", "application/x-tar"}}, tar);
}

std::string tar_of(const std::function<void(TarWriter&)>& fill) {
  std::string bytes;
  TarWriter tar([&bytes](std::string_view piece) { bytes += piece; });
  fill(tar);
  tar.finish();
  return bytes;
}

struct Member {
  TarMember head;
  std::string content;
};

struct Archive {
  std::map<std::string, Member> members;
  Json skipped;         // path → reason
  std::string problem;  // empty: it is complete
  [[nodiscard]] bool has(const std::string& name) const { return members.count(name) > 0; }
};

Archive parse(std::string_view bytes) {
  Archive archive;
  archive.skipped = Json::object();
  TarReader reader;
  Member* last = nullptr;
  for (;;) {
    const auto step = reader.next(bytes);
    if (!step) archive.problem = step.error().message;
    if (!step || *step == TarReader::Step::kMore) break;
    if (*step == TarReader::Step::kMember) {
      EXPECT_FALSE(archive.has(reader.member().name)) << reader.member().name << " occurs twice";
      last = &(archive.members[reader.member().name] = {reader.member(), {}});
    }
    if (*step == TarReader::Step::kContent) last->content += reader.content();
  }
  if (auto whole = reader.finish(); archive.problem.empty() && !whole)
    archive.problem = whole.error().message;
  const auto top = archive.members.find("./");
  if (top != archive.members.end() && !top->second.head.skipped.empty()) {
    const Json skipped = Json::parse(top->second.head.skipped);
    for (const Json& one : skipped.at("skipped"))
      archive.skipped[one.value("path_encoding", "") == "base64" ? from_base64(one.at("path"))
                                                                 : one.at("path").get<std::string>()] =
          one.at("reason");
    EXPECT_EQ(skipped.at("skipped_total"), archive.skipped.size());
  }
  return archive;
}

Archive whole_archive(const Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.text.substr(0, 500);
  EXPECT_EQ(answer.header("Content-Type"), "application/x-tar");
  Archive archive = parse(answer.text);
  EXPECT_EQ(archive.problem, "");
  return archive;
}

constexpr const char* kTree =
    "mkdir -p t/a/b t/empty t/closed; printf hello > t/a/file; chmod 640 t/a/file; : > t/a/b/none; "
    "printf '#!/bin/sh\\necho ran\\n' > t/run; chmod 755 t/run; chmod 500 t/a/b; "
    "touch -d @1700000000 t/a/file t/empty; ln -s a/file t/link; mkfifo t/fifo; "
    "printf 1 > \"$(printf 't/new\\nline \\001')\"; printf 2 > \"$(printf 't/\\377\\376')\"";

void a_tree_goes_down_and_up_again(World& w) {
  const std::string big = noise(3'000'001, 4);
  w.me.run(kTree);
  ASSERT_TRUE(succeeded(w.me.call("PUT", w.me.file_url("t/big"), {}, big)));
  const std::string deep = "t/" + std::string(100, 'd') + "/" + std::string(120, 'e');
  ASSERT_TRUE(succeeded(w.me.write(deep + "/leaf", "deep")));
  const Answer down = get_archive(w.me, "t");
  EXPECT_EQ(down.header("Transfer-Encoding"), "chunked");
  EXPECT_EQ(down.header("X-Content-Type-Options"), "nosniff");
  const Archive archive = whole_archive(down);
  const auto expect_file = [&](const std::string& name, const std::string& content, unsigned mode) {
    ASSERT_TRUE(archive.has(name)) << name;
    const Member& member = archive.members.at(name);
    EXPECT_EQ(member.head.kind, TarMember::Kind::kFile) << name;
    EXPECT_TRUE(member.content == content) << name << " has " << member.content.size() << " bytes";
    EXPECT_EQ(member.head.mode, mode) << name;
  };
  expect_file("a/file", "hello", 0640);
  expect_file("a/b/none", "", 0644);
  expect_file("run", "#!/bin/sh\necho ran\n", 0755);
  expect_file("new\nline \x01", "1", 0644);
  expect_file("\xff\xfe", "2", 0644);
  expect_file("big", big, 0644);
  expect_file(deep.substr(2) + "/leaf", "deep", 0644);
  EXPECT_EQ(archive.members.at("a/file").head.mtime, 1700000000);
  ASSERT_TRUE(archive.has("empty/") && archive.has("a/b/"));
  EXPECT_EQ(archive.members.at("empty/").head.kind, TarMember::Kind::kDirectory);
  EXPECT_EQ(archive.members.at("empty/").head.mtime, 1700000000);
  EXPECT_EQ(archive.members.at("a/b/").head.mode, 0500u);
  EXPECT_EQ(archive.skipped, (Json{{"link", "symlink"}, {"fifo", "special_file"}}));

  const Answer up = put_archive(w.me, "copy/of/t", down.text);
  ASSERT_TRUE(succeeded(up));
  EXPECT_EQ(up.body.at("files"), 7);
  EXPECT_EQ(up.body.at("bytes"), 5 + 19 + 1 + 1 + 4 + big.size());
  EXPECT_EQ(up.body.at("skipped"), Json::array());
  EXPECT_EQ(up.body.at("skipped_total"), 0);
  EXPECT_EQ(w.me.out("rm t/link t/fifo; diff -r t copy/of/t && echo same"), "same\n");
  EXPECT_EQ(w.me.out("copy/of/t/run; stat -c %a copy/of/t/a/file copy/of/t/run copy/of/t/a/b"),
            "ran\n640\n755\n700\n");
  EXPECT_EQ(whole_archive(get_archive(w.me, "copy/of/t")).members.size(), archive.members.size());
}

void a_single_file_is_an_archive_of_one(World& w) {
  const std::string big = noise(2'000'000, 6);
  ASSERT_TRUE(succeeded(w.me.write("dir/one", "1", {{"mode", "0600"}})));
  ASSERT_TRUE(succeeded(w.me.call("PUT", w.me.file_url("dir/big"), {}, big)));
  w.me.run("ln -s dir to-dir; ln -s dir/one to-one; mkfifo fifo");
  const Archive one = whole_archive(get_archive(w.me, "dir/one"));
  ASSERT_EQ(one.members.size(), 1u);
  EXPECT_EQ(one.members.at("one").content, "1");
  EXPECT_EQ(one.members.at("one").head.mode, 0600u);
  EXPECT_TRUE(whole_archive(get_archive(w.me, "dir/big")).members.at("big").content == big);
  EXPECT_EQ(whole_archive(get_archive(w.me, "to-one")).members.at("to-one").content, "1");
  EXPECT_TRUE(whole_archive(get_archive(w.me, "to-dir")).members.at("big").content == big);
  EXPECT_EQ(whole_archive(get_archive(w.me, "")).skipped.size(), 3u);
  EXPECT_TRUE(refused(get_archive(w.me, "none"), 404, "file_not_found"));
  EXPECT_TRUE(refused(get_archive(w.me, "fifo"), 400, "invalid_request"));
  EXPECT_TRUE(refused(get_archive(w.me, "../x"), 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.get("/workspace/archive?paths=x"), 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.call("POST", "/workspace/archive"), 405, "method_not_allowed"));
}

void hundreds_of_files_keep_their_content(World& w) {
  w.me.run("mkdir m; for i in $(seq 300); do mkdir -p m/$((i % 7)); echo $i > m/$((i % 7))/$i; done");
  const Answer down = get_archive(w.me, "m");
  const Archive archive = whole_archive(down);
  EXPECT_EQ(archive.members.size(), 300u + 7 + 1);
  for (int i = 1; i <= 300; ++i) {
    const std::string name = std::to_string(i % 7) + "/" + std::to_string(i);
    ASSERT_TRUE(archive.has(name)) << name;
    EXPECT_EQ(archive.members.at(name).content, std::to_string(i) + "\n");
  }
  ASSERT_TRUE(succeeded(put_archive(w.me, "n", down.text)));
  EXPECT_EQ(w.me.out("diff -r m n && echo same"), "same\n");
}

void a_later_member_replaces_an_earlier_one(World& w) {
  w.me.run("mkdir d; echo before > d/f; chmod 600 d/f");
  const Answer up = put_archive(w.me, "d", tar_of([](TarWriter& tar) {
                                  tar.file({"f", 0640}, "first");
                                  tar.file({"./f", 0644}, "second");
                                  tar.file({"g//h", 0644}, "with its parent");
                                  tar.symlink({"l"}, "/etc/passwd");
                                }));
  ASSERT_TRUE(succeeded(up));
  EXPECT_EQ(up.body.at("skipped"), Json::array({{{"path", "l"}, {"reason", "symlink"}}}));
  EXPECT_EQ(w.me.out("cat d/f; stat -c %a d/f; cat d/g/h; ls -A d | tr '\\n' ' '"),
            "second644\nwith its parentf g ");
}

// Everything but the last member is written, and the error says how much that was.
void a_hostile_member_is_refused_by_its_name(World& w) {
  const auto raw = [](char type, const std::string& name, const std::string& target) {
    std::string bytes = tar_of([&](TarWriter& tar) { tar.symlink({name}, target); }).substr(0, 512);
    const int more = type - bytes[156];
    bytes[156] = type;
    unsigned sum = std::stoul(bytes.substr(148, 6), nullptr, 8) + more;
    char text[16];
    std::snprintf(text, sizeof text, "%06o", sum);
    return bytes.replace(148, 6, text, 6);
  };
  const auto plain = [](const std::string& name) {
    const std::string all = tar_of([&](TarWriter& tar) { tar.file({name}, "x"); });
    return all.substr(0, all.size() - 1024);
  };
  const std::pair<std::string, std::string> cases[] = {
      {plain("../escaped"), "../escaped"},
      {plain("a/../../escaped"), "a/../../escaped"},
      {plain("/tmp/escaped"), "/tmp/escaped"},
      {plain(std::string(5000, 'n')), std::string(100, 'n')},
      {plain("x/" + std::string(300, 'n')), std::string(100, 'n')},
      {raw('1', "hard", "good"), "hard"},
      {raw('3', "device", ""), "device"},
      {raw('6', "fifo", ""), "fifo"},
      {raw('Z', "odd", ""), "odd"},
  };
  const std::string good = plain("good"), end(1024, '\0');
  int number = 0;
  for (const auto& [member, name] : cases) {
    const std::string dir = "h" + std::to_string(number++);
    const Answer up = put_archive(w.me, dir, good + member + end);
    ASSERT_TRUE(refused(up, 400, "invalid_request")) << name;
    const Json& error = up.body.at("error");
    EXPECT_NE(error.at("message").get<std::string>().find(name), std::string::npos) << error;
    EXPECT_EQ(error.at("details").at("files"), 1) << error;
    EXPECT_NE(error.at("details").at("entry").get<std::string>().find(name), std::string::npos) << error;
    EXPECT_EQ(w.me.out("ls -A " + dir + " | grep -v '^x$'"), "good\n") << name;
  }
  EXPECT_EQ(w.me.out("ls -d escaped ../escaped 2>/dev/null; true"), "");
  EXPECT_TRUE(refused(put_archive(w.me, "z", "\x1f\x8b" + std::string(2000, 'z')), 400, "invalid_request"));
  EXPECT_TRUE(refused(put_archive(w.me, "z", ""), 400, "invalid_request")) << "an empty body is no archive";
  EXPECT_TRUE(refused(put_archive(w.me, "..", good + end), 400, "invalid_request"));
}

void no_member_leaves_the_workspace_by_a_link(World& w) {
  w.me.run("mkdir d; ln -s /tmp d/out; ln -s ../inside d/in; mkdir inside");
  const auto file = [](const std::string& name) {
    return tar_of([&](TarWriter& tar) { tar.file({name}, "through"); });
  };
  EXPECT_GE(put_archive(w.me, "d", file("out/escaped-by-archive")).status, 400);
  EXPECT_EQ(w.me.out("ls /tmp/escaped-by-archive 2>/dev/null; true"), "");
  EXPECT_TRUE(succeeded(put_archive(w.me, "d", file("in/x"))))
      << "a link that stays inside is followed, as by a write";
  EXPECT_EQ(w.me.out("cat inside/x"), "through");
}

// Promise 5: of a truncated upload, only complete files are stored.
void a_truncated_archive_is_an_error(World& w) {
  const std::string tar = tar_of([](TarWriter& out) {
    out.directory({"d"});
    out.file({"d/one"}, "1");
    out.file({"d/two"}, std::string(200'000, '2'));
  });
  const std::pair<size_t, const char*> cuts[] = {
      {tar.size() - 1024, "one\ntwo\n"}, {150'000, "one\n"}, {1500, "one\n"}, {600, ""}, {100, ""}};
  for (const auto& [size, left] : cuts) {
    w.me.run("rm -rf d");
    const Answer up = put_archive(w.me, "", tar.substr(0, size));
    ASSERT_TRUE(refused(up, 400, "invalid_request")) << size;
    EXPECT_NE(up.text.find("cut off"), std::string::npos) << up.text;
    EXPECT_EQ(up.body.at("error").at("details").at("files"), std::string(left).size() / 4) << size;
    EXPECT_TRUE(eventually(20, [&, left = left] { return w.me.out("ls -A d 2>/dev/null; true") == left; }))
        << size << ": " << w.me.out("ls -A d");
  }
  // The body itself ends too early.
  w.me.run("rm -rf d");
  HttpConnection connection(w.gateway.url());
  Headers headers = w.me.headers();
  headers.emplace_back("Content-Length", std::to_string(tar.size()));
  connection.send_request_head("PUT", archive_url(w.me, ""), headers);
  connection.send(tar.substr(0, 100'000));
  ASSERT_TRUE(eventually(20, [&] { return w.me.out("cat d/one 2>/dev/null; true") == "1"; }));
  connection.close();
  EXPECT_TRUE(eventually(20, [&] { return w.me.out("ls -A d; find . -name '*two*'") == "one\n"; }))
      << w.me.out("ls -A d; find . -name '*two*'");
}

void a_full_quota_in_the_middle_says_what_was_written(World& w) {
  if (!w.can("sandbox_limit_disk") && !w.can("sandbox_disk_advisory"))
    GTEST_SKIP() << "this backend neither limits nor counts disks";
  const auto own =
      w.another("backends:\n  - name: " + w.backend + "\n    limits: {disk_mb: 8, mode: best_effort}");
  const Caller me(*own, "a");
  const std::string tar = tar_of([](TarWriter& out) {
    for (int i = 0; i < 6; ++i) out.file({"f" + std::to_string(i)}, std::string(3 << 20, 'x'));
  });
  const Answer up = put_archive(me, "d", tar);
  ASSERT_TRUE(refused(up, 507, "quota_exceeded"));
  const Json& details = up.body.at("error").at("details");
  const int files = details.at("files");
  EXPECT_GE(files, 1) << details;
  EXPECT_LE(files, 2) << details;
  EXPECT_EQ(details.at("bytes"), files * (3 << 20)) << details;
  EXPECT_GT(details.at("limit_bytes").get<uint64_t>(), 0u) << details;
  EXPECT_EQ(me.out("ls -A d | wc -l"), std::to_string(files) + "\n");
  const Archive there = whole_archive(get_archive(me, "d"));
  EXPECT_EQ(there.members.size(), files + 1u);
  EXPECT_FALSE(there.has(details.at("entry").get<std::string>())) << details;
}

// Members may come and go; what is sent is a well-formed archive of whole files.
void files_that_vanish_meanwhile_are_left_out(World& w) {
  w.me.run("mkdir v; for i in $(seq 100); do echo stays > v/s$i; done");
  const Answer started = w.me.exec(
      "while :; do for i in 1 2 3 4 5 6 7 8 9; do echo comes-and-goes > v/t$i; done; rm -f v/t*; done",
      {{"background", true}});
  ASSERT_EQ(started.status, 202) << started.text;
  for (int i = 0; i < 10; ++i) {
    const Archive archive = whole_archive(get_archive(w.me, "v"));
    for (int j = 1; j <= 100; ++j) EXPECT_TRUE(archive.has("s" + std::to_string(j))) << j;
    for (const auto& [name, member] : archive.members)
      EXPECT_TRUE(name[0] != 't' || member.content.empty() || member.content == "comes-and-goes\n") << name;
    for (const auto& [name, reason] : archive.skipped.items()) {
      EXPECT_EQ(name[0], 't') << name;
      EXPECT_TRUE(reason == "vanished" || reason == "changed") << reason;
    }
  }
  EXPECT_TRUE(succeeded(w.me.call("DELETE", "/execs/" + started.body.at("exec_id").get<std::string>())));
}

void a_file_that_shrinks_while_it_is_read_cuts_the_archive(World& w) {
  w.me.run("mkdir s; head -c 96M /dev/zero > s/large");
  HttpConnection connection(w.gateway.url());
  connection.send_request_head("GET", archive_url(w.me, "s"), w.me.headers());
  ASSERT_EQ(connection.read_head().status, 200);
  std::string bytes = connection.read_some();
  w.me.run("truncate -s 1M s/large");
  EXPECT_THROW(
      {
        for (;;) {
          const std::string piece = connection.read_some();
          if (piece.empty()) break;
          bytes += piece;
        }
      },
      std::runtime_error)
      << "the response looks complete";
  EXPECT_NE(parse(bytes).problem, "");
  EXPECT_EQ(whole_archive(get_archive(w.me, "s")).members.at("large").content.size(), 1u << 20);
}

void a_directory_that_cannot_be_read_is_named(World& w) {
  w.me.run(
      "mkdir -p c/shut c/open; echo x > c/shut/file; chmod 0 c/shut; echo y > c/secret; chmod 0 c/secret");
  if (w.me.exec("cat c/secret").body.at("exit_code") == 0) GTEST_SKIP() << "its user reads everything";
  const Archive archive = whole_archive(get_archive(w.me, "c"));
  EXPECT_TRUE(archive.has("open/"));
  EXPECT_EQ(archive.skipped, (Json{{"shut", "permission_denied"}, {"secret", "permission_denied"}}));
  w.me.run("chmod 700 c/shut; chmod 600 c/secret");
}

void a_client_that_stops_reading_holds_nobody_up(World& w) {
  w.me.run("mkdir b; for i in $(seq 200); do head -c 200K /dev/zero > b/$i; done");
  const pid_t front = front_of(w.gateway);
  const size_t files = open_files(front).size();
  {
    std::vector<std::unique_ptr<HttpConnection>> idle;
    for (int i = 0; i < 4; ++i) {
      idle.push_back(std::make_unique<HttpConnection>(w.gateway.url()));
      idle.back()->send_request_head("GET", archive_url(w.me, "b"), w.me.headers());
      EXPECT_EQ(idle.back()->read_head().status, 200);
      idle.back()->read_some();
    }
    EXPECT_EQ(w.me.out("echo alive"), "alive\n");
    EXPECT_EQ(whole_archive(get_archive(w.me, "b")).members.size(), 201u);
  }
  EXPECT_TRUE(eventually(10, [&] { return open_files(front).size() <= files + 2; }))
      << files << " descriptors became " << open_files(front).size();
}

// What is left of the archive must not go to the next sandbox of the same agent.
void an_archive_ends_with_its_sandbox(World& w) {
  const auto own = w.another("limits: {body_idle_timeout_sec: 600}");  // a pod takes its time
  const Caller me(*own, w.me.agent());
  const std::string tar = tar_of([](TarWriter& out) {
    out.file({"one"}, "1");
    out.file({"two"}, "2");
  });
  me.run("true");
  HttpConnection connection(own->url(), 300);
  Headers headers = me.headers();
  headers.emplace_back("Content-Length", std::to_string(tar.size()));
  connection.send_request_head("PUT", archive_url(me, "d"), headers);
  connection.send(tar.substr(0, 1024));
  ASSERT_TRUE(eventually(20, [&] { return me.out("cat d/one 2>/dev/null; true") == "1"; }));
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + me.agent() + "?purge=true")));
  me.run("true");
  connection.send(tar.substr(1024));
  EXPECT_TRUE(refused(answer_of(connection.read_response("PUT")), 503, "backend_unavailable"));
  EXPECT_EQ(me.out("ls -A"), "");
  me.call("DELETE", "/sandboxes/" + me.agent() + "?purge=true");
}

void the_agent_of_an_archive_is_named_once(World& w) {
  ASSERT_TRUE(succeeded(w.me.write("mine", "mine")));
  const Answer by_header = w.me.call("GET", "/workspace/archive?path=mine", {{"X-Agent-Id", w.me.agent()}});
  EXPECT_EQ(whole_archive(by_header).members.at("mine").content, "mine");
  const Answer two = w.me.call("GET", archive_url(w.me, "mine"), {{"X-Agent-Id", w.stranger().agent()}});
  EXPECT_TRUE(refused(two, 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.get("/workspace/archive?agent_id=..&path=mine"), 400, "invalid_request"));
}

void an_archive_outside_the_workspace_has_an_absolute_path(World& w) {
  if (!w.can("scope_sandbox")) {
    EXPECT_TRUE(refused(w.me.get(archive_url(w.me, "/etc") + "&scope=sandbox"), 501, "unsupported"));
    return;
  }
  const std::string directory = "tmp/isogate-contract-" + new_mark();
  w.me.run("mkdir /" + directory + " && echo in > /" + directory + "/f");
  const Answer whole = w.me.get(archive_url(w.me, "/" + directory) + "&scope=sandbox");
  EXPECT_EQ(whole_archive(whole).members.at("f").content, "in\n");
  for (const char* method : {"GET", "PUT"}) {
    const Answer relative = w.me.call(method, archive_url(w.me, directory) + "&scope=sandbox");
    EXPECT_TRUE(refused(relative, 400, "invalid_request"));
  }
  w.me.run("rm -r /" + directory);
}

const Case kArchiveCases[] = {
    {"a_tree_goes_down_and_up_again", 5, a_tree_goes_down_and_up_again},
    {"a_single_file_is_an_archive_of_one", 5, a_single_file_is_an_archive_of_one},
    {"hundreds_of_files_keep_their_content", 5, hundreds_of_files_keep_their_content},
    {"a_later_member_replaces_an_earlier_one", 5, a_later_member_replaces_an_earlier_one},
    {"a_hostile_member_is_refused_by_its_name", 5, a_hostile_member_is_refused_by_its_name},
    {"no_member_leaves_the_workspace_by_a_link", 5, no_member_leaves_the_workspace_by_a_link},
    {"a_truncated_archive_is_an_error", 5, a_truncated_archive_is_an_error},
    {"a_full_quota_in_the_middle_says_what_was_written", 6, a_full_quota_in_the_middle_says_what_was_written},
    {"files_that_vanish_meanwhile_are_left_out", 5, files_that_vanish_meanwhile_are_left_out},
    {"a_file_that_shrinks_while_it_is_read_cuts_the_archive", 5,
     a_file_that_shrinks_while_it_is_read_cuts_the_archive},
    {"a_directory_that_cannot_be_read_is_named", 5, a_directory_that_cannot_be_read_is_named},
    {"a_client_that_stops_reading_holds_nobody_up", 4, a_client_that_stops_reading_holds_nobody_up},
    {"an_archive_ends_with_its_sandbox", 5, an_archive_ends_with_its_sandbox},
    {"an_archive_outside_the_workspace_has_an_absolute_path", 5,
     an_archive_outside_the_workspace_has_an_absolute_path},
    {"the_agent_of_an_archive_is_named_once", 0, the_agent_of_an_archive_is_named_once},
};

}  // namespace

std::span<const Case> archive_cases() { return kArchiveCases; }

}  // namespace isogate::test
