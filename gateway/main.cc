// isogate: one binary. The supervisor starts it again in the roles `_front` and `_host`, and the checks of
// plugins in the role `_describe`; everything else is the command line.
#include <cstring>

#include "gateway/cli/cli.h"
#include "gateway/front/front_main.h"
#include "gateway/host/host_main.h"
#include "gateway/host/plugin/describe.h"

int main(int argc, char** argv) {
  const char* role = argc > 1 ? argv[1] : "";
  if (std::strcmp(role, "_front") == 0) return isogate::front_main();
  if (std::strcmp(role, "_host") == 0) return isogate::host_main();
  if (std::strcmp(role, "_describe") == 0) return isogate::describe_child_main();
  return isogate::cli::cli_main(argc, argv);
}
