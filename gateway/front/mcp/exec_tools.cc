// Programs in the sandbox, as a tool of MCP.
#include <algorithm>
#include <array>

#include "gateway/front/api/access.h"
#include "gateway/front/api/exec_json.h"
#include "gateway/front/api/execs.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/long_execs.h"
#include "gateway/front/mcp/tools.h"
#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

// Clients of MCP give a call 60 s, and what they take of one answer is less than 1 MiB.
constexpr double kTimeout = 50;
constexpr uint64_t kOutput = 65536, kMostOutput = 98304;
constexpr std::chrono::milliseconds kTellEvery{500};
constexpr std::chrono::seconds kTaskAfter{2};
constexpr size_t kMostTold = 2000;

// The end of what came since `told`, as far as it is text.
std::string news_of(const Spool& output, uint64_t& told) {
  const uint64_t most = std::min<uint64_t>(kMostTold, output.next() - std::max(told, output.first()));
  std::string text = most == 0 ? "" : output.text();
  text.erase(0, text.size() - most);
  told = output.next();
  trim_cut_beginning(text);
  trim_cut_end(text);
  return is_utf8(text) ? text : "";
}

// One that the native API or E2B started may have kept more than a client of MCP takes.
std::string end_of(const Spool& output) {
  std::string text = output.text();
  return text.size() > kMostOutput ? text.substr(text.size() - kMostOutput) : text;
}

KeptOutput kept_of(const LongExec& exec) {
  KeptOutput kept{end_of(exec.output(false).end()), end_of(exec.output(true).end())};
  if (kept.out.size() < exec.answer().stdout_bytes) trim_cut_beginning(kept.out);
  if (kept.error.size() < exec.answer().stderr_bytes) trim_cut_beginning(kept.error);
  return kept;
}

void append_output(std::string& to, std::string_view name, std::string_view bytes) {
  const bool as_text = goes_as_text(bytes);
  to.append(",\"").append(name).append("\":");
  append_json_string(to, as_text ? std::string(bytes) : base64_encode(bytes));
  to.append(",\"").append(name).append(as_text ? "_encoding\":\"utf-8\"" : "_encoding\":\"base64\"");
}

std::string for_a_model(std::string_view bytes) {
  return goes_as_text(bytes)
             ? std::string(bytes)
             : "[" + std::to_string(bytes.size()) + " bytes, not UTF-8; see structuredContent]";
}

// A client that knows tasks has one once it has waited so long. It asks for the rest when it likes.
Task<ToolResult> call_exec(ToolCall& call) {
  json request = call.arguments;
  request.erase("agent_id");
  const uint64_t output = count_field(request, "max_output_bytes", 0, kMostOutput).value_or(kOutput);
  request.erase("max_output_bytes");
  if (call.may_go_on) {
    request["background"] = true;
  } else if (!number_field(request, "timeout_sec")) {
    request["timeout_sec"] = std::min<double>(kTimeout, call.app.config.exec.max_timeout_sec);
  }
  call.exchange.memory.add(memory_of_result(output));
  const auto exec = co_await start_for(call, std::move(request), output);
  std::optional<std::chrono::nanoseconds> limit;
  if (call.may_go_on) limit = kTaskAfter;
  co_await follow(call, exec, limit);
  if (exec->ended()) co_return exec_result(*exec);
  keep_exec(call.app, exec);
  ToolResult result;
  result.goes_on = exec;
  co_return result;
}

constexpr std::string_view kExecInput = R"({"properties": {
  "command": {"type": "string", "description": "run by the shell of the sandbox; or give `argv`"},
  "argv": {"type": "array", "items": {"type": "string"}, "description": "a program and its arguments, without a shell"},
  "cwd": {"type": "string", "description": "in the workspace, where a program begins when it is left out"},
  "env": {"type": "object", "additionalProperties": {"type": "string"}},
  "stdin": {"type": "string"},
  "stdin_encoding": {"enum": ["utf-8", "base64"]},
  "timeout_sec": {"type": "number", "description": "50 when left out: many clients wait no longer than 60 s"},
  "user": {"type": "string", "description": "that runs it, where the operator allows others"},
  "merge_stderr": {"type": "boolean", "description": "into stdout, in the order it was written"},
  "max_output_bytes": {"type": "integer", "minimum": 0, "maximum": 98304,
    "description": "of each stream, from its end; 65536 when left out"}}})";
constexpr std::string_view kExecOutput = R"({"properties": {
  "exec_id": {"type": "string"},
  "stdout": {"type": "string"}, "stdout_encoding": {"enum": ["utf-8", "base64"]},
  "stderr": {"type": "string"}, "stderr_encoding": {"enum": ["utf-8", "base64"]},
  "outcome": {"enum": ["exited", "signaled", "timed_out", "killed", "oom_killed", "unknown"]},
  "exit_code": {"type": ["integer", "null"]}, "signal": {"type": ["string", "null"]},
  "stdout_bytes": {"type": "integer", "description": "that it wrote"}, "stderr_bytes": {"type": "integer"},
  "truncated": {"type": "boolean"}, "duration_ms": {"type": "number"}, "cpu_ms": {"type": "number"},
  "max_rss_bytes": {"type": "integer"}, "backend": {"type": "string"},
  "isolation": {"type": ["string", "null"], "description": "that was measured"}},
  "required": ["exec_id", "stdout", "stderr", "outcome", "exit_code", "truncated", "duration_ms"]})";
