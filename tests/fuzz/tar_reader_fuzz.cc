// Any bytes as a tar archive, in pieces of any size: no crash, content as long as announced, and the same
// members however it is split.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "lib/tar/tar_reader.h"
#include "tests/fuzz/require.h"

namespace {

// The result as text.
std::string read(std::string_view bytes, size_t step) {
  using isogate::TarReader;
  std::string seen;
  TarReader reader;
  uint64_t content = 0;
  while (!bytes.empty()) {
    std::string_view piece = bytes.substr(0, step);
    bytes.remove_prefix(piece.size());
    for (;;) {
      const size_t before = piece.size();
      const auto next = reader.next(piece);
      require(piece.size() <= before);
      if (!next) return seen + "!";
      if (*next == TarReader::Step::kMore) {
        require(piece.empty());
        break;
      }
      if (*next == TarReader::Step::kMember) {
        require(content == 0);
        content = reader.member().size;
        require(reader.member().name.find('\0') == std::string::npos);
        require(reader.member().name.size() <= TarReader::kMostExtension);
        require(content == reader.content_left());
        require(!reader.member().kind_text().empty());
        seen += reader.member().name + "=" + std::to_string(content) + ";";
      } else if (*next == TarReader::Step::kContent) {
        require(!reader.content().empty() && reader.content().size() <= content);
        content -= reader.content().size();
        require(content == reader.content_left());
        seen += reader.content();
      } else {
        require(content == 0);
        seen += ".";
      }
    }
  }
  return seen + (reader.finish().ok() ? "$" : "?");
}

// Each block as a header with the right checksum: mutation alone never finds that.
std::string with_checksums(std::string bytes) {
  for (size_t block = 0; block + 512 <= bytes.size(); block += 512) {
    if (bytes.find_first_not_of('\0', block) >= block + 512) continue;
    bytes.replace(block + 148, 8, "        ");
    unsigned sum = 0;
    for (size_t i = block; i < block + 512; ++i) sum += static_cast<unsigned char>(bytes[i]);
    char text[16];
    std::snprintf(text, sizeof text, "%06o", sum);
    bytes.replace(block + 148, 7, text, 7);
  }
  return bytes;
}

void check(std::string_view bytes) {
  const std::string whole = read(bytes, SIZE_MAX);
  require(read(bytes, 1) == whole);
  require(read(bytes, 513) == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  check(with_checksums(std::string(bytes)));
  return 0;
}
