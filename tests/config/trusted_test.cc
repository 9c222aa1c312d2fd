// A gateway started by root does what its configuration says: nobody else may be able to write that file.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/config/loading.h"

namespace isogate {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kSomebody = 4242;

class RootsConfiguration : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    fs::create_directories(directory());
    std::ofstream(file()) << "instance: mine\n";
  }

  [[nodiscard]] std::string directory() const { return root_.path() + "/etc"; }
  [[nodiscard]] std::string file() const { return directory() + "/isogate.yaml"; }

  static Result<Loaded> load(const std::string& path, TextPairs environment = {}) {
    LoadOptions options;
    options.file = path;
    options.environment = std::move(environment);
    options.environment.emplace_back("HOME", "/home/me");
    return load_config(options);
  }
  static std::string refusal(const std::string& path) {
    auto result = load(path);
    return result ? "loaded" : result.error().message;
  }

  test::Directory root_;
};

TEST_F(RootsConfiguration, IsReadWhereOnlyRootWrites) {
  ASSERT_TRUE(load(file()));
  EXPECT_EQ(load(file())->config.instance, "mine");
}

TEST_F(RootsConfiguration, OfAnotherOwnerIsRefused) {
  ASSERT_EQ(::chown(file().c_str(), kSomebody, kSomebody), 0);
  EXPECT_THAT(refusal(file()), AllOf(HasSubstr("cannot read the configuration"),
                                     HasSubstr("belongs to uid 4242"), HasSubstr("chown root " + file())));
  EXPECT_FALSE(load("", {{"ISOGATE_CONFIG", file()}})) << "named by the environment";
}

TEST_F(RootsConfiguration, ThatOthersMayWriteIsRefused) {
  ASSERT_EQ(::chmod(file().c_str(), 0664), 0);
  EXPECT_THAT(refusal(file()), AllOf(HasSubstr("its group"), HasSubstr("chmod g-w " + file())));
  ASSERT_EQ(::chmod(file().c_str(), 0646), 0);
  EXPECT_THAT(refusal(file()), AllOf(HasSubstr("everybody"), HasSubstr("chmod o-w " + file())));
}

TEST_F(RootsConfiguration, InADirectoryOfAnotherIsRefused) {
  ASSERT_EQ(::chown(directory().c_str(), kSomebody, kSomebody), 0);
  EXPECT_THAT(refusal(file()), HasSubstr("chown root " + directory()));
  ASSERT_EQ(::chown(directory().c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(root_.path().c_str(), kSomebody, kSomebody), 0);
  EXPECT_THAT(refusal(file()), HasSubstr("chown root " + root_.path())) << "every directory above";
}

TEST_F(RootsConfiguration, InADirectoryThatOthersMayWriteIsRefused) {
  ASSERT_EQ(::chmod(directory().c_str(), 0777), 0);
  EXPECT_THAT(refusal(file()), HasSubstr("`" + directory() + "` is writable by everybody"));
  ASSERT_EQ(::chmod(directory().c_str(), 01777), 0);
  EXPECT_TRUE(load(file())) << "sticky: others cannot replace what root has there";
}

TEST_F(RootsConfiguration, MayBeALinkOfRoot) {
  const std::string link = root_.path() + "/link.yaml";
  fs::create_symlink("etc/../etc/isogate.yaml", link);
  EXPECT_TRUE(load(link));
  ASSERT_EQ(::lchown(link.c_str(), kSomebody, kSomebody), 0);
  EXPECT_THAT(refusal(link), HasSubstr("symbolic link of uid 4242"));
}

TEST_F(RootsConfiguration, MayBeNamedFromTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory());
  EXPECT_TRUE(load("isogate.yaml"));
  EXPECT_TRUE(load("../etc/isogate.yaml"));
  ASSERT_EQ(::chmod(directory().c_str(), 0777), 0);
  EXPECT_FALSE(load("isogate.yaml"));
  fs::current_path(before);
}

TEST_F(RootsConfiguration, IsAFile) {
  EXPECT_FALSE(load("/"));
  EXPECT_FALSE(load(directory()));
  EXPECT_FALSE(load("/dev/null")) << "a device";
}

TEST_F(RootsConfiguration, IsAnotherUsersOwnMatterWhenThatUserStartsIt) {
  ASSERT_EQ(::chown(file().c_str(), kSomebody, kSomebody), 0);
  ASSERT_EQ(::chmod(root_.path().c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(kSomebody) == 0 && load(file()) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace isogate
