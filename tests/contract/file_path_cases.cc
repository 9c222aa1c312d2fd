#include "tests/contract/contract.h"

// Which paths mean what, and what is never opened.
namespace isogate::test {
namespace {

void a_path_that_cannot_be_is_refused(World& w) {
  w.me.run("echo here > file");
  for (const std::string& path : {std::string("a/\0b", 4), std::string(256, 'n'), std::string(5000, 'p'),
                                  std::string("a/../b"), std::string("..")}) {
    EXPECT_TRUE(refused(w.me.read(path), 400, "invalid_request")) << path.substr(0, 50);
    EXPECT_TRUE(refused(w.me.write(path, "x"), 400, "invalid_request")) << path.substr(0, 50);
  }
  EXPECT_TRUE(refused(w.me.post("/workspace/read", Json::object()), 400, "invalid_request")) << "no path";
  EXPECT_NE(w.me.read("").status, 200);
  EXPECT_NE(w.me.read("file/").status, 200) << "a file is no directory";
  for (const char* path : {"", ".", "/", "/workspace", "file/"}) {
    const int status = w.me.write(path, "x").status;
    EXPECT_TRUE(status >= 400 && status < 500) << path << " " << status;
  }
  EXPECT_EQ(w.me.content("file"), "here\n");
}

void an_absolute_path_is_outside_the_workspace(World& w) {
  EXPECT_TRUE(refused(w.me.read("/etc/passwd"), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.write("/tmp/isogate-contract", "x"), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.read("/workspacex"), 403, "permission_denied"));
}

void what_is_absent_is_404(World& w) {
  for (const char* path : {"absent", "absent/below", "%2e%2e", "..\\x", "....//x", " "})
    EXPECT_TRUE(refused(w.me.read(path), 404, "file_not_found")) << path;
}

void a_directory_is_no_file(World& w) {
  w.me.run("mkdir d");
  EXPECT_TRUE(refused(w.me.read("d"), 409, "is_directory"));
  EXPECT_TRUE(refused(w.me.write("d", "x"), 409, "is_directory"));
  EXPECT_TRUE(refused(w.me.call("GET", w.me.file_url("d")), 409, "is_directory"));
}

void a_fifo_or_socket_is_never_opened(World& w) {
  w.me.run(
      "mkfifo fifo; /usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")' || "
      "mkfifo sock");
  for (const char* path : {"fifo", "sock"}) {
    const double took = seconds_of([&] {
      EXPECT_TRUE(refused(w.me.read(path), 400, "invalid_request")) << path;
      EXPECT_TRUE(refused(w.me.write(path, "x"), 400, "invalid_request")) << path;
      EXPECT_TRUE(refused(w.me.call("GET", w.me.file_url(path)), 400, "invalid_request")) << path;
    });
    EXPECT_LT(took, 5.0) << path;
  }
}

void links_that_stay_work_and_links_that_leave_do_not(World& w) {
  w.me.run(
      "mkdir real; echo in > real/f; ln -s real alias; ln -s real/f link; ln -s ../../.. up; ln -s / root; "
      "ln -s /etc/passwd abs; ln -s link second; ln -s ../../x real/leaves; ln -s a b; ln -s b a");
  EXPECT_EQ(w.me.content("alias/f"), "in\n");
  for (const char* path : {"link", "second"}) EXPECT_EQ(w.me.content(path), "in\n") << path;
  ASSERT_TRUE(succeeded(w.me.write("alias/new", "new")));
  EXPECT_EQ(w.me.content("real/new"), "new");
  for (const char* path : {"abs", "root/etc/passwd", "up/etc/passwd", "real/leaves", "a"})
    EXPECT_TRUE(refused(w.me.read(path), 403, "permission_denied")) << path;
  for (const char* path : {"abs", "root/tmp/x", "up/x", "real/leaves", "alias/leaves", "a"})
    EXPECT_TRUE(refused(w.me.write(path, "x"), 403, "permission_denied")) << path;
  EXPECT_EQ(w.me.content("real/f"), "in\n");
}

void a_write_through_a_link_keeps_the_link(World& w) {
  w.me.run(
      "mkdir -p real/sub; echo in > real/f; chmod 640 real/f; ln -s real/f link; ln -s ../f real/sub/up; "
      "ln -s real/new dangling; ln -s no/where nowhere; ln -s real dir");
  ASSERT_TRUE(succeeded(w.me.write("link", "one")));
  EXPECT_EQ(w.me.out("readlink link; stat -c %a real/f; cat real/f"), "real/f\n640\none");
  ASSERT_TRUE(succeeded(w.me.call("PUT", w.me.file_url("real/sub/up") + "?append=true", {}, "two")));
  EXPECT_EQ(w.me.content("real/f"), "onetwo");
  ASSERT_TRUE(succeeded(w.me.write("dangling", "made")));
  EXPECT_EQ(w.me.out("readlink dangling; cat real/new"), "real/new\nmade");
  EXPECT_TRUE(refused(w.me.write("link", "x", {{"exclusive", true}}), 409, "already_exists"));
  EXPECT_TRUE(refused(w.me.write("nowhere", "x"), 404, "file_not_found"))
      << "no directory is made behind a link";
  EXPECT_TRUE(refused(w.me.write("dir", "x"), 409, "is_directory"));
  EXPECT_EQ(w.me.content("link"), "onetwo");
  EXPECT_TRUE(succeeded(w.me.post("/workspace/move", {{"path", "link"}, {"to", "moved"}})));
  EXPECT_TRUE(succeeded(w.me.post("/workspace/remove", {{"path", "moved"}}))) << "the link itself";
  EXPECT_EQ(w.me.out("ls -A real; cat real/f"), "f\nnew\nsub\nonetwo");
}

void an_absolute_link_to_the_workspace_stays_in_it(World& w) {
  w.me.run(
      "mkdir -p real/sub; echo in > real/f; ln -s \"$HOME/real/f\" link; ln -s \"$HOME/real\" real/sub/dir; "
      "ln -s \"$HOME\" all; ln -s \"$HOME/../../etc/passwd\" out; ln -s \"${HOME}x/real/f\" beside");
  EXPECT_EQ(w.me.content("link"), "in\n");
  EXPECT_EQ(w.me.content("real/sub/dir/f"), "in\n");
  EXPECT_EQ(w.me.content("all/real/sub/dir/sub/dir/f"), "in\n");
  ASSERT_TRUE(succeeded(w.me.write("link", "written")));
  ASSERT_TRUE(succeeded(w.me.write("all/new/g", "made")));
  EXPECT_EQ(w.me.out("cat real/f new/g; readlink link"), "writtenmade" + w.me.out("echo $HOME/real/f"));
  EXPECT_EQ(w.me.post("/workspace/list", {{"path", "real/sub/dir"}}).body.at("entries").size(), 2u);
  for (const char* path : {"out", "beside"}) {
    EXPECT_TRUE(refused(w.me.read(path), 403, "permission_denied")) << path;
    EXPECT_TRUE(refused(w.me.write(path, "x"), 403, "permission_denied")) << path;
  }
}

void odd_names_are_literal(World& w) {
  for (const std::string& name :
       {std::string("-rf"), std::string("*"), std::string("a b"), std::string("%2e%2e"), std::string("~"),
        std::string("$HOME"), std::string("naïve"), std::string("nai\xcc\x88ve"), std::string("😀"),
        std::string(255, 'n'), std::string("...")}) {
    ASSERT_TRUE(succeeded(w.me.write(name, "of " + name))) << name;
    EXPECT_EQ(w.me.content(name), "of " + name);
  }
  const Answer listing = w.me.post("/workspace/list", {{"path", "."}});
  EXPECT_EQ(listing.body.at("entries").size(), 11u) << "names in NFC and NFD are two";
}

// A program may make it, so the API reaches it, in JSON and in a URL; a message shows it escaped.
void a_control_character_in_a_name_is_literal(World& w) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"new\nline", "new%0Aline"}, {"\x1b[31m", "%1B%5B31m"}, {"a\x7f\r", "a%7f%0d"}, {"\x01", "%01"}};
  w.me.run("touch $'new\\nline' $'\\e[31m' $'a\\x7f\\r' $'\\x01'");
  const Answer listing = w.me.post("/workspace/list", {{"path", "."}});
  ASSERT_EQ(listing.body.at("entries").size(), names.size()) << listing.text;
  for (const auto& [name, encoded] : names) {
    ASSERT_TRUE(succeeded(w.me.write(name, "json")));
    EXPECT_EQ(w.me.call("GET", w.me.file_url(encoded)).text, "json");
    ASSERT_TRUE(succeeded(w.me.call("PUT", w.me.file_url(encoded), {}, "raw")));
    EXPECT_EQ(w.me.content(name), "raw");
    EXPECT_EQ(w.me.post("/workspace/stat", {{"path", name}}).body.at("name"), name);
    EXPECT_TRUE(succeeded(w.me.post("/workspace/mkdir", {{"path", "d" + name}})));
    EXPECT_TRUE(succeeded(w.me.post("/workspace/move", {{"path", name}, {"to", "d" + name + "/" + name}})));
    for (const Answer& answer : {w.me.read(name), w.me.call("GET", w.me.file_url(encoded))}) {
      EXPECT_TRUE(refused(answer, 404, "file_not_found"));
      EXPECT_EQ(answer.text.find(name), std::string::npos) << "it is repeated unchanged: " << answer.text;
    }
    EXPECT_TRUE(succeeded(w.me.call("DELETE", w.me.file_url("d" + encoded + "/" + encoded))));
    EXPECT_TRUE(succeeded(w.me.post("/workspace/remove", {{"path", "d" + name}})));
  }
  EXPECT_EQ(w.me.out("ls -A"), "");
  EXPECT_TRUE(refused(w.me.read(std::string("a\0b", 3)), 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.call("GET", w.me.file_url("a%00b")), 400, "invalid_request"));
}

