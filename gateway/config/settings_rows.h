// The rows of the table of settings: one source for each part, put together by settings_table.cc.
// Included by these alone.
#pragma once

#include "gateway/config/settings_table.h"

// The field of an owner: FIELD(Config, limits.max_execs).
#define FIELD(Owner, member) [](void* owner) -> Field { return &owner_at<Owner>(owner).member; }

namespace isogate {

template <typename Owner>
Owner& owner_at(void* owner) {
  static Owner defaults;
  return owner == nullptr ? defaults : *static_cast<Owner*>(owner);
}

inline constexpr double kMiB = 1 << 20, kGiB = 1 << 30, kDay = 86400, kYear = 366 * kDay;

std::span<const Setting> general_rows();
std::span<const Setting> limit_rows();  // `limits`, `exec` and `ports`
std::span<const Setting> backends_row();

}  // namespace isogate
