// Only the workspace module opens what a tenant can name, beneath a descriptor. Elapsed time is measured by a
// clock that nobody sets. A lower layer includes nothing from a higher one. Operators know each warning of
// the log. Each source of tests is built.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests_dirs.h"

namespace isogate {
namespace {

// Sources that still open by path, and whose paths these are.
const std::map<std::string, std::string> kWhosePaths = {
    {"gateway/front/front_main.cc", "the front's own directory, 0700"},
    {"gateway/front/sandboxes/evidence_check.cc", "/proc/self/ns/*"},
    {"gateway/front/state/disk_reserve.cc", "the reserve beside the state database"},
    {"gateway/front/state/state_file.cc", "the front's own directory, 0700"},
    {"gateway/host/plugin/plugin_file.cc", "the private copy's directory"},
    {"plugins/docker/backend.cc", "the program isogate-runner"},
    {"plugins/docker/client/engine_context.cc", "the operator's ~/.docker"},
    {"plugins/docker/client/engine_sockets.cc", "what the operator mounts, and /proc of this thread"},
    {"plugins/docker/files/host_paths.cc", "what the operator mounts"},
    {"plugins/docker/services.cc", "the Engine's data root, as it says"},
    {"plugins/docker/files/volumes.cc", "the program isogate-runner"},
    {"lib/net/operator_file.cc", "a kubeconfig or certificate of the operator"},
    {"lib/log.cc", "the log file of the operator"},
    {"plugins/common/file_system_tools.cc", "/dev/loop*"},
    {"plugins/common/host_backend.cc", "the operator's sandboxes directory"},
    {"plugins/common/sandbox_disk.cc", "the operator's sandboxes directory"},
    {"plugins/namespace/backend.cc", "the operator's shared directories"},
    {"plugins/namespace/etc.cc", "the /etc of this host, or of the operator's root"},
    {"plugins/namespace/landlock.cc", "fixed places inside a template"},
    {"plugins/namespace/profile.cc", "/proc"},
    {"plugins/namespace/template.cc", "/, /dev, the operator's root and toolchain; a descriptor's own path"},
    {"runner/agent/names.cc", "/etc of the image, and a directory of the pod"},
    {"runner/agent/reach.cc", "/proc/net"},
    {"runner/agent/place.cc", "/ and what a container's runtime adds to its /etc"},
    {"runner/cgroup/cgroup_base.cc", "cgroup file systems, from /proc/self/mountinfo"},
    {"runner/uid/uid_registry.cc", "the uids directory, root's"},
    {"runner/files/workspace_state.cc", "the sandboxes directory, root's"},
    {"runner/uid/uid_claims.cc", "the claims of all gateways, /run/isogate-uids"},
};

// A call whose path is no constant.
const std::regex kByPath(
    R"((std::filesystem|fopen\(|[io]?fstream [a-z]+\(|(^|[^A-Za-z_])::(open|mkdir|rename|unlink|chmod|chown|stat|lstat|symlink|link)\([^"]))");

