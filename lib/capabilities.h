// The names of the ISOGATE_CAP_* bits, as GET /backends and `isogate plugin describe` show them. Any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace isogate {

// Every capability of the ABI, by its bit.
const std::vector<std::pair<uint64_t, std::string_view>>& capability_table();

// Of those that are known, by their bits.
std::vector<std::string_view> capability_names(uint64_t capabilities);

}  // namespace isogate
