#include "gateway/front/api/json_in.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gateway/front/base/api_error.h"
#include "lib/capabilities.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxValues = 200000;

void check_text(const std::string& text) {
  if (text.find('\0') != std::string::npos)
    throw invalid_request(
        "a string of the body holds a NUL character; only content can have one: send it as base64");
}

// Builds the value and refuses what nlohmann/json lets pass. Its own callbacks look at all members of a
// container again at the end of each: a square of time, which a caller chooses.
class Builder : public json::json_sax_t {
 public:
  Builder(std::string_view body, bool takes_nul) : body_(body), takes_nul_(takes_nul) {}
  json take() { return std::move(root_); }

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(json::number_integer_t value) override { return put(value) != nullptr; }
  bool number_unsigned(json::number_unsigned_t value) override { return put(value) != nullptr; }
  bool number_float(json::number_float_t value, const std::string&) override { return put(value) != nullptr; }
  bool string(std::string& value) override {
    if (!takes_nul_) check_text(value);
    return put(std::move(value)) != nullptr;
  }
  bool binary(json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    if (!takes_nul_) check_text(key);
    count();
    const auto [member, made] =
        open_.back()->get_ref<json::object_t&>().try_emplace(key);  // ordered: nothing collides
    if (!made) throw invalid_request("the key `" + printable(key, 100) + "` occurs twice");
    member_ = &member->second;
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    if (!is_utf8(body_)) throw invalid_request("the body is not valid JSON: it is not UTF-8");
    throw invalid_request(std::string("the body is not valid JSON: ") + printable(error.what(), 300));
  }

 private:
  void count() {
    if (++values_ > kMaxValues)
      throw invalid_request("the body holds over " + std::to_string(kMaxValues) + " values");
  }
  json* put(json value) {
    count();
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*member_ = std::move(value));
  }
  bool open(json container) {
    if (open_.size() == kMaxDepth)
      throw invalid_request("the body is nested deeper than " + std::to_string(kMaxDepth));
    open_.push_back(put(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string_view body_;
  const bool takes_nul_;
  json root_;
  json* member_ = nullptr;  // of the innermost object, which comes next
  std::vector<json*> open_;
  size_t values_ = 0;
};

const json* find(const json& body, std::string_view name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void wrong_type(std::string_view name, std::string_view expected) {
  throw invalid_request("`" + std::string(name) + "` must be " + std::string(expected));
}

}  // namespace

json parse_body(std::string_view body, std::span<const std::string_view> known_fields) {
  if (body.starts_with("\xef\xbb\xbf"))
    throw invalid_request("the body starts with a byte order mark; send plain UTF-8");
  // The library takes a NUL for the end and would not look behind it.
  if (body.find('\0') != std::string_view::npos)
    throw invalid_request("the body holds a NUL byte; JSON is text");
  const bool any_value = !known_fields.empty() && known_fields.back() == "[]";
  Builder builder(body, any_value);
  json::sax_parse(body, &builder);
  json parsed = builder.take();
  if (any_value) return parsed;
  if (!parsed.is_object()) throw invalid_request("the body must be a JSON object");
  for (const auto& item : parsed.items()) {
    if (std::find(known_fields.begin(), known_fields.end(), item.key()) != known_fields.end()) continue;
    if (!known_fields.empty() && known_fields.front() == "*") break;
    throw invalid_request("unknown field `" + printable(item.key(), 100) + "`; this call knows " +
                          join(known_fields, ", "));
  }
  return parsed;
}

uint64_t kept_bytes(const json& value) {
  constexpr uint64_t kEach = 64;  // with what the allocator adds
  uint64_t bytes = kEach;
  if (value.is_string()) bytes += value.get_ref<const std::string&>().size();
  if (value.is_object())
    for (const auto& member : value.items())
      bytes += kEach + member.key().size() + kept_bytes(member.value());
  if (value.is_array())
    for (const json& each : value) bytes += kept_bytes(each);
  return bytes;
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

std::string encoding_field(const json& body, std::string_view name) {
  std::string encoding = text_field(body, name).value_or("utf-8");
  if (encoding != "utf-8" && encoding != "base64") wrong_type(name, "utf-8 or base64");
  return encoding;
}

std::optional<uint32_t> isolation_field(const json& body, std::string_view name) {
  const auto text = text_field(body, name);
  if (!text) return std::nullopt;
  const auto level = parse_isolation(*text);
  if (!level) throw invalid_request("`" + std::string(name) + "` must be none, namespace, container or vm");
  return level;
}

std::optional<double> number_field(const json& body, std::string_view name) {
  const json* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(name, "a number");
  return value->get<double>();
}

}  // namespace isogate::front
