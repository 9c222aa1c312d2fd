// Files and System V objects that programs leave in memory: they count towards the container's memory
// limit and could kill the next program.
#pragma once

#include <string>

namespace isogate::agent {

// Removes what this user has in the directory `scratch`, and its System V shared memory, message queues and
// semaphores: for the only runner of a container that alone uses both, while no program runs. After a tenth
// of a second the rest stays for the next call. Any thread.
void remove_leftovers(const std::string& scratch);

}  // namespace isogate::agent
