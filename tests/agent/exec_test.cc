// Programs run by the real isogate-runner, with descriptors and with bytes in frames.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "tests/agent/peer.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string read_to_end(const Fd& fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t size = 0; (size = ::read(fd.get(), buffer, sizeof buffer)) > 0;)
    all.append(buffer, static_cast<size_t>(size));
  return all;
}

using AgentExec = OneClient;

TEST_F(AgentExec, GivesOutputExitCodeAndFigures) {
  const Outcome outcome = peer.run("echo out; echo err >&2; exit 7");
  ASSERT_TRUE(outcome.arrived);
  EXPECT_EQ(outcome.result.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.result.exit_code, 7);
  EXPECT_EQ(outcome.out, "out\n");
  EXPECT_EQ(outcome.err, "err\n");
  EXPECT_GT(outcome.result.wall_ns, 0u);
}

TEST_F(AgentExec, ReportsSignalsAndWhatCannotBeFound) {
  EXPECT_EQ(peer.run("kill -SEGV $$").result.term_signal, SIGSEGV);
  ExecSpec absent;
  absent.argv = {"there-is-no-such-program"};
  const Outcome outcome = peer.finish(peer.exec(absent));
  EXPECT_EQ(outcome.result.exit_code, 127);
  EXPECT_NE(outcome.result.exec_flags & ISOGATE_RESULT_NOT_STARTED, 0u);
  EXPECT_NE(outcome.err.find("there-is-no-such-program"), std::string::npos);
}

TEST_F(AgentExec, SamplesLimitsAndRefusesToEnforceThem) {
  ExecSpec spec = shell("for i in 1 2 3 4 5 6 7 8 9; do sleep 100 & done; sleep 100");
  spec.limits = {{ISOGATE_LIMIT_PIDS, 0, 5}};
  EXPECT_EQ(peer.finish(peer.exec(spec)).result.status, ISOGATE_UNSUPPORTED);
  spec.sampled = 1;
  const Outcome many = peer.finish(peer.exec(spec));
  EXPECT_EQ(many.result.status, ISOGATE_OK) << many.message;
  EXPECT_EQ(many.result.exec_flags, ISOGATE_RESULT_PIDS_EXCEEDED);
  EXPECT_EQ(many.result.term_signal, SIGKILL);
  spec = shell("tail /dev/zero");
  spec.limits = {{ISOGATE_LIMIT_MEMORY_BYTES, 0, 64 << 20}};
  spec.sampled = 1;
  EXPECT_NE(peer.finish(peer.exec(spec)).result.exec_flags & ISOGATE_RESULT_OOM_KILLED, 0u);
  EXPECT_EQ(peer.run("echo alive").out, "alive\n");
}

TEST_F(AgentExec, RefusesLimitsThatItDoesNotKnowAndThoseThatAreMalformed) {
  ExecSpec spec = shell("true");
  spec.sampled = 1;
  const std::pair<std::vector<isogate_runner_limit>, int32_t> rows[] = {
      {{{99, 0, 5}}, ISOGATE_UNSUPPORTED},
      {{{ISOGATE_LIMIT_DISK_BYTES, 0, 5}}, ISOGATE_UNSUPPORTED},
      {{{ISOGATE_LIMIT_PIDS, 0, 0}}, ISOGATE_INVALID_ARGUMENT},
      {{{ISOGATE_LIMIT_PIDS, 0, 9}, {ISOGATE_LIMIT_PIDS, 0, 9}}, ISOGATE_INVALID_ARGUMENT}};
  for (const auto& [limits, status] : rows) {
    spec.limits = limits;
    const Outcome outcome = peer.finish(peer.exec(spec));
    EXPECT_EQ(outcome.result.status, status) << outcome.message;
  }
  EXPECT_EQ(peer.run("echo alive").out, "alive\n");
}

TEST(AgentLimits, MalformedOnesEndTheConnection) {
  const auto ends = [](const std::function<void(ExecSpec&)>& change) {
    AgentProcess agent;
    Peer peer = agent.accept();
    ExecSpec spec = shell("true");
    change(spec);
    peer.exec(spec);
    return peer.ended();
  };
  EXPECT_TRUE(ends([](ExecSpec& spec) { spec.limits = {{ISOGATE_LIMIT_PIDS, 1, 5}}; }));
  EXPECT_TRUE(ends([](ExecSpec& spec) { spec.limits = {{ISOGATE_LIMIT_PIDS, 0, 5}}, spec.sampled = 2; }));
  EXPECT_TRUE(ends([](ExecSpec& spec) { spec.flags |= ISOGATE_RUNNER_EXEC_LIMITS; })) << "without any";
}

