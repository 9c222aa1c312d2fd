// Runs a program to its end for a test: its bytes, its exit code, no shell in between.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lib/fd.h"
#include "tests/eventually.h"

namespace isogate::test {

struct ProgramOptions {
  std::string stdin_bytes;
  std::vector<std::pair<std::string, std::string>> env;  // added to this process's; empty value: removed
  double timeout_sec = 60;                               // then it is killed and the test fails
  std::string cwd;
  std::string err_file;  // stderr goes there, not to result.err
};

struct ProgramResult {
  int exit_code = -1;  // 128+n for a signal
  std::string out, err;
};

ProgramResult run_program(const std::vector<std::string>& argv, const ProgramOptions& options = {});

// The binary under test, <build>/bin/isogate.
std::string isogate_binary();
ProgramResult run_isogate(std::vector<std::string> arguments, const ProgramOptions& options = {});

// As root, where /tmp is mounted noexec and TMPDIR is not set. Exit code 77: that cannot be had here.
ProgramResult run_with_tmp_noexec(const std::vector<std::string>& argv);

// A program that runs while the test continues. Killed, if it still runs, and reaped at the end.
class Program {
 public:
  Program(const std::vector<std::string>& argv, const ProgramOptions& options);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Drains both outputs until they end and the program is reaped; false: it still runs.
  bool wait(double seconds);
  // Reads until `text` occurs in stdout; false: not in that time.
  bool wait_for_output(const std::string& text, double seconds);
  ProgramResult result;

 private:
  bool pump(double seconds);  // false: both outputs have ended
  pid_t pid_ = -1;
  bool reaped_ = false;
  Fd in_, out_, err_;
  std::string pending_;
};

// A temporary directory, removed with its content. Mode 0711: other users may pass through.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& above = "/tmp");
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  [[nodiscard]] const std::string& path() const { return path_; }
  // Writes <path>/<name> and returns its path.
  std::string file(const std::string& name, const std::string& content, mode_t mode = 0644) const;

 private:
  std::string path_;
};

std::string read_whole(const std::string& path);  // empty when it cannot be read

}  // namespace isogate::test