void a_file_that_is_too_large_for_json_is_413(World& w) {
  w.me.run("truncate -s 1T sparse; echo start | dd of=sparse conv=notrunc status=none");
  const pid_t front = front_of(w.gateway);
  const long before = resident_kib(front);
  EXPECT_TRUE(refused(w.me.read("sparse"), 413, "file_too_large"));
  const Answer part = w.me.read("sparse", {{"limit", 6}});
  EXPECT_EQ(part.body.at("content"), "start\n");
  EXPECT_EQ(part.body.at("size"), 1ull << 40);
  EXPECT_EQ(w.me.read("sparse", {{"offset", 1ull << 39}, {"limit", 3}}).body.at("content"),
            std::string(3, '\0'));
  EXPECT_LT(resident_kib(front) - before, kib_bound(64 << 10)) << "KiB more in the front";
}

void scope_sandbox_reaches_what_an_exec_reaches(World& w) {
  const std::string path = "/tmp/isogate-contract-" + new_mark();
  const Json sandbox{{"scope", "sandbox"}};
  if (!w.can("scope_sandbox")) {
    EXPECT_TRUE(refused(w.me.read("/etc/passwd", sandbox), 501, "unsupported"));
    return;
  }
  ASSERT_TRUE(succeeded(w.me.write(path, "by the api\n", sandbox)));
  EXPECT_EQ(w.me.out("cat " + path + " && echo more >> " + path), "by the api\n");
  EXPECT_EQ(w.me.read(path, sandbox).body.at("content"), "by the api\nmore\n");
  EXPECT_EQ(
      answer_of(
          HttpConnection(w.me.url()).request("GET", w.me.file_url(path) + "?scope=sandbox", w.me.headers()))
          .text,
      "by the api\nmore\n");
  EXPECT_TRUE(succeeded(w.me.post("/workspace/remove", {{"path", path}, {"scope", "sandbox"}})));
  EXPECT_EQ(w.me.out("ls " + path + " 2>/dev/null; true"), "");
  EXPECT_TRUE(refused(w.me.read("etc/passwd", sandbox), 400, "invalid_request")) << "it is not absolute";
  for (const char* secret : {"/etc/shadow", "/root/.ssh/id_rsa", "/proc/1/environ"}) {
    const bool exec_may = w.me.run(std::string("cat ") + secret).at("exit_code") == 0;
    EXPECT_EQ(w.me.read(secret, sandbox).status == 200, exec_may) << secret;
  }
  EXPECT_TRUE(refused(w.me.read("x", {{"scope", "host"}}), 400, "invalid_request"));
}

