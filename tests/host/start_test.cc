#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "tests/host/host_process.h"

namespace isogate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kOwnAbi = std::to_string(ISOGATE_ABI_MAJOR) + "." + std::to_string(ISOGATE_ABI_MINOR);

class Start : public testing::Test {
 protected:
  void SetUp() override { ISOGATE_NEEDS_TRUSTED_BUILD_DIR(); }

  static void expect_failure(BackendConfig backend, const testing::Matcher<const std::string&>& message,
                             Config config = {}) {
    HostProcess host(std::move(backend), std::move(config));
    EXPECT_THAT(host.first_message(), message);
    EXPECT_EQ(host.exit_code(), 3);
  }
};

uint64_t hex_line(const std::string& status, const std::string& name) {
  size_t at = status.find("\n" + name + ":\t");
  return at == std::string::npos ? UINT64_MAX : std::stoull(status.substr(at + name.size() + 3), nullptr, 16);
}

TEST_F(Start, GreetsTheFrontWithWhatThePluginIs) {
  HostProcess host(fixture_backend("good"));
  ASSERT_NO_FATAL_FAILURE(host.expect_ready());
  EXPECT_EQ(host.hello().plugin_id, "com.example.fixture");
  EXPECT_EQ(host.hello().plugin_version, "0.9.1");
  EXPECT_EQ(host.hello().isolation, ISOGATE_ISOLATION_NAMESPACE);
  EXPECT_EQ(host.hello().locality, ISOGATE_LOCALITY_HOST);
  EXPECT_EQ(host.hello().capabilities, ISOGATE_CAP_PTY | ISOGATE_CAP_EVIDENCE);
}

TEST_F(Start, KeepsNoPrivilegeThatThePluginDoesNotAskFor) {
  HostProcess host(fixture_backend("good"));
  ASSERT_NO_FATAL_FAILURE(host.expect_ready());
  host.open();
  std::string status;
  ASSERT_EQ(host.exec({"status"}, &status).status, ISOGATE_OK);
  EXPECT_EQ(hex_line(status, "CapEff"), 0u);
  EXPECT_EQ(hex_line(status, "CapPrm"), 0u);
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  if (::geteuid() == 0) {
    EXPECT_THAT(status, HasSubstr("Uid:\t65534\t65534\t65534\t65534"));
    EXPECT_EQ(hex_line(status, "CapBnd"), 0u);
  }
  std::string limits;
  ASSERT_EQ(host.exec({"limits"}, &limits).status, ISOGATE_OK);
  EXPECT_THAT(limits, testing::ContainsRegex("Max core file size +0 +0"));
}

TEST_F(Start, KeepsRootWithJustTheCapabilitiesOfTheDescriptor) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has capabilities to keep";
  BackendConfig backend = fixture_backend("as_root");
  backend.users.clear();
  HostProcess host(backend);
  ASSERT_NO_FATAL_FAILURE(host.expect_ready());
  host.open();
  std::string status;
  ASSERT_EQ(host.exec({"status"}, &status).status, ISOGATE_OK);
  EXPECT_THAT(status, HasSubstr("Uid:\t0\t0\t0\t0"));
  EXPECT_EQ(hex_line(status, "CapEff"), 0x21u);
  EXPECT_EQ(hex_line(status, "CapBnd") & ~uint64_t{0x21}, 0u);
}

TEST_F(Start, RefusesUnknownUsersAndRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes others";
  BackendConfig backend = fixture_backend("as_root");
  backend.users = {"daemon", "1234"};
  HostProcess host(backend);
  host.expect_ready();
  backend.users = {"no-such-user-here"};
  expect_failure(backend, HasSubstr("names `no-such-user-here`, and this host has no such user"));
  backend.users = {"root"};
  expect_failure(backend, HasSubstr("runs none as root"));
}

TEST_F(Start, NamesTheSettingThatIsWrong) {
  BackendConfig backend = fixture_backend("good");
  backend.config_json = R"({"unknown":1})";
  HostProcess config(backend);
  EXPECT_EQ(config.mistaken_setting(), "config");
  BackendConfig pinned = fixture_backend("good");
  pinned.sha256 = std::string(64, '0');
  HostProcess plugin(pinned);
  EXPECT_EQ(plugin.mistaken_setting(), "plugin");
}

