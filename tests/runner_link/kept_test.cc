// Execs that outlive the session that started them, through a runner that outlives it.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "calls.h"
#include "isogate/kept_exec.h"
#include "lib/fd.h"
#include "served.h"

namespace isogate::testing {
namespace {

using namespace std::chrono_literals;

std::string id_of(int number) {
  std::string id = std::to_string(number);
  return std::string(32 - id.size(), '0') + id;
}

// One call that has an exec: its pipes, and how to detach from it.
struct HeldExec {
  explicit HeldExec(const std::string& exec_id, std::vector<std::string> words = {"unused"})
      : id(exec_id),
        exec(std::move(words)),
        detach(::eventfd(0, EFD_CLOEXEC)),
        input_end(::eventfd(0, EFD_CLOEXEC)) {
    exec.in = in.reader;
    exec.out = out.writer;
    exec.err = err.writer;
  }
  isogate_exec_request request() const {
    isogate_exec_request request = exec.request();
    request.exec_id = sdk::str(id);
    return request;
  }
  isogate_kept_exec kept(bool rejoins) const {
    return {sizeof(isogate_kept_exec), grace_sec, detach.get(), input_end.get(), rejoins ? state.writer : -1};
  }
  void start(sdk::RunnerLink& link) {
    done = later([this, &link](Outcome& outcome) {
      link.start_kept(exec.ask.call, request(), kept(false), outcome.exec);
    });
  }
  void rejoin(sdk::RunnerLink& link) {
    done = later(
        [this, &link](Outcome& outcome) { link.rejoin(exec.ask.call, request(), kept(true), outcome.exec); });
  }
  void leave() const { ::eventfd_write(detach.get(), 1); }
  isogate_kept_state said() const {
    isogate_kept_state said{};
    const std::string bytes = state.read(sizeof said);
    bytes.copy(reinterpret_cast<char*>(&said), sizeof said);
    return said;
  }
  void end_input() {
    ::eventfd_write(input_end.get(), 1);
    in.close_writer();
  }

  std::string id;
  Exec exec;
  uint32_t grace_sec = 60;
  Pipe in, out, err, state;
  Fd detach, input_end;
  std::future<Outcome> done;
};

class RunnerLinkKept : public ::testing::Test {
 protected:
  // Another client of the same owner, as after a restart: the previous session ends.
  void come_back() { link = served.link(); }

  Served served;
  std::shared_ptr<sdk::RunnerLink> link = served.link();
};

TEST_F(RunnerLinkKept, OneThatEndsWhileItIsHeldIsAsAnyOther) {
  HeldExec hold(id_of(1), {"/bin/sh", "-c", "cat; echo error >&2; exit 3"});
  hold.start(*link);
  hold.in.write("through");
  hold.end_input();
  const Outcome outcome = hold.done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.exec.exit_code, 3);
  EXPECT_EQ(hold.out.read_all(), "through");
  EXPECT_EQ(hold.err.read_all(), "error\n");
}

TEST_F(RunnerLinkKept, OneGoesOnWithoutItsSessionAndIsFoundAgain) {
  HeldExec first(id_of(2),
                 {"/bin/sh", "-c", "echo $$; read line; echo got $line; read more; echo $more; exit 5"});
  first.start(*link);
  const std::string pid = first.out.read(2);
  first.in.write("one\n");  // bytes that were not passed on before the detach are lost
  std::string heard;
  while (!heard.ends_with("got one\n")) heard += first.out.read(1);
  first.leave();
  EXPECT_EQ(first.done.get().status, ISOGATE_LOST);
  come_back();
  HeldExec second(id_of(2));
  second.rejoin(*link);
  const isogate_kept_state state = second.said();
  EXPECT_EQ(state.stdout_offset, 0u);
  EXPECT_EQ(state.flags, ISOGATE_KEPT_STDIN_OPEN);
  second.in.write("two\n");
  const Outcome outcome = second.done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.exec.exit_code, 5);
  const std::string all = second.out.read_all();
  EXPECT_TRUE(all.starts_with(pid)) << all;
  EXPECT_TRUE(all.ends_with("\ngot one\ntwo\n")) << all;
}

// A host that dies closes its pipes without an END.
TEST_F(RunnerLinkKept, AClosedPipeDoesNotEndTheInput) {
  HeldExec first(id_of(3), {"/bin/sh", "-c", "echo up; cat; echo over"});
  first.start(*link);
  EXPECT_EQ(first.out.read(3), "up\n");
  first.in.close_writer();
  std::this_thread::sleep_for(100ms);
  first.leave();
  EXPECT_EQ(first.done.get().status, ISOGATE_LOST);
  come_back();
  HeldExec second(id_of(3));
  second.rejoin(*link);
  EXPECT_EQ(second.said().flags, ISOGATE_KEPT_STDIN_OPEN);
  second.in.write("still\n");
  second.end_input();
  EXPECT_EQ(second.done.get().status, ISOGATE_OK);
  EXPECT_EQ(second.out.read_all(), "up\nstill\nover\n");
}

