// The nesting depth of untrusted JSON, checked before it is parsed: recursive copies, comparisons or
// output could otherwise exhaust the stack.
#pragma once

#include <string_view>

namespace isogate {

// Not deeper than 200. Pure; does not check whether it is valid JSON.
bool is_shallow(std::string_view json);

}  // namespace isogate
