// <state-dir>/local.key: the key of a gateway without configured keys. For this machine; the CLI
// finds it by itself.
#pragma once

#include <string>

#include "lib/error.h"

namespace isogate::supervisor {

// Creates the file, 0600, with "isg_" and 256 random bits in base64url, unless it exists; returns the
// SHA-256 of the key in hex. An existing file that others may read, that is not this user's or not a
// key is refused. The key is registered with redact.h and never leaves this function.
Result<std::string> local_key_sha256(int state_dir, const std::string& state_path);

}  // namespace isogate::supervisor
