// `isogate-runner reach TARGET…`: which addresses answer from here, tried by our own program before any
// tenant's. A refusal is also an answer: a packet got out and another came back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/error.h"

namespace isogate::agent {

enum class Reached { silent, refused, connected, untried };

struct Target {
  std::string address;  // numeric
  uint32_t port = 0;
};

// The first hops of default routes, numeric, a link-local one as fe80::1%eth0. Pure: of /proc/net/route and
// of /proc/net/ipv6_route.
std::vector<std::string> first_hops(std::string_view routes, std::string_view routes6);
// The same of this process. Error: its routes cannot be read.
Result<std::vector<std::string>> first_hops();

// "10.0.0.1:443", "[fd00::1]:443"; "hop:10250" is each of `hops` (none: nothing).
Result<std::vector<Target>> parse_targets(const std::vector<std::string>& texts,
                                          const std::vector<std::string>& hops);

// Tries all at once, within half a second. Silent: nothing came back, or there is no route, or the kernel
// does not have that address family. Untried: this program could not try it, but another program might.
std::vector<Reached> reach(const std::vector<Target>& targets);

// A line on stdout for each target. Exit code 0: all are silent, 10: one is not, 11: that is not known, 2:
// wrong arguments.
int report_reached(const std::vector<std::string>& texts);

}  // namespace isogate::agent
