// The race of CVE-2018-15664: a directory that keeps turning into a link while calls go through it.
#pragma once

#include "tests/support/api.h"

namespace isogate::test {

struct LinkRace {
  int tries = 0;        // calls through the directory
  int inside = 0;       // reads that met the directory
  int held = 0;         // reads that met a link, and were refused
  std::string escaped;  // what was read or created outside of the sandbox: must stay empty
};

// A program of the caller swaps `d` with links that lead out, by absolute path and by `..`, while reads,
// writes, uploads, removals and new directories go through <prefix>d. At the links' targets there are files
// on this host, and, unless `more` has a scope that reaches them, the same files in the sandbox outside of
// its workspace, because either side may resolve the links. It lasts a moment; 100,000 calls with
// slow_tests(). Any thread; throws std::runtime_error if the race cannot be run.
LinkRace race_links(const Caller& me, const std::string& prefix = "", const Json& more = Json::object());

}  // namespace isogate::test
