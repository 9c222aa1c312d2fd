// What TarWriter writes is what tar(1) reads.
#include "lib/tar/tar_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "tests/support/program.h"

namespace isogate {
namespace {

using test::TemporaryDirectory;

struct Archive {
  std::string bytes;
  TarWriter writer{[this](std::string_view piece) { bytes += piece; }};
};

std::string tar(const Archive& archive, std::vector<std::string> arguments) {
  test::ProgramOptions options;
  options.stdin_bytes = archive.bytes;
  arguments.insert(arguments.begin(), {"tar", "--numeric-owner"});
  const auto result = test::run_program(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status;
}

TEST(TarWriter, FilesDirectoriesAndLinksComeOutAsTheyWentIn) {
  Archive archive;
  std::string big(3'000'001, 'x');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 31 >> 3);
  archive.writer.directory({"bin", 0750, 0, 0, 1'700'000'000});
  archive.writer.file({"bin/run", 04755, 0, 0, 1'600'000'000}, big);
  archive.writer.file({"empty", 0600, 0, 0, 0}, "");
  archive.writer.file({"block", 0644, 0, 0, 1}, std::string(512, 'b'));
  archive.writer.symlink({"link", 0777, 0, 0, 5}, "bin/run");
  archive.writer.finish();
  EXPECT_EQ(archive.bytes.size() % 512, 0u);

  TemporaryDirectory to;
  tar(archive, {"-xpf", "-", "-C", to.path()});
  EXPECT_EQ(test::read_whole(to.path() + "/bin/run"), big);
  EXPECT_EQ(test::read_whole(to.path() + "/block"), std::string(512, 'b'));
  EXPECT_EQ(status_of(to.path() + "/bin").st_mode, S_IFDIR | 0750u);
  EXPECT_EQ(status_of(to.path() + "/bin").st_mtime, 1'700'000'000);
  EXPECT_EQ(status_of(to.path() + "/bin/run").st_mtime, 1'600'000'000);
  EXPECT_EQ(status_of(to.path() + "/bin/run").st_mode, S_IFREG | 04755u);
  EXPECT_EQ(status_of(to.path() + "/empty").st_mode, S_IFREG | 0600u);
  EXPECT_EQ(status_of(to.path() + "/empty").st_size, 0);
  EXPECT_EQ(test::read_whole(to.path() + "/link"), big);
}

TEST(TarWriter, OwnersAndTimesHaveTheirFullRange) {
  Archive archive;
  archive.writer.file({"small", 0640, 1000, 1001, 0}, "1");
  archive.writer.file({"large", 0640, 4'000'000'000, 3'999'999'999, 20'000'000'000}, "2");
  archive.writer.file({"before", 0640, 0, 0, -86'400}, "3");
  archive.writer.finish();
  const std::string listed = tar(archive, {"--utc", "-tvf", "-"});
  EXPECT_NE(listed.find("-rw-r----- 1000/1001"), std::string::npos) << listed;
  EXPECT_NE(listed.find("4000000000/3999999999"), std::string::npos) << listed;
  EXPECT_NE(listed.find("2603-10-11"), std::string::npos) << listed;
  EXPECT_NE(listed.find("1969-12-31"), std::string::npos) << listed;
}

TEST(TarWriter, NamesHaveAnyLength) {
  for (const size_t size : {99u, 100u, 101u, 155u, 240u}) {
    Archive archive;
    const std::string name(size, 'n');
    std::string deep;
    while (deep.size() < size * 4) deep += "directory-of-some-name/";
    archive.writer.file({name}, "short");
    archive.writer.file({deep + name}, "deep");
    archive.writer.symlink({"to-" + std::to_string(size)}, deep + name);
    archive.writer.finish();
    TemporaryDirectory to;
    tar(archive, {"-xf", "-", "-C", to.path()});
    EXPECT_EQ(test::read_whole(to.path() + "/" + name), "short");
    EXPECT_EQ(test::read_whole(to.path() + "/" + deep + name), "deep");
    EXPECT_EQ(test::read_whole(to.path() + "/to-" + std::to_string(size)), "deep");
  }
}

TEST(TarWriter, AFileHasAsManyBytesAsItWasSaidToHave) {
  Archive archive;
  archive.writer.begin_file({"a"}, 3);
  EXPECT_THROW(archive.writer.bytes("four"), std::logic_error);
  archive.writer.bytes("12");
  EXPECT_THROW(archive.writer.end_file(), std::logic_error);
  EXPECT_THROW(archive.writer.finish(), std::logic_error);
  EXPECT_THROW(archive.writer.directory({"b"}), std::logic_error);
  archive.writer.bytes("3");
  archive.writer.end_file();
  archive.writer.finish();
  EXPECT_EQ(tar(archive, {"-xOf", "-"}), "123");
}

}  // namespace
}  // namespace isogate
