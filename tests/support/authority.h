// A certificate authority and what it signs, created with the openssl program.
#pragma once

#include <string>

#include "tests/support/program.h"

namespace isogate::test {

class Authority {
 public:
  explicit Authority(const std::string& name = "test authority");
  [[nodiscard]] std::string certificate() const { return file("ca.pem"); }
  // <name>.pem and <name>.key (0600). `san` as openssl writes it: "DNS:localhost,IP:127.0.0.1"; `days` may
  // be negative: it has expired then.
  void sign(const std::string& name, const std::string& san, int days = 30) const;
  [[nodiscard]] std::string file(const std::string& name) const { return directory_.path() + "/" + name; }
  [[nodiscard]] const TemporaryDirectory& directory() const { return directory_; }

 private:
  TemporaryDirectory directory_;
};

}  // namespace isogate::test
