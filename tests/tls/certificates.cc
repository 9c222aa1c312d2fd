#include "tests/tls/certificates.h"

#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <stdexcept>

namespace isogate::test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

}  // namespace

void Tls::SetUp() {
  if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  authority_.sign("server", "DNS:localhost,IP:127.0.0.1");
}

Gateway& Tls::start(const std::string& more, const std::string& yaml, const std::string& backend) {
  GatewayOptions options;
  options.over_unix = true;
  options.yaml = "allow_unisolated: true\nbackends: [{name: " + backend +
                 "}]\ntls: {cert: " + authority_.file("server.pem") +
                 ", key: " + authority_.file("server.key") + (more.empty() ? "" : ", " + more) + "}\n" + yaml;
  gateway_ = std::make_unique<Gateway>(options);
  return *gateway_;
}

Tls::Fetched Tls::fetch(const std::string& path, std::vector<std::string> arguments) const {
  const std::vector<std::string> always = {
      "curl", "-sS", "-m", "30", "--cacert", authority_.certificate(), "-w", "\n%{http_code}", url(path)};
  arguments.insert(arguments.begin(), always.begin(), always.end());
  const ProgramResult result = run_program(arguments);
  const size_t last = result.out.rfind('\n');
  if (last == std::string::npos) return {result.exit_code, 0, {}, result.err};
  return {result.exit_code, std::atoi(result.out.c_str() + last + 1), result.out.substr(0, last), result.err};
}

std::string Tls::s_client(std::vector<std::string> arguments) const {
  const std::vector<std::string> always = {"openssl",  "s_client",
                                           "-connect", "127.0.0.1:" + gateway_->port(),
                                           "-CAfile",  authority_.certificate()};
  arguments.insert(arguments.begin(), always.begin(), always.end());
  const ProgramResult result = run_program(arguments);
  return result.out + result.err;
}

std::string Tls::config_file() const {
  const std::string line = command_line(gateway_->pid());
  const size_t at = line.find("--config ") + 9;
  return line.substr(at, line.find(' ', at) - at);
}

void Tls::write_config(const std::string& yaml) const { std::ofstream(config_file()) << yaml; }

std::string Tls::serial() const {
  const ProgramResult shown =
      run_program({"openssl", "x509", "-noout", "-serial"},
                  {.stdin_bytes = s_client({}), .env = {}, .cwd = {}, .err_file = {}});
  return shown.out;
}

void Tls::hang_up(const std::string& awaited) {
  const size_t before = count(gateway_->log(), awaited);
  gateway_->signal(SIGHUP);
  EXPECT_TRUE(eventually(20, [&] { return count(gateway_->log(), awaited) > before; })) << gateway_->log();
}

}  // namespace isogate::test