TEST_F(AgentExec, GivesTheProgramTheDescriptorsThemselves) {
  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  ExecSpec spec = shell("cat; echo problem >&2");
  spec.flags = ISOGATE_RUNNER_EXEC_STDIN | ISOGATE_RUNNER_EXEC_STDOUT | ISOGATE_RUNNER_EXEC_STDERR;
  spec.fds = {in->read.get(), out->write.get(), err->write.get()};
  const uint32_t stream = peer.exec(spec);
  in->read.reset();
  out->write.reset();
  err->write.reset();
  ASSERT_EQ(::write(in->write.get(), "hello", 5), 5);
  in->write.reset();
  const Outcome outcome = peer.finish(stream);
  EXPECT_EQ(outcome.result.exit_code, 0) << outcome.message;
  EXPECT_EQ(outcome.out + outcome.err, "");
  EXPECT_EQ(read_to_end(out->read), "hello");
  EXPECT_EQ(read_to_end(err->read), "problem\n");
}

TEST_F(AgentExec, HasTheEnvironmentOfASandbox) {
  ExecSpec spec = shell("echo $WORKSPACE:$HOME:$SHELL:$GIVEN; pwd; echo $USER | wc -w");
  spec.env = {{"GIVEN", "yes"}};
  const Outcome outcome = peer.finish(peer.exec(spec));
  const std::string& place = agent.workspace();
  EXPECT_EQ(outcome.out, place + ":" + place + ":/bin/sh:yes\n" + place + "\n1\n");
}

TEST_F(AgentExec, StartsInTheDirectoryThatWasNamed) {
  ASSERT_EQ(peer.run("mkdir -p a/b; ln -s /etc out").result.exit_code, 0);
  struct Row {
    const char* cwd;
    std::string answer;  // empty: refused
  };
  for (const Row& row :
       {Row{"a/b", agent.path("a/b")}, Row{"/workspace/a", agent.path("a")}, Row{"/usr", "/usr"},
        Row{"out", ""}, Row{"absent", ""}, Row{"/absent", ""}, Row{"../x", ""}}) {
    ExecSpec spec = shell("pwd -P");
    spec.cwd = row.cwd;
    const Outcome outcome = peer.finish(peer.exec(spec));
    EXPECT_EQ(outcome.out, row.answer.empty() ? "" : row.answer + "\n") << row.cwd;
    EXPECT_EQ(outcome.result.status, row.answer.empty() ? ISOGATE_INVALID_ARGUMENT : ISOGATE_OK) << row.cwd;
  }
}

TEST_F(AgentExec, IsNobodyElse) {
  for (const std::string& user : {std::to_string(::getuid()), std::string()}) {
    ExecSpec spec = shell("true");
    spec.user = user;
    EXPECT_EQ(peer.finish(peer.exec(spec)).result.status, ISOGATE_OK) << user;
  }
  for (const char* user : {"daemon", "12345", "-1", "0x0", "root\n"}) {
    ExecSpec spec = shell("true");
    spec.user = user;
    const Outcome outcome = peer.finish(peer.exec(spec));
    EXPECT_EQ(outcome.result.status, ISOGATE_UNSUPPORTED) << user;
    EXPECT_NE(outcome.message.find("uid"), std::string::npos);
  }
}

TEST_F(AgentExec, MovesMuchOutputWithCredit) {
  const Outcome outcome = peer.finish(peer.exec(shell("head -c 67108864 /dev/zero | tr '\\0' x")), 120);
  ASSERT_TRUE(outcome.arrived);
  EXPECT_EQ(outcome.out.size(), size_t{64} << 20);
  EXPECT_EQ(outcome.out.find_first_not_of('x'), std::string::npos);
}

