#include "lib/changes.h"

#include <cstring>

#include "lib/text.h"

namespace isogate {
namespace {

Error bad_change(const char* why) {
  return {ISOGATE_INTERNAL, 0, std::string("a change is malformed: ") + why};
}

// Which paths each type has: none, the first, or both.
const char* fault_of(const FileChange& change) {
  const bool bare = change.type == ISOGATE_CHANGE_READY || change.type == ISOGATE_CHANGE_OVERFLOW;
  const bool renamed = change.type == ISOGATE_CHANGE_RENAMED;
  const bool known = change.type >= ISOGATE_CHANGE_READY && change.type <= ISOGATE_CHANGE_OVERFLOW;
  if (known && bare != change.path.empty()) return bare ? "a path where there is none" : "no path";
  if (known && renamed != !change.from.empty())
    return renamed ? "no path before the rename" : "a second path";
  for (const std::string_view path : {change.path, change.from})
    if (!path.empty() && !is_path_below(path)) return "a path that is not below the directory";
  return nullptr;
}

}  // namespace

void append_change(std::string& out, const FileChange& change) {
  isogate_change head{};
  head.size = static_cast<uint32_t>(sizeof head + change.path.size() + change.from.size());
  head.type = change.type;
  head.flags = change.directory ? ISOGATE_CHANGE_DIRECTORY : 0;
  head.path_length = static_cast<uint16_t>(change.path.size());
  head.from_length = static_cast<uint16_t>(change.from.size());
  out.append(reinterpret_cast<const char*>(&head), sizeof head);
  out.append(change.path).append(change.from);
}

Result<std::optional<FileChange>> take_change(std::string_view& bytes) {
  isogate_change head{};
  if (bytes.size() < sizeof head) return std::optional<FileChange>();
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.path_length > ISOGATE_CHANGE_MAX_PATH || head.from_length > ISOGATE_CHANGE_MAX_PATH)
    return bad_change("a path of over 4,095 bytes");
  if (head.size != sizeof head + head.path_length + head.from_length) return bad_change("its size is wrong");
  if (bytes.size() < head.size) return std::optional<FileChange>();
  FileChange change{.type = head.type,
                    .directory = (head.flags & ISOGATE_CHANGE_DIRECTORY) != 0,
                    .path = bytes.substr(sizeof head, head.path_length),
                    .from = bytes.substr(sizeof head + head.path_length, head.from_length)};
  if (const char* why = fault_of(change)) return bad_change(why);
  bytes.remove_prefix(head.size);
  return std::optional<FileChange>(change);
}

}  // namespace isogate
