// Raw code: see raw_syscall.h.
#include "runner/exec/tree/tree.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>

#include "runner/exec/raw_syscall.h"

namespace isogate {
namespace {

constexpr int kPids = 1 << 22;  // PID_MAX_LIMIT on 64 bits
constexpr int kListed = 2 * kPids;
constexpr int kRounds = 64;

struct Walk {  // lies in fresh, lazily touched, zeroed memory
  int root;
  bool stops;
  int listed;      // of this round; a process that changes its parent meanwhile appears twice
  bool found_new;  // in this round
  long blind;      // -errno of what could not be read although it is there
  uint8_t ever[kPids / 8];
  int list[kListed];
};

struct Text {  // a path under /proc
  char bytes[64];
  int length;
};

void append(Text& text, const char* more) {
  while (*more != '\0') text.bytes[text.length++] = *more++;
  text.bytes[text.length] = '\0';
}

void append(Text& text, int number) {
  char digits[12];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  while (count > 0) text.bytes[text.length++] = digits[--count];
  text.bytes[text.length] = '\0';
}

int number_in(const char* name) {  // 0: none
  int number = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9' || number >= kPids) return 0;
    number = number * 10 + (*name - '0');
  }
  return number;
}

long open_at(long directory, const char* path) {
  return raw::call(SYS_openat, directory, path, O_RDONLY | O_CLOEXEC, 0);
}

void excuse(Walk& walk, long error) {
  if (error < 0 && error != -ENOENT && error != -ESRCH) walk.blind = error;
}

// `name` of that process in /proc; negative: it cannot be opened.
long open_of(Walk& walk, int pid, const char* name) {
  Text path = {{0}, 0};
  append(path, "/proc/");
  append(path, pid);
  append(path, name);
  const long file = open_at(AT_FDCWD, path.bytes);
  excuse(walk, file);
  return file;
}

void note(Walk& walk, int pid) {
  if (pid <= 0 || pid >= kPids || walk.listed == kListed) return;
  if (walk.stops) raw::call(SYS_kill, pid, SIGSTOP);
  walk.list[walk.listed++] = pid;
  uint8_t& byte = walk.ever[pid / 8];
  const uint8_t bit = static_cast<uint8_t>(1u << (pid % 8));
  if ((byte & bit) == 0) walk.found_new = true;
  byte = static_cast<uint8_t>(byte | bit);
}

bool was_noted(const Walk& walk, int pid) {
  return pid == walk.root || (pid > 0 && pid < kPids && (walk.ever[pid / 8] & (1u << (pid % 8))) != 0);
}

// Calls visit(number) for every numeric name in the directory, which it then closes.
template <typename Visit>
void for_each_number(long directory, const Visit& visit) {
  alignas(8) char buffer[4096];
  for (;;) {
    const long size = raw::call(SYS_getdents64, directory, buffer, sizeof buffer);
    if (size <= 0) break;
    for (long at = 0; at < size;) {  // d_ino 8, d_off 8, d_reclen 2, d_type 1, d_name
      const char* const entry = buffer + at;
      const int number = number_in(entry + 19);
      if (number > 0) visit(number);
      at += *reinterpret_cast<const uint16_t*>(entry + 16);
    }
  }
  raw::call(SYS_close, directory);
}

void note_children(Walk& walk, long directory, int thread) {
  Text path = {{0}, 0};
  append(path, thread);
  append(path, "/children");
  const long file = open_at(directory, path.bytes);
  excuse(walk, file);
  if (file < 0) return;
  char buffer[1024];
  int pid = 0;
  for (;;) {
    const long size = raw::call(SYS_read, file, buffer, sizeof buffer);
    if (size <= 0) break;
    for (long i = 0; i < size; ++i) {
      if (buffer[i] >= '0' && buffer[i] <= '9') {
        pid = pid * 10 + (buffer[i] - '0');
      } else {
        note(walk, pid);
        pid = 0;
      }
    }
  }
  note(walk, pid);
  raw::call(SYS_close, file);
}

void visit_process(Walk& walk, int pid) {
  const long directory = open_of(walk, pid, "/task");
  if (directory < 0) return;
  for_each_number(directory, [&](int thread) { note_children(walk, directory, thread); });
}

int parent_of(Walk& walk, int pid) {
  const long file = open_of(walk, pid, "/stat");
  if (file < 0) return 0;
  char buffer[256];  // pid (comm) state ppid, comm at most 64 bytes
  const long size = raw::call(SYS_read, file, buffer, sizeof buffer);
  raw::call(SYS_close, file);
  long at = size - 1;
  while (at > 0 && buffer[at] != ')') --at;
  int parent = 0;
  for (at += 4; at < size && buffer[at] >= '0' && buffer[at] <= '9'; ++at) {
    parent = parent * 10 + (buffer[at] - '0');
  }
  return parent;
}

void walk_children(Walk& walk) {
  visit_process(walk, walk.root);
  for (int i = 0; i < walk.listed; ++i) visit_process(walk, walk.list[i]);
}

void walk_everything(Walk& walk) {
  const long proc = open_at(AT_FDCWD, "/proc");
  if (proc < 0) walk.blind = proc;
  if (proc < 0) return;
  for_each_number(proc, [&](int pid) {
    if (pid != walk.root && was_noted(walk, parent_of(walk, pid))) note(walk, pid);
  });
}

// The list is that of the last round, in which nothing new was found.
void walk_until_known(Walk& walk, TreeWalk how) {
  for (int round = 0; round < kRounds; ++round) {
    walk.listed = 0;
    walk.found_new = false;
    if (how == TreeWalk::children) {
      walk_children(walk);
    } else {
      walk_everything(walk);
    }
    if (!walk.found_new) break;
  }
}

// Calls visit(i, pid) for each of the last walk. How many there are, or -errno if a part of /proc could not
// be read.
template <typename Visit>
long for_each_descendant(int root, TreeWalk how, bool stop, const Visit& visit) {
  const long memory = raw::call(SYS_mmap, 0, sizeof(Walk), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory < 0 && memory > -4096) return memory;
  Walk& walk = *reinterpret_cast<Walk*>(memory);
  walk.root = root;
  walk.stops = stop;
  walk_until_known(walk, how);
  for (int i = 0; i < walk.listed; ++i) visit(i, walk.list[i]);
  const long found = walk.blind != 0 ? walk.blind : walk.listed;
  raw::call(SYS_munmap, memory, sizeof(Walk));
  return found;
}

}  // namespace

TreeWalk raw_tree_walk() {
  const long file = open_at(AT_FDCWD, "/proc/thread-self/children");
  if (file < 0) return TreeWalk::scan;
  raw::call(SYS_close, file);
  return TreeWalk::children;
}

long raw_kill_descendants(int root, TreeWalk how) {
  return for_each_descendant(root, how, true, [](int, int pid) { raw::call(SYS_kill, pid, SIGKILL); });
}

long raw_list_descendants(int root, TreeWalk how, bool stop, int* pids, long most) {
  return for_each_descendant(root, how, stop, [pids, most](int i, int pid) {
    if (i < most) pids[i] = pid;
  });
}

}  // namespace isogate
