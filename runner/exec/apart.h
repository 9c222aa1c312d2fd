// Runs ordinary code in a process of its own that shares this one's memory and descriptors, so that it may
// enter other namespaces without taking the rest of this process along.
//
// The calling thread is suspended until the code returns and lends it its thread-local storage: locks,
// allocation and exceptions work as they would on that thread. Namespaces, working directory, root directory
// and identity are the child's own and go with it; what it opens stays. It must not change signals, end the
// process or start threads.
#pragma once

#include <functional>

#include "lib/fd.h"

namespace isogate {

// What `work` answers, or why it could not be run. Exceptions become ISOGATE_INTERNAL. Any thread.
Result<void> run_apart(const std::function<Result<void>()>& work);

// A user namespace in which this process's user and group are all there is, under their own numbers: what an
// ordinary user may make where the kernel lets him. Any thread.
Result<Fd> make_user_namespace();

}  // namespace isogate
