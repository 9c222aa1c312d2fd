// The record that the E2B listener keeps of a sandbox that it created, in SandboxRow::e2b_record. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace isogate::front::e2b {

using Pairs = std::map<std::string, std::string>;

inline constexpr std::string_view kHome = "/home/user";  // as SDKs expect it

struct Record {
  std::string template_id;
  std::string token;  // X-Access-Token of its calls: 256 random bits, base32
  std::string home;   // kHome if that is its workspace, else HOME of its programs; empty: not known yet
  Pairs metadata, env;
  int64_t started_ms = 0;
};

std::string record_text(const Record& record);
// E2b-Traffic-Access-Token, which gives access to its ports and nothing else: for clients of its servers.
std::string traffic_token(const Record& record);
// nullopt: the E2B listener did not create it.
std::optional<Record> record_in(const std::string& text);

}  // namespace isogate::front::e2b
