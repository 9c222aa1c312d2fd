// Programs in the sandbox, as tools of MCP.
#include <algorithm>
#include <charconv>

#include "gateway/front/api/exec_json.h"
#include "gateway/front/api/execs.h"
#include "gateway/front/api/files.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/long_execs.h"
#include "gateway/front/exec/long_execs.h"
#include "gateway/front/mcp/tools.h"
#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::json;
using LongExecPtr = std::shared_ptr<LongExec>;

// Clients of MCP give a call 60 s, and what they take of one answer is less than 1 MiB.
constexpr double kTimeout = 50;
constexpr uint64_t kOutput = 65536, kMostOutput = 131072;
constexpr std::chrono::milliseconds kTellEvery{500};
constexpr size_t kMostTold = 2000;

// To its end, or until the client leaves, which ends it.
Task<void> follow(ToolCall& call, const LongExecPtr& exec) {
  bool gone = false;
  Killer& client = call.exchange.watch_client();
  client.on_kill([&gone, exec] {
    gone = true;
    exec->kill();
    exec->changes().notify();
  });
  uint64_t told = 0;
  const auto over = [&] { return exec->ended() || gone; };
  while (!co_await exec->changes().until(over, kTellEvery)) {
    const Spool& out = exec->output(false);
    if (!call.progress || out.next() == told) continue;
    std::string text(out.from(std::max(told, out.first())));
    told = out.next();
    if (text.size() > kMostTold) text.erase(0, text.size() - kMostTold);
    trim_cut_beginning(text);
    trim_cut_end(text);
    co_await call.progress(text);
  }
  client.on_kill({});
  if (gone) throw ClientGone{};
  if (exec->refusal()) throw *exec->refusal();
}

Task<LongExecPtr> start(ToolCall& call, json request, size_t kept_bytes, bool stays) {
  ParsedExec parsed = parse_exec(request, call.app.config.exec, call.app.config.shell);
  parsed.spec.tenant = call.exchange.principal.tenant;
  parsed.spec.agent = call.agent;
  parsed.spec.call.call.request_id = call.exchange.request_id;
  if (parsed.stdin_text) {
    std::string bytes = co_await decode_field(call.app.elsewhere, call.exchange, "stdin",
                                              std::move(*parsed.stdin_text), parsed.stdin_encoding);
    parsed.spec.stdin_bytes = std::make_shared<const std::string>(std::move(bytes));
  }
  MemoryShare memory(call.app.memory, call.exchange.principal.tenant);
  memory.hold(parsed.spec.bytes());
  const LongExec::Terms terms{.kept_bytes = kept_bytes, .stdin_open = false, .pty = false};
  auto exec = co_await start_exec(call.app, call.exchange, std::move(parsed.spec), terms, std::move(memory));
  if (exec->refusal()) throw *exec->refusal();
  if (stays)
    call.app.long_execs->add(exec,
                             std::chrono::seconds(static_cast<int64_t>(call.app.config.exec.keep_ended_sec)));
  co_return exec;
}

KeptOutput kept_of(const LongExec& exec) {
  KeptOutput kept{exec.output(false).text(), exec.output(true).text()};
  if (exec.output(false).first() > 0) trim_cut_beginning(kept.out);
  if (exec.output(true).first() > 0) trim_cut_beginning(kept.error);
  return kept;
}

void append_output(std::string& to, std::string_view name, std::string_view bytes) {
  const bool as_text = goes_as_text(bytes);
  to.append(",\"").append(name).append("\":");
  append_json_string(to, as_text ? std::string(bytes) : base64_encode(bytes));
  to.append(",\"").append(name).append(as_text ? "_encoding\":\"utf-8\"" : "_encoding\":\"base64\"");
}

std::string for_a_model(std::string_view bytes) {
  return is_utf8(bytes) ? std::string(bytes)
                        : "[" + std::to_string(bytes.size()) + " bytes that are no text]";
}

std::string ending_text(const ExecAnswer& answer) {
  const std::string name(outcome_name(answer.outcome));
  if (answer.outcome == Outcome::kExited) return "exit code " + std::to_string(answer.exit_code.value_or(-1));
  if (answer.outcome == Outcome::kUnknown) return "its outcome is not known: " + answer.message;
  return name;
}

