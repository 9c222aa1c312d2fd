// Whoever builds a command says where it runs: no default means this host.
#include <gtest/gtest.h>

#include <concepts>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "runner/enclosure/enclosure.h"
#include "tests_dirs.h"

namespace isogate {
namespace {

// The compiler checks that, too, in site_compile_test; this covers every way to build one.
static_assert(!std::default_initializable<Site>);
static_assert(!std::default_initializable<Command>);
static_assert(!std::constructible_from<Site, std::nullptr_t>);
static_assert(!std::constructible_from<Site, std::shared_ptr<Enclosure>>);
static_assert(!std::constructible_from<Command, std::nullptr_t>);

TEST(Site, what_was_moved_from_is_the_same_place) {
  Site site = Site::host();
  const Site other = std::move(site);
  EXPECT_EQ(site.enclosure(), other.enclosure());
}

// Sources that may run something on this host, and why.
const std::map<std::string, std::string> kOnThisHost = {
    {"plugins/local/backend.cc", "that is what `local` is"},
    {"runner/exec/command.cc", "the trial of a cgroup2 leaf, in which no program runs"},
    {"runner/agent/calls/exec_call.cc", "its host is a container or a pod"},
    {"runner/agent/calls/exec_job.cc", "its host is a container or a pod"},
    {"runner/agent/calls/measure_call.cc", "its host is a container or a pod"},
};

TEST(Site, this_host_is_named_by_few) {
  const std::filesystem::path root(ISOGATE_SOURCE_DIR);
  const std::regex host(R"(Site::host\(\))");
  std::map<std::string, std::string> unused = kOnThisHost;
  size_t looked_at = 0;
  for (const char* folder : {"gateway", "lib", "plugins", "runner", "sdk"}) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      const std::string name = std::filesystem::relative(entry.path(), root).string();
      ++looked_at;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (!std::regex_search(line, host)) continue;
        unused.erase(name);
        EXPECT_TRUE(kOnThisHost.contains(name)) << name << ": " << line;
      }
    }
  }
  EXPECT_GT(looked_at, 200u);
  for (const auto& [name, why] : unused) ADD_FAILURE() << name << " runs nothing on this host any more";
}

}  // namespace
}  // namespace isogate
