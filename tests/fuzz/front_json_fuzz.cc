// JSON requests: an accepted one is an object that any other parser reads the same way; for a route that
// takes any value, that value.
#include <nlohmann/json.hpp>
#include <string>

#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/api_error.h"
#include "lib/text.h"
#include "tests/fuzz/require.h"

namespace {

bool has_nul(const nlohmann::json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().find('\0') != std::string::npos;
  for (const auto& each : value.items()) {
    if (each.key().find('\0') != std::string::npos) return true;
    if (value.is_structured() && has_nul(each.value())) return true;
  }
  return false;
}

template <typename Read>
void try_field(Read read) {
  try {
    read();
  } catch (const isogate::front::ApiError& error) {
    require(error.http_status() == 400);
    require(isogate::is_utf8(error.body("id")));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate::front;
  if (size == 0) return 0;
  const Route& row = routes()[data[0] % routes().size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  nlohmann::json body;
  try {
    body = parse_body(text, row.fields);
  } catch (const ApiError& error) {
    require(error.http_status() == 400);
    require(nlohmann::json::accept(error.body("id")));
    return 0;
  }
  const bool takes_any = !row.fields.empty() && row.fields.back() == "[]";
  require((takes_any || body.is_object()) && isogate::is_utf8(text));
  require(nlohmann::json::parse(text) == body);
  require(takes_any || !has_nul(body));
  if (!body.is_object()) return 0;
  for (const auto name : row.fields) {
    try_field([&] { text_field(body, name); });
    try_field([&] { bool_field(body, name); });
    try_field([&] { number_field(body, name); });
    try_field([&] {
      const auto value = count_field(body, name, 1, 100);
      require(!value || (*value >= 1 && *value <= 100));
    });
  }
  return 0;
}
