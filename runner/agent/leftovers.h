// What programs leave in memory when the last of them has ended: it counts towards the container's memory
// limit and would kill the next program.
#pragma once

#include <string>

namespace isogate::agent {

// Removes what this user has in the directory `scratch`, and its System V shared memory, message queues and
// semaphores: for a process that has both for its container alone, while no program runs. What takes longer
// than a tenth of a second stays for the next time. Any thread.
void remove_leftovers(const std::string& scratch);

}  // namespace isogate::agent
