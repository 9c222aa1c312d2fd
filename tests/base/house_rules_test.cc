// What a tenant can name is opened by the workspace module alone, beneath a descriptor.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "tests_dirs.h"

namespace isogate {
namespace {

// Sources that open by a path nevertheless, and whose paths these are.
const std::map<std::string, std::string> kWhosePaths = {
    {"gateway/front/evidence_check.cc", "/proc/self/ns/*"},
    {"gateway/front/disk_reserve.cc", "the reserve beside the state database"},
    {"gateway/front/state_file.cc", "the front's own directory, 0700"},
    {"gateway/host/plugin_file.cc", "the private copy's directory"},
    {"plugins/docker/backend.cc", "the program isogate-runner"},
    {"plugins/docker/engine_context.cc", "the operator's ~/.docker"},
    {"plugins/docker/engine_sockets.cc", "what the operator mounts, and /proc of this thread"},
    {"plugins/docker/host_paths.cc", "what the operator mounts"},
    {"plugins/docker/services.cc", "the Engine's data root, as it says"},
    {"plugins/docker/volumes.cc", "the program isogate-runner"},
    {"plugins/k8s/operator_files.cc", "the kubeconfig of the operator, and what it names"},
    {"plugins/local/backend.cc", "the operator's sandboxes directory"},
    {"plugins/namespace/backend.cc", "the operator's shared directories"},
    {"plugins/namespace/etc.cc", "the /etc of this host, or of the operator's root"},
    {"plugins/namespace/landlock.cc", "fixed places inside a template"},
    {"plugins/namespace/mounts.cc", "where a descriptor of ours leads, compared by inode"},
    {"plugins/namespace/profile.cc", "/proc"},
    {"plugins/namespace/template.cc", "/, /dev, the operator's root and toolchain"},
    {"runner/cgroup_base.cc", "cgroup file systems, from /proc/self/mountinfo"},
    {"runner/uid_registry.cc", "the uids directory, root's"},
    {"runner/workspace_state.cc", "the sandboxes directory, root's"},
    {"runner/uid_claims.cc", "the claims of all gateways, /run/isogate-uids"},
};

// A call whose path is no constant.
const std::regex kByPath(
    R"((std::filesystem|fopen\(|[io]?fstream [a-z]+\(|(^|[^A-Za-z_])::(open|mkdir|rename|unlink|chmod|chown|stat|lstat|symlink|link)\([^"]))");

TEST(HouseRules, TenantPathsAreOpenedBeneathADescriptor) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  size_t looked_at = 0;
  std::map<std::string, std::string> unused = kWhosePaths;
  for (const char* folder : {"gateway/front", "gateway/host", "plugins", "runner"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".cc") continue;
      const std::string name = std::filesystem::relative(entry.path(), root).string();
      ++looked_at;
      std::ifstream file(entry.path());
      int number = 0;
      for (std::string line; std::getline(file, line);) {
        ++number;
        if (!std::regex_search(line, kByPath)) continue;
        EXPECT_TRUE(kWhosePaths.contains(name)) << name << ":" << number << ": " << line;
        unused.erase(name);
      }
    }
  }
  EXPECT_GT(looked_at, 80u);
  for (const auto& [name, paths] : unused) ADD_FAILURE() << name << " opens nothing by path any more";
}

}  // namespace
}  // namespace isogate
