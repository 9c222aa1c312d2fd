#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "lib/fd.h"
#include "tests/attacks/attack.h"
#include "tests/support/cluster.h"

// Group N. What is tried inside is tried on this host first, where it succeeds.
namespace isogate::test {
namespace {

// All IPv4 addresses of this host but those of loopback.
std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    sockaddr_in address{};
    std::memcpy(&address, each->ifa_addr, sizeof address);
    if (::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text) != nullptr) found.emplace_back(text);
  }
  ::freeifaddrs(all);
  return found;
}

// Listens on every address of this host, also of IPv6 if it has one.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (!socket_ || !listens(AF_INET6)) {
      socket_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_TRUE(listens(AF_INET)) << std::strerror(errno);
    }
  }
  [[nodiscard]] std::string port() const { return std::to_string(port_); }

 private:
  bool listens(int family) {
    sockaddr_storage any{};  // all zeroes
    any.ss_family = static_cast<sa_family_t>(family);
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    auto* address = reinterpret_cast<sockaddr*>(&any);
    if (::bind(socket_.get(), address, size) != 0 || ::listen(socket_.get(), 64) != 0) return false;
    if (::getsockname(socket_.get(), address, &size) != 0) return false;
    uint16_t port = 0;  // at the same place in both
    std::memcpy(&port, reinterpret_cast<const char*>(&any) + offsetof(sockaddr_in, sin_port), sizeof port);
    port_ = ntohs(port);
    return true;
  }

  Fd socket_;
  int port_ = 0;
};

std::string tcp(const std::string& host, const std::string& port) {
  return "print('" + host + "',reach(socket.AF_INET,('" + host + "'," + port + ")))\n";
}

TEST_F(NetworkAttack, N70_NoListenerOfThisHostIsReached) {
  const Listener listener;
  std::vector<std::string> hosts = {"127.0.0.1", "0.0.0.0"};
  if (backend() != "k8s" || cluster_enforces_policies())
    for (const std::string& each : own_addresses()) hosts.push_back(each);
  std::string attempts;
  for (const std::string& each : hosts) attempts += tcp(each, listener.port());
  attempts += tcp("127.0.0.1", gateway().port()) + "print('done',reach(socket.AF_INET6,('::1'," +
              listener.port() + ")) not in (0,110))\n";
  const std::string here = said_here(attempts);
  for (const std::string& each : hosts)
    EXPECT_NE(here.find(each + " 0\n"), std::string::npos) << "a test that cannot fail: " << here;
  const std::string inside = said(x(), attempts);
  if (!isolates()) {
    EXPECT_EQ(inside, here) << kNoIsolation;
    return;
  }
  EXPECT_EQ(inside.find(" 0\n"), std::string::npos) << inside;
  if (backend() != "k8s") {  // there it is dropped on the way, which looks the same
    EXPECT_EQ(inside.find(" 110\n"), std::string::npos) << "a packet went somewhere: " << inside;
  }
  EXPECT_NE(inside.find("done True\n"), std::string::npos) << inside;
}

TEST_F(NetworkAttack, N71_NoMetadataAndNoInternet) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  if (backend() == "k8s" && !cluster_enforces_policies())
    GTEST_SKIP() << "this network enforces no policy: tests/k8s covers what is refused then";
  if (backend() ==
      "k8s") {  // there is a route, but no packet gets out: the node's own address does not answer either
    const std::string node = own_addresses().front();
    EXPECT_EQ(said(x(),
                   "for a in ('169.254.169.254',80),('1.1.1.1',53),('" + node +
                       "',22):\n  print(reach(socket.AF_INET,a) in (1,101,110,113))\n"
                       "try: print(socket.getaddrinfo('metadata.google.internal',80))\n"
                       "except socket.gaierror: print('no name')\n",
                   {{"timeout_sec", 90}}),
              "True\nTrue\nTrue\nno name\n");
    return;
  }
  // Not even a packet leaves: there is no route and no name server.
  EXPECT_EQ(said(x(),
                 "print(reach(socket.AF_INET,('169.254.169.254',80)),reach(socket.AF_INET,('1.1.1.1',53)))\n"
                 "print(reach(socket.AF_INET6,('fd00:ec2::254',80)) in (97,99,101))\n"
                 "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                 "print(s.connect_ex(('8.8.8.8',53)))\n"
                 "try: print(socket.getaddrinfo('metadata.google.internal',80))\n"
                 "except socket.gaierror: print('no name')\n"),
            "101 101\nTrue\n101\nno name\n");
}

