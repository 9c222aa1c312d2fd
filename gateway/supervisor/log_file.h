// The file of the log, written by a separate thread: a file system that hangs blocks only that thread. The
// lines that wait for it are bounded; further lines, and those for which a full disk has no room, are dropped
// and counted, and the file reports how many with the next lines that it accepts. Where a file ends within a
// line, the next one begins on a line of its own. One thread calls.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lib/fd.h"

namespace isogate::supervisor {

class LogFile {
 public:
  static constexpr size_t kMostWaiting = 4u << 20;             // bytes
  static constexpr std::chrono::milliseconds kPatience{2000};  // for a request to the thread

  LogFile();
  ~LogFile();  // flushes; a thread that hangs is left behind
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  Result<void> open(const std::string& path);  // not before the process's signals are blocked
  void use(Fd file);                           // one that is open already

  // Opens the path again, after all lines before it. On error the old file stays in use; when it takes longer
  // than kPatience, until the path is open after all.
  Result<void> reopen();

  // Whole lines. Never waits.
  void write(std::string lines);
  // False: after kPatience lines still wait.
  bool flush();

 private:
  struct Shared;
  static void serve(std::shared_ptr<Shared> shared);
  std::shared_ptr<Shared> shared_;
  std::string path_;
};

}  // namespace isogate::supervisor
