// What a tenant or a caller may try, against a gateway with one backend on this host, and what must happen.
// That is `local` unless ISOGATE_ATTACKED_BACKEND names another, which then has to isolate. The gateway is
// root's where this test is, else the test's own user's. After every case it has to answer /healthz within a
// second and to run a later exec of the same agent.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/api.h"
#include "tests/support/processes.h"

namespace isogate::test {

inline constexpr const char* kNoIsolation =
    "the backend `local` claims no isolation: its programs see this host";

class Attack : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;
  void TearDown() override;

  static Gateway& gateway();
  static const std::string& backend();
  static const std::string& obstacle();                               // why there is no gateway
  static std::vector<std::pair<std::string, std::string>> engines();  // the environment that finds them
  static std::string entry();                                         // the backend's in the configuration
  static bool isolates() { return backend() != "local"; }
  // All execs of an agent are in one container.
  static bool shares_container() { return backend() == "docker" || backend() == "k8s"; }
  // An agent of this test's own.
  Caller x() const { return {gateway(), "X-" + name()}; }
  Caller y() const { return {gateway(), "Y-" + name()}; }
  static std::string name() { return testing::UnitTest::GetInstance()->current_test_info()->name(); }
  // Agents cannot reach each other: every one has a uid of its own, or a pod.
  static bool separates_agents() { return is_root(); }
  static bool gives_uids() { return is_root() && backend() != "k8s"; }

 private:
  static std::unique_ptr<Gateway> gateway_;
};

class FileAttack : public Attack {};
class ProcessAttack : public Attack {};
class InputAttack : public Attack {};

// Refused because of the path, without a byte of content and without a word on the host.
testing::AssertionResult kept_in(const Answer& answer);

}  // namespace isogate::test
