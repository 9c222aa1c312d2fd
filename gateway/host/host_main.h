// The role `isogate _host`: the process that loads one backend's plugin and runs its calls.
//
// It finds its control socket to the supervisor at descriptor 3 and does, in this order: take the start
// message; check and copy the plugin file; describe it in a quarantined child; give up every privilege
// that plugin does not need; load, check the configuration, create; send Hello to the front and ready to
// the supervisor; serve. When the front or the supervisor ends, or the supervisor sends stop, it cancels
// what runs, closes every sandbox, destroys the backend and ends with 0.
// Exit codes: 0, 3 after {"type":"failed"} (permanent until a reload), 1 for anything else, also after a
// "failed" for a shortage.
#pragma once

namespace isogate {

int host_main();

}  // namespace isogate
