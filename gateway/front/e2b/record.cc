#include "gateway/front/e2b/record.h"

#include <nlohmann/json.hpp>

#include "lib/hash.h"

namespace isogate::front::e2b {
using nlohmann::json;

std::string record_text(const Record& record) {
  const json text = {
      {"template", record.template_id}, {"token", record.token}, {"home", record.home},
      {"metadata", record.metadata},    {"env", record.env},     {"started_ms", record.started_ms}};
  return text.dump();
}

std::string traffic_token(const Record& record) {
  return base32_lower(sha256("isogate e2b traffic " + record.token));
}

std::optional<Record> record_in(const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    const json record = json::parse(text);
    return Record{.template_id = record.at("template"),
                  .token = record.at("token"),
                  .home = record.at("home"),
                  .metadata = record.at("metadata").get<Pairs>(),
                  .env = record.at("env").get<Pairs>(),
                  .started_ms = record.at("started_ms").get_ref<const json::number_integer_t&>()};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace isogate::front::e2b
