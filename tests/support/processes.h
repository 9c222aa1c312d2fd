// Other processes, according to /proc: the gateway's own, and what agents left behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/gateway.h"

namespace isogate::test {

bool alive(pid_t pid);  // false for a zombie, too
// All its threads: SIGSTOP is sent before the last one has stopped. Also true for one that has ended.
bool stands_still(pid_t pid);
std::vector<pid_t> children_of(pid_t pid);
std::vector<pid_t> descendants_of(pid_t pid);
std::string command_line(pid_t pid);                           // spaces between; empty: no such process
std::string status_field(pid_t pid, const std::string& name);  // of /proc/<pid>/status; empty: none
long resident_kib(pid_t pid);                                  // VmRSS; -1: no such process
double cpu_seconds(pid_t pid);                                 // user and system; 0: no such process
// What a process may use: 64 times as much under a sanitizer, which keeps freed memory for a while.
long kib_bound(long kib);
std::vector<std::pair<int, std::string>> open_files(pid_t pid);  // descriptor and what it links to

// The gateway's own processes; -1: there is none (now).
pid_t front_of(const Gateway& gateway);
pid_t host_of(const Gateway& gateway, const std::string& backend);

// The directory of a backend host's groups in one hierarchy. Its name has the host's pid, which a host in
// another PID namespace may have, too: the inode distinguishes them.
struct GroupBase {
  std::string path;
  ino_t inode;
};
std::vector<GroupBase> group_bases_of(pid_t host);
bool there(const GroupBase& base);

// A number that occurs in no other command line: `sleep <mark>` is found by it.
std::string new_mark();
// Commands that end neither by themselves, nor on a signal they can catch, nor with their parent; each
// process has the mark.
std::vector<std::string> stubborn_commands(const std::string& mark);
// The processes with it in their command line, except this one.
std::vector<pid_t> marked(const std::string& mark);
bool gone_within(double seconds, const std::string& mark);
bool there_within(double seconds, const std::string& mark, size_t count = 1);

bool is_root();
// Why a gateway of root cannot be started here; empty: it can.
std::string root_gateway_obstacle();
// The same for the backend `namespace`.
std::string namespace_obstacle();
// Runs this in a separate thread with another effective user, which accesses files and sockets.
void as_user(uid_t uid, const std::function<void()>& work);

}  // namespace isogate::test
