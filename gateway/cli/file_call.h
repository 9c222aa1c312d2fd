// What read, write, ls and rm have in common. JSON texts, so that callers need no JSON library.
#pragma once

#include <string>

#include "gateway/cli/http_client.h"
#include "gateway/cli/options.h"

namespace isogate::cli {

// /workspace/files/{agent_id}/{path}, with scope and user.
std::string raw_target(const FileOptions& options, std::string query);

}  // namespace isogate::cli
