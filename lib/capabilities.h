// The names of the ABI's numbers, as GET /backends and `isogate plugin describe` show them. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isogate {

// Every capability of the ABI, by its bit.
const std::vector<std::pair<uint64_t, std::string>>& capability_table();

// Those of them that this ABI knows.
uint64_t known_capabilities(uint64_t capabilities);

// Of those that are known, by their bits.
std::vector<std::string_view> capability_names(uint64_t capabilities);

// "none", "namespace", "container", "vm"; "unknown" otherwise.
std::string_view isolation_name(uint32_t isolation);
bool known_isolation(uint32_t isolation);
std::optional<uint32_t> parse_isolation(std::string_view name);
// "process", "host", "daemon", "cluster", "gateway"; "unknown" otherwise.
std::string_view locality_name(uint32_t locality);
bool known_locality(uint32_t locality);
// Of a probe: "available", "degraded", "unavailable"; "unknown" otherwise.
std::string_view verdict_name(uint32_t verdict);

}  // namespace isogate
