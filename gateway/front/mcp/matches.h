// The matches of grep, as a tool's result. The output is tenant data: names and lines may be any
// bytes. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "gateway/front/mcp/tools.h"

namespace isogate::front::mcp {

// Lines of PATH, a zero byte, LINE:TEXT, or PATH:LINE:TEXT; other lines are left out. At most `limit`
// lines; `cut`: the output may begin inside a line. `missing`: why files were not searched; empty: all
// were.
ToolResult matches_in(std::string_view output, uint64_t limit, bool cut, std::string_view missing = {});

}  // namespace isogate::front::mcp
