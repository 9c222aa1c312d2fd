// The rows of the table of settings: one source for each part, put together by settings_table.cc.
// Included by these alone.
#pragma once

#include "gateway/config/settings_table.h"

// The field of an owner: FIELD(Config, limits.max_execs).
#define FIELD(Owner, member) [](void* owner) -> Field { return &static_cast<Owner*>(owner)->member; }

namespace isogate {

inline constexpr double kMiB = 1 << 20, kGiB = 1 << 30, kDay = 86400, kYear = 366 * kDay;

std::span<const Setting> general_rows();
std::span<const Setting> limit_rows();  // `limits`, `exec` and `ports`
std::span<const Setting> backends_row();

}  // namespace isogate
