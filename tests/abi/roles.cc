// The test binary plays the gateway's roles too: a process that it starts from itself as `_describe` or
// `_host` is one.
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