TEST(HouseRules, TenantPathsAreOpenedBeneathADescriptor) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  size_t looked_at = 0;
  std::map<std::string, std::string> unused = kWhosePaths;
  for (const char* folder : {"gateway/front", "gateway/host", "lib", "plugins", "runner"}) {
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

// Sources that read the time of day, which may jump, and what for.
const std::map<std::string, std::string> kTimesOfDay = {
    {"lib/clock.h", "reads it for all others"},
    {"lib/log_line.cc", "a line's date"},
    {"gateway/cli/commands/ps.cc", "the age of an exec, for people"},
    {"gateway/front/e2b/control.cc", "dates in answers"},
    {"gateway/front/e2b/files.cc", "the end of a signed URL, which its client dates"},
    {"gateway/front/exec/exec.cc", "the journal's dates"},
    {"gateway/front/front_main.cc", "the journal's dates"},
    {"gateway/front/http/http_text.cc", "the header Date"},
    {"gateway/front/sandboxes/sandbox_changes.cc", "a sandbox's dates"},
    {"gateway/front/state/state.cc", "the age of records, in days"},
    {"plugins/docker/container/record.cc", "the age of a file of an earlier process"},
    {"plugins/docker/watch.cc", "podman's events since then"},
    {"plugins/k8s/client/kubeconfig/credentials.cc", "the end of a token, which the cluster dates"},
    {"plugins/k8s/record.cc", "a Lease's date, never compared with ours"},
};

const std::regex kTimeOfDay(
    R"(wall_clock_ms|CLOCK_REALTIME|(system|utc|high_resolution)_clock|[^A-Za-z_.]time\((nullptr|NULL|0|&)|gettimeofday\(|Poco::(Timestamp|DateTime))");

TEST(HouseRules, NoDeadlineIsATimeOfDay) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  std::map<std::string, std::string> unused = kTimesOfDay;
  for (const char* folder : {"gateway", "lib", "plugins", "runner", "sdk"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      const std::string name = std::filesystem::relative(entry.path(), root).string();
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (line.find("ime") == line.npos && line.find("wall_clock") == line.npos &&
            line.find("_clock") == line.npos && line.find("REALTIME") == line.npos)
          continue;  // a regular expression takes its time
        if (!std::regex_search(line, kTimeOfDay) || line.find("CALL(") != line.npos) continue;
        EXPECT_TRUE(kTimesOfDay.contains(name)) << name << ": " << line;
        unused.erase(name);
      }
    }
  }
  for (const auto& [name, what] : unused) ADD_FAILURE() << name << " does not read the time of day any more";
}

// Every name of a metric, and every `what` of a gauge.
TEST(HouseRules, TheMetricsAreDocumented) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  const auto whole = [&](const char* name) {
    std::ifstream file(root / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string source = whole("gateway/front/base/metrics.cc"), document = whole("docs/operations.md");
  const std::regex names(R"re("(isogate_[a-z_]+)"|set\("([a-z_]+)"|"what", "([a-z]+)")re");
  size_t looked_at = 0;
  for (std::sregex_iterator each(source.begin(), source.end(), names), end; each != end; ++each) {
    ++looked_at;
    const std::string name = (*each)[1].str() + (*each)[2].str() + (*each)[3].str();
    EXPECT_NE(document.find("`" + name + "`"), document.npos) << name << " is not in docs/operations.md";
  }
  EXPECT_GT(looked_at, 15u);
}

// Prefixes of paths, from the bottom up, one list for each part of the tree. A file includes from its own
// prefix and from the lines before it, and nothing of its neighbours in the line. If several match, the
// longest counts.
using Order = std::vector<std::vector<std::string>>;
const std::vector<Order> kOrders = {
    {{"sdk/include/"}, {"sdk/runner_link/", "lib/"}, {"runner/"}, {"runner/agent/", "plugins/", "gateway/"}},
    {{"plugins/common/"}, {"plugins/docker/", "plugins/k8s/", "plugins/local/", "plugins/namespace/"}},
    {{"gateway/base/"},
     {"gateway/config/", "gateway/ipc/"},
     {"gateway/front/", "gateway/host/", "gateway/supervisor/"},
     {"gateway/cli/"},
     {"gateway/main.cc"}},
    {{"gateway/front/base/"},
     {"gateway/front/state/"},
     {"gateway/front/http/"},
     {"gateway/front/backends/"},
     {"gateway/front/sandboxes/"},
     {"gateway/front/exec/admission.", "gateway/front/exec/spool_disk."},
     {"gateway/front/app.h"},
     {"gateway/front/exec/"},
     {"gateway/front/api/"},
     {"gateway/front/e2b/", "gateway/front/mcp/"},
     {"gateway/front/"}},
};

struct Place {
  size_t line = 0;
  std::string prefix;  // empty: not in this order
};

Place place_of(const std::string& path, const Order& order) {
  Place place;
  for (size_t line = 0; line < order.size(); ++line)
    for (const std::string& prefix : order[line])
      if (path.starts_with(prefix) && prefix.size() > place.prefix.size()) place = {line, prefix};
  return place;
}

// The name of an event that operators must know.
const std::regex kEvent(R"(log::(?:warn|error)\(\s*"([a-z_ ]+)\")");

TEST(HouseRules, EveryWarningOfTheLogIsInTheTableForOperators) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  const auto text_of = [](const std::filesystem::path& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string documented = text_of(root / "docs/operations.md");
  size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "gateway")) {
    if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
    const std::string source = text_of(entry.path());
    for (std::sregex_iterator at(source.begin(), source.end(), kEvent); at != std::sregex_iterator(); ++at) {
      ++found;
      EXPECT_NE(documented.find("`" + (*at)[1].str() + "`"), std::string::npos)
          << entry.path() << ": " << (*at)[1] << " is not in docs/operations.md";
    }
  }
  EXPECT_GT(found, 50u);
}

