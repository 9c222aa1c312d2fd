// Failures of a cluster. Their reason() is the API server's, and their message never holds a token, a key or
// the output of a credential plugin.
#pragma once

#include <string>
#include <string_view>

#include "lib/net/net_error.h"

namespace isogate::k8s {

using net::NetError;
using net::one_line;

// An answer other than the wanted one, a Status object as a rule: "cannot `attempt`: the API server answered
// 409 AlreadyExists: …". 404 NotFound is ISOGATE_NOT_FOUND and 409 AlreadyExists ISOGATE_ALREADY_EXISTS;
// other 404s and 409s, 410, 429 and 5xx are ISOGATE_UNAVAILABLE; 401 and 403 ISOGATE_PERMISSION_DENIED; 400,
// 413 and 422 ISOGATE_INVALID_ARGUMENT. `name`: of the requested object; a 404 of anything else, for example
// its namespace, says nothing about it and is ISOGATE_UNAVAILABLE. Empty: no object.
NetError refusal(const std::string& attempt, int http_status, std::string_view body,
                 std::string_view name = {});

}  // namespace isogate::k8s
