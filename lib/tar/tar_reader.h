// Reads a tar archive as its bytes arrive: ustar, pax, GNU long names, the oldest kind. Its sender is
// untrusted: anything ambiguous is an error, and memory does not grow with its claims. Values only, no
// system call; one thread. Fuzzed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/error.h"

namespace isogate {

struct TarHeader;

struct TarMember {
  enum class Kind { kFile, kDirectory, kSymlink, kHardLink, kOther };

  Kind kind = Kind::kFile;
  std::string name;     // as it was sent: it may be absolute or hold `..`, but no NUL
  std::string target;   // of a link
  uint64_t size = 0;    // of a file; else 0
  uint32_t mode = 0;    // 07777 at most
  int64_t mtime = 0;    // seconds, Unix time
  std::string skipped;  // the pax record ISOGATE.skipped

  // "a hard link", "a device", …
  [[nodiscard]] std::string kind_text() const;
  char type = '0';  // of its header
};

class TarReader {
 public:
  // What a pax header or a long name may be.
  static constexpr uint64_t kMostExtension = 128 << 10;

  enum class Step {
    kMore,     // all of `in` is taken
    kMember,   // member() is the next one; its content follows, if it has any
    kContent,  // content() is the next piece of the file's bytes, never empty
    kEnd,      // the end mark; what follows may only be zeros
  };

  // Takes bytes from the front of `in`. Do not call it again after an error.
  Result<Step> next(std::string_view& in);

  [[nodiscard]] const TarMember& member() const { return member_; }
  [[nodiscard]] std::string_view content() const { return content_; }  // a part of the last `in`
  [[nodiscard]] uint64_t content_left() const { return left_; }
  // At the end of the input: an error unless the archive is complete.
  [[nodiscard]] Result<void> finish() const;

 private:
  enum class State { kHeader, kExtension, kContent, kTail };
  struct Overrides {
    std::optional<std::string> path, link;
    std::optional<uint64_t> size;
    std::optional<int64_t> mtime;
    std::string skipped;
    bool sparse = false;
  };

  [[nodiscard]] Result<void> check_compression() const;
  Result<bool> read_header();
  Result<void> read_member(const TarHeader& header);
  Result<void> read_extension();
  Result<void> read_pax(std::string_view records);
  Result<void> set_record(std::string_view key, std::string_view value);
  [[nodiscard]] Error error(const std::string& why) const;

  State state_ = State::kHeader;
  std::string block_;      // of a header
  std::string extension_;  // of the extended header of type extension_type_
  char extension_type_ = 0;
  bool extended_ = false;  // an extended header has no member yet
  bool global_ = false;    // of the records that are read
  Overrides overrides_;
  TarMember member_;
  std::string_view content_;
  uint64_t left_ = 0;     // of the content or of the extension
  uint64_t padding_ = 0;  // bytes to skip
  uint64_t taken_ = 0;    // bytes in all
};

}  // namespace isogate