TEST(HouseRules, WhatIsBelowIncludesNothingFromAbove) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  const std::string include = "#include \"";
  size_t looked_at = 0;
  for (const char* folder : {"gateway", "lib", "plugins", "runner", "sdk"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h" && extension != ".hpp") continue;
      const std::string name = std::filesystem::relative(entry.path(), root).string();
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(include)) continue;
        std::string included = line.substr(include.size(), line.rfind('"') - include.size());
        if (included.starts_with("isogate/")) included.insert(0, "sdk/include/");
        for (const Order& order : kOrders) {
          const Place from = place_of(name, order), to = place_of(included, order);
          if (from.prefix.empty() || to.prefix.empty()) continue;
          ++looked_at;
          EXPECT_TRUE(to.line < from.line || to.prefix == from.prefix) << name << " includes " << included;
        }
      }
    }
  }
  EXPECT_GT(looked_at, 500u);
}

// Sources are compiled in groups. A header that follows `using test::Name;` in its group, and names the
// product's type of that name, would get the one of the tests: two layouts of one class.
TEST(HouseRules, TestsUseNoNameOfATypeThatAllOfTheProductSees) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  const auto names_in = [&root](const char* folder, const std::regex& of, const std::string& where) {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h" && extension != ".hpp") continue;
      std::ifstream file(entry.path());
      const std::string source(std::istreambuf_iterator<char>(file), {});
      if (source.find(where) == std::string::npos) continue;
      for (std::sregex_iterator at(source.begin(), source.end(), of); at != std::sregex_iterator(); ++at)
        found.emplace((*at)[1], entry.path());
    }
    return found;
  };
  std::map<std::string, std::string> types;
  for (const char* folder : {"gateway", "lib", "plugins", "runner", "sdk"})
    types.merge(
        names_in(folder, std::regex(R"(\n(?:struct|class|enum class) (\w+))"), "\nnamespace isogate {"));
  EXPECT_GT(types.size(), 100u);
  const auto used = names_in("tests", std::regex(R"(\n *using test::(\w+);)"), "");
  EXPECT_GT(used.size(), 5u);
  for (const auto& [name, where] : used)
    EXPECT_FALSE(types.contains(name)) << where << " uses test::" << name << ", like " << types[name];
}

// By its path, or by a pattern, in its folder's CMakeLists.txt.
TEST(HouseRules, EveryTestIsBuilt) {
  const std::filesystem::path tests = std::filesystem::path(ISOGATE_SOURCE_DIR) / "tests";
  const std::regex left_out(R"(#[^\n]*|\$\{CMAKE_CURRENT_SOURCE_DIR\}/)"), source(R"([\w*/]+\.cc\b)");
  size_t found = 0;
  for (const auto& folder : std::filesystem::directory_iterator(tests)) {
    std::ifstream file(folder.path() / "CMakeLists.txt");
    if (!file) continue;
    const std::string text =
        std::regex_replace(std::string(std::istreambuf_iterator<char>(file), {}), left_out, "");
    std::vector<std::string> built;
    for (std::sregex_iterator at(text.begin(), text.end(), source), end; at != end; ++at)
      built.push_back(at->str());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().lexically_relative(folder);
      if (!name.ends_with("_test.cc")) continue;
      ++found;
      const auto fits = [&name](const std::string& each) {
        return ::fnmatch(each.c_str(), name.c_str(), FNM_PATHNAME) == 0;
      };
      EXPECT_TRUE(std::any_of(built.begin(), built.end(), fits)) << entry.path() << " is not built";
    }
  }
  EXPECT_GT(found, 200u);
}

}  // namespace
}  // namespace isogate
