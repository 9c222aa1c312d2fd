// Files through the real isogate-runner: in frames, and with descriptors.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "lib/changes.h"
#include "tests/agent/peer.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

FileSpec spec_of(uint32_t verb, const std::string& path, uint32_t flags = 0) {
  FileSpec spec;
  spec.verb = verb;
  spec.path = path;
  spec.flags = flags;
  return spec;
}

std::string pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 7 + i / 251) & 0xff);
  return bytes;
}

size_t staged_in(const std::string& directory) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    count += entry.path().filename().string().starts_with(".isogate-") ? 1 : 0;
  return count;
}

using AgentFiles = OneClient;

TEST_F(AgentFiles, WritesAndReadsInFrames) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{70000}, size_t{200000}}) {
    const std::string bytes = pattern(size);
    const Outcome written = peer.write(spec_of(0, "d/file", ISOGATE_FILE_PARENTS), bytes);
    EXPECT_EQ(written.result.status, ISOGATE_OK) << written.message;
    EXPECT_EQ(written.result.written, size);
    EXPECT_EQ(read_whole(agent.path("d/file")), bytes);
    const Outcome read = peer.run(spec_of(ISOGATE_RUNNER_READ, "/workspace/d/file"));
    EXPECT_EQ(read.result.status, ISOGATE_OK) << read.message;
    EXPECT_EQ(read.out, bytes);
    EXPECT_EQ(read.result.entry_size, size);
    EXPECT_EQ(read.result.entry_type, ISOGATE_ENTRY_REGULAR);
  }
  EXPECT_EQ(staged_in(agent.path("d")), 0u);
}

TEST_F(AgentFiles, ReadsALargeFileAndAPartOfIt) {
  ASSERT_EQ(peer.run("yes 0123456 | head -c 20000000 > big").result.exit_code, 0);
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_READ, "big")).out, read_whole(agent.path("big")));
  FileSpec part = spec_of(ISOGATE_RUNNER_READ, "big");
  part.offset = 9;
  part.limit = 6;
  EXPECT_EQ(peer.run(part).out, "123456");
}

TEST_F(AgentFiles, MovesBytesByDescriptors) {
  auto in = make_pipe(), out = make_pipe();
  FileSpec write = spec_of(ISOGATE_RUNNER_WRITE, "file");
  write.fd = in->read.get();
  const uint32_t stream = peer.file(write);
  in->read.reset();
  ASSERT_EQ(::write(in->write.get(), "some bytes", 10), 10);
  in->write.reset();
  EXPECT_FALSE(peer.finish(stream, 0.3).arrived) << "nothing has reported that the body is complete";
  EXPECT_FALSE(std::filesystem::exists(agent.path("file")));
  peer.end(stream);
  EXPECT_EQ(peer.finish(stream).result.written, 10u);
  FileSpec read = spec_of(ISOGATE_RUNNER_READ, "file");
  read.fd = out->write.get();
  const Outcome outcome = peer.run(read);
  EXPECT_EQ(outcome.result.entry_size, 10u);
  EXPECT_EQ(outcome.out, "");
  char buffer[20];
  EXPECT_EQ(::read(out->read.get(), buffer, sizeof buffer), 10);
}

TEST_F(AgentFiles, TheEndMayBeReportedBeforeTheDescriptorEnds) {
  auto in = make_pipe();
  FileSpec write = spec_of(ISOGATE_RUNNER_WRITE, "file");
  write.fd = in->read.get();
  const uint32_t stream = peer.file(write);
  in->read.reset();
  peer.end(stream);
  ASSERT_EQ(::write(in->write.get(), "late", 4), 4);
  EXPECT_FALSE(peer.finish(stream, 0.2).arrived);
  in->write.reset();
  EXPECT_EQ(peer.finish(stream).result.written, 4u);
}

