#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

#include "gateway/host/plugin/describe.h"
#include "gateway/host/plugin/plugin_loader.h"
#include "tests/abi/trusted_dir.h"
#include "tests/eventually.h"
#include "tests_dirs.h"

namespace isogate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kOwnAbi = std::to_string(ISOGATE_ABI_MAJOR) + "." + std::to_string(ISOGATE_ABI_MINOR);

class Loading : public testing::Test {
 protected:
  void SetUp() override {
    ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
    place_ = std::make_unique<TrustedDir>();
  }

  Result<Description> describe(const std::string& path, const std::string& pin = "") {
    return describe_plugin(path, pin, place_->path());
  }

  std::string refusal(const std::string& path, const std::string& pin = "") {
    auto described = describe(path, pin);
    return described.ok() ? "was accepted" : described.error().message;
  }

  std::unique_ptr<TrustedDir> place_;
};

TEST_F(Loading, ReportsTheDescriptionOfAGoodPlugin) {
  auto described = describe(fixture("good"));
  ASSERT_TRUE(described.ok()) << described.error().message;
  EXPECT_EQ(described->id, "com.example.fixture");
  EXPECT_EQ(described->version, "0.9.1");
  EXPECT_EQ(described->isolation, ISOGATE_ISOLATION_NAMESPACE);
  EXPECT_EQ(described->locality, ISOGATE_LOCALITY_HOST);
  EXPECT_EQ(described->sha256.size(), 64u);
  EXPECT_THAT(described->absent, testing::ElementsAre("mkdir", "move", "remove", "watch", "connect"));
  EXPECT_TRUE(described->warnings.empty());
  EXPECT_THAT(to_json(*described), AllOf(HasSubstr("\"isolation\": \"namespace\""), HasSubstr("\"pty\"")));
}

TEST_F(Loading, ReportsWhatAPluginOfTheWrapperLeavesOut) {
  auto described = describe(std::string(ISOGATE_BUILD_DIR) + "/examples/echo.so");
  ASSERT_TRUE(described.ok()) << described.error().message;
  EXPECT_THAT(described->absent,
              testing::ElementsAre("mkdir", "move", "remove", "evidence", "watch", "connect"));
}

TEST_F(Loading, LeavesNoCopyBehind) {
  ASSERT_TRUE(describe(fixture("good")).ok());
  ASSERT_FALSE(describe(fixture("crashes")).ok());
  EXPECT_TRUE(std::filesystem::is_empty(place_->path()));
  std::filesystem::create_directory(place_->path() + "/p999999999-00");  // of a process that has ended
  ASSERT_TRUE(describe(fixture("good")).ok());
  EXPECT_TRUE(std::filesystem::is_empty(place_->path()));
}

TEST_F(Loading, TakesAPluginThatIsOlderAndKnowsLess) {
  auto described = describe(fixture("shorter"));
  ASSERT_TRUE(described.ok()) << described.error().message;
  EXPECT_THAT(described->absent, testing::ElementsAre("mkdir", "move", "remove", "evidence", "get_extension",
                                                      "watch", "connect"));
}

TEST_F(Loading, TakesAPluginThatKnowsMoreAndNeedsLess) { EXPECT_TRUE(describe(fixture("longer")).ok()); }

TEST_F(Loading, ReportsWhichCapabilitiesItWouldKeep) {
  auto described = describe(fixture("as_root"));
  ASSERT_TRUE(described.ok()) << described.error().message;
  EXPECT_EQ(described->linux_capabilities, 0x21u);
  EXPECT_THAT(to_json(*described), AllOf(HasSubstr("\"runs_as_root\": true"), HasSubstr("\"chown\"")));
}

TEST_F(Loading, RefusesAPluginThatNeedsANewerMinor) {
  EXPECT_THAT(refusal(fixture("newer_minor")),
              HasSubstr("plugin `com.example.fixture` 0.9.1 needs ABI 1.3, this gateway offers " + kOwnAbi +
                        ": upgrade"));
}

TEST_F(Loading, RefusesAnotherMajor) {
  EXPECT_THAT(refusal(fixture("wrong_major")),
              HasSubstr("plugin `wrong_major` is built for ABI 2.0, this gateway offers " + kOwnAbi));
}

struct Defect {
  const char* plugin;
  const char* message;
};
void PrintTo(const Defect& defect, std::ostream* out) { *out << defect.plugin; }

