#include "tests/support/cluster.h"

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

// Gateways of other users can read it here, too.
std::string account_kubeconfig() {
  static const TemporaryDirectory directory;
  return directory.file("kubeconfig", read_whole(cluster_directory() + "/kubeconfig-isogate"), 0644);
}

const char* cluster_variable() {
  const char* name = std::getenv("ISOGATE_TEST_CLUSTER");
  return name == nullptr ? "ISOGATE_TEST_KUBERNETES" : name;
}

}  // namespace

std::string cluster_kubeconfig() {
  const char* value = std::getenv(cluster_variable());
  return value == nullptr ? "" : value;
}

std::string cluster_obstacle() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "a runner with a sanitizer needs libraries that pods do not have";
#endif
  if (cluster_kubeconfig().empty())
    return std::string(cluster_variable()) +
           " names no kubeconfig: tests/engines/kubernetes.sh up prints one";
  if (read_whole(cluster_directory() + "/kubeconfig-isogate").empty())
    return std::string(cluster_variable()) +
           " is not of a cluster of tests/engines/kubernetes.sh, or not readable";
  return {};
}

std::string cluster_directory() {
  const std::string file = cluster_kubeconfig();
  return file.substr(0, file.rfind('/'));
}

bool cluster_enforces_policies() {
  return ::access((cluster_directory() + "/policies.ready").c_str(), F_OK) == 0;
}

bool cluster_enforces_labels() {
  return read_whole(cluster_directory() + "/settings").find("version=\"1.20\"") == std::string::npos;
}

std::string cluster_runner_image() {
  static const std::string image = [] {
    const ProgramResult made = run_program({ISOGATE_SOURCE_DIR "/tests/engines/kubernetes.sh", "runner",
                                            cluster_directory(), ISOGATE_BUILD_DIR "/bin/isogate-runner"});
    if (made.exit_code != 0) throw std::runtime_error("no image of the runner: " + made.err);
    return made.out.substr(0, made.out.find('\n'));
  }();
  return image;
}

std::string cluster_config(bool tolerant) {
  static const std::string config = "kubeconfig: " + account_kubeconfig() + ", runner_image: \"" +
                                    cluster_runner_image() +
                                    "\", image: \"isogate-test:base\", pull_policy: Never, "
                                    "memory_request_mb: 16, cpu_request: 0.001, ephemeral_mb: 256, "
                                    "workspace_mb: 128";
  return config + (tolerant ? ", allow_unenforced_network: true" : "");
}

}  // namespace isogate::test
