// Which entries of a tree are left out of a copy. Pure functions.
//
// A pattern consists of components between slashes. `*`, `?` and `[…]` are those of fnmatch(3) and stay
// within one component; a component `**` matches any number of components, also none. A pattern without a
// slash (except one at its end) matches names at any depth; any other one matches whole paths from the top of
// the tree, with or without a leading slash. With a slash at its end it matches only directories. `dir/**`
// matches everything in `dir`, but not `dir`. Everything below an excluded entry is excluded, and never read.
// A pattern cannot include again: a leading `!` is refused.
#pragma once

#include <string>
#include <vector>

namespace isogate::docker {

// Empty: it is a valid pattern. Else what is wrong with it, as a continuation after its name.
std::string why_no_pattern(const std::string& pattern);

// `path`: relative to the top, without `.` and empty components.
bool is_excluded(const std::vector<std::string>& patterns, const std::string& path, bool directory);

}  // namespace isogate::docker
