// Names for uids that an image does not know.
#include <gmock/gmock.h>

#include "lib/tar/tar_writer.h"
#include "plugins/docker/user_names.h"
#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;

std::string archive_of(const std::function<void(TarWriter&)>& fill) {
  std::string archive;
  TarWriter tar([&](std::string_view piece) { archive += piece; });
  fill(tar);
  tar.finish();
  return archive;
}

TEST(UserNames, TheThirdFieldIsTheNumber) {
  const auto names =
      names_in("root:x:0:0::/:/bin/sh\nbroken\n::\nwide:x:4294967296:0\nx:y:-1:\nagent:x:1000:1000");
  EXPECT_EQ(names.numbers, (std::vector<uint32_t>{0, 1000}));
  EXPECT_TRUE(names.has(1000));
  EXPECT_FALSE(names.has(100));
  EXPECT_TRUE(names.text);
}

TEST(UserNames, WhatIsTooLargeOrNoFileIsNotWrittenAgain) {
  std::string large;
  for (int i = 0; i < 20000; ++i) large += "agent:x:" + std::to_string(i) + ":0::/:/bin/sh\n";
  const auto names = names_in(large);
  EXPECT_TRUE(names.has(19999));
  EXPECT_FALSE(names.text);
  EXPECT_FALSE(names_in(std::nullopt).text);
}

TEST(UserNames, AnArchiveOfOneFileIsThatFile) {
  const std::string text(3000, 'x');
  EXPECT_EQ(file_in_archive(archive_of([&](TarWriter& tar) { tar.file({"passwd"}, text); })), text);
  const std::string name = std::string(300, 'n');  // takes a header more
  EXPECT_EQ(file_in_archive(archive_of([&](TarWriter& tar) { tar.file({name}, text); })), text);
  EXPECT_EQ(file_in_archive(archive_of([](TarWriter& tar) { tar.file({"passwd"}, ""); })), "");
}

TEST(UserNames, AnyOtherArchiveIsNone) {
  EXPECT_EQ(file_in_archive(archive_of([](TarWriter& tar) { tar.symlink({"passwd"}, "/etc/shadow"); })),
            std::nullopt);
  EXPECT_EQ(file_in_archive(archive_of([](TarWriter& tar) { tar.directory({"passwd"}); })), std::nullopt);
  const std::string whole = archive_of([](TarWriter& tar) { tar.file({"passwd"}, std::string(3000, 'x')); });
  for (const size_t size : {size_t{0}, size_t{100}, size_t{512}, size_t{3000}})
    EXPECT_EQ(file_in_archive(whole.substr(0, size)), std::nullopt) << size;
  std::string wrong = whole;
  wrong.replace(124, 12, "99999999999 ");
  EXPECT_EQ(file_in_archive(wrong), std::nullopt);
  EXPECT_EQ(file_in_archive(std::string(1024, '\0')), std::nullopt);
}

class Named : public OnEngine {};

TEST_F(Named, TheImagesOwnNamesStay) {
  const Gateway gateway(options("", "shell: /bin/sh"));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("id -un; id -gn; echo $USER; awk -F: -v u=$(id -u) '$3 == u {print $6}' /etc/passwd"),
            "agent\nagent\nagent\n/workspace\n");
  EXPECT_EQ(me.out("grep -c '^root:x:0:' /etc/passwd; grep -c '^agent:x:1000:' /etc/passwd /etc/group"),
            "1\n/etc/passwd:1\n/etc/group:1\n");
  for (const Json& left : engine_->list({{kLabelInstance, instance_}, {kLabelRole, "filler"}}, usual()))
    ADD_FAILURE() << left;
}

TEST_F(Named, AFileOfTheOperatorTakesTheirPlace) {
  const test::TemporaryDirectory place;
  const std::string file = place.file("passwd", "me:x:0:0::/:/bin/sh\n");
  const Gateway gateway(options("mounts: [{source: " + file + ", target: /etc/passwd}]", "shell: /bin/sh"));
  EXPECT_EQ(Caller(gateway, "a").out("cat /etc/passwd; id -gn"), "me:x:0:0::/:/bin/sh\nagent\n");
}

}  // namespace
}  // namespace isogate::docker