TEST_F(NetworkAttack, N72_NoAbstractSocketOfThisHostIsReached) {
  const std::string name = "isogate-attack-" + new_mark();
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  const std::string attempt = "print(reach(socket.AF_UNIX,'\\0" + name + "'))";
  EXPECT_EQ(said_here(attempt), "0\n");
  EXPECT_EQ(said(x(), attempt), isolates() ? "111\n" : "0\n");
  EXPECT_EQ(said(x(), "print('" + name + "' in open('/proc/net/unix').read())"),
            isolates() ? "False\n" : "True\n");
}

TEST_F(NetworkAttack, N72_N77_AgentsShareNoSocket) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  ExecStream listening(
      x(), {{"argv", python("import time\n"
                            "a=socket.socket(socket.AF_UNIX); a.bind('\\0isogate-test'); a.listen()\n"
                            "t=socket.socket(); t.bind(('127.0.0.1',8080)); t.listen()\n"
                            "print('up',flush=True); time.sleep(40)")},
            {"timeout_sec", 60}});
  ASSERT_EQ(listening.next()->at("event"), "start");
  ASSERT_EQ(listening.next()->at("data"), "up\n");
  const std::string attempt =
      "print(reach(socket.AF_UNIX,'\\0isogate-test'),reach(socket.AF_INET,('127.0.0.1',8080)))";
  EXPECT_EQ(said(x(), attempt), "0 0\n") << "execs of one agent do reach each other";
  EXPECT_EQ(said(y(), attempt), "111 111\n");
}

// What `ip link add`, `ip addr add`, `tc` and `iptables` ask the kernel for.
TEST_F(NetworkAttack, N77_NobodyChangesTheNetwork) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  EXPECT_EQ(
      said(
          x(),
          "import fcntl\n"
          "def route(kind,flags,body):\n"  // answers the kernel's error
          "  try: s=socket.socket(16,3,0)\n"
          "  except OSError as e: return -1 if e.errno in (1,97) else e.errno  # not even to read routes\n"
          "  s.settimeout(5)\n"
          "  s.sendto(struct.pack('IHHII',16+len(body),kind,flags,1,0)+body,(0,0))\n"
          "  return struct.unpack_from('i',s.recv(4096),16)[0]\n"
          "lo=socket.if_nametoindex('lo')\n"
          "name=struct.pack('HH4s',8,3,b'd0\\0\\0')\n"
          "dummy=struct.pack('HHHH8s',16,18,10,1,b'dummy\\0\\0\\0')\n"
          "print(route(16,0x605,struct.pack('BxHiII',0,0,0,0,0)+name+dummy))\n"  // a link
          "print(route(20,0x605,struct.pack('BBBBi',2,8,0,0,lo)+struct.pack('HH4s',8,2,bytes([10,0,0,1]))))\n"
          "print(route(36,0x605,struct.pack('BxxxiIII',0,lo,0,0xffffffff,0)+struct.pack('HH8s',12,1,b'"
          "netem\\0\\0\\0')))\n"
          "s=socket.socket()\n"
          "try: fcntl.ioctl(s,0x8914,struct.pack('16sh14x',b'lo',0)); print('down')\n"  // SIOCSIFFLAGS
          "except OSError as e: print(e.errno)\n"
          "try: s.setsockopt(0,64,b'\\0'*200); print('rules')\n"  // IPT_SO_SET_REPLACE
          "except OSError as e: print(e.errno in (1,92))\n"),
      "-1\n-1\n-1\n1\nTrue\n");
}

