// Raw code: see raw_syscall.h. Finds a program in a PATH and executes it: the last step of the child of a
// plain spawn and of an init's child. Paths are made one after the other on the stack: PATH may have 131,068
// elements, and argv[0] be as long.
#pragma once

#include <cerrno>
#include <climits>
#include <cstddef>

#include "runner/exec/raw_syscall.h"

namespace isogate {

static inline size_t length_until(const char* text, char end) {
  size_t length = 0;
  while (text[length] != '\0' && text[length] != end) ++length;
  return length;
}

// directory/name, where that is a path that the kernel takes. An empty element of PATH is the working
// directory.
static inline bool join(char (&path)[PATH_MAX], const char* directory, size_t directory_size,
                        const char* name, size_t name_size) {
  if (directory_size == 0) directory = ".", directory_size = 1;
  if (directory_size + name_size + 2 > sizeof path) return false;
  for (size_t i = 0; i < directory_size; ++i) path[i] = directory[i];
  path[directory_size] = '/';
  for (size_t i = 0; i <= name_size; ++i) path[directory_size + 1 + i] = name[i];
  return true;
}

// As execvp: takes the first that can be executed, and skips a path that is too long.
static inline long exec_found(const char* search, const char* const* argv, const char* const* envp) {
  const char* const name = argv[0];
  const size_t name_size = length_until(name, '\0');
  if (name_size > NAME_MAX) return -ENAMETOOLONG;
  bool refused = false;
  for (const char* rest = search;; ++rest) {
    const size_t size = length_until(rest, ':');
    char path[PATH_MAX];
    if (join(path, rest, size, name, name_size)) {
      const long result = raw::call(SYS_execve, path, argv, envp);
      if (result == -EACCES) refused = true;
      if (result != -EACCES && result != -ENOENT && result != -ENOTDIR) return result;
    }
    rest += size;
    if (*rest == '\0') return refused ? -EACCES : -ENOENT;
  }
}

// Without a `search` argv[0] is the program's path. Returns -errno, if at all: ETXTBSY only after 100 ms. A
// child of another thread has, until it executes its own program, copies of the descriptors by which this
// process has just written the file.
static inline long raw_exec(const char* search, const char* const* argv, const char* const* envp) {
  for (int pauses = 0;; ++pauses) {
    const long result =
        search != nullptr ? exec_found(search, argv, envp) : raw::call(SYS_execve, argv[0], argv, envp);
    if (result != -ETXTBSY || pauses == 100) return result;
    const raw::Time pause = {0, 1000000};
    raw::call(SYS_nanosleep, &pause, 0);
  }
}

}  // namespace isogate
