// A machine with other swap than this one has.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <functional>
#include <string>
#include <thread>

#include "tests/support/program.h"

namespace isogate::docker {

// Runs this in a separate thread, for which /proc/swaps shows swap, or none. Needs root.
inline void with_swap(bool any, const std::function<void()>& work) {
  std::thread([&] {
    const test::TemporaryDirectory directory;
    const std::string file = directory.file("swaps", std::string("Filename Type Size Used Priority\n") +
                                                         (any ? "/dev/sdz1 partition 2097148 0 -2\n" : ""));
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr), 0);
    ASSERT_EQ(::mount(file.c_str(), "/proc/swaps", nullptr, MS_BIND, nullptr), 0);
    work();
    ASSERT_EQ(::umount("/proc/swaps"), 0);
  }).join();
}

}  // namespace isogate::docker
