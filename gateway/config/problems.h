// Mistakes of a configuration, gathered while it is read, each with its place. Inside gateway/config only,
// but for nearest().
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace isogate {

// Where each key and value of a document came from: "isogate.yaml:3:12", "environment variable X", …
struct Places {
  std::map<std::string, std::string, std::less<>> keys, values;  // by path, "backends[0].name"

  // The place of the value, or of the nearest value around it; empty: a default.
  [[nodiscard]] std::string of(std::string_view path) const;
  void forget(std::string_view path);  // it and all below
};

class Problems {
 public:
  explicit Problems(const Places& places) : places_(places) {}
  void at(std::string_view path, const std::string& text);           // place: `path`: text
  void unknown_key(std::string_view path, const std::string& text);  // place of the key: text
  // From here on a mistake in or below a path that already has one is dropped.
  void values_read() { first_ = said_; }
  void plain(const std::string& text) { lines_.push_back(text); }
  [[nodiscard]] bool none() const { return lines_.empty(); }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

 private:
  const Places& places_;
  std::vector<std::string> lines_, said_, first_;
};

// The candidate nearest to `word`; empty: none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean `x`?" or nothing.
std::string did_you_mean(const std::string& candidate);

}  // namespace isogate
