// The body of POST /exec and /exec-stream, checked. Throws ApiError.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "gateway/front/exchange.h"
#include "gateway/front/exec.h"

namespace isogate::front {

struct ParsedExec {
  ExecSpec spec;
  std::optional<uint64_t> max_output_bytes;  // of each of stdout and stderr
  bool lines = false;
};

// A command or argv for the journal: printable and short, by the redaction table. Secrets are taken out
// before it is cut, since of half a secret the table knows nothing.
std::string journal_text(std::span<const std::string> arguments);

ParsedExec parse_exec(const App& app, const Exchange& exchange, std::string_view body);

}  // namespace isogate::front
