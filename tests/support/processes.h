// Other processes as /proc shows them: the gateway's own, and what agents left behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/gateway.h"

namespace isogate::test {

bool alive(pid_t pid);  // false for a zombie, too
// All its threads: SIGSTOP is sent before the last one has stopped. Also of one that has ended.
bool stands_still(pid_t pid);
std::vector<pid_t> children_of(pid_t pid);
std::vector<pid_t> descendants_of(pid_t pid);
std::string command_line(pid_t pid);                           // spaces between; empty: no such process
std::string status_field(pid_t pid, const std::string& name);  // of /proc/<pid>/status; empty: none
long resident_kib(pid_t pid);                                  // VmRSS; -1: no such process
// What a process may take: under a sanitizer, which keeps freed memory for a while, 64 times as much.
long kib_bound(long kib);
std::vector<std::pair<int, std::string>> open_files(pid_t pid);  // descriptor and what it links to

// The gateway's own processes; -1: there is none (now).
pid_t front_of(const Gateway& gateway);
pid_t host_of(const Gateway& gateway, const std::string& backend);

// The directory of a backend host's groups in one hierarchy. Its name has the host's pid, which a host in
// another PID namespace may have, too: the inode tells them apart.
struct GroupBase {
  std::string path;
  ino_t inode;
};
std::vector<GroupBase> group_bases_of(pid_t host);
bool there(const GroupBase& base);

// A number that occurs in no other command line: `sleep <mark>` is found by it.
std::string new_mark();
// What does not end by itself, nor of a polite signal, nor with its parent; each process of it has the mark.
std::vector<std::string> stubborn_commands(const std::string& mark);
// Who has it in its command line, besides this process.
std::vector<pid_t> marked(const std::string& mark);
bool gone_within(double seconds, const std::string& mark);
bool there_within(double seconds, const std::string& mark, size_t count = 1);

bool is_root();
// Why a gateway of root cannot be started here; empty: it can.
std::string root_gateway_obstacle();
// Why one with the backend `namespace` cannot; empty: it can.
std::string namespace_obstacle();
// Runs this with another effective user in a thread of its own: files and sockets are reached as that user.
void as_user(uid_t uid, const std::function<void()>& work);

}  // namespace isogate::test
