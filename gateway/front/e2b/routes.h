// The rows of the E2B listener, each beside its handlers.
#pragma once

#include <span>

#include "gateway/front/api/router.h"

namespace isogate::front::e2b {

std::span<const Route> control_routes();
// These need the sandbox's token: the listener sets it.
std::span<const Route> process_routes();
std::span<const Route> filesystem_routes();
std::span<const Route> file_routes();

}  // namespace isogate::front::e2b
