// What grep found, as a tool's result. Its output is a tenant's: names and lines may be any bytes. Any
// thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "gateway/front/mcp/tools.h"

namespace isogate::front::mcp {

// Lines of PATH, a zero byte, LINE:TEXT, or PATH:LINE:TEXT; what is neither is left out. At most `limit`
// matches; `cut`: the output begins somewhere.
ToolResult matches_in(std::string_view output, uint64_t limit, bool cut);

}  // namespace isogate::front::mcp
