// isogate cp, against a real gateway and against one that sends hostile archives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/tar/tar_writer.h"
#include "tests/cli/fake_gateway.h"
#include "tests/cli/terminal.h"
#include "tests/support/local_gateway.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

class Copy : public OnLocalGateway {
 protected:
  void SetUp() override {
    OnLocalGateway::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(sh("rm -rf ./*").exit_code, 0);
  }

  ProgramResult run(std::vector<std::string> arguments, const std::string& input = "") {
    return run_isogate(std::move(arguments),
                       {.stdin_bytes = input, .env = gateway_->client_env(), .cwd = here_.path()});
  }
  ProgramResult cp(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), "cp");
    return run(std::move(arguments), input);
  }
  // In the workspace of the agent `c`.
  ProgramResult sh(const std::string& command) { return run({"exec", "--agent", "c", "-c", command}); }
  [[nodiscard]] std::string local(const std::string& name) const { return here_.path() + "/" + name; }
  void tree() {
    fs::create_directories(local("t/sub/empty"));
    here_.file("t/one", "1\n", 0640);
    here_.file("t/sub/run", "#!/bin/sh\necho ran\n", 0755);
    here_.file("t/sub/odd \x01\xff", std::string(300'000, 'o'));
  }

  TemporaryDirectory here_;
};

TEST_F(Copy, ATreeGoesInAndComesOutUnchanged) {
  tree();
  auto in = cp({"-r", "t", "c:in"});
  EXPECT_EQ(in.exit_code, 0) << in.err;
  EXPECT_EQ(in.out + in.err, "");
  EXPECT_EQ(sh("in/sub/run; stat -c %a in/one; ls in").out, "ran\n640\none\nsub\n");
  auto out = cp({"-r", "c:in", "back"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  EXPECT_EQ(run_program({"diff", "-r", local("t"), local("back")}).out, "");
  EXPECT_TRUE(fs::is_directory(local("back/sub/empty")));
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(local("back/sub/run").c_str(), &after), 0);
  EXPECT_EQ(after.st_mode & 0777, 0755u);
  sh("touch -d @1700000000 in/one");
  EXPECT_EQ(cp({"-r", "c:in", "back"}).exit_code, 0);
  ASSERT_EQ(::stat(local("back/in/one").c_str(), &before), 0);
  EXPECT_EQ(before.st_mtime, 1700000000);
}

TEST_F(Copy, WhatIsThereDecidesWhereADirectoryGoes) {
  tree();
  ASSERT_EQ(sh("mkdir there").exit_code, 0);
  EXPECT_EQ(cp({"-r", "t", "c:there"}).exit_code, 0);
  EXPECT_EQ(cp({"-r", "t/.", "c:there"}).exit_code, 0);
  EXPECT_EQ(cp({"-r", "t/", "c:new"}).exit_code, 0);
  EXPECT_EQ(sh("ls there there/t new").out, "new:\none\nsub\n\nthere:\none\nsub\nt\n\nthere/t:\none\nsub\n");
  fs::create_directories(local("here"));
  EXPECT_EQ(cp({"-r", "c:new", "here"}).exit_code, 0);
  EXPECT_EQ(cp({"-r", "c:new/.", "here"}).exit_code, 0);
  EXPECT_EQ(cp({"-r", "c:", "all"}).exit_code, 0);
  for (const char* name : {"here/new/one", "here/one", "all/new/one", "all/there/t/sub/run"})
    EXPECT_TRUE(fs::exists(local(name))) << name;
  here_.file("file", "f");
  auto onto_file = cp({"-r", "c:new", "file"});
  EXPECT_EQ(onto_file.exit_code, 1);
  EXPECT_EQ(read_whole(local("file")), "f");
  EXPECT_EQ(cp({"-r", "t", "c:new/one"}).exit_code, 1);
  EXPECT_EQ(sh("cat new/one").out, "1\n");
}

TEST_F(Copy, FilesGoBothWays) {
  here_.file("run", "#!/bin/sh\necho ran\n", 0755);
  EXPECT_EQ(cp({"run", "c:named"}).exit_code, 0);
  EXPECT_EQ(cp({"run", "c:"}).exit_code, 0);
  EXPECT_EQ(cp({"run", "c:into/"}).exit_code, 0);
  EXPECT_EQ(cp({"run", "c:into"}).exit_code, 0);
  EXPECT_EQ(sh("./named; ./run; into/run; ls into").out, "ran\nran\nran\nrun\n");
  fs::create_directories(local("d"));
  EXPECT_EQ(cp({"c:named", "d"}).exit_code, 0);
  EXPECT_EQ(cp({"c:named", "copy"}).exit_code, 0);
  EXPECT_EQ(read_whole(local("d/named")), "#!/bin/sh\necho ran\n");
  struct stat info {};
  ASSERT_EQ(::stat(local("copy").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
  EXPECT_EQ(cp({"c:named", "-"}).out, "#!/bin/sh\necho ran\n");
  EXPECT_EQ(cp({"-", "c:from-stdin"}, "bytes").exit_code, 0);
  EXPECT_EQ(sh("cat from-stdin").out, "bytes");
  here_.file("a:b", "colon");
  EXPECT_EQ(cp({"./a:b", "c:colon"}).exit_code, 0);
  EXPECT_EQ(sh("cat colon").out, "colon");
  EXPECT_EQ(cp({"run", ":of-default"}).exit_code, 0);
  EXPECT_NE(run({"read", "of-default"}).out.find("echo ran"), std::string::npos);
}

TEST_F(Copy, ATarPassesThroughStdinAndStdout) {
  tree();
  const auto tar = run_program({"tar", "-c", "-C", here_.path(), "t"});
  ASSERT_EQ(tar.exit_code, 0) << tar.err;
  auto in = cp({"-r", "-", "c:x"}, tar.out);
  EXPECT_EQ(in.exit_code, 0) << in.err;
  auto out = cp({"-r", "c:x/t", "-"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  ProgramOptions options;
  options.stdin_bytes = out.out;
  fs::create_directories(local("u"));
  const auto extracted = run_program({"tar", "-x", "-C", local("u")}, options);
  EXPECT_EQ(extracted.exit_code, 0) << extracted.err;
  EXPECT_EQ(extracted.err, "");
  EXPECT_EQ(run_program({"diff", "-r", local("t"), local("u")}).out, "");
  auto cut = cp({"-r", "-", "c:y"}, tar.out.substr(0, 2000));
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_NE(cut.err.find("cut off"), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find("were written"), std::string::npos) << cut.err;
}

TEST_F(Copy, AFileWithoutASizeIsCopiedAloneAndLeftOutOfATree) {
  auto in = cp({"-r", "/proc/self/fdinfo", "c:in"});
  EXPECT_EQ(in.exit_code, 1);
  EXPECT_NE(in.err.find("left out: `0`: the kernel generates it on reading"), std::string::npos) << in.err;
  EXPECT_EQ(sh("ls in").out, "") << "no file that is empty";
  EXPECT_EQ(cp({"/proc/version", "c:version"}).exit_code, 0);
  EXPECT_EQ(sh("cat version").out, read_whole("/proc/version"));
  fs::create_directories(local("t"));
  here_.file("t/empty", "");
  EXPECT_EQ(cp({"-r", "t", "c:in"}).exit_code, 0);
  EXPECT_EQ(sh("stat -c %s in/t/empty").out, "0\n");
}

TEST_F(Copy, WhatIsLeftOutIsNamedAndEndsWith1) {
  tree();
  ASSERT_EQ(::symlink("one", local("t/link").c_str()), 0);
  ASSERT_EQ(::mkfifo(local("t/fifo").c_str(), 0600), 0);
  auto in = cp({"-r", "t", "c:in"});
  EXPECT_EQ(in.exit_code, 1);
  EXPECT_NE(in.err.find("left out: `link`: symlink\n"), std::string::npos) << in.err;
  EXPECT_NE(in.err.find("left out: `fifo`: it is a FIFO, socket or device\n"), std::string::npos) << in.err;
  EXPECT_EQ(sh("ls in").out, "one\nsub\n") << "everything else is copied";
  ASSERT_EQ(sh("ln -s one in/link; mkfifo in/fifo").exit_code, 0);
  auto out = cp({"-r", "c:in", "back"});
  EXPECT_EQ(out.exit_code, 1);
  EXPECT_NE(out.err.find("left out: `link`: symlink\n"), std::string::npos) << out.err;
  EXPECT_NE(out.err.find("left out: `fifo`: special file\n"), std::string::npos) << out.err;
  EXPECT_EQ(read_whole(local("back/one")), "1\n");
  EXPECT_FALSE(fs::exists(fs::symlink_status(local("back/link"))));
  auto json = cp({"-r", "--json", "c:in", "again"});
  EXPECT_EQ(json.exit_code, 1);
  const Json figures = Json::parse(json.out);
  EXPECT_EQ(figures.at("files"), 3);
  EXPECT_EQ(figures.at("skipped_total"), 2);
}

TEST_F(Copy, ALongOneShowsItsProgressOnATerminal) {
  std::string command = "(printf a; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; printf b; done) | ";
  for (const auto& [name, value] : gateway_->client_env()) command += name + "='" + value + "' ";
  Terminal terminal({"sh", "-c", command + isogate_binary() + " cp - c:slow; echo ended-$?"});
  EXPECT_TRUE(terminal.shows("MiB/s")) << terminal.screen();
  EXPECT_TRUE(terminal.shows("ended-0")) << terminal.screen();
  EXPECT_EQ(sh("cat slow").out, "a" + std::string(10, 'b'));
}

TEST_F(Copy, RefusalsSayWhatToDo) {
  tree();
  ASSERT_EQ(sh("mkdir d").exit_code, 0);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"t", "c:x"}, {"c:d", "x"}}) {
    auto done = cp(words);
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_NE(done.err.find("cp -r"), std::string::npos) << done.err;
  }
  EXPECT_EQ(cp({"t/one", "t/two"}).exit_code, 2);
  EXPECT_EQ(cp({"c:one", "c:two"}).exit_code, 2);
  auto missing = cp({"-r", "c:none", "x"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("(file_not_found)"), std::string::npos) << missing.err;
  EXPECT_FALSE(fs::exists(local("x")));
  EXPECT_EQ(cp({"none", "c:x"}).exit_code, 1);
  EXPECT_EQ(cp({"-r", "t", "c:../x"}).exit_code, 1);
  EXPECT_EQ(cp({"-r", "c:d", "no/such/parent"}).exit_code, 1);
  EXPECT_EQ(sh("ls").out, "d\n");
}

TEST_F(Copy, ASymlinkAtTheDestinationIsNotFollowed) {
  TemporaryDirectory elsewhere;
  ASSERT_EQ(sh("mkdir -p s/sub; echo new > s/sub/f; echo new > s/g").exit_code, 0);
  fs::create_directories(local("s"));
  ASSERT_EQ(::symlink(elsewhere.path().c_str(), local("s/sub").c_str()), 0);
  auto done = cp({"-r", "c:s/.", "s"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("no symlink is followed"), std::string::npos) << done.err;
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  fs::remove(local("s/sub"));
  const std::string target = elsewhere.file("target", "old");
  fs::remove(local("s/g"));
  ASSERT_EQ(::symlink(target.c_str(), local("s/g").c_str()), 0);
  EXPECT_EQ(cp({"-r", "c:s/.", "s"}).exit_code, 0);
  EXPECT_EQ(read_whole(target), "old") << "the link is replaced, not written through";
  EXPECT_EQ(read_whole(local("s/g")), "new\n");
}

// ---- a hostile gateway

std::string tar_of(const std::function<void(TarWriter&)>& fill) {
  std::string bytes;
  TarWriter tar([&bytes](std::string_view piece) { bytes += piece; });
  fill(tar);
  tar.finish();
  return bytes;
}

// The header's type, and a checksum that fits it.
std::string as_type(std::string tar, char type) {
  const unsigned sum = std::stoul(tar.substr(148, 6), nullptr, 8) + type - tar[156];
  tar[156] = type;
  char text[16];
  std::snprintf(text, sizeof text, "%06o", sum);
  return tar.replace(148, 6, text, 6);
}

struct Fake {
  explicit Fake(std::string tar_bytes, bool whole = true)
      : tar(std::move(tar_bytes)), gateway([this, whole](const std::string& request) {
          if (request.find("/workspace/stat") != std::string::npos)
            return json_answer(200, R"({"type":"directory","size":0,"mode":"0755","mtime_ms":0})");
          char size[32];
          std::snprintf(size, sizeof size, "%zx\r\n", tar.size());
          return "HTTP/1.1 200 OK\r\nContent-Type: application/x-tar\r\nTransfer-Encoding: chunked\r\n\r\n" +
                 (tar.empty() ? "" : size + tar + "\r\n") + (whole ? "0\r\n\r\n" : "");
        }) {}
  std::string tar;
  FakeGateway gateway;
};

TEST(HostileArchive, NothingLeavesTheDestination) {
  const std::string cases[] = {
      tar_of([](TarWriter& tar) { tar.file({"../escaped"}, "x"); }),
      tar_of([](TarWriter& tar) { tar.file({"a/../../escaped"}, "x"); }),
      tar_of([](TarWriter& tar) { tar.directory({"../escaped"}); }),
      tar_of([](TarWriter& tar) { tar.file({"/tmp/isogate-escaped"}, "x"); }),
      as_type(tar_of([](TarWriter& tar) { tar.symlink({"hard"}, "/etc/passwd"); }), '1'),
      as_type(tar_of([](TarWriter& tar) { tar.symlink({"device"}, ""); }), '3'),
  };
  for (const std::string& bytes : cases) {
    TemporaryDirectory directory;
    Fake fake(bytes);
    auto done = run_client(fake.gateway.url(), {"cp", "-r", "c:d", directory.path() + "/dst"});
    EXPECT_EQ(done.exit_code, 125) << done.err;
    EXPECT_NE(done.err.find("is refused"), std::string::npos) << done.err;
    EXPECT_TRUE(fs::is_empty(directory.path() + "/dst"));
    EXPECT_FALSE(fs::exists(directory.path() + "/escaped"));
    EXPECT_FALSE(fs::exists("/tmp/isogate-escaped"));
  }
}

TEST(HostileArchive, AFileThroughASymlinkOfTheArchiveStaysInside) {
  TemporaryDirectory directory, elsewhere;
  Fake fake(tar_of([&](TarWriter& tar) {
    tar.symlink({"link"}, elsewhere.path());
    tar.file({"link/f"}, "x");
  }));
  auto done = run_client(fake.gateway.url(), {"cp", "-r", "c:d", directory.path() + "/dst"});
  EXPECT_EQ(done.exit_code, 1) << "the symlink is left out";
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  EXPECT_EQ(read_whole(directory.path() + "/dst/link/f"), "x");
}

TEST(HostileArchive, ACutIsNoSuccess) {
  const std::string all = tar_of([](TarWriter& tar) {
    tar.file({"one"}, "1");
    tar.file({"two"}, std::string(100'000, '2'));
  });
  for (const size_t size : {size_t{0}, size_t{700}, size_t{50'000}, all.size() - 1024})
    for (const bool whole : {true, false})
      for (const bool to_stdout : {true, false}) {
        TemporaryDirectory directory;
        Fake fake(all.substr(0, size), whole);
        const std::string to = to_stdout ? "-" : directory.path() + "/dst";
        auto done = run_client(fake.gateway.url(), {"cp", "-r", "c:d", to});
        EXPECT_EQ(done.exit_code, 125) << size << whole << done.err;
        EXPECT_FALSE(fs::exists(directory.path() + "/dst/two") && size < all.size() - 1024);
        if (to_stdout || size == 0) continue;
        for (const auto& entry : fs::directory_iterator(directory.path() + "/dst"))
          EXPECT_NE(entry.path().filename().string()[0], '.') << "an unfinished file is left";
      }
}

TEST(CopyOut, AnAnswerThatBreaksTheContractIs125) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, R"({"type":"file","mode":5})"); });
  auto done = run_client(gateway.url(), {"cp", "c:f", "-"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_NE(done.err.find("the gateway's response is invalid"), std::string::npos) << done.err;
}

TEST(CopyIn, ASymlinkIsSentAsOneAndNotFollowed) {
  TemporaryDirectory directory;
  ::mkdir((directory.path() + "/d").c_str(), 0755);
  ASSERT_EQ(::symlink("/proc/self/mem", (directory.path() + "/d/link").c_str()), 0);
  FakeGateway gateway([](const std::string& request) {
    if (request.find("/workspace/stat") != std::string::npos)
      return refusal(404, "file_not_found", "nothing is there");
    return json_answer(
        200,
        R"({"files":0,"directories":1,"bytes":0,"skipped":[{"path":"link","reason":"symlink"}],"skipped_total":1})");
  });
  auto done = run_client(gateway.url(), {"cp", "-r", directory.path() + "/d", "c:d"});
  EXPECT_EQ(done.exit_code, 1) << done.err;
  const std::string request = gateway.requests().at(1);
  EXPECT_EQ(request.rfind("PUT /workspace/archive?path=d&agent_id=c HTTP/1.1\r\n", 0), 0u)
      << request.substr(0, 100);
  EXPECT_NE(request.find("/proc/self/mem"), std::string::npos);
}

TEST(CopyIn, TheReasonAndWhatWasWrittenAreShown) {
  TemporaryDirectory directory;
  ::mkdir((directory.path() + "/d").c_str(), 0755);
  FakeGateway gateway([](const std::string& request) {
    if (request.find("/workspace/stat") != std::string::npos)
      return refusal(404, "file_not_found", "nothing is there");
    return json_answer(507, R"({"error":{"code":"quota_exceeded","message":"it is full","retryable":false,)"
                            R"("details":{"files":3,"directories":2}},"request_id":"r"})");
  });
  auto done = run_client(gateway.url(), {"cp", "-r", directory.path() + "/d", "c:d"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(done.err,
            "isogate: it is full (quota_exceeded)\n  Before that, 3 files and 2 directories were written.\n");
}

}  // namespace
}  // namespace isogate::test