TEST_F(AgentFiles, ATruncatedUploadCommitsNothing) {
  ASSERT_EQ(peer.write(spec_of(0, "file"), "old").result.status, ISOGATE_OK);
  const uint32_t cancelled = peer.file(spec_of(ISOGATE_RUNNER_WRITE, "file"));
  peer.data(cancelled, "half of the n");
  peer.cancel(cancelled);
  EXPECT_EQ(peer.finish(cancelled).result.status, ISOGATE_CANCELLED);
  const uint32_t broken = peer.file(spec_of(ISOGATE_RUNNER_WRITE, "file"));
  peer.data(broken, "half of the n");
  peer = Peer();
  peer = agent.accept();
  EXPECT_EQ(peer.run("cat file; ls -A | wc -l").out, "old1\n");
  auto in = make_pipe();
  FileSpec write = spec_of(ISOGATE_RUNNER_WRITE, "file");
  write.fd = in->read.get();
  const uint32_t stream = peer.file(write);
  ASSERT_EQ(::write(in->write.get(), "half", 4), 4);
  in = make_pipe();
  peer.cancel(stream);
  EXPECT_EQ(peer.finish(stream).result.status, ISOGATE_CANCELLED);
  EXPECT_EQ(peer.run("cat file; ls -A | wc -l").out, "old1\n");
}

TEST_F(AgentFiles, TakesMuchInFramesWithLittleMemory) {
  constexpr size_t kMuch = 96 << 20;
  const uint32_t stream = peer.file(spec_of(ISOGATE_RUNNER_WRITE, "much"));
  ASSERT_TRUE(peer.upload(stream, kMuch));
  peer.end(stream);
  EXPECT_EQ(peer.finish(stream).result.written, kMuch);
  ExecSpec slow = shell("sleep 0.3; dd bs=1000 count=20000 of=/dev/null 2>/dev/null; wc -c");
  slow.flags |= ISOGATE_RUNNER_EXEC_STDIN;
  const uint32_t reader = peer.exec(slow);
  ASSERT_TRUE(peer.upload(reader, kMuch));
  peer.end(reader);
  EXPECT_LT(std::stoul(peer.finish(reader).out), kMuch);
  EXPECT_LT(resident_kib(agent.pid()), kib_bound(16 << 10));
}

TEST_F(AgentFiles, ListsAndLooks) {
  ASSERT_EQ(peer.run("mkdir -p a/b; echo x > a/f; ln -s f a/l; echo > \"$(printf 'a/b/\\377\\nx')\"")
                .result.exit_code,
            0);
  const Outcome listed = peer.run(spec_of(ISOGATE_RUNNER_LIST, "a", ISOGATE_FILE_RECURSIVE));
  std::vector<std::string> names;
  for (const auto& [name, entry] : listed.entries) names.push_back(name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"b", "b/\377\nx", "f", "l"}));
  const Outcome looked = peer.run(spec_of(ISOGATE_RUNNER_STAT, "a/l"));
  EXPECT_EQ(looked.result.entry_type, ISOGATE_ENTRY_SYMLINK);
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_STAT, "a/f")).result.entry_size, 2u);
}

TEST_F(AgentFiles, ListsManyWithinItsCredit) {
  ASSERT_EQ(peer.run("mkdir m; cd m; seq -f '%0200.0f' 6000 | xargs touch").result.exit_code, 0);
  const uint32_t stream = peer.file(spec_of(ISOGATE_RUNNER_LIST, "m"));
  const Outcome some = peer.finish(stream, 1, false);
  EXPECT_FALSE(some.arrived);
  EXPECT_LE(some.entries.size() * 232, ISOGATE_RUNNER_WINDOW);
  peer.credit(stream, ISOGATE_RUNNER_STDOUT, ISOGATE_RUNNER_WINDOW);
  const Outcome rest = peer.finish(stream);
  EXPECT_EQ(some.entries.size() + rest.entries.size(), 6000u);
  const uint32_t given_up = peer.file(spec_of(ISOGATE_RUNNER_LIST, "m"));
  EXPECT_FALSE(peer.finish(given_up, 1, false).arrived);
  peer.cancel(given_up);
  EXPECT_EQ(peer.finish(given_up, 20, false).result.status, ISOGATE_CANCELLED);
}