constexpr Tool kExecTools[] = {
    {.name = "exec",
     .title = "Run a program",
     .description =
         "Runs a program in the sandbox to its end. What it starts ends with it. The end of its output is "
         "the result; an exit code that is not 0 is an error.",
     .input = kExecInput,
     .output = kExecOutput,
     .destroys = true,
     .call = call_exec},
};

}  // namespace

Task<std::shared_ptr<LongExec>> start_for(ToolCall& call, json request, size_t kept_bytes) {
  ParsedExec parsed = parse_exec(request, call.app.config.exec, call.app.config.shell);
  request = nullptr;
  agent_of(call.exchange, false, call.agent, parsed.agent_in_env);
  parsed.spec.tenant = call.exchange.principal.tenant;
  parsed.spec.agent = call.agent;
  parsed.spec.request_id = call.exchange.request_id;
  if (parsed.stdin_text) {
    std::string bytes = co_await decode_field(call.app.elsewhere, call.exchange, "stdin",
                                              std::move(*parsed.stdin_text), parsed.stdin_encoding);
    parsed.spec.stdin_bytes = std::make_shared<const std::string>(std::move(bytes));
  }
  parsed.spec.terms.kept_bytes = kept_bytes;
  parsed.spec.found_later = call.may_go_on;
  const auto exec = co_await start_exec(call.app, call.exchange, std::move(parsed.spec));
  if (exec->refusal()) throw *exec->refusal();
  co_return exec;
}

Task<void> follow(ToolCall& call, const std::shared_ptr<LongExec>& exec,
                  std::optional<std::chrono::nanoseconds> limit) {
  const OnKill on_kill(call.exchange.watch_client(), [exec] { exec->kill(); });
  const auto until = steady_clock::now() + limit.value_or(std::chrono::hours(24 * 365));
  std::array<uint64_t, 2> told{};
  try {
    while (!exec->ended() && steady_clock::now() < until) {
      const auto pause = std::min<std::chrono::nanoseconds>(kTellEvery, until - steady_clock::now());
      if (co_await exec->at_end().wait_for(pause)) break;
      const std::string text =
          news_of(exec->output(false).end(), told[0]) + news_of(exec->output(true).end(), told[1]);
      co_await call.progress(text);
    }
  } catch (const ClientGone&) {  // it takes nothing of what it is told
    exec->kill();
    throw;
  }
  if (exec->refusal()) throw *exec->refusal();
}

// Each is in the text and in the structure, with escapes.
uint64_t memory_of_result(uint64_t kept_bytes) { return 8 * std::min(kept_bytes, kMostOutput); }

std::string ending_text(const ExecAnswer& answer) {
  switch (answer.outcome) {
    case Outcome::kExited:
      return "exit code " + std::to_string(answer.exit_code.value_or(-1));
    case Outcome::kUnknown:
      return "its outcome is not known: " + answer.reason;
    case Outcome::kSignaled:
      return "ended by " + signal_name(answer.signal);
    case Outcome::kTimedOut:
      return "timed out after " + std::to_string(static_cast<int64_t>(answer.duration_ms / 1000)) +
             " s; give timeout_sec for more";
    case Outcome::kOomKilled:
      return "killed: out of memory";
    default:
      return std::string(outcome_name(answer.outcome));
  }
}

ToolResult exec_result(const LongExec& exec) {
  const ExecAnswer& answer = exec.answer();
  const KeptOutput kept = kept_of(exec);
  const bool truncated = kept.out.size() < answer.stdout_bytes || kept.error.size() < answer.stderr_bytes;
  ToolResult result;
  result.is_error = answer.outcome != Outcome::kExited || answer.exit_code != 0;
  result.structured = "{\"exec_id\":";
  append_json_string(result.structured, answer.exec_id);
  append_output(result.structured, "stdout", kept.out);
  append_output(result.structured, "stderr", kept.error);
  append_end(result.structured, answer, truncated);
  result.structured += '}';
  result.text = for_a_model(kept.out);
  const auto new_line = [&] {
    if (!result.text.empty() && !result.text.ends_with('\n')) result.text += '\n';
  };
  if (!kept.error.empty()) {
    new_line();
    result.text.append("[stderr]\n").append(for_a_model(kept.error));
  }
  new_line();
  if (truncated) result.text += "[the beginning of the output is left out]\n";
  result.text.append("[").append(ending_text(answer)).append("]");
  return result;
}

std::span<const Tool> exec_tools() { return kExecTools; }

}  // namespace isogate::front::mcp