TEST_F(AgentExec, GivesAProgramThatReadsAMebibyteAndNoMore) {
  constexpr size_t kPiece = 32 << 10, kMuch = 4 << 20;
  ExecSpec reads = shell("cat > /dev/null"), sleeps = shell("until [ -e go ]; do sleep 0.05; done");
  reads.flags |= ISOGATE_RUNNER_EXEC_STDIN;
  sleeps.flags |= ISOGATE_RUNNER_EXEC_STDIN;
  const uint32_t reader = peer.exec(reads);
  peer.stdin_credit = ISOGATE_RUNNER_WINDOW;
  for (size_t sent = 0; sent < kMuch; sent += kPiece) {
    for (int i = 0; i < 5000 && peer.stdin_credit < sent + kPiece; ++i)
      EXPECT_FALSE(peer.finish(reader, 0.004).arrived);
    peer.data(reader, std::string(kPiece, 'x'));
    EXPECT_FALSE(peer.finish(reader, 0.004).arrived);  // time to read it
  }
  peer.end(reader);
  EXPECT_TRUE(peer.finish(reader).arrived);
  EXPECT_LE(peer.stdin_credit - kMuch, ISOGATE_RUNNER_WIDEST);
  EXPECT_GT(peer.stdin_credit - kMuch, ISOGATE_RUNNER_WINDOW);
  const uint32_t sleeper = peer.exec(sleeps);
  ASSERT_TRUE(peer.upload(sleeper, ISOGATE_RUNNER_WINDOW));
  EXPECT_FALSE(peer.finish(sleeper, 1).arrived);
  EXPECT_LT(peer.stdin_credit, 2 * ISOGATE_RUNNER_WINDOW) << "but what its pipe took";
  std::ofstream(agent.path("go")) << "";
  EXPECT_TRUE(peer.finish(sleeper).arrived);
}

TEST_F(AgentExec, BlocksTheProgramWithoutCredit) {
  const uint32_t stream = peer.exec(shell("yes | head -c 4000000; echo end >&2"));
  Outcome waiting;
  const auto wait = [&] {
    const Outcome more = peer.finish(stream, 1, false);
    waiting.out += more.out;
    waiting.err += more.err;
    waiting.arrived = waiting.arrived || more.arrived;
  };
  for (int i = 0; i < 20 && waiting.out.size() < ISOGATE_RUNNER_WINDOW; ++i) wait();
  wait();
  EXPECT_FALSE(waiting.arrived);
  EXPECT_EQ(waiting.out.size(), ISOGATE_RUNNER_WINDOW);
  EXPECT_EQ(waiting.err, "");
  peer.credit(stream, ISOGATE_RUNNER_STDOUT, ISOGATE_RUNNER_WINDOW);
  const Outcome rest = peer.finish(stream);
  EXPECT_TRUE(rest.arrived);
  EXPECT_EQ(waiting.out.size() + rest.out.size(), 4000000u);
  EXPECT_EQ(rest.err, "end\n");
}

TEST_F(AgentExec, DeliversWhatWasWrittenBeforeTheEnd) {
  for (int i = 0; i < 30; ++i) {
    const Outcome outcome = peer.run("head -c 60000 /dev/zero; exit 3");
    EXPECT_EQ(outcome.out.size(), 60000u);
    EXPECT_EQ(outcome.result.exit_code, 3);
  }
}

TEST_F(AgentExec, TakesInputInFramesAndGivesCreditBack) {
  ExecSpec spec = shell("wc -c");
  spec.flags |= ISOGATE_RUNNER_EXEC_STDIN;
  const uint32_t stream = peer.exec(spec);
  const std::string piece(50000, 'i');
  for (int i = 0; i < 5; ++i) peer.data(stream, piece);
  while (peer.stdin_credit < 180000) {  // of the 250000, less one step at most
    const auto frame = peer.receive();
    ASSERT_TRUE(frame.has_value());
    ASSERT_EQ(frame->head.type, ISOGATE_RUNNER_CREDIT);
    uint32_t bytes = 0;
    std::memcpy(&bytes, frame->payload.data() + 4, sizeof bytes);
    peer.stdin_credit += bytes;
  }
  peer.data(stream, piece);
  peer.end(stream);
  EXPECT_EQ(std::stoi(peer.finish(stream).out), 300000);
}

