// One gateway with the backend `dev`, of the plugin `local`, for all cases of a suite. They skip where that
// plugin is not built.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/gateway.h"

namespace isogate::test {

bool local_is_built();

class OnLocalGateway : public testing::Test {
 protected:
  static void SetUpTestSuite() { start(); }
  static void TearDownTestSuite() { gateway_.reset(); }
  void SetUp() override;
  static void start(const std::string& more = {});  // `more`: lines of yaml

  static inline std::unique_ptr<Gateway> gateway_;
};

}  // namespace isogate::test
