// A temporary directory for a command without a gateway, removed with everything in it. Plugins are loaded
// from copies in it, so it is not mounted noexec, and nobody else can replace root's. [main]
#pragma once

#include <functional>
#include <string>

#include "lib/error.h"

namespace isogate::cli {

class ScratchDir {
 public:
  using Check = std::function<Result<void>(const std::string& path)>;

  ScratchDir() = default;
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir() { remove(); }

  // Beside `state_dir` (empty: none is known) if only root and this user can change what is there, and it
  // `fits`; else in $TMPDIR, or /tmp. Mode 0700.
  Result<void> make(const std::string& state_dir, const Check& fits = {});
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  Result<void> make_in(const std::string& parent, bool only_trusted);
  void remove();

  std::string path_;
};

}  // namespace isogate::cli
