#include <sys/socket.h>

#include "tests/contract/contract.h"

// /workspace/files: a file's bytes, streamed both ways.
namespace isogate::test {
namespace {

Answer put(const Caller& me, const std::string& path, const std::string& bytes) {
  return me.call("PUT", me.file_url(path), {}, bytes);
}

Answer range(const Caller& me, const std::string& path, const std::string& value) {
  return me.call("GET", me.file_url(path), {{"Range", value}});
}

void a_file_goes_up_and_down_and_away(World& w) {
  const std::string bytes = noise(100000, 5);
  const Answer up = put(w.me, "dir/blob.html", bytes);
  ASSERT_TRUE(succeeded(up));
  EXPECT_EQ(up.body, (Json{{"bytes_written", bytes.size()}}));
  const Answer down = w.me.call("GET", w.me.file_url("dir/blob.html"));
  ASSERT_TRUE(succeeded(down));
  EXPECT_TRUE(down.text == bytes);
  const Answer head = w.me.call("HEAD", w.me.file_url("dir/blob.html"));
  ASSERT_TRUE(succeeded(head));
  EXPECT_EQ(head.text, "");
  for (const Answer* answer : {&down, &head}) {
    EXPECT_EQ(answer->header("Content-Length"), "100000");
    EXPECT_EQ(answer->header("Content-Type"), "application/octet-stream") << "whatever its name says";
    EXPECT_EQ(answer->header("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(answer->header("Content-Disposition").rfind("attachment", 0), 0u);
    EXPECT_EQ(answer->header("Content-Security-Policy"), "sandbox");
    EXPECT_EQ(answer->header("Accept-Ranges"), "bytes");
  }
  EXPECT_TRUE(succeeded(w.me.call("DELETE", w.me.file_url("dir/blob.html"))));
  EXPECT_TRUE(refused(w.me.call("GET", w.me.file_url("dir/blob.html")), 404, "file_not_found"));
  const Answer gone = w.me.call("HEAD", w.me.file_url("dir/blob.html"));
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(gone.text, "");
}

void an_empty_file_is_a_file(World& w) {
  ASSERT_TRUE(succeeded(put(w.me, "empty", "")));
  const Answer down = w.me.call("GET", w.me.file_url("empty"));
  EXPECT_TRUE(succeeded(down));
  EXPECT_EQ(down.header("Content-Length"), "0");
  EXPECT_EQ(w.me.out("stat -c %s empty"), "0\n");
}

void a_range_is_answered_with_206(World& w) {
  ASSERT_TRUE(succeeded(put(w.me, "digits", "0123456789")));
  for (const auto& [value, bytes, tag] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"bytes=0-0", "0", "bytes 0-0/10"},
           {"bytes=3-6", "3456", "bytes 3-6/10"},
           {"bytes=7-", "789", "bytes 7-9/10"},
           {"bytes=-4", "6789", "bytes 6-9/10"},
           {"bytes=-40", "0123456789", "bytes 0-9/10"},
           {"bytes=8-400", "89", "bytes 8-9/10"}}) {
    const Answer answer = range(w.me, "digits", value);
    EXPECT_EQ(answer.status, 206) << value;
    EXPECT_EQ(answer.text, bytes) << value;
    EXPECT_EQ(answer.header("Content-Range"), tag);
  }
  for (const char* value : {"bytes=10-", "bytes=400-500", "bytes=-0"})
    EXPECT_TRUE(refused(range(w.me, "digits", value), 416, "range_not_satisfiable")) << value;
  for (const char* value : {"bytes=0-1,3-4", "lines=0-1", "bytes=6-3", "bytes=x-y", "bytes=-"}) {
    const Answer answer = range(w.me, "digits", value);
    EXPECT_EQ(answer.status, 200) << value << " is no range that is served, so it is ignored";
    EXPECT_EQ(answer.text, "0123456789") << value;
  }
}

// RFC 9110, 14.2: only a GET has a range.
void a_head_is_of_the_whole_file(World& w) {
  ASSERT_TRUE(succeeded(put(w.me, "digits", "0123456789")));
  for (const char* value : {"bytes=3-6", "bytes=10-"}) {
    const Answer answer = w.me.call("HEAD", w.me.file_url("digits"), {{"Range", value}});
    EXPECT_EQ(answer.status, 200) << value;
    EXPECT_EQ(answer.header("Content-Length"), "10") << value;
    EXPECT_EQ(answer.header("Content-Range"), "") << value;
  }
}

void a_range_of_another_version_is_the_whole_file(World& w) {
  const auto tag = [&] { return w.me.call("HEAD", w.me.file_url("versions")).header("ETag"); };
  const auto rest = [&](const std::string& condition) {
    return w.me.call("GET", w.me.file_url("versions"), {{"Range", "bytes=1-"}, {"If-Range", condition}});
  };
  ASSERT_TRUE(succeeded(put(w.me, "versions", "one")));
  const std::string first = tag();
  ASSERT_TRUE(succeeded(put(w.me, "versions", "second")));
  const std::string second = tag();
  for (const std::string& condition :
       {first, "W/" + second, std::string("Fri, 01 Jan 2038 00:00:00 GMT"), std::string()}) {
    const Answer whole = rest(condition);
    EXPECT_EQ(whole.status, 200) << condition;
    EXPECT_EQ(whole.text, "second") << condition;
  }
  const Answer part = rest(second);
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.text, "econd");
}

void a_part_or_a_condition_changes_no_file(World& w) {
  ASSERT_TRUE(succeeded(put(w.me, "kept", "all of it")));
  const std::string archive = "/workspace/archive?agent_id=" + w.me.agent();
  const auto asked = [&](const std::string& method, const std::string& target, const std::string& name,
                         const std::string& value) {
    return w.me.call(method, target, {{name, value}}, method == "PUT" ? "tail" : "");
  };
  for (const std::string& target : {w.me.file_url("kept"), archive})
    EXPECT_TRUE(refused(asked("PUT", target, "Content-Range", "bytes 5-8/9"), 400, "invalid_request"));
  for (const auto& [name, value] : {std::pair{"If-Match", "\"0-0\""}, std::pair{"If-None-Match", "*"},
                                    std::pair{"If-Unmodified-Since", "Fri, 01 Jan 1999 00:00:00 GMT"}}) {
    EXPECT_TRUE(refused(asked("PUT", w.me.file_url("kept"), name, value), 501, "unsupported")) << name;
    EXPECT_TRUE(refused(asked("DELETE", w.me.file_url("kept"), name, value), 501, "unsupported")) << name;
    EXPECT_TRUE(refused(asked("PUT", archive, name, value), 501, "unsupported")) << name;
  }
  EXPECT_EQ(w.me.content("kept"), "all of it");
}

void the_query_says_how_to_write(World& w) {
  const auto with = [&](const std::string& query, const std::string& bytes) {
    return w.me.call("PUT", w.me.file_url("q/file") + query, {}, bytes);
  };
  EXPECT_TRUE(refused(with("?parents=false", "x"), 404, "file_not_found"));
  EXPECT_TRUE(succeeded(with("?mode=0750&durable=true", "one")));
  EXPECT_TRUE(refused(with("?exclusive=true", "no"), 409, "already_exists"));
  EXPECT_TRUE(succeeded(with("?append=true", "two")));
  EXPECT_EQ(w.me.out("stat -c %a q/file; cat q/file"), "750\nonetwo");
  EXPECT_TRUE(refused(with("?append=maybe", "x"), 400, "invalid_request"));
  EXPECT_TRUE(refused(with("?mode=9", "x"), 400, "invalid_request"));
  EXPECT_NE(w.me.call("DELETE", w.me.file_url("q")).status, 200) << "it is not empty";
  EXPECT_TRUE(succeeded(w.me.call("DELETE", w.me.file_url("q") + "?recursive=true")));
}

void names_are_decoded_exactly_once(World& w) {
  ASSERT_TRUE(succeeded(put(w.me, "a%20b%3Fc%23d%25e%2Bf+g/%C3%A9", "odd")));
  EXPECT_EQ(w.me.content("a b?c#d%e+f+g/é"), "odd");
  ASSERT_TRUE(succeeded(put(w.me, "%252e%252e", "literal")));
  EXPECT_EQ(w.me.content("%2e%2e"), "literal");
  EXPECT_TRUE(refused(put(w.me, "%2e%2e/%2e%2e/x", "x"), 400, "invalid_request"));
  EXPECT_TRUE(refused(put(w.me, "%2", "x"), 400, "invalid_request"));
  EXPECT_TRUE(refused(put(w.me, "nul%00x", "x"), 400, "invalid_request"));
  ASSERT_TRUE(succeeded(put(w.me, "%ff%fe", "bytes")));
  EXPECT_EQ(w.me.call("GET", w.me.file_url("%ff%fe")).text, "bytes");
}

void expect_continue_is_answered_before_the_body(World& w) {
  HttpConnection connection(w.gateway.url());
  Headers headers = w.me.headers();
  headers.emplace_back("Expect", "100-continue");
  headers.emplace_back("Content-Length", "5");
  connection.send_request_head("PUT", w.me.file_url("expected"), headers);
  char interim[256];
  const ssize_t n = ::recv(connection.fd(), interim, sizeof interim, 0);
  ASSERT_EQ(std::string(interim, static_cast<size_t>(std::max<ssize_t>(n, 0))),
            "HTTP/1.1 100 Continue\r\n\r\n");
  connection.send("12345");
  EXPECT_EQ(connection.read_response("PUT").status, 200);
  EXPECT_EQ(w.me.content("expected"), "12345");
}

void expect_continue_is_not_answered_to_the_refused(World& w) {
  HttpConnection connection(w.gateway.url());
  connection.send_request_head(
      "PUT", w.me.file_url("never"),
      {{"Expect", "100-continue"}, {"Content-Length", "5"}, {"Authorization", "Bearer wrong"}});
  char answer[64];
  ASSERT_GT(::recv(connection.fd(), answer, sizeof answer, 0), 12);
  EXPECT_EQ(std::string(answer, 12), "HTTP/1.1 401");
}

void a_chunked_upload_is_whole(World& w) {
  const std::string bytes = noise(50000, 9);
  HttpConnection connection(w.gateway.url());
  Headers headers = w.me.headers();
  headers.emplace_back("Transfer-Encoding", "chunked");
  connection.send_request_head("PUT", w.me.file_url("chunked"), headers);
  size_t at = 0;
  for (size_t size : {1u, 3u, 4096u, 16384u, 7u, 29509u}) {
    char head[32];
    std::snprintf(head, sizeof head, "%zX;ext=1\r\n", size);
    connection.send(head + bytes.substr(at, size) + "\r\n");
    at += size;
  }
  ASSERT_EQ(at, bytes.size());
  connection.send("0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(connection.read_response("PUT").status, 200);
  EXPECT_EQ(connection.request("GET", "/livez").status, 200) << "the connection is in step";
  EXPECT_TRUE(w.me.content("chunked") == bytes);
}

// Promise 5: a truncated upload commits nothing, neither a new file nor a part of an old one.
void a_truncated_upload_commits_nothing(World& w) {
  ASSERT_TRUE(succeeded(put(w.me, "old", "old content")));
  for (const char* name : {"old", "new"})
    for (const bool chunked : {false, true})
      for (const bool half_close : {false, true}) {
        HttpConnection connection(w.gateway.url());
        Headers headers = w.me.headers();
        if (chunked)
          headers.emplace_back("Transfer-Encoding", "chunked");
        else
          headers.emplace_back("Content-Length", "300000");
        connection.send_request_head("PUT", w.me.file_url(name), headers);
        connection.send(chunked ? "10000\r\n" + std::string(65536, 'x') + "\r\n" : std::string(200000, 'x'));
        if (half_close) connection.finish_sending(), connection.read_until_closed();
        connection.close();
      }
  EXPECT_EQ(w.me.out("cat old"), "old content");
  EXPECT_TRUE(eventually(30, [&] { return w.me.out("ls -A") == "old\n"; })) << w.me.out("ls -A");
  EXPECT_TRUE(refused(w.me.read("new"), 404, "file_not_found"));
  EXPECT_EQ(w.me.content("old"), "old content");
}

void large_files_are_byte_exact_in_little_memory(World& w) {
  const std::string bytes = noise(64 << 20, 11);
  w.me.run("true");
  const pid_t front = front_of(w.gateway);
  const long before = resident_kib(front);
  ASSERT_TRUE(succeeded(put(w.me, "large", bytes)));
  EXPECT_EQ(w.me.out("sha256sum < large").substr(0, 64), sha256_hex(bytes));
  const Answer down = w.me.call("GET", w.me.file_url("large"));
  EXPECT_TRUE(down.text == bytes) << "64 MiB went in, " << down.text.size() << " bytes came back, or others";
  EXPECT_LT(resident_kib(front) - before, kib_bound(8192)) << "KiB more in the front";
}

void a_download_that_is_left_leaves_nothing(World& w) {
  w.me.run("truncate -s 1G sparse");
  const pid_t front = front_of(w.gateway);
  const size_t files = open_files(front).size();
  for (int i = 0; i < 5; ++i) {
    HttpConnection connection(w.gateway.url());
    connection.send_request_head("GET", w.me.file_url("sparse"), w.me.headers());
    EXPECT_EQ(connection.read_head().status, 200);
    connection.read_some();
    connection.close();
  }
  EXPECT_TRUE(eventually(5, [&] { return open_files(front).size() <= files + 2; }))
      << files << " descriptors became " << open_files(front).size();
}

void the_path_s_agent_is_the_agent(World& w) {
  ASSERT_TRUE(succeeded(put(w.me, "mine", "mine")));
  EXPECT_TRUE(refused(w.stranger().call("GET", w.stranger().file_url("mine")), 404, "file_not_found"));
  const Answer two = w.me.call("GET", w.me.file_url("mine"), {{"X-Agent-Id", w.stranger().agent()}});
  EXPECT_TRUE(refused(two, 400, "invalid_request"));
  for (const char* agent : {"..", "%2e%2e", "a%2fb", "-x", "%00"})
    EXPECT_EQ(w.me.call("GET", std::string("/workspace/files/") + agent + "/mine").status, 400) << agent;
}

const Case kRawFileCases[] = {
    {"a_file_goes_up_and_down_and_away", 5, a_file_goes_up_and_down_and_away},
    {"an_empty_file_is_a_file", 5, an_empty_file_is_a_file},
    {"a_range_is_answered_with_206", 5, a_range_is_answered_with_206},
    {"a_head_is_of_the_whole_file", 5, a_head_is_of_the_whole_file},
    {"a_range_of_another_version_is_the_whole_file", 5, a_range_of_another_version_is_the_whole_file},
    {"a_part_or_a_condition_changes_no_file", 5, a_part_or_a_condition_changes_no_file},
    {"the_query_says_how_to_write", 5, the_query_says_how_to_write},
    {"names_are_decoded_exactly_once", 5, names_are_decoded_exactly_once},
    {"expect_continue_is_answered_before_the_body", 0, expect_continue_is_answered_before_the_body},
    {"expect_continue_is_not_answered_to_the_refused", 0, expect_continue_is_not_answered_to_the_refused},
    {"a_chunked_upload_is_whole", 5, a_chunked_upload_is_whole},
    {"a_truncated_upload_commits_nothing", 5, a_truncated_upload_commits_nothing},
    {"large_files_are_byte_exact_in_little_memory", 5, large_files_are_byte_exact_in_little_memory},
    {"a_download_that_is_left_leaves_nothing", 5, a_download_that_is_left_leaves_nothing},
    {"the_path_s_agent_is_the_agent", 5, the_path_s_agent_is_the_agent},
};

}  // namespace

std::span<const Case> raw_file_cases() { return kRawFileCases; }

}  // namespace isogate::test