TEST_F(Start, HoldsNoDescriptorButItsSockets) {
  if (::geteuid() != 0) GTEST_SKIP() << "a host's descriptors can be listed by root only";
  HostProcess host(fixture_backend("good"));
  ASSERT_NO_FATAL_FAILURE(host.expect_ready());
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(host.pid()) + "/fd"))
    if (entry.path().filename().string().size() < 4) ++count;
  EXPECT_LE(count, 3 + 2 + 2);  // stdio, two sockets, its own event, the log
}

TEST_F(Start, SaysWhichPluginIsNotInstalled) {
  BackendConfig backend = fixture_backend("good");
  backend.plugin = "docker";
  Config config;
  config.plugin_dir = "/usr/lib/isogate/no-plugins-here";
  expect_failure(
      backend, HasSubstr("plugin `docker` is not installed: no /usr/lib/isogate/no-plugins-here/docker.so, "),
      config);
}

TEST_F(Start, RefusesPluginsWithTheMessageOfTheirDefect) {
  expect_failure(fixture_backend("newer_minor"), HasSubstr("needs ABI 1.3, this gateway offers " + kOwnAbi));
  expect_failure(fixture_backend("crashes"), HasSubstr("crashed while it was loaded"));
  expect_failure(fixture_backend("without_exec"), HasSubstr("has no exec"));
  BackendConfig pinned = fixture_backend("good");
  pinned.sha256 = std::string(64, '0');
  expect_failure(pinned, HasSubstr("pinned is 0000"));
}

TEST_F(Start, RefusesAConfigurationThatThePluginsSchemaForbids) {
  BackendConfig backend = fixture_backend("good");
  backend.config_json = R"({"records":-1})";
  expect_failure(backend, AllOf(HasSubstr("config of backend `tested`"), HasSubstr("records")));
  backend.config_json = R"({"unknown":1})";
  expect_failure(backend, HasSubstr("config of backend `tested`"));
  BackendConfig without = fixture_backend("no_schema");
  expect_failure(without, HasSubstr("takes no configuration"));
  BackendConfig wrong = fixture_backend("wrong_schema");
  expect_failure(wrong, HasSubstr("its JSON Schema is broken"));
}

// The supervisor kills what sends it more than 60 KiB.
TEST_F(Start, CutsAReasonThatIsLong) {
  BackendConfig backend = fixture_backend("long_schema");
  backend.config_json = R"({"mode":"another"})";
  HostProcess host(backend);
  const std::string message = host.first_message();
  EXPECT_THAT(message, AllOf(HasSubstr("`mode`: expected one of €"), HasSubstr("€… (cut: it has ")));
  EXPECT_LT(message.size(), 4200u);
  HostProcess again(backend);
  EXPECT_EQ(again.mistaken_setting(), "config");
}

TEST_F(Start, RefusesAUserThatDoesNotExist) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root changes users";
  BackendConfig backend = fixture_backend("good");
  backend.run_as = "no-such-user-here";
  expect_failure(backend, HasSubstr("no-such-user-here"));
}

// As on a full disk. The supervisor then tries again, and leaves alone what serves.
TEST_F(Start, WithoutRoomForItsCopyItEndsAsByACrash) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the runtime of this sanitizer writes larger files at the start of a program";
#endif
  const auto before = ::signal(SIGXFSZ, SIG_IGN);  // which the host inherits, with the limit
  rlimit size{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &size), 0);
  const rlimit small{4096, size.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  HostProcess host(fixture_backend("good"));
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &size), 0);
  (void)::signal(SIGXFSZ, before);
  EXPECT_THAT(host.first_message(), HasSubstr("cannot write a private copy of the plugin"));
  EXPECT_EQ(host.exit_code(), 1);
}

TEST_F(Start, WithoutWhatItsPluginNeedsForAMomentItEndsAsByACrash) {
  BackendConfig backend = fixture_backend("good");
  backend.config_json = R"({"short":true})";
  HostProcess host(backend);
  EXPECT_THAT(host.first_message(), HasSubstr("out of memory"));
  EXPECT_EQ(host.exit_code(), 1);
}

TEST_F(Start, EndsWithoutAStartMessage) {
  auto control = ipc::make_socket_pair();
  ASSERT_TRUE(control.ok());
  HostProcess host(fixture_backend("good"));
  host.expect_ready();
  host.end_supervisor();
  EXPECT_EQ(host.exit_code(), 0);
}

}  // namespace
}  // namespace isogate
