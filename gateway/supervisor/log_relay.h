// With `log.file` set: the children's stderr, line by line, into that file. So the front needs no right to
// the file, a rotation reaches everybody, and what a dying process prints is kept.
#pragma once

#include <string>
#include <vector>

#include "runner/fd.h"

namespace isogate::supervisor {

class LogRelay {
 public:
  // An empty path: children write to the supervisor's own stderr, and nothing is relayed.
  Result<void> open(const std::string& path);
  Result<void> reopen();  // after a rotation; on error the old file stays in use

  // What a child writes to: closed here once it has started. A copy of stderr when nothing is relayed.
  Result<Fd> new_writer();

  struct Source {
    Fd pipe;
    std::string line;  // begun, not ended
  };
  [[nodiscard]] const std::vector<Source>& sources() const { return sources_; }
  void drain();  // takes what is there from every source; forgets those that have ended

 private:
  bool take(Source* source);
  void write(const std::string& lines) const;

  std::string path_;
  Fd file_;
  std::vector<Source> sources_;
};

}  // namespace isogate::supervisor
