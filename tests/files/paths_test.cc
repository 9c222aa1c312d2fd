#include <fcntl.h>
#include <unistd.h>

#include "runner/files/workspace_path.h"
#include "tests/files/box.h"

namespace isogate::test {
namespace {

using Paths = Box;

const uint32_t kSandbox = ISOGATE_SCOPE_SANDBOX;

TEST_F(Paths, LeadingOutAreRefusedWithoutAHostPath) {
  for (const char* path : {"../../etc/passwd", "/etc/passwd", "a/../../x", "./..", "..", "/workspace/../x",
                           "/workspacex", "//workspace/x", "/", "/workspace/.."}) {
    for (const auto& error :
         {read(path).error(), write(path, "x").error(), stat(path).error(), list(path).error(),
          mkdir(path).error(), remove(path).error(), move(path, "b").error()}) {
      EXPECT_TRUE(error.status == ISOGATE_INVALID_ARGUMENT || error.status == ISOGATE_PERMISSION_DENIED)
          << path;
      EXPECT_EQ(error.message.find(top_), std::string::npos) << error.message;
      EXPECT_EQ(error.message.find("/tmp"), std::string::npos) << error.message;
    }
    EXPECT_STATUS(files().directory(path), ISOGATE_INVALID_ARGUMENT);
  }
}

TEST_F(Paths, PercentAndBackslashAndDotsAreLiteral) {
  for (const char* path : {"%2e%2e/x", "..%2fx", "..\\x", "....//x", "a%00b", "..."}) {
    EXPECT_STATUS(read(path), ISOGATE_NOT_FOUND);
    ASSERT_OK(write(path, path, ISOGATE_FILE_PARENTS));
    EXPECT_EQ(*read(path), path);
  }
  EXPECT_TRUE(exists(inside("..%2fx")));
  EXPECT_TRUE(exists(inside("..\\x")));
}

TEST_F(Paths, WorkspacePrefixIsTheSameThing) {
  ASSERT_OK(write("/workspace/a", "one"));
  for (const char* path : {"a", "./a", "/workspace/a", "/workspace/./a", "/workspace//a", ".//./a"})
    EXPECT_EQ(*read(path), "one") << path;
  for (const char* path : {"", ".", "/workspace", "/workspace/", "./"})
    EXPECT_EQ(list(path)->names.size(), 1U) << path;
  ASSERT_OK(mkdir("workspace"));
  ASSERT_OK(write("workspace/a", "two"));
  EXPECT_EQ(*read("/workspace/workspace/a"), "two");
}

TEST_F(Paths, NulIsRefused) {
  const std::string path("a\0b", 3);
  EXPECT_STATUS(read(path), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(write(path, "x"), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(move("a", path), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Paths, AnyOtherNameWorks) {
  const std::vector<std::string> names = {
      "new\nline",        "\xff\xfe",    std::string(255, 'n'), "-rf", "*",
      "\xf0\x9f\x98\x80", "caf\xc3\xa9", "cafe\xcc\x81",        " ",   "a'b\"c`d$(e)"};
  for (const auto& name : names) {
    ASSERT_OK(write(name, name));
    EXPECT_EQ(*read(name), name);
    EXPECT_OK(stat(name));
  }
  const auto listed = list("");
  ASSERT_OK(listed);
  EXPECT_EQ(listed->names.size(), names.size());
  for (const auto& name : names) EXPECT_TRUE(listed->has(name)) << name;
}

TEST_F(Paths, TooLongIsRefused) {
  EXPECT_STATUS(write(std::string(256, 'n'), "x"), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(stat(std::string(256, 'n')), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(stat(std::string(4096, 'n')), ISOGATE_INVALID_ARGUMENT);
  std::string many;
  for (int i = 0; i < 10000; ++i) many += "a/";
  EXPECT_STATUS(mkdir(many, ISOGATE_FILE_PARENTS), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(stat(std::string(5000, '/')), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Paths, LongestAllowedPathWorks) {
  std::string path;
  for (int i = 0; i < 2047; ++i) path += "a/";
  path += "f";
  ASSERT_EQ(path.size(), 4095U);
  ASSERT_OK(write(path, "deep", ISOGATE_FILE_PARENTS));
  EXPECT_EQ(*read(path), "deep");
  const auto listed = list("", ISOGATE_FILE_RECURSIVE);
  ASSERT_OK(listed);
  EXPECT_EQ(listed->names.size(), 2048U);
  EXPECT_EQ(listed->names.back(), path);
  EXPECT_OK(remove("a", ISOGATE_FILE_RECURSIVE));
  EXPECT_TRUE(list("")->names.empty());
}

TEST_F(Paths, MagicLinksAreRefused) {
  link("/proc/self/root", "r");
  link("/proc/self/fd/0", "fd");
  link("/proc/self/exe", "exe");
  link("/proc/self/cwd", "cwd");
  for (const char* path : {"r/etc/passwd", "fd", "exe", "cwd/x", "r"}) {
    EXPECT_STATUS(read(path), ISOGATE_PERMISSION_DENIED);
    EXPECT_STATUS(write(std::string(path) + "/x", "x"), ISOGATE_PERMISSION_DENIED);
    EXPECT_STATUS(files().directory(path), ISOGATE_INVALID_ARGUMENT);
  }
}

TEST_F(Paths, MagicLinksAreRefusedInTheHostsViewToo) {
  open(true);
  link("/proc/self/root", "r");
  EXPECT_STATUS(read(inside("r/etc/passwd"), 0, UINT64_MAX, kSandbox), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(read("/proc/self/root/etc/passwd", 0, UINT64_MAX, kSandbox), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(read("/proc/self/fd/0", 0, UINT64_MAX, kSandbox), ISOGATE_PERMISSION_DENIED);
}

TEST_F(Paths, UnknownBitsAreRefused) {
  auto request = request_for("a");
  request.flags = 1U << 20;
  EXPECT_STATUS(files().stat(request), ISOGATE_INVALID_ARGUMENT);
  request.flags = 0;
  request.scope = 7;
  EXPECT_STATUS(files().stat(request), ISOGATE_INVALID_ARGUMENT);
  request.scope = 0;
  request.mode = 04755;
  EXPECT_STATUS(files().mkdir(request), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Paths, SandboxScopeNeedsAViewOfItsOwn) {
  EXPECT_STATUS(stat("/etc", kSandbox), ISOGATE_UNSUPPORTED);
  open(true);
  EXPECT_OK(stat("/etc", kSandbox));
  EXPECT_STATUS(stat("etc", kSandbox), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(stat("", kSandbox), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Paths, WorkingDirectoryIsInsideOrRefused) {
  ASSERT_OK(mkdir("d"));
  ASSERT_OK(write("f", "x"));
  link("d", "alias");
  link("/", "out");
  for (const char* path : {"", ".", "d", "/workspace/d", "alias", "d/"}) EXPECT_OK(files().directory(path));
  for (const char* path : {"f", "absent", "out", "out/tmp", "../x", "/tmp", "f/x"})
    EXPECT_STATUS(files().directory(path), ISOGATE_INVALID_ARGUMENT);
}

TEST(PathParts, QuotingKeepsMessagesReadable) {
  EXPECT_EQ(quote_path("a/b"), "`a/b`");
  EXPECT_EQ(quote_path("a\nb\x1b[0m\xff`"), "`a\\x0ab\\x1b[0m\\xff\\x60`");
  EXPECT_EQ(quote_path("caf\xc3\xa9"), "`caf\xc3\xa9`");
  EXPECT_EQ(quote_path("\xc0\xaf"), "`\\xc0\\xaf`");
  EXPECT_LT(quote_path(std::string(4000, 'a')).size(), 220U);
}

TEST(PathParts, ATrailingSlashIsRemembered) {
  EXPECT_TRUE(parse_path("a/", 0)->directory_only);
  EXPECT_TRUE(parse_path("a/.", 0)->directory_only);
  EXPECT_FALSE(parse_path("a/b", 0)->directory_only);
  EXPECT_FALSE(parse_path("./a", 0)->directory_only);
}

}  // namespace
}  // namespace isogate::test
