// How a program is started, what it gets, and what is reported about its end.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "tests/runner/box.h"

namespace isogate::test {
namespace {

class CommandTest : public RunnerTest {};
INSTANTIATE_TEST_SUITE_P(Each, CommandTest, testing::Values(Kind::leaf, Kind::reaper), name_of);

class Directory {
 public:
  Directory() {
    std::string pattern = "/tmp/isogate-runner-XXXXXX";
    path = ::mkdtemp(pattern.data());
    ::chmod(path.c_str(), 0755);
  }
  ~Directory() { [[maybe_unused]] const int done = std::system(("rm -rf " + path).c_str()); }
  std::string file(const std::string& name, const std::string& text, mode_t mode) const {
    const std::string full = path + "/" + name;
    const Fd made(::open(full.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    EXPECT_EQ(::write(made.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::fchmod(made.get(), mode);
    return full;
  }
  std::string path;
};

long peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
  return -1;
}

TEST_P(CommandTest, exit_code_is_the_programs) {
  for (const int code : {0, 7, 255}) {
    const auto output = run("exit " + std::to_string(code));
    ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
    EXPECT_TRUE(output.ending->started);
    EXPECT_FALSE(output.ending->killed);
    EXPECT_EQ(output.ending->exit_code, code);
    EXPECT_EQ(output.ending->term_signal, 0);
  }
}

TEST_P(CommandTest, signal_that_ended_it_is_reported) {
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM, SIGPIPE}) {
    const auto output = run("kill -" + std::to_string(signal) + " $$");
    ASSERT_TRUE(output.ending.ok());
    EXPECT_EQ(output.ending->term_signal, signal);
    EXPECT_FALSE(output.ending->killed);
  }
}

// As a child of another thread holds it open for a moment after the thread has written and closed it.
TEST_P(CommandTest, a_program_that_was_just_written_is_waited_for) {
  const Directory directory;
  const std::string path = directory.file("program", "#!/bin/sh\nexit 0\n", 0755);
  for (const bool searched : {false, true}) {
    Fd writer(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    std::thread closer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      writer.reset();
    });
    Command command = shell("");
    command.argv = {searched ? "program" : path};
    command.env = {{"PATH", directory.path}};
    const auto output = run_captured(runner(), command);
    closer.join();
    ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
    EXPECT_EQ(output.ending->exit_code, 0) << output.err;
  }
}

TEST_P(CommandTest, a_program_that_stays_open_for_writing_is_126) {
  const Directory directory;
  const std::string path = directory.file("program", "#!/bin/sh\nexit 0\n", 0755);
  const Fd writer(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  Command command = shell("");
  command.argv = {path};
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_EQ(output.ending->exit_code, 126);
  EXPECT_EQ(output.ending->os_errno, ETXTBSY);
}

TEST_P(CommandTest, program_not_found_is_127_and_reported_on_stderr) {
  for (const std::string name : {"no-such-program", "/no/such/program", ""}) {
    Command command = shell("");
    command.argv = {name, "x"};
    const auto output = run_captured(runner(), command);
    ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
    EXPECT_FALSE(output.ending->started);
    EXPECT_EQ(output.ending->exit_code, 127);
    EXPECT_EQ(output.ending->os_errno, ENOENT);
    EXPECT_EQ(output.err, "isogate: cannot run `" + name + "`: No such file or directory\n");
  }
}

TEST_P(CommandTest, program_that_cannot_be_executed_is_126) {
  const Directory directory;
  const struct {
    std::string path;
    int os_errno;
  } cases[] = {{directory.file("not-executable", "#!/bin/sh\n", 0644), EACCES},
               {directory.file("no-format", "just text\n", 0755), ENOEXEC},
               {directory.path, EACCES}};
  for (const auto& c : cases) {
    Command command = shell("");
    command.argv = {c.path};
    const auto output = run_captured(runner(), command);
    ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
    EXPECT_FALSE(output.ending->started) << c.path;
    EXPECT_EQ(output.ending->exit_code, 126);
    EXPECT_EQ(output.ending->os_errno, c.os_errno);
    EXPECT_NE(output.err.find("cannot run `" + c.path + "`"), std::string::npos) << output.err;
  }
}

TEST_P(CommandTest, program_is_looked_up_in_the_path_it_is_given) {
  const Directory first, second;
  first.file("tool", "#!/bin/sh\necho refused", 0644);
  second.file("tool", "#!/bin/sh\necho found", 0755);
  Command command(Site::host());
  command.argv = {"tool"};
  command.env = {{"PATH", "/no/such/dir:" + first.path + ":" + second.path}};
  EXPECT_EQ(run_captured(runner(), command).out, "found\n");
  command.env = {{"PATH", first.path + ":/no/such/dir"}};
  EXPECT_EQ(run_captured(runner(), command).ending->exit_code, 126);
  command.argv = {"true"};
  command.env = {};  // no PATH: the default one
  EXPECT_EQ(run_captured(runner(), command).ending->exit_code, 0);
}

TEST_P(CommandTest, a_name_or_a_directory_too_long_for_the_kernel_is_no_program) {
  const Directory directory;
  const std::string name(NAME_MAX, 'n');
  directory.file(name, "#!/bin/sh\necho found", 0755);
  Command command(Site::host());
  command.argv = {name};
  command.env = {{"PATH", "/" + std::string(PATH_MAX, 'd') + ":" + directory.path}};
  EXPECT_EQ(run_captured(runner(), command).out, "found\n");
  command.argv = {name + "n"};
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_EQ(output.ending->exit_code, 126);
  EXPECT_EQ(output.ending->os_errno, ENAMETOOLONG);
}

TEST_P(CommandTest, an_empty_element_of_path_is_the_working_directory) {
  const Directory directory;
  directory.file("tool", "#!/bin/sh\necho here", 0755);
  const Fd cwd(::open(directory.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const char* path : {"", ":/no/such/dir", "/no/such/dir:", "/no/such/dir::/no/such/dir"}) {
    Command command(Site::host());
    command.argv = {"tool"};
    command.env = {{"PATH", path}};
    command.cwd_fd = cwd.get();
    EXPECT_EQ(run_captured(runner(), command).out, "here\n") << path;
  }
}

// A search costs the host no more memory than the request, whatever the product of PATH and argv[0].
TEST_P(CommandTest, a_search_costs_the_host_nothing) {
  for (const auto& [name, colons] : {std::pair<size_t, size_t>{20000, 40000}, {NAME_MAX, 131000}}) {
    Command command(Site::host());
    command.argv = {std::string(name, 'n')};
    command.env = {{"PATH", std::string(colons, ':')}};
    { std::ofstream("/proc/self/clear_refs") << 5; }  // resets VmHWM
    const long before = peak_kib();
    const auto output = run_captured(runner(), command);
    EXPECT_LT(peak_kib() - before, 8192) << "KiB";
    ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
    EXPECT_EQ(output.ending->exit_code, name > NAME_MAX ? 126 : 127);
  }
}

TEST_P(CommandTest, environment_is_exactly_what_was_given) {
  Command command(Site::host());
  command.argv = {"/usr/bin/env", "-0"};
  command.env = {{"B", "2=3"}, {"A", ""}, {"LD_PRELOAD_NOT", "x\ny"}};
  const auto output = run_captured(runner(), command);
  EXPECT_EQ(output.out, std::string("B=2=3\0A=\0LD_PRELOAD_NOT=x\ny\0", 28)) << output.err;
}

TEST_P(CommandTest, arguments_arrive_byte_for_byte) {
  Command command(Site::host());
  command.argv = {"/usr/bin/printf", "%s|", "a b", "", "\xff\xfe", "$(x)", "-n"};
  EXPECT_EQ(run_captured(runner(), command).out, std::string("a b||\xff\xfe|$(x)|-n|"));
}

TEST_P(CommandTest, malformed_requests_are_refused) {
  Command none(Site::host());
  EXPECT_EQ(runner().run(none).error().status, ISOGATE_INVALID_ARGUMENT);
  Command nul = shell("true");
  nul.argv.emplace_back("a\0b", 3);
  EXPECT_EQ(runner().run(nul).error().status, ISOGATE_INVALID_ARGUMENT);
  for (const std::string name : {"", "A=B"}) {
    Command environment = shell("true");
    environment.env.emplace_back(name, "x");
    EXPECT_EQ(runner().run(environment).error().status, ISOGATE_INVALID_ARGUMENT);
  }
  Command large = shell("true");
  large.argv.emplace_back(3 << 20, 'x');
  const auto ending = runner().run(large);
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().status, ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(ending.error().os_errno, E2BIG);
}

TEST_P(CommandTest, works_in_the_directory_it_is_given) {
  const Directory directory;
  const Fd cwd(::open(directory.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Command command = shell("pwd");
  command.cwd_fd = cwd.get();
  EXPECT_EQ(run_captured(runner(), command).out, directory.path + "\n");
  const Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  command.cwd_fd = file.get();
  const auto refused = runner().run(command);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("working directory"), std::string::npos);
}

// It may be removed after it was opened: it is checked again where the program starts.
TEST_P(CommandTest, starts_nothing_in_a_directory_that_is_gone) {
  const Directory directory;
  const std::string path = directory.path + "/gone";
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  const Fd cwd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::rmdir(path.c_str()), 0);
  Command command = shell("true");
  command.cwd_fd = cwd.get();
  const auto refused = runner().run(command);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().os_errno, ENOENT);
}

TEST_P(CommandTest, streams_not_given_are_dev_null) {
  Command command = shell("exec 3>&1; readlink /proc/self/fd/0 /proc/self/fd/2");
  const Fd out(::memfd_create("out", MFD_CLOEXEC));
  command.stdout_fd = out.get();
  ASSERT_TRUE(runner().run(command).ok());
  std::string text(64, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(::pread(out.get(), text.data(), text.size(), 0), 0)));
  EXPECT_EQ(text, "/dev/null\n/dev/null\n");
  EXPECT_EQ(runner().run(shell("cat; echo lost; echo lost >&2"))->exit_code, 0);
}

TEST_P(CommandTest, input_is_read_to_its_end) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  ASSERT_EQ(::write(pipe->write.get(), "one\ntwo\n", 8), 8);
  pipe->write.reset();
  Command command = shell("wc -l");
  command.stdin_fd = pipe->read.get();
  EXPECT_EQ(run_captured(runner(), command).out, "2\n");
}

TEST_P(CommandTest, sixty_four_mebibytes_arrive_exactly) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  size_t count = 0;
  bool exact = true;
  std::thread reader([&] {
    std::vector<unsigned char> buffer(1 << 16);
    for (ssize_t size = 0; (size = ::read(pipe->read.get(), buffer.data(), buffer.size())) > 0;) {
      for (ssize_t i = 0; i < size; ++i, ++count) exact = exact && buffer[i] == "0123456\n"[count % 8];
    }
  });
  Command command = shell("yes 0123456 | head -c 67108864");
  command.stdout_fd = pipe->write.get();
  const auto ending = runner().run(command);
  pipe->write.reset();
  reader.join();
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->exit_code, 0);
  EXPECT_EQ(count, 67108864u);
  EXPECT_TRUE(exact);
}

