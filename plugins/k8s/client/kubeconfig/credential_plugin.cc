#include "plugins/k8s/client/kubeconfig/credential_plugin.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/program.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

constexpr std::chrono::milliseconds kLongest{30'000};
constexpr size_t kPrintedMost = 1 << 20;

[[noreturn]] void fail(const CredentialPlugin& plugin, const std::string& why) {
  throw NetError(ISOGATE_PERMISSION_DENIED,
                 "cannot log in: credential plugin `" + one_line(plugin.command, 200) + "` " + why +
                     (plugin.install_hint.empty() ? "" : "; see its install hint"));
}

std::vector<std::string> environment_of(const CredentialPlugin& plugin) {
  std::map<std::string, std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : plugin.env) variables[name] = value;
  variables["KUBERNETES_EXEC_INFO"] = plugin.exec_info;
  std::vector<std::string> all;
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

// What it prints. Its stderr is discarded: it may name secrets.
std::string run(const CredentialPlugin& plugin, const Budget& budget) {
  Program program;
  program.path = plugin.command;
  program.arguments = plugin.args;
  program.arguments.insert(program.arguments.begin(), plugin.command);
  program.environment = environment_of(plugin);
  program.files = {Program::kNull, Program::kOutput, Program::kNull};
  program.time = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<Budget::Clock::duration>(budget.left(), kLongest));
  program.cancel_fd = budget.cancel_fd();
  program.most_output = kPrintedMost;
  auto end = run_program(std::move(program));
  if (!end) fail(plugin, "cannot be run: " + std::generic_category().message(end.error().os_errno));
  switch (end->how) {
    case ProgramEnd::How::kCancelled:
      throw NetError(ISOGATE_CANCELLED, "cancelled");
    case ProgramEnd::How::kLate:
      fail(plugin, "was not done in time");
    case ProgramEnd::How::kFlooded:
      fail(plugin, "printed more than 1 MiB");
    case ProgramEnd::How::kEnded:
      break;
  }
  if (const int code = end->exit_code(); code != 0)
    fail(plugin, "failed with exit code " + std::to_string(code));
  return std::move(end->output);
}

// RFC 3339; fractions of a second do not matter.
std::optional<std::chrono::sys_seconds> parse_time(const std::string& text) {
  std::tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.')
    for (++rest; *rest >= '0' && *rest <= '9';) ++rest;
  std::tm offset{};
  long shift = 0;
  if (*rest == '+' || *rest == '-') {
    const char* end = ::strptime(rest + 1, "%H:%M", &offset);
    if (end == nullptr || *end != '\0') return std::nullopt;
    shift = (*rest == '+' ? 60L : -60L) * (offset.tm_hour * 60 + offset.tm_min);
  } else if ((*rest != 'Z' && *rest != 'z') || rest[1] != '\0') {
    return std::nullopt;
  }
  return std::chrono::sys_seconds(std::chrono::seconds(::timegm(&parts) - shift));
}

}  // namespace

PluginAnswer parse_exec_credential(const CredentialPlugin& plugin, const std::string& printed) {
  const auto json = parse_shallow(printed);
  if (!json.is_object() || text_at(json, "kind") != "ExecCredential")
    fail(plugin, "printed no ExecCredential");
  if (text_at(json, "apiVersion") != plugin.api_version)
    fail(plugin, "printed another apiVersion than " + plugin.api_version);
  const auto status = json.find("status");
  if (status == json.end() || !status->is_object()) fail(plugin, "printed no status");
  PluginAnswer answer;
  answer.token = text_at(*status, "token");
  answer.identity.certificate = text_at(*status, "clientCertificateData");
  answer.identity.key = text_at(*status, "clientKeyData");
  if (answer.identity.certificate.empty() != answer.identity.key.empty())
    fail(plugin, "gave a certificate without its key, or a key without its certificate");
  if (answer.token.empty() && answer.identity.certificate.empty())
    fail(plugin, "gave neither a token nor a certificate");
  answer.expires = std::chrono::sys_seconds::max();
  if (const std::string until = text_at(*status, "expirationTimestamp"); !until.empty()) {
    const auto parsed = parse_time(until);
    if (!parsed) fail(plugin, "gave an expirationTimestamp that is no time");
    answer.expires = *parsed;
  }
  return answer;
}

PluginAnswer run_credential_plugin(const CredentialPlugin& plugin, const Budget& budget) {
  PluginAnswer answer = parse_exec_credential(plugin, run(plugin, budget));
  const Identity also = read_identity(plugin.also);
  if (answer.identity.certificate.empty()) {
    answer.identity.certificate = also.certificate;
    answer.identity.key = also.key;
  }
  return answer;
}

}  // namespace isogate::k8s
