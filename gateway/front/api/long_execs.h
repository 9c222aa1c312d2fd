// POST /exec with `background` or `wait_sec`. The calls on a long-lived exec are in the source. The front's
// one thread.
#pragma once

#include "gateway/front/api/execs.h"
#include "gateway/front/app.h"
#include "gateway/front/exec/long_exec.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front {

// Starts it, and waits until it is sent to its backend, or has ended. A client that disconnects before then
// ends it. No call finds it before keep_exec(). `also`: bytes that are held beside the spec. Throws ApiError,
// ClientGone.
Task<std::shared_ptr<LongExec>> start_exec(App& app, Exchange& exchange, ExecSpec spec, uint64_t also = 0);

// Of one that an earlier gateway started: waits until its backend has found it, and its output up to these
// offsets is there again, but no more than 10 s. False: it is not found by then. Throws ClientGone.
Task<bool> found_in_time(Exchange& exchange, std::shared_ptr<LongExec> exec, const Offsets& offsets = {});
// The same, and throws ApiError backend_unavailable if it is not found by then.
Task<void> wait_until_found(Exchange& exchange, std::shared_ptr<LongExec> exec, const Offsets& offsets = {});

// If it was taken: from now on calls find it by its exec_id, until some time after its end.
void keep_exec(App& app, const std::shared_ptr<LongExec>& exec);

// Starts it, waits that long for its end, and responds: 200 with its result, 202 with its state.
Task<void> start_long_exec(App& app, Exchange& exchange, ParsedExec parsed);

}  // namespace isogate::front
