// The role `isogate _front`: everything that faces the network, with no privilege and no plugin code.
#pragma once

namespace isogate {

// Talks to the supervisor over descriptor 3. The process's exit code.
int front_main();

}  // namespace isogate
