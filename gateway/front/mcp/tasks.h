// Execs that outlive their call, as tasks of MCP's extension: a task's id is its exec_id, and any
// long-lived exec of the tenant can be queried as one. The front's one thread.
#pragma once

#include <string>

#include "gateway/front/app.h"
#include "gateway/front/exec/long_exec.h"
#include "gateway/front/http/exchange.h"
#include "gateway/front/mcp/rpc.h"

namespace isogate::front::mcp {

// The result of the call that began it.
std::string task_begun(const App& app, const LongExec& exec);
// The result of a task method. Throws RpcError.
std::string answer_of_task(App& app, Exchange& exchange, const Message& message);

}  // namespace isogate::front::mcp
