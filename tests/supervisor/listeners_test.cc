#include "gateway/supervisor/listeners.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/http.h"
#include "tests/support/program.h"

namespace isogate::supervisor {
namespace {

class Listeners : public testing::Test {
 protected:
  Result<std::vector<Listener>> open(std::vector<std::string> addresses) {
    config_.listen = std::move(addresses);
    return open_listeners(config_, directory_.path());
  }
  std::string message(std::vector<std::string> addresses) {
    auto opened = open(std::move(addresses));
    return opened ? "ok" : opened.error().message;
  }
  void add_key() { config_.keys = {{"ci", "tenant", std::string(64, 'a')}}; }
  [[nodiscard]] std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  test::TemporaryDirectory directory_;
  Config config_;
};

int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

TEST_F(Listeners, port_0_is_reported_as_the_chosen_port) {
  auto opened = open({"127.0.0.1:0"});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ASSERT_EQ(opened->size(), 2u);
  EXPECT_GT(port_of((*opened)[0].address), 0);
  EXPECT_NO_THROW(test::HttpConnection("http://" + (*opened)[0].address));
}

TEST_F(Listeners, sockets_are_nonblocking_and_not_inherited) {
  auto opened = open({"127.0.0.1:0"});
  ASSERT_TRUE(opened.ok());
  for (const Listener& listener : *opened) {
    EXPECT_NE(::fcntl(listener.socket.get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(listener.socket.get(), F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST_F(Listeners, localhost_and_ipv6_loopback) {
  {
    auto opened = open({"localhost:0"});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_TRUE((*opened)[0].address.starts_with("127.0.0.1:"));
  }
  const Fd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) != 0)
    GTEST_SKIP() << "this host has no IPv6 loopback";
  auto opened = open({"[::1]:0"});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE((*opened)[0].address.starts_with("[::1]:"));
}

TEST_F(Listeners, malformed_addresses_say_what_to_write) {
  for (const char* wrong : {":9090", "*:9090", "9090", "::1:9090", "127.0.0.1:65536", "127.0.0.1:-1",
                            "127.0.0.1:", "example.org:80"})
    EXPECT_NE(message({wrong}).find("expected HOST:PORT"), std::string::npos) << wrong;
  EXPECT_NE(message({"unix:relative"}).find("not absolute"), std::string::npos);
  EXPECT_NE(message({"unix:/" + std::string(200, 'x')}).find("longer than 107"), std::string::npos);
}

TEST_F(Listeners, a_port_in_use_says_which_and_what_to_do) {
  auto first = open({"127.0.0.1:0"});
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)[0].address, port = std::to_string(port_of(address));
  const std::string said = message({address});
  EXPECT_NE(said.find("port " + port + " is in use"), std::string::npos) << said;
  EXPECT_NE(said.find("--listen"), std::string::npos) << said;
}

TEST_F(Listeners, beyond_loopback_takes_configured_keys) {
  const std::string said = message({"0.0.0.0:0"});
  EXPECT_NE(said.find("refusing to listen on 0.0.0.0:"), std::string::npos) << said;
  EXPECT_NE(said.find("`keys`"), std::string::npos) << said;
  add_key();
  EXPECT_EQ(message({"0.0.0.0:0"}), "ok");
}

TEST_F(Listeners, other_spellings_of_an_address_are_refused) {
  for (const char* text : {"0:0", "0x0.0.0.0:0", "2130706433:0", "127.1:0"})
    EXPECT_NE(message({text}).find("expected HOST:PORT"), std::string::npos) << text;
  EXPECT_EQ(message({"127.9.8.7:0"}), "ok");
}

TEST_F(Listeners, losing_the_keys_later_is_refused_too) {
  add_key();
  auto opened = open({"0.0.0.0:0"});
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(check_listener_keys(*opened, config_).ok());
  config_.keys.clear();
  EXPECT_FALSE(check_listener_keys(*opened, config_).ok());
}

TEST_F(Listeners, a_unix_socket_is_its_owners_and_there_by_default) {
  auto opened = open({"127.0.0.1:0"});
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ((*opened)[1].address, "unix:" + path("isogate.sock"));
  struct stat info {};
  ASSERT_EQ(::stat(path("isogate.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0600u);
  EXPECT_NO_THROW(test::HttpConnection((*opened)[1].address));
  remove_socket_files(*opened);
  EXPECT_NE(::access(path("isogate.sock").c_str(), F_OK), 0);
}

TEST_F(Listeners, a_configured_unix_socket_replaces_the_default) {
  auto opened = open({"unix:" + path("other.sock")});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->size(), 1u);
  EXPECT_NE(::access(path("isogate.sock").c_str(), F_OK), 0);
}

TEST_F(Listeners, a_stale_socket_is_replaced_a_live_one_is_not) {
  const std::string address = "unix:" + path("a.sock");
  {
    auto first = open({address});
    ASSERT_TRUE(first.ok());
    EXPECT_NE(message({address}).find("another program listens there"), std::string::npos);
  }
  EXPECT_EQ(::access(path("a.sock").c_str(), F_OK), 0);
  EXPECT_EQ(message({address}), "ok");
}

// The front of a killed gateway still exists for a moment.
TEST_F(Listeners, an_address_that_becomes_free_soon_is_waited_for) {
  for (const std::string& wanted : {std::string("127.0.0.1:0"), "unix:" + path("f.sock")}) {
    auto first = open({wanted});
    ASSERT_TRUE(first.ok());
    const std::string address = (*first)[0].address;
    std::thread killed([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      first->clear();
    });
    EXPECT_EQ(message({address}), "ok");
    killed.join();
  }
}

TEST_F(Listeners, what_is_no_socket_or_somebody_elses_stays) {
  directory_.file("b.sock", "data");
  EXPECT_NE(message({"unix:" + path("b.sock")}).find("no socket"), std::string::npos);
  EXPECT_EQ(test::read_whole(path("b.sock")), "data");
  ASSERT_EQ(::symlink("b.sock", path("c.sock").c_str()), 0);
  EXPECT_NE(message({"unix:" + path("c.sock")}).find("no socket"), std::string::npos);
  if (::geteuid() != 0) return;
  ASSERT_EQ(message({"unix:" + path("d.sock")}), "ok");
  ASSERT_EQ(::chown(path("d.sock").c_str(), 4242, 4242), 0);
  EXPECT_NE(message({"unix:" + path("d.sock")}).find("belongs to uid 4242"), std::string::npos);
}

TEST_F(Listeners, a_refusal_leaves_no_socket_file) {
  EXPECT_NE(message({"unix:" + path("e.sock"), "0.0.0.0:0"}), "ok");
  EXPECT_NE(::access(path("e.sock").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace isogate::supervisor
