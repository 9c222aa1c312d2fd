// The body of POST /exec and /exec-stream, checked. Throws ApiError.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gateway/front/exchange.h"
#include "gateway/front/exec.h"

namespace isogate::front {

struct ParsedExec {
  ExecSpec spec;                          // but for its stdin
  std::optional<std::string> stdin_text;  // as it came, in the encoding beside it
  std::string stdin_encoding;
  std::optional<uint64_t> max_output_bytes;  // of each of stdout and stderr
  bool lines = false;
};

// A command or argv for the journal: printable and short, by the redaction table. Secrets are taken out
// before it is cut, since of half a secret the table knows nothing.
std::string journal_text(std::span<const std::string> arguments);

// Takes the text of stdin out of the body.
ParsedExec parse_exec(const App& app, const Exchange& exchange, nlohmann::json& body);

}  // namespace isogate::front
