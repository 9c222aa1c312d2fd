// The host's end of init_protocol.h.
#pragma once

#include <string_view>
#include <vector>

#include "lib/fd.h"
#include "runner/enclosure/init_protocol.h"

namespace isogate {

// Sends an order with its body and descriptors. Errors: EPIPE as os_errno when the init has ended,
// ISOGATE_CANCELLED when cancel_fd fired before the init had taken all of it.
Result<void> send_order(int socket, InitOrderKind kind, std::string_view body,
                        const std::vector<int>& descriptors, int cancel_fd);

// Reads exactly `size` bytes, within `patience_ms` each. EPIPE as os_errno when the init has
// ended, ISOGATE_CANCELLED.
Result<void> receive_from_init(int socket, void* to, size_t size, int patience_ms, int cancel_fd);

}  // namespace isogate
