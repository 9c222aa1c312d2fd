// A program for an interpreter in a sandbox, or on this host, that makes raw system calls.
#pragma once

#include <string>
#include <vector>

namespace isogate::test {

// For exec's `argv`: python3 with `code` after these functions, and ctypes, errno, os, socket, struct, sys.
//   call(number, …)          makes a system call: its result, or -errno
//   reach(family, address)   connects within 3 s: 0, or the errno
std::vector<std::string> python(const std::string& code);

}  // namespace isogate::test
