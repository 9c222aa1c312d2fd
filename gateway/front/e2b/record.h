// What the door for E2B's SDKs keeps of a sandbox that it made, in SandboxRow::door. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isogate::front::e2b {

using Pairs = std::vector<std::pair<std::string, std::string>>;

inline constexpr std::string_view kHome = "/home/user";  // as SDKs expect it

struct Record {
  std::string template_id;
  std::string token;  // X-Access-Token of its calls: 256 random bits, base32
  std::string home;   // kHome where that is its workspace, else what its programs call HOME
  Pairs metadata, env;
  int64_t started_ms = 0;
};

std::string record_text(const Record& record);
// E2b-Traffic-Access-Token, which opens its ports and nothing else: whoever is to see what it serves gets it.
std::string traffic_token(const Record& record);
// nullopt: it is not of this door.
std::optional<Record> record_in(const std::string& door);

}  // namespace isogate::front::e2b
