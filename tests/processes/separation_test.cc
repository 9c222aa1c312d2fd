#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "isogate/backend.h"
#include "tests/privileges/child.h"
#include "tests/support/api.h"
#include "tests/support/processes.h"
#include "tests_dirs.h"

// What each process of root's gateway has and does not have, according to /proc.
namespace isogate::test {
namespace {

const std::string kNone(16, '0');

std::string hex(uint64_t bits) {
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

std::string four(uid_t id) {
  const std::string n = std::to_string(id);
  return n + "\t" + n + "\t" + n + "\t" + n;
}

// None, or only its own.
bool no_groups_but(pid_t pid, gid_t own) {
  const std::string groups = status_field(pid, "Groups");
  return groups.empty() || groups == std::to_string(own) + " ";
}

struct Descriptor {
  uint64_t linux_capabilities = 0;
  bool as_root = false;
};

Descriptor descriptor_of(const std::string& plugin) {
  void* library = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto entry = reinterpret_cast<isogate_plugin_entry_fn>(::dlsym(library, "isogate_plugin_entry"));
  const isogate_plugin* found = entry(ISOGATE_ABI_MAJOR, ISOGATE_ABI_MINOR);
  return {found->linux_capabilities, (found->flags & ISOGATE_PLUGIN_RUNS_AS_ROOT) != 0};
}

// The states of this process's TCP sockets.
std::vector<std::string> tcp_states(pid_t pid) {
  std::set<std::string> inodes;
  for (const auto& [fd, target] : open_files(pid))
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  std::vector<std::string> states;
  for (const char* table :
       {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6", "/proc/net/raw"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::vector<std::string> all;
      for (std::string field; fields >> field;) all.push_back(field);
      if (all.size() > 9 && inodes.count(all[9]) > 0) states.push_back(all[3]);
    }
  }
  return states;
}

class Separation : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!root_gateway_obstacle().empty()) return;
    GatewayOptions options;
    options.yaml =
        "allow_unisolated: true\nbackends:\n  - name: local\n  - name: faulty\n    plugin: " ISOGATE_BUILD_DIR
        "/test_plugins/faulty.so\n";
    gateway_ = std::make_unique<Gateway>(options);
    const Caller me(*gateway_, "a");
    eventually(10, [&] {
      return me.post("/exec", {{"argv", {"fine"}}, {"agent_id", "b"}, {"backend", "faulty"}}).status == 200;
    });
    me.run("echo secret > file; echo ran");
  }
  static void TearDownTestSuite() { gateway_.reset(); }
  void SetUp() override {
    if (!gateway_) GTEST_SKIP() << root_gateway_obstacle();
    front = front_of(*gateway_);
    local = host_of(*gateway_, "local");
    faulty = host_of(*gateway_, "faulty");
    ASSERT_TRUE(front > 0 && local > 0 && faulty > 0);
    const passwd* user = ::getpwnam("isogate");
    front_uid = user->pw_uid;
    front_gid = user->pw_gid;
  }
  static std::unique_ptr<Gateway> gateway_;
  pid_t front = -1, local = -1, faulty = -1;
  uid_t front_uid = 0;
  gid_t front_gid = 0;

  // What an attacker who controls the front could do: as its user, without capabilities.
  std::string as_the_front(const std::function<std::string()>& body) const {
    const ChildEnd end = in_child([&]() -> std::string {
      if (::setgroups(0, nullptr) != 0 || ::setresgid(front_gid, front_gid, front_gid) != 0 ||
          ::setresuid(front_uid, front_uid, front_uid) != 0)
        return "cannot become the front's user";
      return body();
    });
    return end.exit_code == 0 ? end.said : "the child ended with " + std::to_string(end.exit_code);
  }
};
std::unique_ptr<Gateway> Separation::gateway_;

TEST_F(Separation, TheFrontHoldsNoPrivilege) {
  EXPECT_EQ(status_field(front, "Uid"), four(front_uid));
  EXPECT_EQ(status_field(front, "Gid"), four(front_gid));
  EXPECT_TRUE(no_groups_but(front, front_gid)) << status_field(front, "Groups");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_EQ(status_field(front, set), kNone) << set;
  EXPECT_EQ(status_field(front, "NoNewPrivs"), "1");
  EXPECT_EQ(status_field(front, "Seccomp"), "2");
  const auto counted =
      run_program({"sh", "-c",
                   "grep -l 'Seccomp:.2' /proc/" + std::to_string(front) +
                       "/task/*/status | wc -l; ls /proc/" + std::to_string(front) + "/task | wc -l"});
  const size_t middle = counted.out.find('\n');
  EXPECT_EQ(counted.out.substr(0, middle), counted.out.substr(middle + 1, counted.out.size() - middle - 2))
      << "a thread without the filter";
}

