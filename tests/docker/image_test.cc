// Images that try to turn the engine's own mounts elsewhere.
#include <gmock/gmock.h>

#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;

class Images : public OnEngine {
 protected:
  void SetUp() override {
    OnEngine::SetUp();
    image_ = "isogate-test:" + instance_;
  }
  void TearDown() override {
    OnEngine::TearDown();
    if (engine_ != nullptr) shell("docker image rm -f " + image_);
  }
  void shell(const std::string& script) const {
    const auto ran = test::run_program({"bash", "-c", "set -euo pipefail; " + script},
                                       {"", {{"DOCKER_HOST", std::getenv(variable_)}}, 60});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
  }
  // `small` with links into the workspace in the place of these directories.
  void import_with_links(const std::string& directories) const {
    const test::TemporaryDirectory work;
    shell("cd " + work.path() + "; id=$(docker create isogate-test:small sh); " +
          "docker export $id > all.tar; docker rm $id > /dev/null; "
          "for each in " +
          directories +
          "; do tar --delete -f all.tar $each; ln -s /workspace $each; "
          "tar --append -f all.tar $each; done; docker import all.tar " +
          image_ + " > /dev/null");
  }
};

// CVE-2025-52565 and others: what the engine mounts, binds and makes there is not in a place of the tenant's.
TEST_F(Images, WhoseDevicesAndKernelFilesAreLinksGetTheirOwn) {
  import_with_links("dev proc sys");
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
