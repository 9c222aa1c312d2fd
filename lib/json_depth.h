// How deep JSON of anybody is nested, before it is parsed: what is copied, compared or written out by
// recursion could else use up the stack.
#pragma once

#include <string_view>

namespace isogate {

// Not deeper than 200. Pure; says nothing of whether it is JSON.
bool is_shallow(std::string_view json);

}  // namespace isogate
