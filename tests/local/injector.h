// System calls that fail on demand, for real: a seccomp listener answers them instead of the kernel.
//
// around() runs `work` on a separate thread. While it is armed, the calls listed in injector.cc that this
// thread and all threads and processes it starts make are counted, and one of them fails. Starts of the
// test's own threads are not counted.
#pragma once

#include <atomic>
#include <functional>

#include "lib/fd.h"

namespace isogate::test {

class Injector {
 public:
  // Why it is not available here; empty: it is.
  static std::string around(const std::function<void(Injector&)>& work);

  void arm(int nth, int error);                         // from now on; 0: none fails, only counted
  int disarm();                                         // how many there were
  [[nodiscard]] int failed() const { return failed_; }  // the number of the call that failed; -1: none did

 private:
  Injector() = default;
  std::string begin();  // on the thread that runs `work`
  void answer();        // on a thread of its own

  std::atomic<int> listener_ = -1;
  std::atomic<bool> armed_ = false, over_ = false;
  std::atomic<int> count_ = 0, nth_ = 0, error_ = 0, failed_ = -1;
};

}  // namespace isogate::test
