#include "gateway/config/problems.h"

#include <algorithm>

#include "lib/text.h"

namespace isogate {
namespace {

char folded(char c) { return c == '-' ? '_' : to_lower(c); }

// Optimal string alignment: insert, delete, replace, swap neighbours.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t change = folded(a[i - 1]) == folded(b[j - 1]) ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      bool swapped =
          i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]);
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::string_view parent(std::string_view path) {
  size_t cut = path.find_last_of(".[");
  return cut == std::string_view::npos ? std::string_view() : path.substr(0, cut);
}

bool in_or_below(std::string_view name, std::string_view path) {
  return name.substr(0, path.size()) == path &&
         (name.size() == path.size() || name[path.size()] == '.' || name[path.size()] == '[');
}

}  // namespace

std::string Places::of(std::string_view path) const {
  for (; !path.empty(); path = parent(path))
    if (auto found = values.find(path); found != values.end()) return found->second;
  return {};
}

void Places::forget(std::string_view path) {
  auto gone = [&](const auto& entry) { return in_or_below(entry.first, path); };
  std::erase_if(keys, gone);
  std::erase_if(values, gone);
}

void Problems::at(std::string_view path, const std::string& text) {
  bool known =
      std::any_of(first_.begin(), first_.end(), [&](const auto& one) { return in_or_below(one, path); });
  if (known) return;
  said_.emplace_back(path);
  std::string place = places_.of(path);
  lines_.push_back((place.empty() ? "" : place + ": ") + "`" + std::string(path) + "`: " + text);
}

void Problems::unknown_key(std::string_view path, const std::string& text) {
  auto found = places_.keys.find(path);
  std::string place = found == places_.keys.end() ? places_.of(path) : found->second;
  lines_.push_back((place.empty() ? "" : place + ": ") + text);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return {};
  size_t best = 2 + word.size() / 4;
  std::string found;
  for (const std::string& candidate : candidates) {
    size_t d = distance(word, candidate);
    if (d >= best || d >= candidate.size()) continue;
    best = d;
    found = candidate;
  }
  return found;
}

std::string did_you_mean(const std::string& candidate) {
  return candidate.empty() ? "" : "; did you mean `" + candidate + "`?";
}

}  // namespace isogate
