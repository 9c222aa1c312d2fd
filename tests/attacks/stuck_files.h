// A directory with a file that cannot be read: a reader sleeps in the kernel, and no signal ends that. Needs
// root. A FUSE server in this process answers everything except the read.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "lib/fd.h"
#include "tests/support/program.h"

namespace isogate::test {

class StuckFiles {
 public:
  static std::string obstacle();  // why there can be none; empty: there can
  StuckFiles();                   // throws std::runtime_error
  StuckFiles(const StuckFiles&) = delete;
  StuckFiles& operator=(const StuckFiles&) = delete;
  ~StuckFiles();
  [[nodiscard]] const std::string& path() const { return directory_.path(); }  // with the file `stuck`
  [[nodiscard]] bool is_read() const { return read_; }                         // a reader sleeps
  void release();  // sleeping readers get an error, and the directory becomes empty

 private:
  void serve();
  void answer(const char* request);
  void reply(const char* request, int error, const void* body = nullptr, size_t size = 0) const;

  TemporaryDirectory directory_;
  Fd device_, stop_;
  std::atomic<bool> read_{false};
  std::thread server_;
};

}  // namespace isogate::test
