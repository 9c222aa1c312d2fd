// An Engine's description of one container, as this backend uses it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "plugins/docker/client/engine.h"
#include "plugins/docker/container/profile.h"

namespace isogate::docker {

struct ContainerState {
  bool exists = false, running = false, paused = false, ours = false, out_of_memory = false;
  int pid = 0;
  int64_t exit_code = 0;
  std::string id, name, started_at, shape;
  std::string health;                     // "healthy", …; empty: nobody checks it
  std::map<std::string, int64_t> limits;  // engine_limits()
};

// Of an answer to `inspect`. `ours`: it has exactly the labels of `owner`. Throws ISOGATE_UNAVAILABLE for
// what is not understood. Pure.
ContainerState state_of(const Json& inspected, const Owner& owner);

// The same of the container with that id or name. Any thread.
ContainerState look_at(Engine& engine, const Owner& owner, const std::string& which, const Budget& budget);

// How it ended, in a few words; empty: it runs, or is paused.
std::string how_it_ended(const ContainerState& state);
// `how`, and whether the Engine reported an out-of-memory kill in it at some time; the kill need not be the
// cause of its end.
std::string with_memory(const std::string& how, bool out_of_memory);

}  // namespace isogate::docker
