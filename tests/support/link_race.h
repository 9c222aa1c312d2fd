// The race of CVE-2018-15664: a directory that keeps turning into a link while calls go through it.
#pragma once

#include "tests/support/api.h"

namespace isogate::test {

struct LinkRace {
  int tries = 0;        // calls through the directory
  int inside = 0;       // reads that met the directory
  int held = 0;         // reads that met a link, and were refused
  std::string escaped;  // what was read or made outside of the sandbox: has to stay empty
};

// A program of the caller's swaps `d` with links that lead out, by absolute path and by `..`, while reads,
// writes, uploads, removals and new directories go through <prefix>d. Where they lead there are files on this
// host, and, unless `more` has a scope that reaches it, the same in the sandbox, outside of its workspace:
// who resolves the links may be on either side. For a moment; 100,000 calls where slow_tests(). Any thread;
// throws std::runtime_error when the race cannot be run.
LinkRace race_links(const Caller& me, const std::string& prefix = "", const Json& more = Json::object());

}  // namespace isogate::test