TEST_P(CommandTest, has_default_signals_and_nothing_blocked) {
  std::signal(SIGUSR2, SIG_IGN);
  sigset_t set, old;
  sigfillset(&set);
  pthread_sigmask(SIG_BLOCK, &set, &old);
  Command command(Site::host());
  command.argv = {"cat", "/proc/self/status"};
  const auto output = run_captured(runner(), command);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  std::signal(SIGUSR2, SIG_DFL);
  for (const std::string name : {"SigBlk", "SigIgn", "SigCgt"}) {
    EXPECT_NE(output.out.find(name + ":\t0000000000000000\n"), std::string::npos) << output.out;
  }
}

TEST_P(CommandTest, has_a_session_no_core_no_new_privileges_and_umask_022) {
  const auto output =
      run("umask; ulimit -c; grep NoNewPrivs /proc/self/status; ps -o sid= -p $$ | tr -d ' '; echo $$");
  const std::string expected = "0022\n0\nNoNewPrivs:\t1\n";
  ASSERT_TRUE(output.out.starts_with(expected)) << output.out;
  const std::string rest = output.out.substr(expected.size());
  const size_t newline = rest.find('\n');
  EXPECT_EQ(rest.substr(0, newline) + "\n", rest.substr(newline + 1));
}

TEST_P(CommandTest, measures_time_and_memory) {
  const auto output = run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.2");
  ASSERT_TRUE(output.ending.ok());
  EXPECT_GE(output.ending->wall_ns, 200'000'000u);
  EXPECT_GT(output.ending->cpu_ns, 10'000'000u);
  EXPECT_LT(output.ending->cpu_ns, output.ending->wall_ns * 2);
  const auto large = run("head -c 300000000 /dev/zero | tail -c 250000000 >/dev/null");
  EXPECT_GE(large.ending->max_rss_bytes, 250'000'000u);
}

