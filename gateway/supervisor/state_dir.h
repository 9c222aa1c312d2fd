// The state directory: made at the first start, checked at every start, held by one gateway at a time.
//
//   <state-dir>/   0711 root's (0700 where an ordinary user started the gateway)
//     front/       0700, the front's: its database
//     sandboxes/   0711 root's: the agents' files; elsewhere when `workdir` is set
//     uids/        0700 root's: which uid belongs to which sandbox
//     run/         0700 root's: a directory per backend host with its copy of the plugin, emptied at start
//     lock         0600, flock(2) and the pid of its holder
//     local.key    0600, local_key.h
//     isogate.sock 0600, listeners.h
#pragma once

#include <string>

#include "gateway/supervisor/accounts.h"
#include "lib/fd.h"

namespace isogate::supervisor {

struct StateDir {
  std::string path, sandboxes, uids, run;
  Fd root;  // a directory descriptor of `path`
  Fd lock;
  Fd sandboxes_lock;  // a directory descriptor of `sandboxes`, with its flock(2)
};

// An existing directory that is a symlink, belongs to somebody else or has another mode is refused; the
// message ends with the command that corrects it. The error of a second gateway names the pid of the first.
// So are a second gateway with the same state directory and one with the same directory of sandboxes
// (`workdir`).
Result<StateDir> prepare_state_dir(const Config& config, const Accounts& accounts);

// Whether prepare_state_dir() would refuse what is there. Makes nothing and takes no lock.
Result<void> check_state_dir(const Config& config, const Accounts& accounts);

// Creates <run>/<name> for one backend host and returns its path; removes what an earlier one left
// there.
Result<std::string> make_plugin_copy_dir(const StateDir& state, const std::string& name);
void remove_plugin_copy_dir(const StateDir& state, const std::string& name);

}  // namespace isogate::supervisor
