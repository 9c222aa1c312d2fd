// How read, write, ls and rm handle responses, valid and invalid.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/fake_gateway.h"

namespace isogate::test {
namespace {

std::string file_answer(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status +
         "\r\nContent-Type: application/octet-stream\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::string first_line(const std::string& request) { return request.substr(0, request.find("\r\n")); }

size_t entries_in(const std::string& directory) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

TEST(Read, PrintsTheBytes) {
  const std::string bytes("a\0\xff\n", 4);
  FakeGateway gateway([&](const std::string&) { return file_answer(bytes); });
  auto done = run_client(gateway.url(), {"read", "--agent", "alice", "dir/a b"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, bytes);
  EXPECT_EQ(first_line(gateway.requests().at(0)), "GET /workspace/files/alice/dir/a%20b HTTP/1.1");
}

TEST(Read, WritesAFileWholeAndKeepsTheModeOfTheOldOne) {
  TemporaryDirectory directory;
  std::string path = directory.file("f", "old", 0640);
  FakeGateway gateway([](const std::string&) { return file_answer("new"); });
  EXPECT_EQ(run_client(gateway.url(), {"read", "f", "-o", path}).exit_code, 0);
  EXPECT_EQ(read_whole(path), "new");
  struct stat there {};
  ASSERT_EQ(::stat(path.c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 0777, 0640u);
  EXPECT_EQ(entries_in(directory.path()), 1u);
}

TEST(Read, ACutAnswerLeavesTheOldFile) {
  TemporaryDirectory directory;
  std::string path = directory.file("f", "old");
  FakeGateway gateway(
      [](const std::string&) { return std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"); });
  auto done = run_client(gateway.url(), {"read", "f", "-o", path});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_EQ(read_whole(path), "old");
  EXPECT_EQ(entries_in(directory.path()), 1u);
}

TEST(Read, APartIsARange) {
  FakeGateway gateway([](const std::string&) { return file_answer("cd", "206 Partial Content"); });
  auto done = run_client(gateway.url(), {"read", "f", "--offset", "2", "--limit", "2"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "cd");
  EXPECT_NE(gateway.requests().at(0).find("Range: bytes=2-3\r\n"), std::string::npos);
}

TEST(Read, AWholeFileInPlaceOfAPartIsAnError) {
  FakeGateway gateway([](const std::string&) { return file_answer("abcdef"); });
  EXPECT_EQ(run_client(gateway.url(), {"read", "f", "--offset", "2"}).exit_code, 125);
}

TEST(Read, ARefusalIs1) {
  TemporaryDirectory directory;
  FakeGateway gateway([](const std::string&) {
    return refusal(404, "file_not_found", "cannot open `f`: No such file or directory");
  });
  auto done = run_client(gateway.url(), {"read", "f", "-o", directory.path() + "/g"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(done.err, "isogate: cannot open `f`: No such file or directory (file_not_found)\n");
  EXPECT_EQ(entries_in(directory.path()), 0u);
}

TEST(Read, ADestinationThatCannotBeMadeIs1) {
  FakeGateway gateway([](const std::string&) { return file_answer("x"); });
  EXPECT_EQ(run_client(gateway.url(), {"read", "f", "-o", "/nonexistent/f"}).exit_code, 1);
  EXPECT_EQ(run_client(gateway.url(), {"read", "f", "-o", "/tmp"}).exit_code, 1);
  EXPECT_EQ(run_client(gateway.url(), {"read", "f", "-o", "/dev/null"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(Write, SendsAFileWithItsLength) {
  TemporaryDirectory directory;
  std::string source = directory.file("f", "content");
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{\"bytes_written\":7}"); });
  auto done = run_client(gateway.url(),
                         {"write", "--append", "--durable", "--replace", "--mode", "0755", "a/b", source});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  std::string request = gateway.requests().at(0);
  EXPECT_EQ(first_line(request),
            "PUT /workspace/files/default/a/b?append=true&durable=true&replace=true&mode=0755 HTTP/1.1");
  EXPECT_NE(request.find("Content-Length: 7\r\n"), std::string::npos);
  EXPECT_TRUE(request.ends_with("content"));
}

TEST(Write, SendsStdin) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{\"bytes_written\":5}"); });
  ProgramOptions options;
  options.stdin_bytes = "hello";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"write", "f"}, {"write", "f", "-"}})
    EXPECT_EQ(run_client(gateway.url(), arguments, options).exit_code, 0);
  EXPECT_NE(gateway.requests().at(0).find("hello"), std::string::npos);
}

TEST(Write, SendsAFileThatTheKernelGenerates) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{\"bytes_written\":1}"); });
  const std::string version = read_whole("/proc/version");
  ASSERT_FALSE(version.empty());
  for (const char* command : {R"("$0" write f /proc/version)", R"("$0" write f < /proc/version)"}) {
    auto done = run_program(
        {"env", "ISOGATE_URL=" + gateway.url(), "ISOGATE_KEY=k", "sh", "-c", command, isogate_binary()});
    EXPECT_EQ(done.exit_code, 0) << command << done.err;
    EXPECT_NE(gateway.requests().back().find(version), std::string::npos) << command;
  }
}

TEST(Write, AMissingSourceIs1AndSendsNothing) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{}"); });
  auto done = run_client(gateway.url(), {"write", "f", "/nonexistent"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("/nonexistent"), std::string::npos);
  EXPECT_TRUE(gateway.requests().empty());
}

TEST(Write, ARefusalInTheMiddleOfTheBodyIsShown) {
  TemporaryDirectory directory;
  std::string source = directory.file("f", std::string(1 << 20, 'x'));
  FakeGateway gateway([](const std::string&) { return refusal(507, "quota_exceeded", "full"); });
  auto done = run_client(gateway.url(), {"write", "f", source});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("full (quota_exceeded)"), std::string::npos) << done.err;
}

TEST(Ls, ListsNamesOnePerLine) {
  const std::string body = R"({"entries":[{"name":"d","type":"directory","size":0,"mode":"0755","mtime_ms":0},
      {"name":"d/f","type":"file","size":12,"mode":"0644","mtime_ms":1767225600123},
      {"name":"/w==","name_encoding":"base64","type":"symlink","size":0,"mode":"0777","mtime_ms":0}],"truncated":false})";
  FakeGateway gateway([&](const std::string&) { return json_answer(200, body); });
  auto names = run_client(gateway.url(), {"ls", "-R", "--agent", "alice"});
  EXPECT_EQ(names.exit_code, 0) << names.err;
  EXPECT_EQ(names.out, "d/\nd/f\n\xff\n");
  std::string request = gateway.requests().at(0);
  EXPECT_EQ(nlohmann::json::parse(request.substr(request.find("\r\n\r\n"))),
            nlohmann::json::parse(R"({"path":".","agent_id":"alice","recursive":true})"));
  auto details = run_client(gateway.url(), {"ls", "--long", "sub"});
  EXPECT_NE(details.out.find("-0644            12  2026-01-01T00:00:00Z  d/f\n"), std::string::npos)
      << details.out;
}