void a_raw_url_may_hold_an_absolute_path(World& w) {
  const auto call = [&](const std::string& method, const std::string& path, const std::string& body = {}) {
    return w.me.call(method, w.me.file_url(path), {}, body);
  };
  ASSERT_TRUE(succeeded(call("PUT", "/workspace/f", "of the workspace")));
  for (const char* path : {"f", "/workspace/f", "%2Fworkspace%2Ff"})
    EXPECT_EQ(call("GET", path).text, "of the workspace") << path;
  EXPECT_TRUE(refused(call("GET", "/etc/passwd"), 403, "permission_denied")) << "it is outside the workspace";
  if (!w.can("scope_sandbox")) return;
  const std::string name = "tmp/isogate-contract-" + new_mark();
  ASSERT_TRUE(succeeded(call("PUT", "/" + name + "?scope=sandbox", "absolute")));
  EXPECT_EQ(w.me.out("cat /" + name), "absolute");
  for (const std::string& path : {"/" + name, "%2F" + name})
    EXPECT_EQ(call("GET", path + "?scope=sandbox").text, "absolute") << path;
  for (const char* method : {"GET", "PUT", "DELETE"})
    EXPECT_TRUE(refused(call(method, name + "?scope=sandbox"), 400, "invalid_request"))
        << "it is not absolute";
  EXPECT_EQ(call("HEAD", "/" + name + "?scope=sandbox").header("Content-Length"), "8");
  EXPECT_TRUE(succeeded(call("DELETE", "/" + name + "?scope=sandbox")));
  EXPECT_TRUE(refused(call("GET", "/" + name + "?scope=sandbox"), 404, "file_not_found"));
  EXPECT_TRUE(refused(call("GET", "/tmp/../etc/passwd?scope=sandbox"), 400, "invalid_request"));
}

