// grep, as a tool of MCP.
#include <algorithm>
#include <charconv>

#include "gateway/front/api/files.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/mcp/matches.h"
#include "gateway/front/mcp/tools.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::json;

constexpr double kSearchTimeout = 50;  // clients of MCP give a call 60 s
constexpr uint64_t kMatches = 200, kMostMatches = 1000;
constexpr size_t kSearched = 1 << 20, kMostPattern = 4096;
// $1 flags, $2 the pattern, $3 where, $4 how many lines. What ends the pipe early is that enough was found.
// How the others in the pipe ended is on stderr.
// What GNU's grep can do more, another one says it cannot.
constexpr const char* kSearch =
    "[ -e \"$3\" ] || { echo \"there is no such file\" >&2; exit 2; }; "
    "more=; [ -n \"$(grep -Z -D skip x /dev/null 2>&1)\" ] || more='-Z -D skip'; "
    "{ grep -rnHIs $more $1 -e \"$2\" -- \"$3\"; echo \"grep: ended $?\" >&2; } | "
    "{ cut -b 1-8192; echo \"cut: ended $?\" >&2; } | head -n \"$4\"";
constexpr std::string_view kUnread =
    "files were left out: the sandbox's user may not read them, or they were removed meanwhile";
constexpr std::string_view kEnded = "a program of the search was killed, or failed";

// What programs that begin in the workspace call it; it is theirs to follow its symlinks.
std::string within_workspace(const std::string& path) {
  constexpr std::string_view kWorkspace = "/workspace";
  check_path("path", path);
  std::string_view rest = path;
  if (rest == kWorkspace || rest.starts_with(std::string(kWorkspace) + "/")) {
    rest.remove_prefix(kWorkspace.size());
    rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
  }
  const std::string inside = "/" + std::string(rest) + "/";
  if (rest.starts_with('/') || inside.find("/../") != std::string::npos)
    throw invalid_request("`path` leads out of the workspace: search there with `exec` and grep");
  return "./" + std::string(rest);
}

// How one of the pipe ended, which leaves the line for it out of `error`; -1: it did not say so.
int end_of(std::string& error, std::string_view program) {
  const std::string opening = std::string(program) + ": ended ";
  const size_t at = error.rfind(opening);
  if (at == std::string::npos || (at > 0 && error[at - 1] != '\n')) return -1;
  const size_t end = std::min(error.find('\n', at), error.size());
  int status = -1;
  std::from_chars(error.data() + at + opening.size(), error.data() + end, status);
  error.erase(at, end - at + (end < error.size() ? 1 : 0));
  return status;
}

Task<ToolResult> search_files(ToolCall& call) {
  const auto pattern = text_field(call.arguments, "pattern");
  if (!pattern || pattern->empty()) throw invalid_request("`pattern` is missing or empty");
  if (pattern->size() > kMostPattern)
    throw invalid_request("`pattern` is longer than " + std::to_string(kMostPattern) + " bytes");
  if (pattern->find('\n') != std::string::npos)  // to grep each line of it is a pattern
    throw invalid_request("`pattern` must be one line: search for one line at a time");
  call.exchange.memory.add(3 * kSearched);  // what is made of its output
  const uint64_t limit = count_field(call.arguments, "limit", 1, kMostMatches).value_or(kMatches);
  std::string flags = bool_field(call.arguments, "regex").value_or(false) ? "-E" : "-F";
  if (bool_field(call.arguments, "ignore_case").value_or(false)) flags += " -i";
  const std::string path = within_workspace(text_field(call.arguments, "path").value_or(""));
  json request = {
      {"argv",
       {call.app.config.shell, "-c", kSearch, "search", flags, *pattern, path, std::to_string(limit + 1)}},
      {"timeout_sec", std::min<double>(kSearchTimeout, call.app.config.exec.max_timeout_sec)}};
  const auto exec = co_await start_for(call, std::move(request), kSearched);
  co_await follow(call, exec);
  if (exec->answer().outcome != Outcome::kExited)
    throw ApiError{.code = Code::kRequestTimeout,
                   .message = "the search did not end: " + ending_text(exec->answer()) +
                              "; search a part of the workspace by `path`"};
  const std::string out = exec->output(false).end().text();
  std::string error = exec->output(true).end().text();
  const int grep = end_of(error, "grep"), cut = end_of(error, "cut");
  if (out.empty() && !error.empty() && grep < 128) {
    std::string why = error.substr(0, error.find('\n'));
    throw invalid_request("cannot search: " + why);
  }
  const bool cut_off = exec->output(false).end().first() > 0;
  const bool more = cut_off || static_cast<uint64_t>(std::ranges::count(out, '\n')) > limit;
  const bool whole = more || (grep >= 0 && grep <= 2 && cut == 0 && exec->answer().exit_code == 0);
  const std::string_view missing = !whole ? kEnded : !more && grep == 2 ? kUnread : "";
  ToolResult result = matches_in(out, limit, cut_off, missing);
  result.is_error = !whole;
  co_return result;
}

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
  "truncated": {"type": "boolean", "description": "there are more"},
  "incomplete": {"type": ["string", "null"],
    "description": "why not all files were searched to their end; null: they were, as far as `truncated` says"}},
  "required": ["matches", "truncated", "incomplete"]})";

constexpr Tool kSearchTools[] = {
    {.name = "search_files",
     .title = "Search in files",
     .description = "Finds the lines of the sandbox's text files that have a text, with grep.",
     .input = kSearchInput,
     .output = kSearchOutput,
     .reads_only = true,
     .idempotent = true,
     .call = search_files},
};

}  // namespace

std::span<const Tool> search_tools() { return kSearchTools; }

}  // namespace isogate::front::mcp
