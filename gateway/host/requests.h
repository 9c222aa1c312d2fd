// A backend host trusts nothing from a front. Each call is checked here before the plugin sees it:
// grammars, flags, counts, NUL bytes, kinds of descriptors, and that it requests nothing beyond the
// operator's configuration. Pure except for fstat. [any]
#pragma once

#include "gateway/config/config.h"
#include "gateway/ipc/messages.h"

namespace isogate {

Result<void> check(const ipc::Call& call, const BackendConfig& settings);

// An eventfd or a timerfd, or one that is as harmless to signal.
bool is_event(int fd);

// The configured egress, or a stricter one if the front asks for it.
Result<uint32_t> admitted_egress(uint32_t asked, uint32_t configured);

}  // namespace isogate
