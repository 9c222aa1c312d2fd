// The body of POST /exec and /exec-stream, checked. Pure; throws ApiError invalid_request, or unsupported.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "gateway/config/config.h"
#include "gateway/front/exec/exec.h"

namespace isogate::front {

struct ParsedExec {
  ExecSpec spec;                          // but for whose it is, and its stdin
  std::optional<std::string> stdin_text;  // as it came, in the encoding beside it
  std::string stdin_encoding;
  std::optional<uint64_t> max_output_bytes;  // of each of stdout and stderr
  bool long_lived = false;                   // `background` or `wait_sec`; the next one with it alone
  double wait_sec = 0;
  bool lines = false;
  std::optional<std::string> agent_in_body, agent_in_env;
};

inline constexpr uint64_t kMostWaitSec = 3600, kMostCells = 10000;  // of a call; of a terminal each way

// Takes the text of stdin out of the body. `shell` runs a `command`; `rules` has the defaults and the bounds.
ParsedExec parse_exec(nlohmann::json& body, const ExecConfig& rules, const std::string& shell);

// A command or argv for the journal: printable and short, by the redaction table. Secrets are redacted
// before it is cut, because the table does not match half a secret.
std::string journal_text(std::span<const std::string> arguments);

}  // namespace isogate::front
