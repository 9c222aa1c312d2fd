// Runs ordinary code in a separate process that shares this one's memory and descriptors, so that it can
// enter other namespaces without the rest of this process.
//
// The calling thread is suspended until the code returns and lends it its thread-local storage: locks,
// allocation and exceptions work as they would on that thread. Namespaces, working directory, root directory
// and identity belong to the child and end with it; what it opens stays. It must not change signals, end the
// process or start threads.
#pragma once

#include <functional>

#include "lib/fd.h"

namespace isogate {

// The result of `work`, or why it could not run. Exceptions become ISOGATE_INTERNAL. Any thread.
Result<void> run_apart(const std::function<Result<void>()>& work);

// A user namespace with only this process's user and group, under their own numbers: an ordinary user may
// make it if the kernel permits. Any thread.
Result<Fd> make_user_namespace();

}  // namespace isogate
