#include "lib/net/net_error.h"

namespace isogate::net {

std::string one_line(std::string_view bytes, size_t most) {
  std::string line;
  for (const char c : bytes) {
    if (line.size() >= most) return line + "…";
    if (c == '\n' || c == '\r' || c == '\t') {
      if (!line.empty() && line.back() != ' ') line += ' ';
    } else {
      line += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace isogate::net
