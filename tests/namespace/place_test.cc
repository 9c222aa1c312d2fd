#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "plugins/namespace/operator_paths.h"
#include "plugins/namespace/privileges.h"
#include "tests/namespace/boxes.h"
#include "tests/support/link_race.h"

// What the operator adds, what the backend host keeps, and what file calls see.
namespace isogate::test {
namespace {

class Place : public Boxes {
 protected:
  static std::unique_ptr<Gateway> with(const std::string& yaml, bool ready = true) {
    GatewayOptions options;
    options.yaml = "backends:\n  - name: namespace\n" + yaml;
    options.wait_ready = ready;
    return std::make_unique<Gateway>(options);
  }
};

uint64_t capabilities(pid_t pid, const std::string& set) {
  return std::stoull(status_field(pid, set), nullptr, 16);
}

TEST_F(Place, TheHostKeepsWhatItUsesAndTheFrontNothing) {
  const pid_t host = host_of(gateway(), "namespace"), front = front_of(gateway());
  for (const char* set : {"CapEff", "CapPrm", "CapBnd"})
    EXPECT_EQ(capabilities(host, set), bits_of(ns::kKept)) << set;
  for (const char* set : {"CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"})
    EXPECT_EQ(capabilities(front, set), 0u) << set;
  EXPECT_EQ(status_field(host, "NoNewPrivs"), "1");
}

TEST_F(Place, SharedDirectoriesAndTheToolchainAreInsideReadOnly) {
  const TemporaryDirectory shared;
  const TemporaryDirectory beside("/opt");  // a sandbox has a /tmp of its own
  const std::string& tools = beside.path();
  ASSERT_EQ(::chmod(tools.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(shared.path().c_str(), 0755), 0);
  shared.file("hello", "of the operator\n");
  std::ofstream(tools + "/mytool") << "#!/bin/sh\necho from the toolchain\n";
  ASSERT_EQ(::chmod((tools + "/mytool").c_str(), 0755), 0);
  const auto own =
      with("shared_dirs: [{prefix: docs/more, path: " + shared.path() + "}]\ntoolchain_path: " + tools);
  const Caller me(*own, "a");
  EXPECT_EQ(me.out("cat /mnt/docs/more/hello; mytool; command -v mytool"),
            "of the operator\nfrom the toolchain\n" + tools + "/mytool\n");
  EXPECT_EQ(me.content("docs/more/hello"), "of the operator\n");
  for (const std::string& command : std::vector<std::string>{
           "touch /mnt/docs/more/x", "echo x >> /mnt/docs/more/hello", "rm " + tools + "/mytool",
           "touch " + tools + "/x", "chmod 777 /mnt/docs/more/hello"})
    EXPECT_NE(me.run(command).at("exit_code"), 0) << command;
}

// At every start Python compiles files that are newer than its cache.
TEST_F(Place, WhatIsCopiedOfEtcKeepsItsTime) {
  EXPECT_EQ(x().out("stat -c %Y /etc/profile"), run_program({"stat", "-c", "%Y", "/etc/profile"}).out);
}

// In a mount below, and among many files: nothing is shown unchecked.
TEST_F(Place, ASocketIsFoundWhereverItLies) {
  const TemporaryDirectory shared;
  ASSERT_EQ(
      run_program({"sh", "-c",
                   "cd " + shared.path() +
                       " && mkdir m && for i in $(seq 250); do mkdir d$i; done && "
                       "for i in $(seq 250); do (cd d$i && touch $(seq 100)); done; mount -t tmpfs none m && "
                       "python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.bind('m/s')\""})
          .exit_code,
      0);
  const auto answer = [&] { return ns::check_no_socket(shared.path(), "it"); };
  EXPECT_FALSE(answer().ok());
  ASSERT_EQ(run_program({"umount", shared.path() + "/m"}).exit_code, 0);
  EXPECT_TRUE(answer().ok());
  ASSERT_EQ(
      run_program({"python3", "-c",
                   "import socket; s=socket.socket(socket.AF_UNIX); s.bind('" + shared.path() + "/d77/s')"})
          .exit_code,
      0);
  EXPECT_FALSE(answer().ok());
}

TEST_F(Place, AStreamThatIsNotGivenIsTheSandboxsOwnNull) {
  EXPECT_EQ(x().out("stat -L -c '%d %i' /proc/self/fd/0"), x().out("stat -c '%d %i' /dev/null"));
  EXPECT_NE(x().out("stat -L -c '%d %i' /proc/self/fd/0"),
            run_program({"stat", "-c", "%d %i", "/dev/null"}).out);
}

TEST_F(Place, TheEndOfASandboxEndsNoOtherProcess) {
  const std::string uid = x().out("id -u");
  const std::string number = uid.substr(0, uid.size() - 1);
  Program other({"setpriv", "--reuid=" + number, "--clear-groups", "sleep", "60"}, {});
  ASSERT_TRUE(eventually(5, [&] { return status_field(other.pid(), "Uid").starts_with(number); }));
  EXPECT_EQ(x().call("DELETE", "/sandboxes/X-" + name() + "?purge=true").status, 503) << "its uid is in use";
  EXPECT_FALSE(other.wait(0.3));
  other.signal(SIGKILL);
  other.wait(5);
  EXPECT_EQ(x().call("DELETE", "/sandboxes/X-" + name() + "?purge=true").status, 200);
}

TEST_F(Place, WhatNoSandboxMaySeeIsRefused) {
  const TemporaryDirectory good, with_socket;
  const std::string path = with_socket.path() + "/socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::symlink("/proc", (good.path() + "/link").c_str()), 0);
  for (const std::string& bad :
       {std::string("/"), std::string("/proc"), std::string("/run"), std::string("/proc/sys"),
        gateway().state_dir(), gateway().state_dir() + "/sandboxes", good.path() + "/link",
        with_socket.path()}) {
    for (const std::string& yaml :
         {"shared_dirs: [{prefix: s, path: " + bad + "}]", "toolchain_path: " + bad}) {
      // Only for the gateway's own: its state directory is known once it starts.
      GatewayOptions options;
      const TemporaryDirectory state;
      ASSERT_EQ(::chmod(state.path().c_str(), 0711), 0);
      const bool of_gateway = bad.starts_with(gateway().state_dir());
      options.state_dir = of_gateway ? state.path() : "";
      std::string text = yaml;
      if (of_gateway)
        text.replace(text.find(gateway().state_dir()), gateway().state_dir().size(), state.path());
      options.yaml = "backends:\n  - name: namespace\n" + text;
      options.wait_ready = false;
      try {
        Gateway own(options);
        const Caller me(own, "a");
        EXPECT_TRUE(eventually(10, [&] {
          return me.get("/backends").body.at("backends").at(0).at("verdict") == "down";
        })) << yaml;
        EXPECT_NE(me.exec("true").status, 200) << yaml;
      } catch (const std::runtime_error& error) {
        SUCCEED() << "the configuration itself was refused: " << error.what();
      }
    }
  }
  ::close(listener);
}

TEST_F(Place, FileCallsInTheSandboxsViewReachWhatAnExecReaches) {
  const Json view{{"scope", "sandbox"}};
  x().run(
      "echo scratch > /tmp/f; ln -s /etc/hostname /tmp/link; ln -s ../../../../../../etc/hostname up; ln -s "
      "/ root");
  EXPECT_EQ(x().read("/tmp/f", view).body.at("content"), "scratch\n");
  EXPECT_EQ(x().read("/etc/hostname", view).body.at("content"), "sandbox\n") << "its own, not this host's";
  for (const char* path : {"/tmp/link", "/workspace/up", "/workspace/root/etc/hostname", "/var/tmp/link"})
    EXPECT_EQ(x().read(path, view).body.at("content"), "sandbox\n") << path;
  EXPECT_TRUE(succeeded(x().write("/tmp/g", "from outside", view)));
  EXPECT_EQ(x().out("cat /tmp/g; stat -c %U /tmp/g"), "from outsideagent\n");
  for (const char* path :
       {"/etc/passwd", "/usr/x", "/x", "/dev/x", "/workspace/root/usr/x", "/etc/isogate/passwd"})
    EXPECT_GE(x().write(path, "x", view).status, 400) << path;
  for (const char* path :
       {"/etc/shadow", "/root/.bashrc", "/proc/1/environ", "/sys/kernel/vmcoreinfo", "/run/isogate.sock"})
    EXPECT_EQ(x().read(path, view).status, 404) << path;
  EXPECT_EQ(x().read("/dev/zero", view).status, 400) << "never opened";
  const std::string host_name = run_program({"cat", "/etc/hostname"}).out;
  EXPECT_NE(host_name, "sandbox\n") << "this test needs a host of another name";
}

// A directory that keeps turning into a link to the root, which is never this host's.
TEST_F(Place, ARaceOfLinksStaysInTheView) {
  const LinkRace race = race_links(x(), "/workspace/", {{"scope", "sandbox"}});
  EXPECT_EQ(race.escaped, "");
  EXPECT_GT(race.inside, 0) << "the race was not run";
  EXPECT_GT(race.held, 0) << "the race was not run";
  RecordProperty("tries", race.tries);
}

TEST_F(Place, RootAmongTheUsersIsRefusedAtTheStart) {
  const auto own = with("", true);
  GatewayOptions options;
  options.yaml = "backends:\n  - name: namespace\n    users: [daemon, root]";
  try {
    Gateway refused(options);
    ADD_FAILURE() << "it started";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(
        std::string(error.what()).find("`backends[0].users`: `users` of backend `namespace` names root"),
        std::string::npos)
        << error.what();
  }
}

TEST_F(Place, AnotherUserIsThatUserAndRootNever) {
  const auto own = with("", true);
  GatewayOptions options;
  options.yaml = "backends:\n  - name: namespace\n    users: [daemon]";
  try {
    Gateway allowed(options);
    const Caller me(allowed, "a");
    me.run("true");
    const Answer outside = me.exec("id", {{"user", "daemon"}});
    EXPECT_TRUE(refused(outside, 400, "invalid_request"));
    EXPECT_NE(outside.text.find("cannot use `/workspace` as working directory of uid 1: Permission denied"),
              std::string::npos)
        << outside.text;
    me.run("chmod 755 .");
    EXPECT_EQ(me.run("id -u", {{"user", "daemon"}}).at("stdout"), run_program({"id", "-u", "daemon"}).out);
    EXPECT_TRUE(refused(me.exec("id", {{"user", "root"}}), 403, "permission_denied"));
    EXPECT_TRUE(refused(me.read("x", {{"user", "root"}}), 403, "permission_denied"));
  } catch (const std::runtime_error& error) {
    FAIL() << error.what();
  }
}

}  // namespace
}  // namespace isogate::test
