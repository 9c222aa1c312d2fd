// Failures of an Engine. http_status() and maybe_done() distinguish "nothing happened" from "contact was
// lost".
#pragma once

#include "lib/net/net_error.h"

namespace isogate::docker {

using net::NetError;
using net::one_line;

// An answer other than the wanted one: "cannot `attempt`: the Engine answered 409: …".
NetError refusal(const std::string& attempt, int http_status, std::string_view body);

}  // namespace isogate::docker
