// Backends `k8s` on the test's own API server, whose pods are real runners on this machine: for what no real
// cluster does on demand.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugins/k8s/backend.h"
#include "tests/k8s/fake_api.h"

namespace isogate::k8s {

// One backend host's plugin. Two of the same instance are two gateways.
class FakeGateway {
 public:
  // `config`: further members of its configuration, as JSON without braces.
  FakeGateway(const FakeApi& api, const std::string& state_dir, const std::string& config = {});

  struct Box {
    std::unique_ptr<sdk::Sandbox> sandbox;
    uint32_t flags = 0;
    std::string handle;
  };
  // Failures throw sdk::Error. The API's hanging() cancels calls.
  Box open(uint32_t flags = 0, const std::string& handle = {}, const std::string& agent = "a");
  isogate_evidence evidence(Box& box, const std::string& listeners = "0.0.0.0:8080");
  // Its stdout; throws std::runtime_error unless it succeeds.
  std::string run(Box& box, const std::string& command, uint32_t* result_flags = nullptr);
  // Watches the workspace for a moment.
  static void watch(Box& box);
  void write(Box& box, const std::string& path, const std::string& bytes);
  std::string read(Box& box, const std::string& path);
  void close(Box& box, uint32_t mode);
  // open() and evidence(): what a front does before it lets anything run.
  Box ready(uint32_t flags = 0, const std::string& handle = {}, const std::string& agent = "a");
  // ready(), after that has run in it; the second is also detached.
  Box used(const std::string& command = "true", const std::string& agent = "a");
  Box left(const std::string& command = "true", const std::string& agent = "a");
  uint32_t egress = ISOGATE_EGRESS_UNSET;  // of the next open()
  std::string image;                       // likewise; empty: the configuration's
  static std::string id_of(const std::string& agent);
  [[nodiscard]] std::string log() const;

 private:
  static void note(void* ctx, uint32_t level, isogate_str message);

  const FakeApi& api_;
  const std::string state_dir_;
  mutable std::mutex mutex_;
  std::string log_;
  isogate_host host_{};
  isogate_call call_{};
  std::unique_ptr<Backend> backend_;
};

class OnFake : public testing::Test {
 protected:
  static void SetUpTestSuite();
  FakeApi api_;
};

isogate_status status_of(const std::function<void()>& work, std::string* message = nullptr);

}  // namespace isogate::k8s
