// JSON requests: what is accepted is an object that any other parser reads the same way.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "gateway/front/api_error.h"
#include "gateway/front/json_in.h"
#include "gateway/front/routes.h"
#include "gateway/front/text.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename Read>
void try_field(Read read) {
  try {
    read();
  } catch (const isogate::front::ApiError& error) {
    require(error.http_status() == 400);
    require(isogate::front::is_utf8(error.body("id")));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate::front;
  if (size == 0) return 0;
  const RouteRow& row = kRoutes[data[0] % kRoutes.size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  nlohmann::json body;
  try {
    body = parse_body(text, row.fields);
  } catch (const ApiError& error) {
    require(error.http_status() == 400);
    require(nlohmann::json::accept(error.body("id")));
    return 0;
  }
  require(body.is_object() && is_utf8(text));
  require(nlohmann::json::parse(text) == body);
  require(body.dump().find("\\u0000") == std::string::npos);
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