TEST_F(NetworkAttack, N73_NoPathSockets) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  // On docker there is the runner's own, in a read-only directory; its listener accepts only one peer.
  EXPECT_EQ(
      x().out("find / -xdev -type s 2>/dev/null; find /run /var /tmp /dev /etc /mnt -type s 2>/dev/null"),
      "");
  EXPECT_EQ(x().out("ls -d /run/docker* /var/run/docker* /run/dbus /run/systemd /run/containerd /run/podman "
                    "/run/user/* /var/lib/kubelet 2>/dev/null; true"),
            "");
  EXPECT_EQ(
      said(x(), "for p in ('/run/docker.sock','/var/run/docker.sock','/run/containerd/containerd.sock','" +
                    gateway().state_dir() + "/isogate.sock'): print(reach(socket.AF_UNIX,p))"),
      "2\n2\n2\n2\n");
}

TEST_F(NetworkAttack, N74_NoOtherSocketFamilies) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  const std::string open =
      "def s(f,t=1,p=0):\n  r=call(41,f,t,p)\n  return r if r<0 else 0\n"
      "print([s(*a) for a in ((1,),(2,),(10,))])\n";
  EXPECT_EQ(said(x(), open), "[0, 0, 0]\n") << "Unix and TCP are served";
  // AF_PACKET, raw sockets: these need a capability, whatever the filter allows.
  EXPECT_EQ(said(x(), open + "print({s(*a) in (-1,-97) for a in ((17,3,3),(2,3,1),(10,3,58),(2,3,255))})"),
            "[0, 0, 0]\n{True}\n");
  if (!filters_calls()) GTEST_SKIP() << "AF_VSOCK, AF_ALG and the like: " << kRuntimesFilter;
  // NETLINK_ROUTE (what it buffers counts to no memory limit), _NETFILTER, _XFRM, _AUDIT, _KOBJECT_UEVENT;
  // VSOCK, ALG, BLUETOOTH, XDP, CAN, RDS, QIPCRTR.
  EXPECT_EQ(
      said(x(), open + "print({s(*a) in (-1,-97) for a in ((16,3,0),(16,3,12),(16,3,6),(16,3,9),(16,3,15),"
                       "(40,1,0),(40,2,0),(38,5,0),(31,1,1),(44,3,0),(29,3,1),(21,5,0),(42,2,0),(2,5,0))})"),
      "[0, 0, 0]\n{True}\n");
}

TEST_F(NetworkAttack, N75_NoProgramsOfSocketsAndNoLargerReceiveBuffers) {
  if (!filters_calls()) GTEST_SKIP() << (isolates() ? kRuntimesFilter : kNoIsolation);
  // SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF; then SO_RCVBUF, which looks as if it worked.
  EXPECT_EQ(said(x(),
                 "import struct\n"
                 "s=socket.socket()\n"
                 "b=s.getsockopt(1,8)\n"
                 "print([call(54,s.fileno(),1,o,struct.pack('QQ',0,0),16) for o in (26,50,51,52)])\n"
                 "s.setsockopt(1,8,1<<22); s.setsockopt(1,7,1<<16); print(s.getsockopt(1,8)==b)\n"
                 "v=socket.socket(10); v.setsockopt(41,26,1); print(v.getsockopt(41,26))\n"),
            "[-1, -1, -1, -1]\nTrue\n1\n");
}

TEST_F(NetworkAttack, N76_NoRing) {
  if (!filters_calls()) GTEST_SKIP() << (isolates() ? kRuntimesFilter : kNoIsolation);
  EXPECT_EQ(said(x(),
                 "b=ctypes.create_string_buffer(120)\n"
                 "print({call(425,1,b) in (-1,-38),call(426,0,0,0,0,0,0) in (-1,-38),call(427,0,0,0,0) in "
                 "(-1,-38)})"),
            "{True}\n");
}

}  // namespace
}  // namespace isogate::test
