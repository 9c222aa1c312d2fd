#include "gateway/front/json_in.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gateway/front/api_error.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr size_t kMaxValues = 200000;

ApiError invalid_body(std::string message) {
  return {.code = Code::kInvalidRequest, .message = std::move(message)};
}

// Watches a parse for what nlohmann/json lets pass.
class Watch {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) throw invalid_body("the body is nested deeper than " + std::to_string(kMaxDepth));
    if (event != json::parse_event_t::array_end && event != json::parse_event_t::object_end &&
        ++values_ > kMaxValues)
      throw invalid_body("the body holds over " + std::to_string(kMaxValues) + " values");
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      check_text(key);
      if (!keys_.back().insert(key).second)
        throw invalid_body("the key `" + printable(key, 100) + "` occurs twice");
    }
    if (event == json::parse_event_t::value && parsed.is_string())
      check_text(parsed.get_ref<const std::string&>());
    return true;
  }

 private:
  static void check_text(const std::string& text) {
    if (text.find('\0') != std::string::npos)
      throw invalid_body("a string of the body holds a NUL character; send bytes as base64");
  }
  std::vector<std::set<std::string>> keys_;  // ordered: nobody can choose keys that collide
  size_t values_ = 0;
};

const json* find(const json& body, std::string_view name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void wrong_type(std::string_view name, std::string_view expected) {
  throw invalid_body("`" + std::string(name) + "` must be " + std::string(expected));
}

}  // namespace

json parse_body(std::string_view body, std::span<const std::string_view> known_fields) {
  if (body.starts_with("\xef\xbb\xbf"))
    throw invalid_body("the body starts with a byte order mark; send plain UTF-8");
  // The library takes a NUL for the end and would not look behind it.
  if (body.find('\0') != std::string_view::npos)
    throw invalid_body("the body holds a NUL byte; JSON is text");
  json parsed;
  try {
    parsed = json::parse(body, Watch());
  } catch (const json::exception& error) {
    throw invalid_body(std::string("the body is not valid JSON: ") + printable(error.what(), 300));
  }
  if (!parsed.is_object()) throw invalid_body("the body must be a JSON object");
  for (const auto& item : parsed.items()) {
    if (std::find(known_fields.begin(), known_fields.end(), item.key()) != known_fields.end()) continue;
    std::string known;
    for (const auto field : known_fields) known.append(known.empty() ? "" : ", ").append(field);
    throw invalid_body("unknown field `" + printable(item.key(), 100) + "`; this call knows " + known);
  }
  return parsed;
}

std::optional<std::string> text_field(const json& body, std::string_view name) {
  const json* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong_type(name, "a string");
  return value->get<std::string>();
}

std::optional<std::string> take_text_field(json& body, std::string_view name) {
  const json* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong_type(name, "a string");
  return std::move(body[std::string(name)].get_ref<std::string&>());
}

std::optional<bool> bool_field(const json& body, std::string_view name) {
  const json* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong_type(name, "true or false");
  return value->get<bool>();
}

std::optional<uint64_t> count_field(const json& body, std::string_view name, uint64_t least, uint64_t most) {
  const json* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value->is_number_unsigned()) wrong_type(name, expected);
  const auto count = value->get<uint64_t>();
  if (count < least || count > most) wrong_type(name, expected);
  return count;
}

std::optional<double> number_field(const json& body, std::string_view name) {
  const json* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(name, "a number");
  return value->get<double>();
}

}  // namespace isogate::front
