#include "tests/support/engine.h"

#include <cstdlib>

namespace isogate::test {
namespace {

std::string value_of(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? "" : value;
}

std::string variable() {
  const std::string named = value_of("ISOGATE_TEST_ENGINE");
  return named.empty() ? "ISOGATE_TEST_DOCKER" : named;
}

}  // namespace

std::string engine_address() { return value_of(variable()); }

std::string engine_obstacle() {
  if (!engine_address().empty()) return {};
  const std::string script = variable() == "ISOGATE_TEST_PODMAN"            ? "podman.sh up"
                             : variable() == "ISOGATE_TEST_PODMAN_ROOTLESS" ? "podman.sh rootless"
                                                                            : "docker.sh up";
  return variable() + " names no Engine: tests/engines/" + script + " prints one";
}

}  // namespace isogate::test
