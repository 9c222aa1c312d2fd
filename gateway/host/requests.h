// A backend host trusts nothing from a front. Each call is checked here before the plugin sees it:
// grammars, flags, counts, NUL bytes, kinds of descriptors, and that it requests nothing beyond the
// operator's configuration. Pure but for fstat. [any]
#pragma once

#include "gateway/config/config.h"
#include "gateway/ipc/messages.h"

namespace isogate {

Result<void> check(const ipc::ProbeCall& call, const BackendConfig& settings);
Result<void> check(const ipc::PingCall& call, const BackendConfig& settings);
Result<void> check(const ipc::OpenCall& call, const BackendConfig& settings);
Result<void> check(const ipc::CloseCall& call, const BackendConfig& settings);
Result<void> check(const ipc::EnumerateCall& call, const BackendConfig& settings);
Result<void> check(const ipc::OrphansCall& call, const BackendConfig& settings);
Result<void> check(const ipc::ExecCall& call, const BackendConfig& settings);
Result<void> check(const ipc::FileCall& call, const BackendConfig& settings);
Result<void> check(const ipc::EvidenceCall& call, const BackendConfig& settings);
Result<void> check(const ipc::ConnectCall& call, const BackendConfig& settings);

// The configured egress, or a stricter one if the front asks for it.
Result<uint32_t> admitted_egress(uint32_t asked, uint32_t configured);

}  // namespace isogate
