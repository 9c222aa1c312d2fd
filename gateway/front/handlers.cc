#include "gateway/front/handlers.h"

#include "gateway/front/http_text.h"
#include "gateway/front/names.h"
#include "gateway/front/text.h"

namespace isogate::front {

Task<void> handle(App& app, Exchange& exchange) {
  switch (exchange.route) {
    case Route::kExec:
      return handle_exec(app, exchange);
    case Route::kExecStream:
      return handle_exec_stream(app, exchange);
    case Route::kRead:
    case Route::kWrite:
    case Route::kList:
    case Route::kStat:
    case Route::kMkdir:
    case Route::kMove:
    case Route::kRemove:
      return handle_file_json(app, exchange);
    case Route::kFileGet:
    case Route::kFileHead:
      return handle_file_get(app, exchange);
    case Route::kFilePut:
      return handle_file_put(app, exchange);
    case Route::kFileDelete:
      return handle_file_delete(app, exchange);
    case Route::kSandboxList:
      return handle_sandbox_list(app, exchange);
    case Route::kSandboxDelete:
      return handle_sandbox_delete(app, exchange);
    case Route::kBackends:
      return handle_backends(app, exchange);
    case Route::kHealthz:
    case Route::kLivez:
    case Route::kReadyz:
      return handle_health(app, exchange);
    case Route::kMetrics:
      return handle_metrics(app, exchange);
    case Route::kOpenapi:
      return handle_openapi(app, exchange);
  }
  throw ApiError{.code = Code::kNotFound, .message = "no such call"};
}

std::string agent_of(const App& app, const Exchange& exchange, const std::optional<std::string>& in_body,
                     const std::optional<std::string>& in_env) {
  std::optional<std::string> agent;
  const auto take = [&agent](const std::string& next, const char* where) {
    if (!valid_agent_id(next)) {
      throw ApiError{
          .code = Code::kInvalidRequest,
          .message = std::string(where) + " `" + printable(next, 80) +
                     "` is not an agent id: a letter or digit, then at most 62 letters, digits, - or _"};
    }
    if (agent && *agent != next) {
      throw ApiError{
          .code = Code::kInvalidRequest,
          .message = "the request names two agents, `" + *agent + "` and `" + next + "`; give one"};
    }
    agent = next;
  };
  if (in_body) take(*in_body, "agent_id");
  if (!exchange.agent_param.empty()) take(exchange.agent_param, "the path's agent");
  if (exchange.has_header("X-Agent-Id")) take(std::string(exchange.header("X-Agent-Id")), "X-Agent-Id");
  if (in_env) take(*in_env, "env.AGENT_ID");
  if (agent) return *agent;
  if (app.config.multi_agent) {
    throw ApiError{.code = Code::kInvalidRequest,
                   .message = "agent_id is missing, and this gateway runs with multi_agent"};
  }
  return "default";
}

void require_json(const Exchange& exchange) {
  std::string_view type = exchange.header("Content-Type");
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  if (!equal_no_case(type, "application/json")) {
    throw ApiError{.code = Code::kUnsupportedMediaType,
                   .message = "send the body as Content-Type: application/json"};
  }
}

std::optional<std::string> query_parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) != name) continue;
    return percent_decode(equals == std::string_view::npos ? std::string_view{} : pair.substr(equals + 1))
        .value_or("");
  }
  return std::nullopt;
}

}  // namespace isogate::front