TEST_P(CommandTest, host_gets_no_sigpipe) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  pipe->read.reset();
  Command command(Site::host());
  command.argv = {"no-such-program"};
  command.stderr_fd = pipe->write.get();
  EXPECT_EQ(runner().run(command)->exit_code, 127);
}

TEST_P(CommandTest, has_only_its_three_descriptors_among_two_hundred_execs) {
  const Fd leaked(::open("/dev/null", O_RDONLY));  // not close-on-exec, as a careless library would
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::multiset<std::string> outputs;
  for (int i = 0; i < 200; ++i) {
    threads.emplace_back([&] {
      auto pipe = make_pipe();
      Command command(Site::host());
      command.argv = {"ls", "/proc/self/fd"};  // itself opens 3
      const auto output = run_captured(runner(), command);
      const std::lock_guard lock(mutex);
      outputs.insert(output.out);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(outputs.count("0\n1\n2\n3\n"), 200u) << *outputs.rbegin();
}

TEST_P(CommandTest, leaves_no_descriptor_open_after_a_thousand_runs) {
  Command command(Site::host());
  command.argv = {"/bin/true"};
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(runner().run(command).ok());
  const size_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    const auto ending = runner().run(command);
    ASSERT_TRUE(ending.ok());
    ASSERT_EQ(ending->exit_code, 0);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(CommandTest, sixty_four_threads_run_at_once) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 10; ++j) {
        const auto output = run("echo " + std::to_string(i) + "; exit " + std::to_string(i));
        if (output.ending.ok() && output.ending->exit_code == i && output.out == std::to_string(i) + "\n")
          ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 640);
  EXPECT_TRUE(notices().empty()) << notices().front();
}

TEST_P(CommandTest, works_where_the_host_ignores_sigchld) {
  std::signal(SIGCHLD, SIG_IGN);
  const auto deaf = Runner::make({});
  const auto output = run_captured(*deaf, shell("exit 9"));
  std::signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_EQ(deaf->abilities().tree_kill, "reaper");
  EXPECT_NE(deaf->abilities().missing.find("SIGCHLD"), std::string::npos);
  EXPECT_EQ(output.ending->exit_code, 9);
}

}  // namespace
}  // namespace isogate::test
