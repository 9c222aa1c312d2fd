#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "gateway/config/document.h"
#include "lib/redact.h"
#include "lib/text.h"

namespace isogate {
namespace {

constexpr size_t kMaxBytes = 1 << 20, kMaxDepth = 32, kMaxValues = 100000;

// -?digits without a leading zero: 0755 is a text, so that nobody has to guess its base.
bool integer(std::string_view text, Json& value) {
  bool negative = text.substr(0, 1) == "-";
  std::string_view body = text.substr(negative || text.substr(0, 1) == "+" ? 1 : 0);
  if (!is_digits(body) || (body.size() > 1 && body[0] == '0')) return false;
  if (const auto below = number_in<int64_t>(text); negative && below) return value = *below, true;
  if (const auto number = number_in<uint64_t>(body); !negative && number) return value = *number, true;
  return false;
}

bool real(std::string_view text, Json& value) {
  size_t start = text.find_first_not_of("+-");
  if (start == std::string_view::npos || start > 1) return false;
  if (text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return false;
  if (text.find_first_of(".eE") == std::string_view::npos) return false;
  const auto number = number_in<double>(text.substr(text[0] == '+' ? 1 : 0));
  if (!number || !std::isfinite(*number)) return false;
  value = *number;
  return true;
}

Json plain_scalar(const std::string& text) {
  Json value;
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (integer(text, value) || real(text, value)) return value;
  return text;
}

struct Refused {
  YAML::Mark mark;
  std::string what;
};

class Builder : public YAML::EventHandler {
 public:
  Builder(std::string name, Places& places, Problems& problems)
      : name_(std::move(name)), places_(places), problems_(problems) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, "", anchor, nullptr); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refused{mark, "aliases are not accepted"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (expects_key()) return key(mark, tag, anchor, value);
    add(mark, tag, anchor, tag == "!" ? Json(value) : plain_scalar(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Json::array());
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Json::object());
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapEnd() override { open_.pop_back(); }

  [[nodiscard]] std::string place(const YAML::Mark& mark) const {
    if (mark.is_null()) return name_;
    return name_ + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
  }
  Json take() { return std::move(root_); }

 private:
  struct Level {
    Json* value;
    std::string path, key;
    bool has_key = false;
  };

  [[nodiscard]] bool expects_key() const {
    return !open_.empty() && open_.back().value->is_object() && !open_.back().has_key;
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) throw Refused{mark, "anchors are not accepted"};
    if (!tag.empty() && tag != "?" && tag != "!") throw Refused{mark, "tags are not accepted"};
    if (++values_ > kMaxValues) throw Refused{mark, "more than 100000 values"};
  }

  void key(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) {
    check(mark, tag, anchor);
    Level& level = open_.back();
    level.key = text;
    level.has_key = true;
    if (level.value->contains(text))
      problems_.plain(place(mark) + ": duplicate key `" + redact(text) + "`, first at " +
                      places_.keys[path()]);
    places_.keys[path()] = place(mark);
  }

  [[nodiscard]] std::string path() const {
    if (open_.empty()) return {};
    const Level& level = open_.back();
    if (level.value->is_array()) return level.path + "[" + std::to_string(level.value->size()) + "]";
    return level.path.empty() ? level.key : level.path + "." + level.key;
  }

  Json* add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json value) {
    check(mark, tag, anchor);
    if (expects_key()) throw Refused{mark, "expected a text as key"};
    auto key_place = places_.keys.find(path());
    bool nothing = value.is_null() && key_place != places_.keys.end();  // has no place of its own
    places_.values[path()] = nothing ? key_place->second : place(mark);
    if (open_.empty()) return &(root_ = std::move(value));
    Level& level = open_.back();
    if (level.value->is_array()) return &level.value->emplace_back(std::move(value));
    level.has_key = false;
    return &((*level.value)[level.key] = std::move(value));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json value) {
    if (open_.size() == kMaxDepth) throw Refused{mark, "more than 32 levels"};
    std::string at = path();
    Json* added = add(mark, tag, anchor, std::move(value));
    open_.push_back({added, at, "", false});
  }

  std::string name_;
  Places& places_;
  Problems& problems_;
  Json root_;
  std::vector<Level> open_;
  size_t values_ = 0;
};

std::string bytes_problem(const std::string& text) {
  if (text.size() > kMaxBytes) return "larger than 1 MiB";
  if (!is_utf8(text)) return "not UTF-8";
  bool control = std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F;
  });
  return control ? "contains control characters" : "";
}

std::string_view line_at(std::string_view text, int line) {
  for (; line > 0 && !text.empty(); --line)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

// The parser's own words, with what is usually the reason.
std::string explained(const YAML::Exception& error, std::string_view text) {
  const std::string_view line = error.mark.is_null() ? "" : line_at(text, error.mark.line);
  const size_t indent = line.find_first_not_of(" \t");
  if (line.substr(0, indent).find('\t') != std::string_view::npos)
    return error.msg + ": this line is indented with a tab; use spaces";
  if (error.msg.find("map") == std::string::npos && error.msg.find("block") == std::string::npos)
    return error.msg;
  return error.msg +
         ": one setting a line, indented as its neighbours; every item of a list begins with `- `; a text "
         "with `: ` in it needs quotes";
}

}  // namespace

bool read_yaml(const std::string& text, const std::string& name, Json& document, Places& places,
               Problems& problems) {
  Builder builder(name, places, problems);
  try {
    if (std::string bad = bytes_problem(text); !bad.empty()) {
      problems.plain(name + ": " + bad);
      return false;
    }
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    document = builder.take();
    Places ignored;
    Problems unread(ignored);
    Builder second(name, ignored, unread);
    if (!parser.HandleNextDocument(second)) return true;
    problems.plain(name + ": more than one document");
  } catch (const Refused& refused) {
    problems.plain(builder.place(refused.mark) + ": " + refused.what);
  } catch (const YAML::Exception& error) {
    problems.plain(builder.place(error.mark) + ": " + explained(error, text));
  }
  return false;
}

}  // namespace isogate
