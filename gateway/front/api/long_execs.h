// POST /exec with `background` or `wait_sec`. The calls on a long-lived exec are in the source. The front's
// one thread.
#pragma once

#include "gateway/front/api/execs.h"
#include "gateway/front/app.h"
#include "gateway/front/exec/long_exec.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front {

// Starts it, and waits until its backend may have it, or it has ended. A client that leaves before then ends
// it. Nobody finds it before keep_exec(). Throws ClientGone.
Task<std::shared_ptr<LongExec>> start_exec(App& app, Exchange& exchange, ExecSpec spec,
                                           const LongExec::Terms& terms, ByteShare memory);

// Where it was taken: from now on it is found by its exec_id, until some time after its end.
void keep_exec(App& app, const std::shared_ptr<LongExec>& exec);

// Starts it, waits for its end so long, and answers: 200 with its result, 202 with its state.
Task<void> start_long_exec(App& app, Exchange& exchange, ParsedExec parsed);

}  // namespace isogate::front
