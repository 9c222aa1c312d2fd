// Small things about the JSON, paths and queries of the Engine API.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "plugins/docker/engine_pool.h"

namespace isogate::docker {

const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  const auto found = object.find(name);
  return found != object.end() ? *found : kNull;
}

std::string text_at(const Json& object, const char* name) {
  const Json& text = member(object, name);
  return text.is_string() ? text.get<std::string>() : std::string();
}

std::string dump(const Json& body, const std::string& attempt) try {
  return body.dump();
} catch (const Json::exception&) {
  throw EngineError(ISOGATE_INVALID_ARGUMENT, "cannot " + attempt + ": the Engine takes no text but UTF-8");
}

std::string quoted(const std::string& what, const std::string& name) {
  return what + " `" + printable(name, 80) + "`";
}

std::string label_filters(const std::vector<LabelFilter>& labels) {
  Json wanted = Json::array();
  for (const auto& label : labels)
    wanted.push_back(label.value.empty() ? label.name : label.name + "=" + label.value);
  return encode(dump(Json{{"label", wanted}}, "look for labels"));
}

std::vector<Json> carrying(Json rows, const std::vector<LabelFilter>& labels) {
  const auto carries = [&labels](const Json& row) {
    const Json& its = member(row, "Labels");
    return std::all_of(labels.begin(), labels.end(), [&its](const LabelFilter& label) {
      const Json& value = member(its, label.name.c_str());
      return value.is_string() && (label.value.empty() || value == Json(label.value));
    });
  };
  std::vector<Json> all;
  if (!rows.is_array()) return all;
  for (Json& row : rows)
    if (carries(row)) all.push_back(std::move(row));
  return all;
}

std::pair<int, int> parse_api_version(const std::string& text) {
  std::pair<int, int> version;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.first);
  if (major.ec == std::errc() && major.ptr != end && *major.ptr == '.') {
    const auto minor = std::from_chars(major.ptr + 1, end, version.second);
    if (minor.ec == std::errc() && minor.ptr == end) return version;
  }
  throw EngineError(ISOGATE_UNAVAILABLE, "`" + printable(text, 40) + "` is no version of the Engine API");
}

std::string encode(std::string_view text, std::string_view also) {
  std::string out;
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '~' ||
        also.find(static_cast<char>(c)) != std::string_view::npos) {
      out += static_cast<char>(c);
    } else {
      out += '%';
      out += "0123456789ABCDEF"[c >> 4];
      out += "0123456789ABCDEF"[c & 15];
    }
  }
  return out;
}

std::string in_path(const std::string& name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-'; };
  if (name.empty() || name.size() > 255 || std::isalnum(static_cast<unsigned char>(name[0])) == 0 ||
      !std::all_of(name.begin(), name.end(), fits))
    throw EngineError(ISOGATE_INVALID_ARGUMENT,
                      "`" + printable(name, 80) + "` is no name that an Engine has");
  return name;
}

}  // namespace isogate::docker
