// Which mounts would show the socket of an engine.
#include "plugins/docker/client/engine_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/support/program.h"

namespace isogate::docker {
namespace {

namespace fs = std::filesystem;

class EngineSockets : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(at("run/engine"));
    fs::create_directories(at("elsewhere"));
    fs::create_directories(at("around/inner"));
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, socket().c_str(), sizeof name.sun_path - 1);
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  std::string at(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string socket() const { return at("run/engine/docker.sock"); }
  static std::string shown(const std::string& source, const std::string& socket) {
    const Fd fd(::open(source.c_str(), O_PATH | O_CLOEXEC));
    EXPECT_TRUE(fd) << source;
    const auto found = socket_shown_in(fd.get(), {socket});
    return found ? *found : found.error().message;
  }
  // In a mount namespace of its own, on a thread of its own.
  static void apart(const std::function<void()>& work) {
    bool may = true;
    std::thread([&] {
      may = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
      if (may) work();
    }).join();
    if (!may) GTEST_SKIP() << "no mount namespace can be created here";
  }
  static void bind(const std::string& from, const std::string& to) {
    ASSERT_EQ(::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr), 0) << to;
  }

  test::TemporaryDirectory directory_;
  Fd listener_;
};

TEST_F(EngineSockets, AreShownInEveryDirectoryAbove) {
  for (const std::string& source : {at("run/engine"), at("run"), directory_.path(), std::string("/")})
    EXPECT_EQ(shown(source, socket()), socket()) << source;
  for (const std::string& source : {at("elsewhere"), at("around")})
    EXPECT_EQ(shown(source, socket()), "") << source;
}

TEST_F(EngineSockets, AreTheFilesBehindSymlinks) {
  fs::create_directory_symlink(at("run"), at("link"));
  fs::create_symlink(socket(), at("elsewhere/docker.sock"));
  EXPECT_EQ(shown(at("link"), socket()), socket()) << "a source below a link";
  const std::string linked = at("elsewhere/docker.sock");
  EXPECT_EQ(shown(at("run"), linked), linked) << "a socket behind a link";
  EXPECT_EQ(shown(at("elsewhere"), linked), "") << "the link leads nowhere in there";
}

TEST_F(EngineSockets, AreShownByBindMountsOfWhatIsAroundThem) {
  apart([this] {
    bind(at("run"), at("elsewhere"));
    EXPECT_EQ(shown(at("elsewhere"), socket()), socket()) << "the directory at another place";
    const std::string other = at("elsewhere/engine/docker.sock");
    EXPECT_EQ(shown(at("run"), other), other) << "the socket named by another place";
    EXPECT_EQ(shown(at("elsewhere"), other), other);
    EXPECT_EQ(shown(at("around"), socket()), "");
    bind(at("run/engine"), at("around/inner"));
    EXPECT_EQ(shown(at("around"), socket()), socket()) << "a mount in the source";
  });
}

TEST_F(EngineSockets, AreShownByBindMountsOfTheFileItself) {
  std::ofstream(at("around/inner/s")).close();
  apart([this] {
    bind(socket(), at("around/inner/s"));
    EXPECT_EQ(shown(at("around"), socket()), socket());
    EXPECT_EQ(shown(at("elsewhere"), socket()), "");
    EXPECT_EQ(shown(at("run"), at("around/inner/s")), at("around/inner/s"));
  });
}

TEST_F(EngineSockets, AreShownThroughFileSystemsMountedInTheSource) {
  apart([this] {
    ASSERT_EQ(::mount("none", at("around/inner").c_str(), "tmpfs", 0, nullptr), 0);
    fs::create_directories(at("around/inner/a"));
    const std::string inner = at("around/inner/a/s");
    std::ofstream(inner).close();
    EXPECT_EQ(shown(at("around"), inner), inner);
    EXPECT_EQ(shown(at("elsewhere"), inner), "");
    bind(at("around/inner/a"), at("elsewhere"));
    EXPECT_EQ(shown(at("elsewhere"), inner), inner);
  });
}

TEST_F(EngineSockets, WithASecondNameAreAnywhereOnTheirFileSystem) {
  ASSERT_EQ(::link(socket().c_str(), at("elsewhere/other").c_str()), 0);
  EXPECT_EQ(shown(at("elsewhere"), socket()), socket());
}

TEST(UsualSockets, AreKnownByTheDirectoriesAboveThem) {
  for (const char* source : {"/", "/run", "/var", "/var/run", "/run/user", "/run/user/1000", "/run/podman",
                             "/run/user/7/podman", "/run/docker", "/run/docker.sock", "/run/containerd"})
    EXPECT_NE(usual_socket_in(source), "") << source;
  for (const char* source :
       {"/srv", "/var/lib/data", "/run/user/1000/mine", "/run/lock", "/runs", "/var/tmp"})
    EXPECT_EQ(usual_socket_in(source), "") << source;
}

}  // namespace
}  // namespace isogate::docker
