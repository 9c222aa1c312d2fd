// With `log.file` set: the lines of the children's loggers and the supervisor's own, line by line, into that
// file. So the front needs no right to the file, a rotation reaches all processes, the output of a dying
// process is kept, and no process waits for the file.
//
// With and without it: what backend hosts print on stderr, which a plugin, or a program that inherited it,
// may have written. It is no line of the log, but the text of one, "host_stderr". The supervisor's one
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gateway/supervisor/log_file.h"
#include "lib/fd.h"

namespace isogate::supervisor {

class LogRelay {
 public:
  // An empty path: children write to the supervisor's own stderr, and nothing is relayed.
  Result<void> open(const std::string& path);
  void use(Fd file);      // instead of open(): a file that is open already
  Result<void> reopen();  // after a rotation; on error the old file stays in use

  [[nodiscard]] bool relays() const { return file_.has_value(); }

  // What a child writes to: closed here once it has started. A copy of stderr when nothing is relayed.
  Result<Fd> new_writer();

  // What that backend's host gets as stderr: closed here once it has started.
  Result<Fd> new_quoted_writer(const std::string& backend);

  struct Source {
    Fd pipe;
    std::string line;     // begun, not ended
    std::string backend;  // whose stderr it is; empty: lines of a logger
  };
  [[nodiscard]] const std::vector<Source>& sources() const { return sources_; }
  void drain();  // reads what every source has; forgets sources that have ended
  bool flush() { return !file_ || file_->flush(); }  // what was taken; false: the file hangs

 private:
  Result<Fd> add(const std::string& backend);
  bool take(Source* source);
  void pass_on(Source* source, bool ended);

  std::optional<LogFile> file_;
  std::vector<Source> sources_;
};

}  // namespace isogate::supervisor
