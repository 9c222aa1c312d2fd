#include "gateway/front/mcp/matches.h"

#include <algorithm>
#include <optional>

#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

constexpr size_t kMostLine = 500;

struct Match {
  std::string_view path, text;
  uint64_t line = 0;
};

// LINE:TEXT
std::optional<Match> numbered(std::string_view path, std::string_view rest) {
  const size_t colon = rest.find(':');
  const auto line = number_in<uint64_t>(rest.substr(0, colon));
  if (!line || colon == std::string_view::npos) return std::nullopt;
  return Match{.path = path, .text = rest.substr(colon + 1), .line = *line};
}

// Of PATH:LINE:TEXT the first number is taken for LINE.
std::optional<Match> match_in(std::string_view text) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    return numbered(text.substr(0, zero), text.substr(zero + 1));
  for (size_t at = text.find(':'); at != std::string_view::npos; at = text.find(':', at + 1))
    if (const auto match = numbered(text.substr(0, at), text.substr(at + 1))) return match;
  return std::nullopt;
}

std::string line_text(std::string_view text) {
  const bool cut = text.size() > kMostLine;
  return is_utf8(text) ? std::string(utf8_prefix(text, kMostLine)) + (cut ? "…" : "")
                       : printable(text, kMostLine);
}

}  // namespace

ToolResult matches_in(std::string_view output, uint64_t limit, bool cut, std::string_view missing) {
  ToolResult result;
  result.structured = "{\"matches\":[";
  uint64_t count = 0, lines = 0;
  bool truncated = cut;
  if (cut) output.remove_prefix(std::min(output.find('\n'), output.size()));  // it begins within a line
  for (std::string_view rest = output; !rest.empty();) {
    const std::string_view line = next_part(rest, '\n');
    if (lines++ == limit) {
      truncated = true;
      break;
    }
    const auto match = match_in(line);
    if (!match) continue;
    if (count++ > 0) result.structured += ',';
    std::string_view file = match->path;
    if (file.starts_with("./")) file.remove_prefix(2);
    const std::string name = printable(file, 4096), text = line_text(match->text);
    result.structured += "{\"path\":";
    append_json_string(result.structured, name);
    result.structured.append(",\"line\":").append(std::to_string(match->line)).append(",\"text\":");
    append_json_string(result.structured, text);
    result.structured += '}';
    result.text.append(name)
        .append(":")
        .append(std::to_string(match->line))
        .append(":")
        .append(text)
        .append("\n");
  }
  result.structured += truncated ? "],\"truncated\":true" : "],\"truncated\":false";
  result.structured += ",\"incomplete\":";
  if (missing.empty())
    result.structured += "null";
  else
    append_json_string(result.structured, missing);
  result.structured += '}';
  if (count == 0) result.text = missing.empty() ? "[no match]\n" : "[no match in what was searched]\n";
  if (truncated) result.text += "[there are more]\n";
  if (!missing.empty()) result.text.append("[incomplete: ").append(missing).append("]\n");
  return result;
}

}  // namespace isogate::front::mcp