class Defects : public Loading, public testing::WithParamInterface<Defect> {};

TEST_P(Defects, AreReportedToTheAuthor) {
  std::string message = refusal(fixture(GetParam().plugin));
  EXPECT_THAT(message, HasSubstr(GetParam().message));
  EXPECT_THAT(message, HasSubstr(std::string(GetParam().plugin) + ".so"));
}

INSTANTIATE_TEST_SUITE_P(
    One, Defects,
    testing::Values(
        Defect{"no_entry", "`no_entry` does not export isogate_plugin_entry()"},
        Defect{"wrong_magic", "`wrong_magic` is not one of isogate's: the magic number"},
        Defect{"short_descriptor", "struct_size of its descriptor is 88, which does not reach `api`"},
        Defect{"null_api", "`api` of its descriptor is NULL"},
        Defect{"bad_id", "id `Not An Id` is not of the form [a-z0-9][a-z0-9.-]{0,62}"},
        Defect{"no_version", "version is empty"}, Defect{"bad_isolation", "isolation is 15"},
        Defect{"bad_locality", "locality is 0"},
        Defect{"bad_schema", "the config schema (config_schema_json) is not JSON"},
        Defect{"array_schema", "is not a JSON object"}, Defect{"deep_schema", "is nested too deeply"},
        Defect{"wrong_schema", "its JSON Schema is broken"},
        Defect{"wrong_pattern", "its JSON Schema is broken"},
        Defect{"open_schema", "its JSON Schema accepts any key in `config`"},
        Defect{"endless_schema", "config schema refers to itself without end"},
        Defect{"claims_evidence", "claims the capability `evidence` and has no evidence: "},
        Defect{"claims_kept_execs", "claims the capability `kept_execs` and has no get_extension: "},
        Defect{"claims_watch", "claims the capability `watch` and has no watch: "},
        Defect{"claims_ports", "claims the capability `ports` and has no connect: "},
        Defect{"unmeasured", "the descriptor claims isolation `vm` without ISOGATE_CAP_EVIDENCE"},
        Defect{"unmeasured_egress", "the descriptor claims `egress_deny` without ISOGATE_CAP_EVIDENCE"},
        Defect{"powers_without_root", "without ISOGATE_PLUGIN_RUNS_AS_ROOT"},
        Defect{"unknown_power", "bits that capabilities(7) does not know"},
        Defect{"returns_null", "its entry function returned NULL"},
        Defect{"crashes", "crashed while it was loaded (signal 11"},
        Defect{"exits", "ended the process while it was loaded (exit code 0)"},
        Defect{"babbles", "wrote invalid data in place of its description"},
        Defect{"floods", "wrote more than a description"},
        Defect{"undefined", "undefined symbol: defined_nowhere"},
        Defect{"throws", "its entry function threw an exception"}),
    [](const auto& each) { return std::string(each.param.plugin); });

TEST_F(Loading, HasTheLoadersReasonAndNoOther) {
  EXPECT_THAT(refusal(fixture("undefined")),
              AllOf(HasSubstr("cannot be loaded: ./plugin.so: undefined symbol: defined_nowhere (link "),
                    testing::Not(HasSubstr("Bad file descriptor"))));
}

class Missing : public Loading, public testing::WithParamInterface<const char*> {};

TEST_P(Missing, RequiredFunctionIsNamed) {
  EXPECT_THAT(refusal(fixture(std::string("without_") + GetParam())),
              HasSubstr(std::string("plugin `com.example.fixture` 0.9.1 has no ") + GetParam() + ": "));
}

INSTANTIATE_TEST_SUITE_P(Each, Missing,
                         testing::Values("create", "destroy", "probe", "open", "close", "enumerate", "exec",
                                         "read", "write", "list", "stat"));