TEST_F(AgentExec, DiscardsInputThatNobodyReads) {
  ExecSpec spec = shell("exec <&-; echo closed; until [ -e go ]; do sleep 0.05; done; echo bye");
  spec.flags |= ISOGATE_RUNNER_EXEC_STDIN;
  const uint32_t stream = peer.exec(spec);
  EXPECT_EQ(peer.output(stream, "closed\n"), "closed\n");
  for (int i = 0; i < 4; ++i) peer.data(stream, std::string(60000, 'i'));
  EXPECT_FALSE(peer.finish(stream, 0.3).arrived);
  std::ofstream(agent.path("go")) << "";
  const Outcome outcome = peer.finish(stream);
  EXPECT_EQ(outcome.out, "bye\n");
  EXPECT_EQ(outcome.result.exit_code, 0);
}

TEST_F(AgentExec, HasATerminalThatCanBeResized) {
  ExecSpec spec = shell("stty size; read line; stty size; echo got $line");
  spec.flags = ISOGATE_RUNNER_EXEC_PTY | ISOGATE_RUNNER_EXEC_STDIN | ISOGATE_RUNNER_EXEC_STDOUT;
  spec.rows = 33;
  spec.cols = 99;
  const uint32_t stream = peer.exec(spec);
  EXPECT_NE(peer.output(stream, "33 99").find("33 99"), std::string::npos);
  peer.resize(stream, 44, 111);
  peer.data(stream, "word\n");
  const Outcome outcome = peer.finish(stream);
  EXPECT_NE(outcome.out.find("44 111"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("got word"), std::string::npos) << outcome.out;
}

TEST_F(AgentExec, PassesSignalsOn) {
  const uint32_t stream =
      peer.exec(shell("trap 'echo heard; exit 9' USR1; echo ready; while :; do sleep 0.05; done"));
  EXPECT_EQ(peer.output(stream, "ready\n"), "ready\n");
  peer.signal(stream, SIGUSR1);
  const Outcome outcome = peer.finish(stream);
  EXPECT_EQ(outcome.out, "heard\n");
  EXPECT_EQ(outcome.result.exit_code, 9);
}

TEST_F(AgentExec, CancelKillsDaemonsToo) {
  const std::string mark = new_mark();
  const uint32_t stream = peer.exec(
      shell("(setsid sh -c 'sleep " + mark + " & sleep " + mark + "' &) ; trap '' TERM; sleep " + mark));
  ASSERT_TRUE(there_within(5, mark, 3));
  const auto start = Clock::now();
  peer.cancel(stream);
  const Outcome outcome = peer.finish(stream);
  EXPECT_NE(outcome.result.exec_flags & ISOGATE_RESULT_KILLED, 0u);
  EXPECT_LT(since(start), 20);
  EXPECT_TRUE(gone_within(0.1, mark));
}

TEST_F(AgentExec, AChildThatHoldsStdoutDelaysNothing) {
  const std::string mark = new_mark();
  const auto start = Clock::now();
  const Outcome outcome = peer.run("sleep " + mark + " & echo hi");
  EXPECT_EQ(outcome.out, "hi\n");
  EXPECT_LT(since(start), 20);
  EXPECT_TRUE(gone_within(0.1, mark));
}

TEST_F(AgentExec, RunsManyAtOnce) {
  std::vector<uint32_t> streams;
  const auto start = Clock::now();
  for (int i = 0; i < 40; ++i) streams.push_back(peer.exec(shell("sleep 0.5; exit " + std::to_string(i))));
  std::map<uint32_t, int> codes;
  while (codes.size() < streams.size()) {
    const auto frame = peer.receive();
    ASSERT_TRUE(frame.has_value());
    isogate_runner_result result{};
    if (frame->head.type == ISOGATE_RUNNER_RESULT) std::memcpy(&result, frame->payload.data(), sizeof result);
    if (frame->head.type == ISOGATE_RUNNER_RESULT) codes[frame->head.stream] = result.exit_code;
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(codes[streams[static_cast<size_t>(i)]], i);
  EXPECT_LT(since(start), 10);
}

TEST(AgentStdio, WorksOverPipes) {
  StdioAgent agent(true);
  ExecSpec spec = shell("cat; echo $0 >&2");
  spec.flags |= ISOGATE_RUNNER_EXEC_STDIN;
  const uint32_t stream = agent.peer.exec(spec);
  agent.peer.data(stream, "over pipes");
  agent.peer.end(stream);
  const Outcome outcome = agent.peer.finish(stream);
  EXPECT_EQ(outcome.out, "over pipes");
  EXPECT_EQ(outcome.err, "/bin/sh\n");
}

}  // namespace
}  // namespace isogate::test
