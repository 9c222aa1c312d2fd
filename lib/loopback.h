// Numeric addresses, and which are always of the machine itself. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace isogate {

// A numeric address without brackets, in 4 or 16 bytes; one mapped to IPv6 in 4. Empty for any other text.
std::string address_bytes(std::string_view address);

// A numeric address without brackets in 127.0.0.0/8, also mapped to IPv6, or ::1 (RFC 1122, 3.2.1.3; RFC
// 4291, 2.5.3). False for any name.
bool is_loopback(std::string_view address);

}  // namespace isogate
