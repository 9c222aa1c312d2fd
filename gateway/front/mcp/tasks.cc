#include "gateway/front/mcp/tasks.h"

#include "gateway/front/api/access.h"
#include "gateway/front/exec/long_execs.h"
#include "gateway/front/http/json_answer.h"
#include "gateway/front/mcp/tools.h"
#include "lib/clock.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kPollMs = 1000;

std::string_view status_of(const LongExec& exec) {
  if (!exec.has_result()) return "working";
  if (exec.refusal()) return "failed";
  return exec.answer().outcome == Outcome::kKilled ? "cancelled" : "completed";
}

// What holds of it now. It is kept for at least so long after its end.
ordered_json task_json(const App& app, const LongExec& exec) {
  const ExecAnswer& answer = exec.answer();
  const bool ended = status_of(exec) != "working";
  const int64_t changed = answer.started_ms + (ended ? static_cast<int64_t>(answer.duration_ms) : 0);
  return {{"taskId", answer.exec_id},
          {"status", status_of(exec)},
          {"createdAt", utc_text_of_ms(answer.started_ms)},
          {"lastUpdatedAt", utc_text_of_ms(changed)},
          {"ttlMs", static_cast<int64_t>(app.config.exec.keep_ended_sec * 1000)},
          {"pollIntervalMs", kPollMs}};
}

// The members of an object without its braces.
std::string inside(const ordered_json& object) {
  const std::string text = json_text(object);
  return text.substr(1, text.size() - 2);
}

std::string task_now(App& app, const LongExec& exec) {
  std::string text = "{" + modern_members(false) + inside(task_json(app, exec));
  const std::string_view status = status_of(exec);
  if (status == "failed")
    text += ",\"error\":" +
            json_text({{"code", RpcError::kInternal}, {"message", refused(*exec.refusal()).text}});
  if (status == "completed") text += ",\"result\":" + result_text(exec_result(exec), true);
  return text + "}";
}

// A connection that names an agent is for that one alone.
bool is_for(const Exchange& exchange, const std::string& agent) {
  try {
    return agent_of(exchange, false, agent) == agent;
  } catch (const ApiError&) {
    return false;
  }
}

}  // namespace

std::string task_begun(const App& app, const LongExec& exec) {
  return R"({"resultType":"task",)" + inside(task_json(app, exec)) + "}";
}

std::string answer_of_task(App& app, Exchange& exchange, const Message& message) {
  if (!message.takes_tasks)
    throw RpcError{
        .code = RpcError::kCapability,
        .message = "tasks need a client that declares " + std::string(kTasksExtension),
        .data = {{"requiredCapabilities", {{"extensions", {{kTasksExtension, ordered_json::object()}}}}}}};
  const auto id = message.params.find("taskId");
  const bool named = id != message.params.end() && id->is_string();
  auto exec =
      named ? app.long_execs->find(exchange.principal.tenant, id->get_ref<const std::string&>()) : nullptr;
  if (exec && !is_for(exchange, exec->agent())) exec = nullptr;
  if (!exec)
    throw RpcError{.code = RpcError::kParams,
                   .message = named ? "there is no such task, or it is forgotten" : "`taskId` is missing"};
  if (message.method == "tasks/get") {
    if (status_of(*exec) == "completed")
      exchange.memory.add(memory_of_result(exec->output(false).end().most()));
    return task_now(app, *exec);
  }
  if (message.method == "tasks/cancel") exec->kill();
  return "{" + modern_members(false).erase(modern_members(false).size() - 1) + "}";
}

}  // namespace isogate::front::mcp
