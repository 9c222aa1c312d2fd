// The records of a watch, as the front reads them from a backend's pipe. An accepted path stays below its
// directory, and a record is the same when it is written again.
#include <algorithm>
#include <string>

#include "lib/changes.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;

bool is_known(uint32_t type) { return type >= ISOGATE_CHANGE_READY && type <= ISOGATE_CHANGE_OVERFLOW; }

void check_path(std::string_view path) {
  require(path.size() <= ISOGATE_CHANGE_MAX_PATH && path.find('\0') == path.npos);
  const std::string framed = "/" + std::string(path) + "/";
  for (const char* none : {"//", "/./", "/../"}) require(path.empty() || framed.find(none) == framed.npos);
}

void check(const FileChange& change) {
  check_path(change.path);
  check_path(change.from);
  require(change.from.empty() || change.type == ISOGATE_CHANGE_RENAMED || !is_known(change.type));
  std::string again;
  append_change(again, change);
  std::string_view rest = again;
  const auto taken = take_change(rest);
  require(taken.ok() && taken->has_value() && rest.empty());
  require((*taken)->type == change.type && (*taken)->directory == change.directory &&
          (*taken)->path == change.path && (*taken)->from == change.from);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (;;) {
    const size_t before = rest.size();
    const auto change = take_change(rest);
    if (!change.ok()) return 0;
    if (!change->has_value()) {
      require(rest.size() == before && before < kMaxChangeBytes);
      return 0;
    }
    require(rest.size() < before && before - rest.size() <= kMaxChangeBytes);
    check(**change);
  }
}