TEST_F(Separation, TheFrontHoldsFewDescriptorsAndNoFileButItsOwn) {
  const auto files = open_files(front);
  EXPECT_LE(files.size(), 40u);
  for (const auto& [fd, target] : files) {
    const std::string directory = gateway_->state_dir() + "/front";
    const bool own = target == directory || target.rfind(directory + "/", 0) == 0;
    const bool plain = target.rfind("socket:", 0) == 0 || target.rfind("pipe:", 0) == 0 ||
                       target.rfind("anon_inode:", 0) == 0 || target.rfind("/dev/", 0) == 0;
    EXPECT_TRUE(own || plain || fd <= 2) << fd << " is " << target;
  }
  char cwd[256];
  const ssize_t n = ::readlink(("/proc/" + std::to_string(front) + "/cwd").c_str(), cwd, sizeof cwd);
  EXPECT_EQ(std::string(cwd, static_cast<size_t>(std::max<ssize_t>(n, 0))), "/");
}

TEST_F(Separation, OnlyAHostMapsItsPlugin) {
  const auto maps = [](pid_t pid) { return read_whole("/proc/" + std::to_string(pid) + "/maps"); };
  for (const pid_t pid : {front, gateway_->pid()}) {
    const std::string text = maps(pid);
    EXPECT_EQ(text.find("/run/"), std::string::npos) << command_line(pid);
    EXPECT_EQ(text.find("/plugins/"), std::string::npos) << command_line(pid);
    EXPECT_EQ(text.find("local.so"), std::string::npos) << command_line(pid);
    EXPECT_EQ(text.find("faulty"), std::string::npos) << command_line(pid);
  }
  EXPECT_NE(maps(local).find("local"), std::string::npos);
  EXPECT_EQ(maps(local).find("faulty"), std::string::npos);
  EXPECT_NE(maps(faulty).find("faulty"), std::string::npos);
  EXPECT_EQ(maps(faulty).find("local.so"), std::string::npos);
}

TEST_F(Separation, EachHostHasExactlyWhatItsPluginNames) {
  const uid_t plain = ::getpwnam("isogate-host")->pw_uid;
  for (const auto& [pid, plugin] :
       {std::make_pair(local, std::string(ISOGATE_BUILD_DIR "/plugins/local.so")),
        std::make_pair(faulty, std::string(ISOGATE_BUILD_DIR "/test_plugins/faulty.so"))}) {
    const Descriptor asked = descriptor_of(plugin);
    for (const char* set : {"CapEff", "CapPrm", "CapBnd"})
      EXPECT_EQ(status_field(pid, set), hex(asked.linux_capabilities)) << plugin << " " << set;
    for (const char* set : {"CapInh", "CapAmb"})
      EXPECT_EQ(status_field(pid, set), kNone) << plugin << " " << set;
    EXPECT_EQ(status_field(pid, "Uid"), four(asked.as_root ? 0 : plain)) << plugin;
    EXPECT_TRUE(no_groups_but(pid, ::getpwnam("isogate-host")->pw_gid)) << status_field(pid, "Groups");
    EXPECT_TRUE(tcp_states(pid).empty()) << plugin << " holds a network socket";
    EXPECT_LE(open_files(pid).size(), 64u) << plugin;
  }
}

TEST_F(Separation, AHostSDescriptorsDoNotGrowWithConnections) {
  const size_t before = open_files(local).size();
  std::vector<std::unique_ptr<HttpConnection>> connections;
  for (int i = 0; i < 200; ++i) {
    connections.push_back(std::make_unique<HttpConnection>(gateway_->url()));
    EXPECT_EQ(connections.back()->request("GET", "/livez").status, 200);
  }
  Caller(*gateway_, "a").run("true");
  EXPECT_LE(open_files(local).size(), before + 4);
}

TEST_F(Separation, TheSupervisorHasNoConnection) {
  std::vector<std::unique_ptr<HttpConnection>> connections;
  for (int i = 0; i < 20; ++i) {
    connections.push_back(std::make_unique<HttpConnection>(gateway_->url()));
    EXPECT_EQ(connections.back()->request("GET", "/livez").status, 200);
  }
  const auto states = tcp_states(gateway_->pid());
  EXPECT_EQ(states, std::vector<std::string>{"0A"}) << "its one socket listens";
  EXPECT_GE(tcp_states(front).size(), 21u) << "the front has the connections";
  EXPECT_EQ(status_field(gateway_->pid(), "Threads"), "1");
}