TEST_F(AgentFiles, MakesMovesAndRemoves) {
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_MKDIR, "x/y", ISOGATE_FILE_PARENTS)).result.status, ISOGATE_OK);
  FileSpec move = spec_of(ISOGATE_RUNNER_MOVE, "x/y");
  move.path_to = "z";
  EXPECT_EQ(peer.run(move).result.status, ISOGATE_OK);
  EXPECT_TRUE(std::filesystem::is_directory(agent.path("z")));
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_MKDIR, "z/deep")).result.status, ISOGATE_OK);
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_REMOVE, "z")).result.status, ISOGATE_ALREADY_EXISTS);
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_REMOVE, "z", ISOGATE_FILE_RECURSIVE)).result.status, ISOGATE_OK);
  EXPECT_FALSE(std::filesystem::exists(agent.path("z")));
}

TEST_F(AgentFiles, ReachesTheWholeViewInScopeSandbox) {
  FileSpec spec = spec_of(ISOGATE_RUNNER_READ, "/etc/passwd");
  spec.scope = ISOGATE_SCOPE_SANDBOX;
  EXPECT_EQ(peer.run(spec).out, read_whole("/etc/passwd"));
  spec.path = agent.path("by-sandbox");
  EXPECT_EQ(peer.write(spec, "abc").result.written, 3u);
  EXPECT_EQ(read_whole(agent.path("by-sandbox")), "abc");
}

TEST_F(AgentFiles, RefusesWhatTheContractRefuses) {
  ASSERT_EQ(peer.run("mkdir d; mkfifo p; ln -s /etc/passwd out; ln -s / root; echo a > f").result.exit_code,
            0);
  struct Row {
    uint32_t verb;
    const char* path;
    isogate_status status;
  };
  for (const Row& row : {Row{ISOGATE_RUNNER_READ, "../x", ISOGATE_INVALID_ARGUMENT},
                         Row{ISOGATE_RUNNER_READ, "/etc/passwd", ISOGATE_INVALID_ARGUMENT},
                         Row{ISOGATE_RUNNER_READ, "out", ISOGATE_PERMISSION_DENIED},
                         Row{ISOGATE_RUNNER_READ, "root/etc/passwd", ISOGATE_PERMISSION_DENIED},
                         Row{ISOGATE_RUNNER_READ, "d", ISOGATE_IS_DIRECTORY},
                         Row{ISOGATE_RUNNER_READ, "p", ISOGATE_NOT_REGULAR},
                         Row{ISOGATE_RUNNER_READ, "absent", ISOGATE_NOT_FOUND},
                         Row{ISOGATE_RUNNER_WRITE, "out", ISOGATE_PERMISSION_DENIED},
                         Row{ISOGATE_RUNNER_WRITE, "d", ISOGATE_IS_DIRECTORY},
                         Row{ISOGATE_RUNNER_LIST, "f", ISOGATE_NOT_FOUND},
                         Row{ISOGATE_RUNNER_STAT, "absent", ISOGATE_NOT_FOUND}}) {
    const Outcome outcome = row.verb == ISOGATE_RUNNER_WRITE ? peer.write(spec_of(0, row.path), "bytes")
                                                             : peer.run(spec_of(row.verb, row.path));
    EXPECT_EQ(outcome.result.status, row.status) << row.verb << " " << row.path << ": " << outcome.message;
    EXPECT_EQ(outcome.out, "");
  }
  FileSpec other = spec_of(ISOGATE_RUNNER_READ, "f");
  other.user = "daemon";
  EXPECT_EQ(peer.run(other).result.status, ISOGATE_UNSUPPORTED);
}

std::string changes_in(std::string_view bytes) {
  std::string found;
  for (;;) {
    const auto change = take_change(bytes);
    if (!change.ok() || !change->has_value()) return found;
    found += std::to_string((*change)->type) + ":" + std::string((*change)->path) + " ";
  }
}

