// A program on a pseudo-terminal, as a person would use it: to try completions and prompts for real.
#pragma once

#include <string>
#include <vector>

#include "lib/fd.h"

namespace isogate::test {

class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& argv);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();  // kills it

  void type(const std::string& keys);
  // Reads until `text` occurs in what was shown since the last success; false: not within these seconds.
  bool shows(const std::string& text, double seconds = 20);
  [[nodiscard]] const std::string& screen() const { return screen_; }          // since the last success
  [[nodiscard]] const std::string& everything() const { return everything_; }  // from the beginning
  [[nodiscard]] bool echo_is_off() const;
  void resize(unsigned short cols, unsigned short rows);

 private:
  Fd master_;
  pid_t pid_ = -1;
  std::string screen_, everything_;
};

}  // namespace isogate::test