void a_shared_directory_is_read_only(World& w) {
  EXPECT_EQ(w.me.content("shared/hello"), "shared hello\n");
  EXPECT_EQ(w.me.content("/workspace/shared/hello"), "shared hello\n");
  const Answer listing = w.me.post("/workspace/list", {{"path", "shared"}});
  ASSERT_EQ(listing.body.at("entries").size(), 1u) << listing.text;
  EXPECT_EQ(listing.body.at("entries")[0].at("name"), "hello");
  EXPECT_TRUE(refused(w.me.write("shared/new", "x"), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.write("shared/hello", "x"), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.post("/workspace/mkdir", {{"path", "shared/dir"}}), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.post("/workspace/remove", {{"path", "shared/hello"}}), 403, "permission_denied"));
  EXPECT_TRUE(refused(w.me.post("/workspace/move", {{"path", "shared/hello"}, {"to", "mine"}}), 403,
                      "permission_denied"));
  EXPECT_TRUE(refused(w.me.call("PUT", w.me.file_url("shared/new"), {}, "x"), 403, "permission_denied"));
  EXPECT_EQ(w.stranger().content("shared/hello"), "shared hello\n");
  EXPECT_EQ(read_whole(shared_directory() + "/hello"), "shared hello\n");
}

const Case kFilePathCases[] = {
    {"a_path_that_cannot_be_is_refused", 9, a_path_that_cannot_be_is_refused},
    {"an_absolute_path_is_outside_the_workspace", 5, an_absolute_path_is_outside_the_workspace},
    {"what_is_absent_is_404", 9, what_is_absent_is_404},
    {"a_directory_is_no_file", 9, a_directory_is_no_file},
    {"a_fifo_or_socket_is_never_opened", 5, a_fifo_or_socket_is_never_opened},
    {"links_that_stay_work_and_links_that_leave_do_not", 5, links_that_stay_work_and_links_that_leave_do_not},
    {"a_write_through_a_link_keeps_the_link", 5, a_write_through_a_link_keeps_the_link},
    {"an_absolute_link_to_the_workspace_stays_in_it", 5, an_absolute_link_to_the_workspace_stays_in_it},
    {"odd_names_are_literal", 5, odd_names_are_literal},
    {"a_control_character_in_a_name_is_literal", 5, a_control_character_in_a_name_is_literal},
    {"a_file_that_is_too_large_for_json_is_413", 5, a_file_that_is_too_large_for_json_is_413},
    {"scope_sandbox_reaches_what_an_exec_reaches", 5, scope_sandbox_reaches_what_an_exec_reaches},
    {"a_raw_url_may_hold_an_absolute_path", 5, a_raw_url_may_hold_an_absolute_path},
    {"a_shared_directory_is_read_only", 5, a_shared_directory_is_read_only},
};

}  // namespace

std::span<const Case> file_path_cases() { return kFilePathCases; }

}  // namespace isogate::test