TEST_F(AgentFiles, WatchesADirectoryInFramesAndWithADescriptor) {
  const uint32_t in_frames = peer.file(spec_of(ISOGATE_RUNNER_WATCH, "", ISOGATE_FILE_RECURSIVE));
  ASSERT_EQ(changes_in(peer.output(in_frames, std::string("\1\0\0\0\0\0\0\0\0\0\0\0", 12))), "1: ");
  auto pipe = std::move(*make_pipe());
  FileSpec given = spec_of(ISOGATE_RUNNER_WATCH, "", ISOGATE_FILE_RECURSIVE);
  given.fd = pipe.write.get();
  const uint32_t with_descriptor = peer.file(given);
  pipe.write.reset();
  std::string bytes;
  const auto read_until = [&](const std::string& end) {
    char chunk[4096];
    while (changes_in(bytes).find(end) == std::string::npos) {
      const ssize_t got = ::read(pipe.read.get(), chunk, sizeof chunk);
      if (got <= 0) return false;
      bytes.append(chunk, static_cast<size_t>(got));
    }
    return true;
  };
  ASSERT_TRUE(read_until("1: "));
  ASSERT_EQ(::mkdir(agent.path("d").c_str(), 0755), 0);
  EXPECT_TRUE(read_until("2:d "));
  ASSERT_EQ(::rmdir(agent.path("d").c_str()), 0);
  EXPECT_TRUE(read_until("4:d "));
  peer.cancel(with_descriptor);
  EXPECT_EQ(peer.finish(with_descriptor).result.status, ISOGATE_CANCELLED);
  peer.cancel(in_frames);
  EXPECT_EQ(peer.finish(in_frames).result.status, ISOGATE_CANCELLED);
}

TEST_F(AgentFiles, AWatchWithoutCreditDelaysNobody) {
  const uint32_t stream = peer.file(spec_of(ISOGATE_RUNNER_WATCH, ""));
  ASSERT_FALSE(peer.output(stream, std::string("\1\0\0\0", 4)).empty());
  const std::string name(240, 'n');
  for (int i = 0; i < 6000; ++i) {
    const Fd file(::open(agent.path(name + std::to_string(i)).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    ASSERT_TRUE(file);
  }
  ASSERT_EQ(::mkdir(agent.path("z").c_str(), 0755), 0);
  ASSERT_EQ(::rmdir(agent.path("z").c_str()), 0);
  peer.cancel(stream);
  const Outcome outcome = peer.finish(stream, 20, false);
  EXPECT_TRUE(outcome.arrived);
  EXPECT_EQ(outcome.result.status, ISOGATE_CANCELLED);
  EXPECT_LE(outcome.out.size(), size_t{ISOGATE_RUNNER_WIDEST});
}

TEST(AgentUnprivileged, FilesWorkForAUserWithoutRights) {
  if (const std::string why = obstacle({.unprivileged = true}); !why.empty()) GTEST_SKIP() << why;
  AgentProcess agent({.unprivileged = true});
  Peer peer = agent.accept();
  EXPECT_EQ(peer.run("id -u; test -r /proc/$PPID/environ || echo closed").out, "61000\nclosed\n");
  EXPECT_EQ(peer.write(spec_of(0, "f"), "bytes").result.status, ISOGATE_OK);
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_READ, "f")).out, "bytes");
  EXPECT_EQ(peer.run(spec_of(ISOGATE_RUNNER_MKDIR, "a/b/c", ISOGATE_FILE_PARENTS)).result.status, ISOGATE_OK);
  EXPECT_EQ(peer.run("cat f").out, "bytes");
  const uint32_t watch = peer.file(spec_of(ISOGATE_RUNNER_WATCH, "a", ISOGATE_FILE_RECURSIVE));
  EXPECT_FALSE(peer.output(watch, std::string("\1\0\0\0", 4)).empty());
  peer.cancel(watch);
  EXPECT_EQ(peer.finish(watch).result.status, ISOGATE_CANCELLED);
}

}  // namespace
}  // namespace isogate::test
