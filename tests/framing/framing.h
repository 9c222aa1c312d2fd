// Bytes that a proxy and a gateway must not read differently, against a running gateway with the backend
// `local`.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/processes.h"

namespace isogate::test {

struct Row {
  const char* name;
  std::string bytes;
  int status = 400;
};
void PrintTo(const Row& row, std::ostream* out);

std::span<const Row> hostile_rows();  // each is refused
std::span<const Row> fine_rows();     // each is served

class Framing : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;

  static Gateway& gateway() { return *gateway_; }
  static Caller me() { return {gateway(), agent()}; }
  static std::string agent();

 private:
  static std::unique_ptr<Gateway> gateway_;
};

// In a case's bytes KEY is the gateway's key and AGENT the agent's name.
std::string filled(std::string bytes, const Gateway& gateway, const std::string& agent);

// A request that creates a file, if it is ever parsed as one.
std::string marker_request(const Gateway& gateway, const std::string& agent);

// A listener for E2B's SDKs; a new sandbox there of tenant a, and calls to it.
inline const std::string kE2b = "e2b: {listen: [\"127.0.0.1:0\"]}\n";
Json e2b_box(const Gateway& gateway);
Headers e2b_headers(const Json& box, const std::string& type);
Answer e2b_processes(const Gateway& gateway, const Json& box);
// The stream of a process, whose messages stay to be read.
std::unique_ptr<HttpConnection> e2b_start(const Gateway& gateway, const Json& box, const Json& start,
                                          const Headers& more = {});

// Everything received until the connection ended; "" after a reset without a byte.
struct Said {
  std::string bytes;
  bool closed = false;  // within the time
  [[nodiscard]] int answers() const;
  [[nodiscard]] int status() const;
};
Said say(const std::string& url, const std::string& bytes, bool then_close, double seconds = 20);

}  // namespace isogate::test
