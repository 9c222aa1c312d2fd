// Which entries of a tree are left out of a copy. Pure functions.
//
// A pattern is of components between slashes. `*`, `?` and `[…]` are those of fnmatch(3) and stay within one
// component; a component `**` stands for any number of them, also none. A pattern without a slash (one at its
// end aside) is for names at any depth; any other one is for whole paths from the top of the tree, a slash in
// front or not. With a slash at its end it is for directories alone. `dir/**` takes all that is in `dir`, and
// leaves `dir`. What is below an entry that is left out is left out with it, and never looked at. There is no
// way back in: `!` in front is refused.
#pragma once

#include <string>
#include <vector>

namespace isogate::docker {

// Empty: it is a pattern. Else what is wrong with it, in words that go on after its name.
std::string why_no_pattern(const std::string& pattern);

// `path`: relative to the top, without `.` and empty components.
bool is_excluded(const std::vector<std::string>& patterns, const std::string& path, bool directory);

}  // namespace isogate::docker
