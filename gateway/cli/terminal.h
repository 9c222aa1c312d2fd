// The terminal on stdin, and signals while it is used. One thread.
#pragma once

#include <signal.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "lib/error.h"
#include "lib/fd.h"

namespace isogate::cli {

// While it lives, these signals do not act on this process, and come by a descriptor. Those that are ignored
// stay so.
class HeldSignals {
 public:
  HeldSignals(std::initializer_list<int> numbers);
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  void add(std::initializer_list<int> numbers);  // also what is ignored
  [[nodiscard]] int fd() const { return fd_.get(); }
  int next();  // 0: none

 private:
  sigset_t taken_{}, before_{};
  Fd fd_;
};

struct TerminalSize {
  int cols = 80, rows = 24;  // characters
};
// 80 x 24 without a terminal, or with one without a size.
TerminalSize terminal_size();

// Raw mode: keys reach this process, and output the screen, unchanged, from enter() until leave(), the
// destructor, or a signal by which this process crashes. The caller catches other signals that end it. One
// at a time.
class RawMode {
 public:
  RawMode() = default;
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
  ~RawMode() { leave(); }

  Result<void> enter();  // once more after the process was stopped, too
  void leave();
  [[nodiscard]] bool entered() const { return entered_; }

 private:
  bool entered_ = false;
};

// The escape from a session whose keys all go to the program, as in ssh: `~.` at the beginning of a
// line. `~~` there is one `~`.
class DetachKeys {
 public:
  // The part of `typed` that goes to the program. Once detached() is true, nothing more does.
  std::string pass(std::string_view typed);
  [[nodiscard]] bool detached() const { return detached_; }

 private:
  bool line_begins_ = true, held_ = false, detached_ = false;
};

}  // namespace isogate::cli
