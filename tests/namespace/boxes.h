// A gateway of root with only the backend `namespace`, and agents in it. After every case it must answer
// /healthz within a second and run another exec of the same agent.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/api.h"
#include "tests/support/processes.h"
#include "tests/support/python.h"

namespace isogate::test {

class Boxes : public testing::Test {
 protected:
  static void TearDownTestSuite() { gateway_.reset(); }
  void SetUp() override;
  void TearDown() override;

  static Gateway& gateway() { return *gateway_; }
  static std::unique_ptr<Gateway> another(const std::string& backend_yaml);
  Caller x() const { return {gateway(), "X-" + name()}; }
  Caller y() const { return {gateway(), "Y-" + name()}; }
  static std::string name() { return testing::UnitTest::GetInstance()->current_test_info()->name(); }

 private:
  static std::unique_ptr<Gateway> gateway_;
};

}  // namespace isogate::test
