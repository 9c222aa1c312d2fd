// One call into a plugin: its arguments, and its failure as an Error.
#pragma once

#include <string>
#include <string_view>

#include "gateway/ipc/messages.h"
#include "lib/error.h"

namespace isogate {

inline isogate_str abi_str(std::string_view text) { return {text.data(), text.size()}; }

struct AbiCall {
  explicit AbiCall(const ipc::CallHeader& header);  // borrows it
  explicit AbiCall(int cancel_fd);                  // a call of this host's own, without a deadline
  isogate_call call{};
  isogate_error error{};  // for the plugin to fill
};

// Whether the ABI has this status.
bool is_known(isogate_status status);

// A status that is not OK, with the plugin's message cleaned (text.h). An unknown status is a defect of
// the plugin, ISOGATE_INTERNAL.
Error plugin_failure(isogate_status status, const isogate_error& error);

// A defect of the plugin: "the plugin answered …".
Error plugin_defect(const std::string& what);

}  // namespace isogate
