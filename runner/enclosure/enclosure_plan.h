// The raw half of an enclosure (enclosure.h): everything that a child needs to become the enclosure's init.
// Laid out before the child exists, shared by all children of one enclosure.
#pragma once

#include <cstddef>
#include <cstdint>

struct sock_fprog;

namespace isogate {

// What programs in any enclosure find as the name of their machine.
inline constexpr char kEnclosureHostName[] = "sandbox";

// A path below /proc, and what is mounted there in its place.
struct EnclosureCover {
  const char *path, *by;
};

struct EnclosurePlan {
  int user_fd = -1;                   // a user namespace to enter first; -1: this one
  int mounts_fd = -1;                 // the mount namespace to copy
  int cgroups_fd = -1;                // the cgroup namespace to enter; -1: a new one
  int network_fd = -1;                // the network namespace to enter
  int landlock_fd = -1;               // -1: this kernel has no Landlock
  int init_fd = -1;                   // the program to become
  const char* shm_options = nullptr;  // of the tmpfs at /dev/shm
  const EnclosureCover* covers = nullptr;
  size_t cover_count = 0;
  uint64_t bounding = ~uint64_t{0};  // what may still be in the bounding set
  const sock_fprog* filter = nullptr;
};

// Enters plan->user_fd and starts the child from there, as a child of this process: a pid namespace
// belongs to the user namespace in which it is made. As raw_clone. Raw code.
struct CloneRequest;
long raw_clone_in_user_namespace(const CloneRequest& request, int user_fd, void* stack, size_t stack_size);

struct SpawnPlan;

// Raw code, in the child: from clone to exec of the init. `reset`: signals that may not have their default
// disposition. Does not return.
void raw_enter_enclosure(const SpawnPlan& plan, uint64_t reset);

}  // namespace isogate
