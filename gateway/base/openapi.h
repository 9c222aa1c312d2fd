// docs/openapi.json, as it was when this binary was built. Static storage, any thread.
#pragma once

#include <string_view>

namespace isogate {

std::string_view openapi_json();

}  // namespace isogate