TEST_F(RunnerLinkKept, TheEndOfOneThatNobodyHeldIsThere) {
  HeldExec first(id_of(4), {"/bin/sh", "-c", "echo out; kill -9 $$"});
  first.start(*link);
  EXPECT_EQ(first.out.read(4), "out\n");
  first.leave();
  (void)first.done.get();
  come_back();
  for (int times = 0; times < 2; ++times) {  // the response may be lost
    HeldExec again(id_of(4));
    again.rejoin(*link);
    const Outcome outcome = again.done.get();
    EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
    EXPECT_EQ(outcome.exec.term_signal, SIGKILL);
    EXPECT_EQ(again.out.read_all(), "out\n");
  }
}

TEST_F(RunnerLinkKept, UnreadOutputIsDroppedForTheNewest) {
  HeldExec first(id_of(5),
                 {"/bin/sh", "-c",
                  "echo up; read go; printf 0123456789; head -c 3000000 /dev/zero; echo end; : > written; "
                  "sleep 300"});
  first.start(*link);
  EXPECT_EQ(first.out.read(3), "up\n");
  first.in.write("go\n");
  EXPECT_EQ(first.out.read(10), "0123456789");
  first.leave();
  (void)first.done.get();
  come_back();
  EXPECT_TRUE(eventually(20, [&] { return ::access((served.workspace() + "/written").c_str(), F_OK) == 0; }));
  HeldExec second(id_of(5));
  second.rejoin(*link);
  const isogate_kept_state state = second.said();
  EXPECT_GT(state.stdout_offset, 0u);
  std::string seen;
  while (!seen.ends_with("end\n")) seen += second.out.read(1);
  EXPECT_EQ(state.stdout_offset + seen.size(), 3u + 10 + 3'000'000 + 4);
  second.exec.ask.cancel();
  const Outcome outcome = second.done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_NE(outcome.exec.flags & ISOGATE_RESULT_KILLED, 0u);
}

// A reader slows it down, and misses nothing.
TEST_F(RunnerLinkKept, NothingIsDroppedForWhoReadsSlowly) {
  HeldExec hold(id_of(6), {"/bin/sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; echo end"});
  hold.start(*link);
  std::this_thread::sleep_for(300ms);
  std::string all;
  char piece[65536];
  std::thread reader([&] {
    for (ssize_t n; (n = ::read(hold.out.reader, piece, sizeof piece)) > 0;)
      all.append(piece, static_cast<size_t>(n));
  });
  EXPECT_EQ(hold.done.get().status, ISOGATE_OK);
  hold.out.close_writer();
  reader.join();
  EXPECT_EQ(all.size(), 5'000'004u);
  EXPECT_TRUE(all.ends_with("xend\n"));
}

TEST_F(RunnerLinkKept, ProgramsThatNobodyComesBackForAreKilled) {
  HeldExec hold(id_of(7), {"/bin/sh", "-c", "echo $$; exec sleep 300"});
  hold.grace_sec = 1;
  hold.start(*link);
  std::string line;
  while (!line.ends_with('\n')) line += hold.out.read(1);
  const pid_t pid = std::stoi(line);
  hold.leave();
  (void)hold.done.get();
  come_back();
  EXPECT_TRUE(eventually(20, [&] { return ::kill(pid, 0) != 0 && errno == ESRCH; }));
  HeldExec again(id_of(7));
  again.rejoin(*link);
  const Outcome outcome = again.done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.exec.term_signal, SIGKILL);
}

TEST_F(RunnerLinkKept, OneThatIsNotThereIsNotFound) {
  HeldExec hold(id_of(8));
  hold.rejoin(*link);
  EXPECT_EQ(hold.done.get().status, ISOGATE_NOT_FOUND);
}

TEST_F(RunnerLinkKept, WhoRejoinsTakesItFromWhoHasIt) {
  HeldExec first(id_of(9), {"/bin/sh", "-c", "echo up; cat"});
  first.start(*link);
  EXPECT_EQ(first.out.read(3), "up\n");
  HeldExec second(id_of(9));
  second.rejoin(*link);
  EXPECT_EQ(first.done.get().status, ISOGATE_LOST);
  second.in.write("mine");
  second.end_input();
  EXPECT_EQ(second.done.get().status, ISOGATE_OK);
  EXPECT_EQ(second.out.read_all(), "up\nmine");
}

TEST_F(RunnerLinkKept, AnIdIsOfOneExec) {
  HeldExec first(id_of(10), {"/bin/sh", "-c", "echo up; cat"}), second(id_of(10), {"/bin/true"});
  first.start(*link);
  EXPECT_EQ(first.out.read(3), "up\n");
  second.start(*link);
  EXPECT_EQ(second.done.get().status, ISOGATE_ALREADY_EXISTS);
  first.end_input();
  EXPECT_EQ(first.done.get().status, ISOGATE_OK);
}

TEST_F(RunnerLinkKept, AnEndOfTheRunnerIsTheirs) {
  HeldExec hold(id_of(11), {"/bin/sh", "-c", "echo $$; exec sleep 300"});
  hold.start(*link);
  std::string line;
  while (!line.ends_with('\n')) line += hold.out.read(1);
  const pid_t pid = std::stoi(line);
  hold.leave();
  (void)hold.done.get();
  ::kill(served.pid(), SIGTERM);
  EXPECT_TRUE(eventually(20, [&] { return ::kill(pid, 0) != 0 && errno == ESRCH; }));
}

}  // namespace
}  // namespace isogate::testing
