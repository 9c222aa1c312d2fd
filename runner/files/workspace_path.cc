#include "runner/files/workspace_path.h"

#include <array>
#include <cstdio>
#include <span>

#include "lib/text.h"

namespace isogate {
namespace {

constexpr size_t kMaxPath = 4095;
constexpr size_t kMaxName = 255;
constexpr size_t kMaxShown = 200;
constexpr std::string_view kMount = "/workspace";

Result<std::string_view> strip_root(std::string_view path, uint32_t scope) {
  const bool absolute = !path.empty() && path.front() == '/';
  if (scope == ISOGATE_SCOPE_SANDBOX) {
    if (!absolute) return invalid("path " + quote_path(path) + " must be absolute in scope sandbox");
    return path.substr(1);
  }
  if (!absolute) return path;
  if (path == kMount) return std::string_view();
  if (path.substr(0, kMount.size() + 1) == "/workspace/") return path.substr(kMount.size() + 1);
  return invalid("path " + quote_path(path) +
                 " is absolute: give it relative to the workspace, or below /workspace");
}

}  // namespace

std::string PathParts::joined(size_t count) const {
  return count == 0 ? "." : join(std::span(parts).first(count), "/");
}

std::string PathParts::path() const {
  return joined(parts.size()) + (directory_only && !parts.empty() ? "/" : "");
}

std::string PathParts::leaf() const { return parts.back() + (directory_only ? "/" : ""); }

Result<PathParts> parse_path(std::string_view path, uint32_t scope) {
  if (path.size() > kMaxPath) return invalid("path " + quote_path(path) + " is longer than 4095 bytes");
  if (path.find('\0') != std::string_view::npos)
    return invalid("path " + quote_path(path) + " holds a NUL byte");
  auto rest = strip_root(path, scope);
  if (!rest) return rest.error();
  PathParts result;
  for (std::string_view text = *rest; !text.empty();) {
    const size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    text = slash == std::string_view::npos ? std::string_view() : text.substr(slash + 1);
    result.directory_only = slash != std::string_view::npos || part == ".";
    if (part.empty() || part == ".") continue;
    if (part == "..")
      return invalid("path " + quote_path(path) + " has a `..`: name the file from the root of its tree");
    if (part.size() > kMaxName)
      return invalid("path " + quote_path(path) + " has a name longer than 255 bytes");
    result.parts.emplace_back(part);
  }
  return result;
}

bool is_sandbox_id(std::string_view text) {
  return text.size() == 30 && text.starts_with("isg-") &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567", 4) == text.npos;
}

Error malformed_id(std::string_view text) {
  return invalid("the sandbox id " + quote_path(text) + " is malformed");
}

std::string quote_path(std::string_view path) {
  std::string shown = "`";
  std::string_view rest = path;
  while (!rest.empty() && shown.size() < kMaxShown) {
    const size_t length = first_code_point(rest).size;
    const auto first = static_cast<unsigned char>(rest.front());
    if (length == 0 || first < 0x20 || first == 0x7F || first == '`') {
      std::array<char, 8> hex{};
      std::snprintf(hex.data(), hex.size(), "\\x%02x", first);
      shown += hex.data();
      rest.remove_prefix(1);
    } else {
      shown += rest.substr(0, length);
      rest.remove_prefix(length);
    }
  }
  return shown + (rest.empty() ? "`" : "…`");
}

}  // namespace isogate
