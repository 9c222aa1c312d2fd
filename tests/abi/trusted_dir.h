// A directory for plugins below the build directory, removed with everything in it.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gateway/base/trusted_path.h"
#include "tests_dirs.h"

namespace isogate {

inline std::string fixture(const std::string& name) {
  return std::string(ISOGATE_BUILD_DIR) + "/fixtures/" + name + ".so";
}

class TrustedDir {
 public:
  TrustedDir() : path_(std::string(ISOGATE_BUILD_DIR) + "/test-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) abort();
  }
  ~TrustedDir() { std::filesystem::remove_all(path_); }
  TrustedDir(const TrustedDir&) = delete;
  TrustedDir& operator=(const TrustedDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

  std::string copy(const std::string& from, const std::string& as, mode_t mode = 0644) const {
    std::string to = path_ + "/" + as;
    std::filesystem::create_directories(std::filesystem::path(to).parent_path());
    std::filesystem::copy_file(from, to);
    ::chmod(to.c_str(), mode);
    return to;
  }

 private:
  std::string path_;
};

// Plugins below a build directory that others may write to are refused, as they should be.
inline bool build_dir_is_trusted(std::string& why) {
  auto opened = open_trusted(ISOGATE_BUILD_DIR, {.directory = true});
  if (!opened.ok()) why = opened.error().message;
  return opened.ok();
}

#define ISOGATE_NEEDS_TRUSTED_BUILD_DIR()                                            \
  do {                                                                               \
    std::string why;                                                                 \
    if (!build_dir_is_trusted(why)) GTEST_SKIP() << "no place for plugins: " << why; \
  } while (false)

}  // namespace isogate
