#include <gtest/gtest.h>
#include <sys/socket.h>

#include "gateway/supervisor/listeners.h"
#include "tests/cli/fake_gateway.h"

namespace isogate::test {
namespace {

TEST(PortForward, APortInUseSaysWhichAndWhatToDo) {
  const auto taken = supervisor::open_tcp("127.0.0.1:0", "");
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  ASSERT_EQ(::listen(taken->socket.get(), 1), 0);
  const std::string port = taken->address.substr(taken->address.rfind(':') + 1);
  const auto done = run_client("http://127.0.0.1:1", {"port-forward", "a", port + ":80"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("port " + port + " is in use"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("LOCAL:PORT"), std::string::npos) << done.err;
}

TEST(PortForward, AnAddressIsALiteralOneOrLocalhost) {
  for (const char* wrong : {"example.org", "unix:/run/x", "127.1"}) {
    const auto done = run_client("http://127.0.0.1:1", {"port-forward", "a", ":80", "--address", wrong});
    EXPECT_EQ(done.exit_code, 2) << wrong;
    EXPECT_NE(done.err.find("a literal address or localhost"), std::string::npos) << done.err;
  }
  for (const char* right : {"localhost", "127.0.0.2"})
    EXPECT_EQ(run_client("http://127.0.0.1:1", {"port-forward", "a", ":80", "--address", right}).exit_code,
              125)
        << right << ": there is no gateway";
}

}  // namespace
}  // namespace isogate::test
