// Images that try to redirect the engine's own mounts.
#include <gmock/gmock.h>

#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;

using Images = OnOwnImage;

// CVE-2025-52565 and others: what the engine mounts, binds and creates there is never in a place of the
// tenant.
TEST_F(Images, WhoseDevicesAndKernelFilesAreLinksGetTheirOwn) {
  import("for each in dev proc sys; do rm -r $each; ln -s /workspace $each; done");
  const Gateway gateway(options("", "shell: /bin/sh"));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("for d in dev proc sys; do [ -L /$d ] && echo link $d; [ -d /$d ] || echo none $d; done; "
                   "for n in null zero full random urandom tty; do stat -c '%n %F %t:%T' /dev/$n; done; "
                   "ls -A /workspace; ls /dev/console 2>/dev/null; cat /proc/1/comm"),
            "/dev/null character special file 1:3\n/dev/zero character special file 1:5\n"
            "/dev/full character special file 1:7\n/dev/random character special file 1:8\n"
            "/dev/urandom character special file 1:9\n/dev/tty character special file 5:0\nisogate-runner\n");
  EXPECT_EQ(me.out("cat /proc/sys/kernel/core_pattern > /dev/null && echo x > /proc/sys/kernel/core_pattern; "
                   "ls -A /sys/firmware"),
            "");
}

}  // namespace
}  // namespace isogate::docker