ToolResult result_of(const LongExec& exec) {
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

Task<ToolResult> exec(ToolCall& call) {
  json request = call.arguments;
  request.erase("agent_id");
  const uint64_t output = count_field(request, "max_output_bytes", 0, kMostOutput).value_or(kOutput);
  request.erase("max_output_bytes");
  if (!number_field(request, "timeout_sec"))
    request["timeout_sec"] = std::min<double>(kTimeout, call.app.config.exec.max_timeout_sec);
  const auto exec = co_await start(call, std::move(request), output, false);
  co_await follow(call, exec);
  call.exchange.memory.add(6 * output);  // the texts that are made of it
  co_return result_of(*exec);
}

// ---- search

constexpr uint64_t kMatches = 200, kMostMatches = 1000;
constexpr size_t kMostLine = 500, kSearched = 1 << 20;
// The names of its arguments are its own. What ends the pipe early is that enough was found.
constexpr const char* kSearch = "grep -rnHI $1 -e \"$2\" -- \"$3\" | head -n \"$4\"";

struct Match {
  std::string_view path, line, text;
};

// PATH:LINE:TEXT, where a path may have colons of its own, but none with digits behind it and another one.
std::optional<Match> match_in(std::string_view text) {
  for (size_t at = text.find(':'); at != std::string_view::npos; at = text.find(':', at + 1)) {
    const size_t end = text.find_first_not_of("0123456789", at + 1);
    if (end == at + 1 || end == std::string_view::npos || text[end] != ':') continue;
    return Match{text.substr(0, at), text.substr(at + 1, end - at - 1), text.substr(end + 1)};
  }
  return std::nullopt;
}

std::string line_text(std::string_view text) {
  const bool cut = text.size() > kMostLine;
  return is_utf8(text) ? std::string(utf8_prefix(text, kMostLine)) + (cut ? "…" : "")
                       : printable(text, kMostLine);
}

Task<ToolResult> search(ToolCall& call) {
  const auto pattern = text_field(call.arguments, "pattern");
  if (!pattern || pattern->empty()) throw invalid_request("`pattern` is missing or empty");
  const uint64_t limit = count_field(call.arguments, "limit", 1, kMostMatches).value_or(kMatches);
  std::string flags = bool_field(call.arguments, "regex").value_or(false) ? "-E" : "-F";
  if (bool_field(call.arguments, "ignore_case").value_or(false)) flags += " -i";
  const std::string path = text_field(call.arguments, "path").value_or(".");
  check_path("path", path);
  json request = {{"argv",
                   {call.app.config.shell, "-c", kSearch, "search", flags, *pattern,
                    path.empty() ? "." : path, std::to_string(limit + 1)}},
                  {"timeout_sec", std::min<double>(kTimeout, call.app.config.exec.max_timeout_sec)}};
  const auto exec = co_await start(call, std::move(request), kSearched, false);
  co_await follow(call, exec);
  if (exec->answer().outcome != Outcome::kExited)
    throw ApiError{.code = Code::kRequestTimeout,
                   .message = "the search did not end: " + ending_text(exec->answer()) +
                              "; search a part of the workspace by `path`"};
  const std::string out = exec->output(false).text(), error = exec->output(true).text();
  if (out.empty() && !error.empty()) throw invalid_request("cannot search: " + printable(error, 300));
  ToolResult result;
  result.structured = "{\"matches\":[";
  uint64_t count = 0;
  bool truncated = exec->output(false).first() > 0;
  for (std::string_view rest = out; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const auto match = match_in(line);
    if (!match) continue;
    if (count == limit) {
      truncated = true;
      break;
    }
    if (count++ > 0) result.structured += ',';
    std::string_view file = match->path;
    if (file.starts_with("./")) file.remove_prefix(2);
    const std::string name = printable(file, 4096), text = line_text(match->text);
    result.structured += "{\"path\":";
    append_json_string(result.structured, name);
    result.structured.append(",\"line\":").append(match->line).append(",\"text\":");
    append_json_string(result.structured, text);
    result.structured += '}';
    result.text.append(name).append(":").append(match->line).append(":").append(text).append("\n");
  }
  call.exchange.memory.add(out.size() + result.text.size() + result.structured.size());
  result.structured += truncated ? "],\"truncated\":true}" : "],\"truncated\":false}";
  if (count == 0) result.text = "[no match]\n";
  if (truncated) result.text += "[there are more]\n";
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
  "max_output_bytes": {"type": "integer", "minimum": 0, "maximum": 131072,
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
constexpr std::string_view kSearchInput = R"({"properties": {
  "pattern": {"type": "string", "description": "a text, or with `regex` an extended regular expression"},
  "path": {"type": "string", "description": "a file or a directory; left out: the workspace"},
  "regex": {"type": "boolean"},
  "ignore_case": {"type": "boolean"},
  "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "matches at most; 200 when left out"}},
  "required": ["pattern"]})";
constexpr std::string_view kSearchOutput = R"({"properties": {
  "matches": {"type": "array", "items": {"type": "object", "properties": {
    "path": {"type": "string"}, "line": {"type": "integer"}, "text": {"type": "string"}},
    "required": ["path", "line", "text"]}},
  "truncated": {"type": "boolean"}},
  "required": ["matches", "truncated"]})";

constexpr Tool kTools[] = {
    {.name = "exec",
     .title = "Run a program",
     .description =
         "Runs a program in the sandbox to its end. What it starts ends with it. The end of its output is "
         "the result; an exit code that is not 0 is an error.",
     .input = kExecInput,
     .output = kExecOutput,
     .destroys = true,
     .call = exec},
    {.name = "search_files",
     .title = "Search in files",
     .description = "Finds the lines of the sandbox's text files that have a text, with grep.",
     .input = kSearchInput,
     .output = kSearchOutput,
     .reads_only = true,
     .idempotent = true,
     .call = search},
};

}  // namespace

std::span<const Tool> exec_tools() { return kTools; }

}  // namespace isogate::front::mcp
