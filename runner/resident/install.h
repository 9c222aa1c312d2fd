// `isogate-runner install DIR`: puts this very program into a directory, for a container that comes after
// this one.
#pragma once

#include <string>

#include "runner/error.h"

namespace isogate::resident {

// DIR/isogate-runner, mode 0111, so that nobody may trace it; what was there is replaced. Beside it the
// directory `closed`, mode 0, with an empty file `termination-log`: where DIR is mounted read-only afterwards
// no user but root gets to what a kubelet mounts there.
Result<void> install_into(const std::string& directory);

}  // namespace isogate::resident
