#include "plugins/docker/files/exclude.h"

#include <gtest/gtest.h>

namespace isogate::docker {
namespace {

bool file(const std::string& pattern, const std::string& path) { return is_excluded({pattern}, path, false); }
bool directory(const std::string& pattern, const std::string& path) {
  return is_excluded({pattern}, path, true);
}

TEST(Exclude, ANameIsForAnyDepth) {
  EXPECT_TRUE(file("*.pyc", "a.pyc"));
  EXPECT_TRUE(file("*.pyc", "deep/down/a.pyc"));
  EXPECT_FALSE(file("*.pyc", "a.pyc.txt"));
  EXPECT_TRUE(directory("node_modules", "web/node_modules"));
  EXPECT_FALSE(file("node_modules", "node_modules_too"));
  EXPECT_TRUE(file(".?*", ".hidden"));
  EXPECT_TRUE(file("*", ".hidden")) << "a dot in front is nothing special";
  EXPECT_TRUE(file("[ab].o", "b.o"));
}

TEST(Exclude, APathIsFromTheTop) {
  EXPECT_TRUE(file("docs/*.md", "docs/a.md"));
  EXPECT_FALSE(file("docs/*.md", "more/docs/a.md"));
  EXPECT_FALSE(file("docs/*.md", "docs/deeper/a.md")) << "a star stays within one component";
  EXPECT_TRUE(file("/Makefile", "Makefile"));
  EXPECT_FALSE(file("/Makefile", "sub/Makefile"));
}

TEST(Exclude, TwoStarsAreAnyNumberOfComponents) {
  EXPECT_TRUE(file("**/cache/x", "cache/x"));
  EXPECT_TRUE(file("**/cache/x", "a/b/cache/x"));
  EXPECT_TRUE(file("a/**/z", "a/z"));
  EXPECT_TRUE(file("a/**/z", "a/b/c/z"));
  EXPECT_FALSE(file("a/**/z", "b/z"));
  EXPECT_TRUE(file("dir/**", "dir/a"));
  EXPECT_TRUE(file("dir/**", "dir/a/b"));
  EXPECT_FALSE(directory("dir/**", "dir")) << "its content is excluded, the directory stays";
  EXPECT_TRUE(file("**", "anything"));
}

TEST(Exclude, ASlashAtTheEndIsForDirectories) {
  EXPECT_TRUE(directory("build/", "build"));
  EXPECT_TRUE(directory("build/", "sub/build"));
  EXPECT_FALSE(file("build/", "build"));
  EXPECT_TRUE(directory("sub/build/", "sub/build"));
}

TEST(Exclude, ManyStarsCostNoMoreThanTheirNumber) {
  std::string pattern = "**", path = "a";
  for (int i = 0; i < 200; ++i) {
    pattern += "/**/a";
    path += "/a";
  }
  EXPECT_FALSE(file(pattern + "/b", path));
}

TEST(Exclude, SaysWhatIsNoPattern) {
  for (const char* good : {"*.pyc", "a", "a/", "/a", "/a/b/", "**", "a/**", ".git"})
    EXPECT_EQ(why_no_pattern(good), "") << good;
  for (const char* bad : {"", "/", "//", "a//b", "./a", "a/../b", "..", "!a", "a/."})
    EXPECT_NE(why_no_pattern(bad), "") << bad;
}

}  // namespace
}  // namespace isogate::docker
