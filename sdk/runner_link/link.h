// RunnerLink with a patience of the caller's choice, for tests.
#pragma once

#include "connection.h"

namespace isogate::sdk::link {

std::shared_ptr<RunnerLink> connect(std::unique_ptr<RunnerStream> stream, std::chrono::milliseconds patience,
                                    const Call& call, Patience calls);

}  // namespace isogate::sdk::link
