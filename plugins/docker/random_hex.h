// Random names. Any thread.
#pragma once

#include <string>

namespace isogate::docker {

// That many random bytes, at most 32, in hexadecimal digits. Throws sdk::Error.
std::string random_hex(size_t bytes);

}  // namespace isogate::docker
