// Against the real program, with descriptors and without.
#include "agent_process.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "calls.h"

namespace isogate::testing {
namespace {

using namespace std::chrono_literals;

class RunnerLinkAgent : public ::testing::TestWithParam<bool> {
 protected:
  Exec shell(const std::string& script) { return Exec({"/bin/sh", "-c", script}); }
  sdk::RunnerLink& link() { return agent.link(); }
  std::string output_of(const std::string& script) {
    Pipe out;
    Exec exec({"/bin/sh", "-c", script});
    exec.out = out.writer;
    const Outcome outcome = exec.run(link());
    EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
    return out.read_all();
  }
  Outcome write(const std::string& path, std::string_view bytes, bool whole = true) {
    Pipe in;
    const int complete = ::eventfd(0, EFD_CLOEXEC);
    auto request = file_request(path, in.reader);
    request.complete_fd = complete;
    auto done = later([&](Outcome& outcome) { outcome.written = link().write(ask.call, request); });
    in.write(bytes);
    if (whole) ::eventfd_write(complete, 1);
    in.close_writer();
    const Outcome outcome = done.get();
    ::close(complete);
    return outcome;
  }

  Ask ask;
  AgentProcess agent{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Ways, RunnerLinkAgent, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Descriptors" : "Frames"; });

TEST_P(RunnerLinkAgent, ProgramsEndAsTheyEnd) {
  const auto end_of = [&](const std::string& script) { return Exec({"/bin/sh", "-c", script}).run(link()); };
  EXPECT_EQ(Exec({"true"}).run(link()).exec.exit_code, 0);
  EXPECT_EQ(end_of("exit 7").exec.exit_code, 7);
  EXPECT_EQ(end_of("kill -TERM $$").exec.term_signal, SIGTERM);
  const Outcome missing = Exec({"no-such-program"}).run(link());
  EXPECT_EQ(missing.status, ISOGATE_OK) << missing.message;
  EXPECT_EQ(missing.exec.exit_code, 127);
  EXPECT_EQ(missing.exec.flags, ISOGATE_RESULT_NOT_STARTED);
}

TEST_P(RunnerLinkAgent, StreamsAreTheProgramsOwn) {
  Pipe in, out, err;
  Exec exec({"/bin/sh", "-c", "tr a-z A-Z; echo done >&2"});
  exec.in = in.reader, exec.out = out.writer, exec.err = err.writer;
  auto done = exec.start(link());
  in.write("some words");
  in.close_writer();
  EXPECT_EQ(done.get().exec.exit_code, 0);
  EXPECT_EQ(out.read_all(), "SOME WORDS");
  EXPECT_EQ(err.read_all(), "done\n");
}

TEST_P(RunnerLinkAgent, AMebibyteGoesThroughAProgramExactly) {
  std::string bytes(3 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 >> 4);
  Pipe in, out;
  Exec exec({"cat"});
  exec.in = in.reader, exec.out = out.writer;
  auto done = exec.start(link());
  auto writing = std::async(std::launch::async, [&] { in.write(bytes), in.close_writer(); });
  EXPECT_TRUE(out.read(bytes.size()) == bytes);
  writing.get();
  EXPECT_EQ(done.get().exec.exit_code, 0);
}

TEST_P(RunnerLinkAgent, ManyRunAtOnce) {
  std::vector<std::future<int>> threads;
  for (int i = 0; i < 16; ++i)
    threads.push_back(std::async(std::launch::async, [&, i] {
      int good = 0;
      for (int k = 0; k < 7; ++k) {
        Pipe out;
        const std::string word = std::to_string(i * 100 + k);
        Exec exec({"echo", word});
        exec.out = out.writer;
        good += exec.run(link()).status == ISOGATE_OK && out.read_all() == word + "\n";
      }
      return good;
    }));
  for (auto& thread : threads) EXPECT_EQ(thread.get(), 7);
}

TEST_P(RunnerLinkAgent, ACancelledProgramIsKilled) {
  Pipe out;
  Exec exec = shell("echo up; sleep 60");
  exec.out = out.writer;
  auto done = exec.start(link());
  EXPECT_EQ(out.read(3), "up\n");
  exec.ask.cancel();
  ASSERT_EQ(done.wait_for(20s), std::future_status::ready);
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.exec.term_signal, SIGKILL);
  EXPECT_EQ(outcome.exec.flags, ISOGATE_RESULT_KILLED);
}

TEST_P(RunnerLinkAgent, AnUnreadFloodCanBeCancelled) {
  Pipe out;
  Exec exec({"yes"});
  exec.out = out.writer;
  auto done = exec.start(link());
  EXPECT_EQ(out.read(2), "y\n");
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(Exec({"true"}).run(link()).exec.exit_code, 0);
  exec.ask.cancel();
  ASSERT_EQ(done.wait_for(20s), std::future_status::ready);
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.exec.flags, ISOGATE_RESULT_KILLED);
  EXPECT_TRUE(link().alive());
}

TEST_P(RunnerLinkAgent, ATerminalHasTheSizeItIsGiven) {
  if (!link().peer().has_pty) GTEST_SKIP() << "the runner has no terminals here";
  Pipe in, out, control;
  Exec exec(
      {"/bin/sh", "-c",
       "stty size; until [ \"$(stty size)\" = '10 20' ]; do sleep 0.02; done; read line; echo got $line"});
  exec.flags = ISOGATE_EXEC_PTY;
  exec.rows = 33, exec.cols = 99;
  exec.in = in.reader, exec.out = out.writer, exec.control = control.reader;
  auto done = exec.start(link());
  EXPECT_EQ(out.read(7), "33 99\r\n");
  const isogate_control resize{ISOGATE_CONTROL_RESIZE, 10, 20, 0};
  control.write({reinterpret_cast<const char*>(&resize), sizeof resize});
  in.write("it\n");
  EXPECT_EQ(done.get().exec.exit_code, 0);
  EXPECT_NE(out.read_all().find("got it\r\n"), std::string::npos);
}

TEST_P(RunnerLinkAgent, FilesAreWrittenReadAndChanged) {
  EXPECT_EQ(write("a", "content").written, 7u);
  Pipe out;
  isogate_entry entry{};
  auto request = file_request("a", out.writer);
  link().read(ask.call, request, entry);
  EXPECT_EQ(out.read_all(), "content");
  EXPECT_EQ(entry.size, 7u);
  link().mkdir(ask.call, file_request("d"));
  auto move = file_request("a");
  move.path_to = sdk::str("d/b");
  link().move(ask.call, move);
  link().stat(ask.call, file_request("d/b"), entry);
  EXPECT_EQ(entry.type, ISOGATE_ENTRY_REGULAR);
  auto tree = file_request("d");
  EXPECT_NE(outcome_of([&](Outcome&) { link().remove(ask.call, tree); }).status, ISOGATE_OK);
  tree.flags = ISOGATE_FILE_RECURSIVE;
  link().remove(ask.call, tree);
  EXPECT_EQ(outcome_of([&](Outcome&) { link().stat(ask.call, file_request("d"), entry); }).status,
            ISOGATE_NOT_FOUND);
}

TEST_P(RunnerLinkAgent, ABodyThatIsNotWholeChangesNothing) {
  EXPECT_EQ(write("f", "old").status, ISOGATE_OK);
  EXPECT_EQ(write("f", "new but cut", false).status, ISOGATE_CANCELLED);
  EXPECT_EQ(output_of("cat f; ls -a | wc -l"), "old3\n");
}

TEST_P(RunnerLinkAgent, ALargeFileComesAndGoesExactly) {
  std::string bytes(5 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 13 >> 5);
  EXPECT_EQ(write("large", bytes).written, bytes.size());
  Pipe out;
  isogate_entry entry{};
  auto done = later([&](Outcome&) { link().read(ask.call, file_request("large", out.writer), entry); });
  EXPECT_TRUE(out.read(bytes.size()) == bytes);
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

TEST_P(RunnerLinkAgent, ListsAreListed) {
  output_of("mkdir -p d/e; for i in $(seq 3000); do : > d/f$i; done; : > d/e/g; ln -s /etc d/link");
  std::vector<std::string> names;
  const isogate_entry_sink sink{
      &names, [](void* to, const isogate_entry* entry) {
        static_cast<std::vector<std::string>*>(to)->emplace_back(sdk::view(entry->name));
        return isogate_status{ISOGATE_OK};
      }};
  auto request = file_request("d");
  request.limit = 0;
  request.flags = ISOGATE_FILE_RECURSIVE;
  link().list(ask.call, request, sdk::EntrySink(sink));
  EXPECT_EQ(names.size(), 3003u);
  EXPECT_EQ(std::count(names.begin(), names.end(), "e/g"), 1);
}

TEST_P(RunnerLinkAgent, EvidenceIsMeasuredInside) {
  isogate_evidence evidence{};
  const isogate_evidence_request request{sizeof request, 0, {nullptr, 0}};
  link().evidence(ask.call, request, evidence);
  EXPECT_NE(evidence.flags & ISOGATE_EVIDENCE_MEASURED, 0u);
  EXPECT_EQ(evidence.uid, ::geteuid());
  EXPECT_GT(evidence.visible_processes, 0u);
}

TEST_P(RunnerLinkAgent, ATextOfTheKernelIsReadInside) {
  const char* const name = "/proc/sys/kernel/random/boot_id";
  const std::string text = sdk::read_text(link(), ask.call, name);
  EXPECT_EQ(text.size(), 37u);
  EXPECT_EQ(text, output_of(std::string("cat ") + name));
  const Outcome missing = outcome_of([&](Outcome&) { (void)sdk::read_text(link(), ask.call, "/proc/none"); });
  EXPECT_EQ(missing.status, ISOGATE_NOT_FOUND) << missing.message;
}

TEST_P(RunnerLinkAgent, ProvesThatProgramsRun) {
  EXPECT_TRUE(link().prove(5s));
  EXPECT_FALSE(link().spent());
  agent.kill();
  EXPECT_FALSE(link().prove(1s));
}

TEST_P(RunnerLinkAgent, KillingItLosesWhatRuns) {
  Pipe out;
  Exec exec = shell("echo up; sleep 60");
  exec.out = out.writer;
  auto done = exec.start(link());
  EXPECT_EQ(out.read(3), "up\n");
  EXPECT_TRUE(link().ping(5s));
  agent.kill();
  ASSERT_EQ(done.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(done.get().status, ISOGATE_LOST);
  EXPECT_FALSE(link().alive());
  EXPECT_TRUE(link().spent()) << "it is not known whether it has ended";
  EXPECT_EQ(exec.run(link()).status, ISOGATE_UNAVAILABLE);
  EXPECT_FALSE(link().ping(1s));
}

TEST_P(RunnerLinkAgent, ItsEndIsSeenWhileNothingRuns) {
  EXPECT_EQ(Exec({"true"}).run(link()).status, ISOGATE_OK);
  EXPECT_TRUE(link().alive());
  agent.kill();
  EXPECT_FALSE(link().alive());
  EXPECT_FALSE(link().why().empty());
}

TEST_P(RunnerLinkAgent, ACallAfterItsEndHasNotStarted) {
  agent.kill();
  EXPECT_EQ(Exec({"true"}).run(link()).status, ISOGATE_UNAVAILABLE);
}

}  // namespace
}  // namespace isogate::testing
