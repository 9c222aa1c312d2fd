// What a tenant or a caller may try, against a gateway with one backend on this host, and what must happen.
// The backend is `local` unless ISOGATE_ATTACKED_BACKEND names another, which must isolate. The gateway runs
// as root if this test does, otherwise as the test's own user. After every case it must answer /healthz
// within a second and run another exec of the same agent.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/api.h"
#include "tests/support/processes.h"
#include "tests/support/python.h"

namespace isogate::test {

inline constexpr const char* kNoIsolation =
    "the backend `local` claims no isolation: its programs see this host";
inline constexpr const char* kRuntimesFilter =
    "a pod has the system call filter of its container runtime, which refuses other calls than ours";

// In the gateway's environment.
inline constexpr const char* kGatewaysSecret = "the-gateway-s-own-secret";

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
  // The backend's entry in the configuration, with more members.
  static std::string entry(const std::string& more = {});
  // Another gateway with only this backend, with more members in its entry, and more settings.
  static std::unique_ptr<Gateway> another(const std::string& more, const std::string& settings = {});
  static bool isolates() { return backend() != "local"; }
  // All execs of an agent are in one container.
  static bool shares_container() { return backend() == "docker" || backend() == "k8s"; }
  static bool on_podman();
  // An agent of this test's own.
  Caller x() const { return {gateway(), "X-" + name()}; }
  Caller y() const { return {gateway(), "Y-" + name()}; }
  static std::string name() { return testing::UnitTest::GetInstance()->current_test_info()->name(); }
  // Agents cannot reach each other: each has its own uid or its own pod.
  static bool separates_agents() { return is_root(); }
  static bool gives_uids() { return is_root() && backend() != "k8s"; }
  // By the table of runner/enclosure/syscall_policy.h.
  static bool filters_calls() { return isolates() && backend() != "k8s"; }
  // What such a program prints; its failure fails the test.
  static std::string said(const Caller& who, const std::string& code, const Json& more = Json::object());
  // The same on this host: the proof that the program would have noticed.
  static std::string said_here(const std::string& code);
  // A command that runs and is refused: one that cannot be started proves nothing.
  static testing::AssertionResult denied(const Caller& who, const std::string& command);

 private:
  static std::unique_ptr<Gateway> gateway_;
};

// On a gateway of two tenants, with a listener for E2B's SDKs.
class TenantsAttack : public Attack {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite() { door().reset(); }
  void SetUp() override;

  static std::unique_ptr<Gateway>& door() {
    static std::unique_ptr<Gateway> gateway;
    return gateway;
  }
  static std::string& mine() {
    static std::string key;
    return key;
  }
  static std::string& theirs() {
    static std::string key;
    return key;
  }
  static Caller native(const std::string& key, const std::string& agent) {
    return {door()->url(), key, agent};
  }
};

class FileAttack : public Attack {};
class ProcessAttack : public Attack {};
class InputAttack : public Attack {};
class NetworkAttack : public Attack {};
class KernelAttack : public Attack {};
class InformationAttack : public Attack {};
class ResourceAttack : public Attack {};

// Where root of this host finds the workspace of an agent that has run something; empty: it does not.
std::string workspace_on_host(const Gateway& gateway, const Caller& who);

// Refused because of the path, without a byte of content and without a word about the host.
testing::AssertionResult kept_in(const Answer& answer);

}  // namespace isogate::test
