// The test binary also plays the gateway's roles: it starts itself as `_describe` or `_host`.
#include <gtest/gtest.h>

#include <string_view>

#include "gateway/host/host_main.h"
#include "gateway/host/plugin/describe.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "_describe") return isogate::describe_child_main();
  if (argc == 2 && std::string_view(argv[1]) == "_host") return isogate::host_main();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
