// Writes a tar archive (POSIX.1-2001 ustar, with pax headers where ustar has no room), piece by piece. One
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace isogate {

struct TarEntry {
  std::string name;  // relative, UTF-8 or not; of any length
  uint32_t mode = 0644;
  uint64_t uid = 0, gid = 0;
  int64_t mtime = 0;     // seconds, Unix time
  std::string pax = {};  // further records, by pax_record()
};

// "<length> <key>=<value>\n", where the length counts itself. The value may be any bytes but NUL.
std::string pax_record(const std::string& key, const std::string& value);

class TarWriter {
 public:
  using Sink = std::function<void(std::string_view)>;
  explicit TarWriter(Sink sink) : sink_(std::move(sink)) {}

  void directory(const TarEntry& entry);
  void symlink(const TarEntry& entry, const std::string& target);
  // A regular file: begin_file(), its `size` bytes in pieces, end_file(). Throws std::logic_error when they
  // are not as many.
  void begin_file(const TarEntry& entry, uint64_t size);
  void bytes(std::string_view piece);
  void passed(uint64_t bytes);  // the same of bytes that went another way, past the sink
  void end_file();
  void file(const TarEntry& entry, std::string_view content);
  // The end of the archive: without it, it is incomplete.
  void finish();

 private:
  void header(const TarEntry& entry, char type, uint64_t size, const std::string& target);
  void pad(uint64_t size);
  Sink sink_;
  uint64_t size_ = 0, left_ = 0;  // of the file under way
};

}  // namespace isogate
