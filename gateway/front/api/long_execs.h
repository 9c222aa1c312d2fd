// POST /exec with `background` or `wait_sec`. The calls on a long-lived exec are in the source. The front's
// one thread.
#pragma once

#include "gateway/front/api/execs.h"
#include "gateway/front/app.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front {

// Starts it, waits for its end so long, and answers: 200 with its result, 202 with its state.
Task<void> start_long_exec(App& app, Exchange& exchange, ParsedExec parsed);

}  // namespace isogate::front
