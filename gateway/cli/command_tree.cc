#include "gateway/cli/command_tree.h"

#include <algorithm>

namespace isogate::cli {
namespace {

size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1), above(b.size() + 1), before;
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

std::vector<std::string> OptionInfo::choices() const {
  std::vector<std::string> all;
  if (value.find('|') == std::string::npos) return all;
  for (size_t begin = 0; begin <= value.size();) {
    size_t end = std::min(value.find('|', begin), value.size());
    all.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

std::string nearest_of(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates)
    if (size_t d = distance(word, candidate); d < least && d < candidate.size()) {
      least = d;
      best = candidate;
    }
  return best;
}

}  // namespace isogate::cli