TEST_F(Loading, GivesUpOnAPluginThatHangs) {
  for (const char* name : {"hangs", "spins"}) {
    auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(refusal(fixture(name)), HasSubstr("did not describe itself within 15 s"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  }
}

// Its user has changed since it started, which undoes PR_SET_PDEATHSIG.
TEST_F(Loading, APluginThatHangsEndsWithTheProcessThatWaitsForItsDescription) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's changes its user";
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t waits = ::fork();
  if (waits == 0) ::_exit(describe(fixture("hangs")).ok() ? 0 : 1);
  const std::string children =
      "/proc/" + std::to_string(waits) + "/task/" + std::to_string(waits) + "/children";
  pid_t hangs = 0;
  ASSERT_TRUE(test::eventually(10, [&] {
    std::ifstream(children) >> hangs;
    std::ifstream status("/proc/" + std::to_string(hangs) + "/status");
    const std::string text(std::istreambuf_iterator<char>(status), {});
    return text.find("Seccomp:\t2") != std::string::npos;
  }));
  ::usleep(200'000);  // it may be about to load the plugin
  ::kill(waits, SIGKILL);
  EXPECT_EQ(::waitpid(waits, nullptr, 0), waits);
  EXPECT_TRUE(test::eventually(5, [&] { return ::waitpid(hangs, nullptr, WNOHANG) == hangs; }));
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(Loading, OnlyWarnsOfAFurtherExport) {
  auto described = describe(fixture("extra_export"));
  ASSERT_TRUE(described.ok()) << described.error().message;
  EXPECT_THAT(described->warnings, testing::ElementsAre(HasSubstr("also exports `extra_export`")));
}

TEST_F(Loading, RefusesRelativeSearchPaths) {
  EXPECT_THAT(refusal(fixture("relative_runpath")), AllOf(HasSubstr("has `lib`"), HasSubstr("relative")));
  EXPECT_THAT(refusal(fixture("old_rpath")), HasSubstr("has `lib`"));
  EXPECT_THAT(refusal(fixture("origin_runpath")), AllOf(HasSubstr("ORIGIN"), HasSubstr("private copy")));
}

TEST_F(Loading, HoldsSearchPathsToTheSameRuleAsTheFile) {
  EXPECT_THAT(refusal(fixture("tmp_runpath")),
              AllOf(HasSubstr("`/tmp` is writable by everybody"), HasSubstr("use a place that only root"),
                    testing::Not(HasSubstr("chmod"))));
  auto described = describe(fixture("system_runpath"));
  ASSERT_TRUE(described.ok()) << described.error().message;
  EXPECT_THAT(described->warnings, testing::ElementsAre(HasSubstr("/usr/lib")));
}

TEST_F(Loading, RefusesAuditLibraries) {
  EXPECT_THAT(refusal(fixture("audits")), HasSubstr("audit or filter"));
}

TEST_F(Loading, RefusesWhatIsNoSharedLibrary) {
  std::string text = place_->path() + "/text.so";
  std::ofstream(text) << "#!/bin/sh\n";
  ::chmod(text.c_str(), 0755);
  EXPECT_THAT(refusal(text), HasSubstr("no ELF header"));
  std::string self = place_->copy("/bin/true", "true.so");
  EXPECT_THAT(refusal(self),
              testing::AnyOf(HasSubstr("it is a program"), HasSubstr("cannot dynamically load")));
  ASSERT_EQ(::mkfifo((place_->path() + "/fifo.so").c_str(), 0600), 0);
  EXPECT_THAT(refusal(place_->path() + "/fifo.so"), HasSubstr("is not a regular file"));
  EXPECT_THAT(refusal(place_->path()), HasSubstr("is not a regular file"));
}

TEST_F(Loading, RefusesRelativeMissingAndLinkedFiles) {
  EXPECT_THAT(refusal("good.so"), HasSubstr("`good.so` is not an absolute path"));
  EXPECT_THAT(refusal(place_->path() + "/../x.so"), HasSubstr("`..`"));
  EXPECT_THAT(refusal(place_->path() + "/none.so"), HasSubstr("No such file"));
  std::string link = place_->path() + "/link.so";
  ASSERT_EQ(::symlink(fixture("good").c_str(), link.c_str()), 0);
  EXPECT_THAT(refusal(link), HasSubstr("is a symbolic link; name the file it points to"));
}

TEST_F(Loading, FollowsALinkedDirectoryThatOthersCannotChange) {
  std::string link = place_->path() + "/dir";
  ASSERT_EQ(::symlink((std::string(ISOGATE_BUILD_DIR) + "/fixtures").c_str(), link.c_str()), 0);
  auto described = describe(link + "/good.so");
  EXPECT_TRUE(described.ok()) << described.error().message;
  ASSERT_EQ(::symlink("loop", (place_->path() + "/loop").c_str()), 0);
  EXPECT_THAT(refusal(place_->path() + "/loop/good.so"), HasSubstr("too many symbolic links"));
}

TEST_F(Loading, RefusesFilesAndDirectoriesThatOthersCanWrite) {
  EXPECT_THAT(refusal(place_->copy(fixture("good"), "group.so", 0664)),
              AllOf(HasSubstr("writable by its group"), HasSubstr("chmod g-w")));
  EXPECT_THAT(refusal(place_->copy(fixture("good"), "world.so", 0646)), HasSubstr("writable by everybody"));
  std::string inside = place_->copy(fixture("good"), "open/deep/good.so");
  ASSERT_EQ(::chmod((place_->path() + "/open").c_str(), 0777), 0);
  EXPECT_THAT(refusal(inside),
              AllOf(HasSubstr("/open` is writable by everybody"), testing::Not(HasSubstr("sticky"))));
  ASSERT_EQ(::chmod((place_->path() + "/open").c_str(), 01777), 0);
  EXPECT_TRUE(describe(inside).ok()) << "nobody else can move what is in a sticky directory";
  EXPECT_THAT(refusal(place_->copy(fixture("good"), "open/good.so")), HasSubstr("sticky bit does not help"));
  EXPECT_THAT(refusal(place_->path() + "/open/none/good.so"), HasSubstr("everybody may put something there"));
  ASSERT_EQ(::chmod((place_->path() + "/open").c_str(), 0775), 0);
  EXPECT_THAT(refusal(inside), HasSubstr("writable by its group"));
}

TEST_F(Loading, RefusesFilesOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to somebody else";
  std::string path = place_->copy(fixture("good"), "theirs.so");
  ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
  EXPECT_THAT(refusal(path), HasSubstr("belongs to uid 12345"));
}

TEST_F(Loading, HoldsAFileToItsPin) {
  auto described = describe(fixture("good"));
  ASSERT_TRUE(described.ok());
  EXPECT_TRUE(describe(fixture("good"), described->sha256).ok());
  EXPECT_THAT(refusal(fixture("shorter"), described->sha256),
              AllOf(HasSubstr("its SHA-256 is "), HasSubstr("pinned is " + described->sha256)));
}

TEST_F(Loading, RefusesACopyDirectoryThatOthersCanEnter) {
  ASSERT_EQ(::chmod(place_->path().c_str(), 0755), 0);
  EXPECT_THAT(refusal(fixture("good")), HasSubstr("mode 0700"));
}

TEST_F(Loading, OffersNothingUnderAnUnknownExtension) {
  auto image = inspect_plugin(fixture("good"), "");
  ASSERT_TRUE(image.ok());
  auto copy = make_copy(*image, place_->path());
  ASSERT_TRUE(copy.ok());
  EXPECT_EXIT(
      {
        auto loaded = load_plugin(copy->directory(), "good");
        bool right = loaded.ok() && loaded->api.get_extension(nullptr, "com.example.unknown/1") == nullptr &&
                     loaded->api.get_extension(nullptr, "com.example.known/1") != nullptr &&
                     !load_plugin(copy->directory(), "again").ok();
        ::_exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Exports, EveryPluginExportsOnlyItsEntry) {
  int looked = 0;
  for (const char* dir : {"/plugins", "/examples"}) {
    std::string path = std::string(ISOGATE_BUILD_DIR) + dir;
    if (!std::filesystem::exists(path)) continue;
    for (const auto& file : std::filesystem::directory_iterator(path)) {
      if (file.path().extension() != ".so") continue;
      std::ifstream in(file.path(), std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(in)), {});
      auto elf = read_elf(bytes);
      ASSERT_TRUE(elf.ok()) << file.path();
      EXPECT_THAT(elf->exports, testing::ElementsAre("isogate_plugin_entry")) << file.path();
      ++looked;
    }
  }
  EXPECT_GE(looked, 1);
}

TEST(Exports, AreWhatNmSays) {
  std::string command = "nm -D --defined-only '" + fixture("extra_export") + "' 2>/dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), pipe));
  if (::pclose(pipe) != 0) GTEST_SKIP() << "nm is not installed";
  std::ifstream in(fixture("extra_export"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  auto elf = read_elf(bytes);
  ASSERT_TRUE(elf.ok());
  EXPECT_EQ(static_cast<long>(elf->exports.size()), std::count(said.begin(), said.end(), '\n'));
  for (const std::string& name : elf->exports) EXPECT_THAT(said, HasSubstr(" " + name + "\n"));
}

}  // namespace
}  // namespace isogate
