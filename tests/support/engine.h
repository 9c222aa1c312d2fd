// The Engine that the backend `docker` is tested on: Docker's, or the one whose variable ISOGATE_TEST_ENGINE
// names (ISOGATE_TEST_PODMAN, ISOGATE_TEST_PODMAN_ROOTLESS).
#pragma once

#include <string>

namespace isogate::test {

std::string engine_address();   // empty: there is none
std::string engine_obstacle();  // why there is none; empty: there is one

}  // namespace isogate::test