TEST(Ls, ACutListingIs1) {
  FakeGateway gateway(
      [](const std::string&) { return json_answer(200, R"({"entries":[],"truncated":true})"); });
  EXPECT_EQ(run_client(gateway.url(), {"ls"}).exit_code, 1);
}

TEST(Ls, AnInvalidListingIs125) {
  for (const char* body : {"", "{}", R"({"entries":[{}]})", R"({"entries":[{"name":1,"type":"file"}]})"}) {
    FakeGateway gateway([&](const std::string&) { return json_answer(200, body); });
    EXPECT_EQ(run_client(gateway.url(), {"ls"}).exit_code, 125) << body;
  }
}

TEST(Rm, Deletes) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{}"); });
  EXPECT_EQ(run_client(gateway.url(), {"rm", "-r", "d"}).exit_code, 0);
  EXPECT_EQ(first_line(gateway.requests().at(0)),
            "DELETE /workspace/files/default/d?recursive=true HTTP/1.1");
}

// No connection takes the number of one.
TEST(Files, AClosedStandardDescriptorIsAnError) {
  FakeGateway gateway([](const std::string&) { return file_answer("content"); });
  for (const char* command : {R"("$0" read f >&-)", R"("$0" read f >&- 2>&-)", R"("$0" write f <&-)"}) {
    auto done = run_program(
        {"env", "ISOGATE_URL=" + gateway.url(), "ISOGATE_KEY=k", "sh", "-c", command, isogate_binary()});
    EXPECT_EQ(done.exit_code, 1) << command << done.err;
    EXPECT_EQ(done.out, "") << command;
    const bool has_stderr = std::string(command).find("2>&-") == std::string::npos;
    EXPECT_EQ(done.err.find("Bad file descriptor") != std::string::npos, has_stderr) << command << done.err;
  }
  for (const std::string& request : gateway.requests())
    EXPECT_EQ(request.find("content"), std::string::npos) << request;
  auto done = run_program({"env", "ISOGATE_URL=" + gateway.url(), "ISOGATE_KEY=k", "sh", "-c",
                           R"("$0" read f <&- 2>&-)", isogate_binary()});
  EXPECT_EQ(done.out, "content");
}

TEST(Files, ScopeAndUserArePassedOn) {
  FakeGateway gateway([](const std::string&) { return file_answer("x"); });
  run_client(gateway.url(), {"read", "--scope", "sandbox", "--user", "app", "/etc/hosts"});
  EXPECT_EQ(first_line(gateway.requests().at(0)),
            "GET /workspace/files/default/%2Fetc/hosts?scope=sandbox&user=app HTTP/1.1");
}

}  // namespace
}  // namespace isogate::test