TEST_F(Separation, NobodySEnvironmentHoldsSecrets) {
  for (const pid_t pid : {front, local, faulty}) {
    const std::string text = read_whole("/proc/" + std::to_string(pid) + "/environ");
    EXPECT_EQ(text.find(gateway_->key()), std::string::npos);
    EXPECT_EQ(text.find("LD_"), std::string::npos) << text;
    EXPECT_EQ(text.find("HOME=/root"), std::string::npos) << text;
  }
}

// Attack 120.
TEST_F(Separation, ATakenOverFrontReachesNoFile) {
  const std::string state = gateway_->state_dir();
  const std::string id = Caller(*gateway_, "a").get("/sandboxes").body.at("sandboxes").at(0).at("sandbox_id");
  ASSERT_EQ(::access((state + "/sandboxes").c_str(), F_OK), 0);
  for (const std::string& path :
       {state + "/local.key", state + "/lock", state + "/sandboxes", state + "/sandboxes/" + id,
        state + "/sandboxes/" + id + "/workspace", state + "/sandboxes/" + id + "/workspace/file",
        state + "/sandboxes/" + id + "/staging", state + "/uids", state + "/run", std::string("/etc/shadow"),
        std::string("/root")}) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    EXPECT_EQ(as_the_front([&] { return ::open(path.c_str(), O_RDONLY) >= 0 ? "read" : "no"; }), "no")
        << path;
    EXPECT_EQ(as_the_front([&] {
                return ::access((path + "/x").c_str(), F_OK) == 0 || ::mkdir((path + "/x").c_str(), 0700) == 0
                           ? "made"
                           : "no";
              }),
              "no")
        << path;
  }
  for (const char* socket : {"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"}) {
    if (::access(socket, F_OK) != 0) continue;
    EXPECT_EQ(as_the_front([&] {
                sockaddr_un address{};
                address.sun_family = AF_UNIX;
                std::snprintf(address.sun_path, sizeof address.sun_path, "%s", socket);
                const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
                return ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? "connected"
                                                                                                 : "no";
              }),
              "no")
        << socket;
  }
}

TEST_F(Separation, ATakenOverFrontReachesNoProcess) {
  for (const pid_t pid : {gateway_->pid(), local, faulty}) {
    const std::string folder = "/proc/" + std::to_string(pid);
    for (const char* file : {"/mem", "/environ", "/maps", "/fd", "/root/etc/shadow"})
      EXPECT_EQ(as_the_front([&] { return ::open((folder + file).c_str(), O_RDONLY) >= 0 ? "read" : "no"; }),
                "no")
          << command_line(pid) << file;
    EXPECT_EQ(
        as_the_front([&] { return ::ptrace(PTRACE_ATTACH, pid, nullptr, nullptr) == 0 ? "traced" : "no"; }),
        "no")
        << command_line(pid);
    EXPECT_EQ(as_the_front([&] { return ::kill(pid, 0) == 0 ? "signalled" : "no"; }), "no")
        << command_line(pid);
  }
  // Nor another front: it is not dumpable.
  EXPECT_EQ(
      as_the_front([&] { return ::ptrace(PTRACE_ATTACH, front, nullptr, nullptr) == 0 ? "traced" : "no"; }),
      "no");
  EXPECT_EQ(as_the_front([&] {
              return ::open(("/proc/" + std::to_string(front) + "/mem").c_str(), O_RDONLY) >= 0 ? "read"
                                                                                                : "no";
            }),
            "no");
}

TEST_F(Separation, TheStateDirectoryIsEachToItsOwner) {
  const auto mode = [&](const std::string& name) {
    struct stat info {};
    return ::stat((gateway_->state_dir() + name).c_str(), &info) == 0
               ? std::make_pair(info.st_uid, info.st_mode & 07777)
               : std::make_pair(uid_t(-1), 0u);
  };
  EXPECT_EQ(mode(""), std::make_pair(uid_t(0), 0711u));
  EXPECT_EQ(mode("/front"), std::make_pair(front_uid, 0700u));
  EXPECT_EQ(mode("/front/state.db"), std::make_pair(front_uid, 0600u));
  EXPECT_EQ(mode("/sandboxes"), std::make_pair(uid_t(0), 0711u));
  EXPECT_EQ(mode("/uids"), std::make_pair(uid_t(0), 0700u));
  EXPECT_EQ(mode("/local.key"), std::make_pair(uid_t(0), 0600u));
  EXPECT_EQ(mode("/isogate.sock").second, 0600u);
}

}  // namespace
}  // namespace isogate::test
