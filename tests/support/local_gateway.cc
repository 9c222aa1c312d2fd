#include "tests/support/local_gateway.h"

#include "tests_dirs.h"

namespace isogate::test {

bool local_is_built() { return !read_whole(ISOGATE_BUILD_DIR "/plugins/local.so").empty(); }

void OnLocalGateway::start(const std::string& more) {
  if (!local_is_built()) return;
  gateway_ =
      std::make_unique<Gateway>("allow_unisolated: true\nbackends: [{name: dev, plugin: local}]\n" + more);
}

void OnLocalGateway::SetUp() {
  if (gateway_ == nullptr) GTEST_SKIP() << "the plugin local is not built";
}

}  // namespace isogate::test
