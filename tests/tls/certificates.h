// A gateway with certificates of the test's own authority.
#pragma once

#include <string>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/authority.h"
#include "tests/support/processes.h"

namespace isogate::test {

// One authority, one gateway, with the backend `local` unless a test needs another; each test starts it with
// what it needs.
class Tls : public testing::Test {
 protected:
  void SetUp() override;
  // `more` goes into `tls: {…}`, `yaml` is added at the top level.
  Gateway& start(const std::string& more = {}, const std::string& yaml = {},
                 const std::string& backend = "local");
  [[nodiscard]] Gateway& gateway() const { return *gateway_; }
  [[nodiscard]] std::string url(const std::string& path = {}) const {
    return "https://127.0.0.1:" + gateway_->port() + path;
  }
  // curl that trusts the authority and prints the status on its last line. 0: no response.
  struct Fetched {
    int exit_code = 0, status = 0;
    std::string body, error;
  };
  Fetched fetch(const std::string& path, std::vector<std::string> arguments = {}) const;
  [[nodiscard]] std::vector<std::string> with_key() const {
    return {"-H", "Authorization: Bearer " + gateway_->key()};
  }
  // openssl s_client with empty input; its output.
  std::string s_client(std::vector<std::string> arguments) const;
  [[nodiscard]] std::string config_file() const;
  void write_config(const std::string& yaml) const;
  // The serial number that a new connection gets.
  std::string serial() const;
  void hang_up(const std::string& awaited);  // SIGHUP, and waits for another such line of the log

  Authority authority_;
  std::unique_ptr<Gateway> gateway_;
};

}  // namespace isogate::test
