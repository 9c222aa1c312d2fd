// The TLS files, read by the one process that may: the front gets their bytes.
#pragma once

#include "gateway/base/tls_context.h"
#include "gateway/config/config.h"

namespace isogate::supervisor {

// Empty without TLS. Reads all files at once and makes a context of them, so that they fit together;
// logs the certificate, with a warning when it is not valid now. Each file is regular and at most 1 MiB;
// the key is root's or this user's, not readable by others, not writable by group or others. Symbolic
// links are followed: tools that renew certificates use them.
Result<TlsMaterial> read_tls_files(const TlsConfig& config);

}  // namespace isogate::supervisor
