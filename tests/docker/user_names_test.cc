// Names for uids that an image does not know.
#include <fcntl.h>
#include <gmock/gmock.h>

#include "lib/fd.h"
#include "lib/tar/tar_writer.h"
#include "plugins/docker/files/user_names.h"
#include "plugins/docker/services.h"
#include "tests/docker/fake_engine.h"
#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;
using test::succeeded;

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
  EXPECT_FALSE(names_in(large).text);
  EXPECT_FALSE(names_in(std::nullopt).text);
}

TEST(UserNames, AnArchiveOfOneFileIsThatFile) {
  const std::string text(3000, 'x');
  EXPECT_EQ(file_in_archive(archive_of([&](TarWriter& tar) { tar.file({"passwd"}, text); })), text);
  const std::string name = std::string(300, 'n');  // needs one more header
  EXPECT_EQ(file_in_archive(archive_of([&](TarWriter& tar) { tar.file({name}, text); })), text);
  EXPECT_EQ(file_in_archive(archive_of([](TarWriter& tar) { tar.file({"passwd"}, ""); })), "");
}

TEST(UserNames, OtherArchivesAreInvalid) {
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

TEST(UserNames, AContainerThatIsPrunedMeanwhileSaysNothingOfItsImage) {
  const test::TemporaryDirectory directory;
  FakeEngine fake;
  isogate_host host{};
  host.struct_size = sizeof host;
  host.log = [](void*, uint32_t, isogate_str) {};
  host.instance = host.backend_name = sdk::str("test");
  Services services(sdk::Host(host), parse_config(R"({"image": "x"})"),
                    parse_address(fake.address(), "the test"));
  const std::string gone = FakeEngine::json(R"({"message": "No such container: box"})", "", 404);
  fake.say("/images/x/json", FakeEngine::json(R"({"Id": "sha256:1"})"));
  fake.say("/containers/create", FakeEngine::json(R"({"Id": "box"})", "", 201));
  for (const char* path : {"/containers/box/archive", "/containers/box/json", "/containers/box"})
    fake.say(path, gone);
  const Fd sandbox(::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const isogate_call abi{sizeof abi, -1, INT64_MAX, {}};
  Parts parts;
  parts.uid = parts.gid = 10'000;
  prepare_names(services, parts, sandbox.get(), directory.path(), sdk::Call(abi));
  EXPECT_EQ(parts.passwd + parts.group, "") << "the image's own";
  EXPECT_TRUE(services.image_users.empty()) << "the next one asks again";
}

using Named = OnEngine;
using NamedInOwnImage = OnOwnImage;

constexpr const char* kPlaces[] = {"workspace: bind", "workspace: volume"};
constexpr const char* kShell = "shell: /bin/sh";

TEST_F(Named, TheImagesOwnNamesStay) {
  for (const char* place : kPlaces) {
    SCOPED_TRACE(place);
    const Gateway gateway(options(place, kShell));
    const Caller me(gateway, new_name());
    EXPECT_EQ(me.out("whoami; id -gn; echo $USER; [ $(id -u agent) = $(id -u) ] || echo other; awk -F: -v "
                     "u=$(id -u) '$3 == u {print $6}' /etc/passwd"),
              "agent\nagent\nagent\n/workspace\n");
    EXPECT_EQ(me.out("grep -c '^root:x:0:' /etc/passwd; grep -c '^agent:x:1000:' /etc/passwd /etc/group"),
              "1\n/etc/passwd:1\n/etc/group:1\n");
    EXPECT_EQ(me.out("for f in /etc/passwd /etc/new; do echo x 2> /dev/null >> $f || echo refused; done; "
                     "rm -f /etc/passwd 2> /dev/null || echo refused; find /etc -writable ! -type l"),
              "refused\nrefused\nrefused\n");
    for (const Json& left : containers("filler")) ADD_FAILURE() << left;
  }
}

TEST_F(Named, AFileOfTheOperatorTakesTheirPlace) {
  const test::TemporaryDirectory place;
  const std::string file = place.file("passwd", "me:x:0:0::/:/bin/sh\n");
  for (const char* where : kPlaces)
    for (const char* how : {"mounts", "copies"}) {
      const std::string config =
          std::string(where) + ", " + how + ": [{source: " + file + ", target: /etc/passwd}]";
      SCOPED_TRACE(config);
      const Gateway gateway(options(config, kShell));
      EXPECT_EQ(Caller(gateway, new_name()).out("cat /etc/passwd; id -gn"), "me:x:0:0::/:/bin/sh\nagent\n");
    }
}

TEST_F(Named, WhatTheOperatorCopiesBesideThemIsThere) {
  const test::TemporaryDirectory place;
  const std::string file = place.file("tool.conf", "mine\n");
  for (const char* where : kPlaces) {
    SCOPED_TRACE(where);
    const Gateway gateway(
        options(std::string(where) + ", copies: [{source: " + file + ", target: /etc/tool.conf}]", kShell));
    EXPECT_EQ(Caller(gateway, new_name()).out("whoami; cat /etc/tool.conf; grep -c ^root: /etc/passwd"),
              "agent\nmine\n1\n");
  }
}

TEST_F(Named, TheirVolumeEndsWithTheSandbox) {
  const Gateway gateway(options("workspace: volume", kShell));
  const Caller me(gateway, "a");
  const auto own = [this] {
    return engine_->list({{kLabelInstance, instance_}, {kLabelRole, "copy"}}, usual(), ObjectKind::kVolume)
        .size();
  };
  EXPECT_EQ(me.out("whoami"), "agent\n");
  EXPECT_EQ(own(), 1u);
  engine_->remove(only("sandbox").at("Id"), usual());
  EXPECT_EQ(me.out("whoami"), "agent\n") << "in the next container";
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(volumes(), 1u) << "the runner's";
}

TEST_F(NamedInOwnImage, HasThemWhateverItSaysOfUsers) {
  struct Row {
    const char *script, *name;
  };
  for (const Row& row :
       {Row{"rm -f etc/passwd etc/group", "agent"}, Row{"chmod 400 etc/passwd", "agent"},
        Row{"rm -r etc", "agent"}, Row{"seq 10000 69999 | sed 's|.*|me:x:&:0:::|' >> etc/passwd", "me"}}) {
    SCOPED_TRACE(row.script);
    import(row.script);
    for (const char* place : kPlaces) {
      SCOPED_TRACE(place);
      const Gateway gateway(options(place, kShell));
      EXPECT_EQ(Caller(gateway, new_name()).out("whoami; echo $USER"),
                std::string(row.name) + "\n" + row.name + "\n");
    }
  }
}

}  // namespace
}  // namespace isogate::docker
