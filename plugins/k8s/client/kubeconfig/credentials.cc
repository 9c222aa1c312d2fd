#include "plugins/k8s/client/kubeconfig/credentials.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "lib/net/operator_file.h"
#include "lib/semaphore.h"
#include "lib/text.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/kubeconfig/credential_plugin.h"

namespace isogate::k8s {
namespace {

constexpr std::chrono::seconds kReadAgain{60};

NetError denied(const std::string& why) { return {ISOGATE_PERMISSION_DENIED, "cannot log in: " + why}; }

// A header's value must not contain what would end it.
std::string bearer(std::string token, const std::string& source) {
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
    token.pop_back();
  if (token.empty()) throw denied(source + " is empty");
  if (std::any_of(token.begin(), token.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f; }))
    throw denied(source + " holds what no token has");
  return "Bearer " + token;
}

std::chrono::sys_seconds this_second() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

class FileCredentials : public Credentials {
 public:
  explicit FileCredentials(CredentialFiles files) : files_(std::move(files)) {}

  Identity current(const Budget&) override {
    const std::lock_guard lock(mutex_);
    if (known_ && (!renewable() || Budget::Clock::now() < again_)) return *known_;
    known_ = read_identity(files_);
    again_ = Budget::Clock::now() + kReadAgain;
    return *known_;
  }

  void refused(const Identity& identity) override {
    const std::lock_guard lock(mutex_);
    if (known_ && *known_ == identity && renewable()) known_.reset();
  }

 private:
  [[nodiscard]] bool renewable() const {
    return !files_.token.file.empty() || !files_.certificate.file.empty() || !files_.key.file.empty();
  }

  const CredentialFiles files_;
  std::mutex mutex_;
  std::optional<Identity> known_;
  Budget::Clock::time_point again_;
};

// One thread at a time runs the plugin; the others wait for it within their own budgets.
class PluginCredentials : public Credentials {
 public:
  explicit PluginCredentials(CredentialPlugin plugin) : plugin_(std::move(plugin)) {}

  Identity current(const Budget& budget) override {
    if (const auto identity = valid()) return *identity;
    const auto left = std::min<Budget::Clock::duration>(budget.left(), kLongestWait);
    if (!running_.lock(budget.cancel_fd(), std::chrono::ceil<std::chrono::milliseconds>(left))) {
      if (is_signalled(budget.cancel_fd())) throw NetError(ISOGATE_CANCELLED, "cancelled");
      throw denied("the credential plugin was not done in time");
    }
    const std::unique_lock running(running_, std::adopt_lock);
    if (const auto identity = valid()) return *identity;  // another has run it meanwhile
    PluginAnswer answer = run_credential_plugin(plugin_, budget);
    if (!answer.token.empty())
      answer.identity.authorization = bearer(answer.token, "the token of the credential plugin");
    const std::lock_guard lock(mutex_);
    known_ = std::move(answer);
    return known_->identity;
  }

  void refused(const Identity& identity) override {
    const std::lock_guard lock(mutex_);
    if (known_ && known_->identity == identity) known_.reset();
  }

 private:
  static constexpr std::chrono::hours kLongestWait{24};

  std::optional<Identity> valid() {
    const std::lock_guard lock(mutex_);
    if (!known_ || this_second() >= known_->expires) return std::nullopt;
    return known_->identity;
  }

  const CredentialPlugin plugin_;
  Semaphore running_;  // the plugin
  std::mutex mutex_;   // of `known_`
  std::optional<PluginAnswer> known_;
};

}  // namespace

std::string read_secret(const Secret& secret, const std::string& field) {
  if (secret.file.empty()) return secret.text;
  auto text = net::read_operator_file(secret.file);
  if (!text) throw sdk::Error(ISOGATE_INVALID_ARGUMENT, field + ": there is no file `" + secret.file + "`");
  return std::move(*text);
}

Identity read_identity(const CredentialFiles& files) try {
  Identity identity;
  identity.certificate = read_secret(files.certificate, "client-certificate");
  identity.key = read_secret(files.key, "client-key");
  const std::string source = files.token.file.empty() ? "token" : "token file `" + files.token.file + "`";
  if (!files.token.empty())
    identity.authorization = bearer(read_secret(files.token, "tokenFile"), source);
  else if (!files.username.empty())
    identity.authorization = "Basic " + base64_encode(files.username + ":" + files.password);
  return identity;
} catch (const NetError&) {
  throw;
} catch (const sdk::Error& error) {
  throw denied(error.what());
}

std::unique_ptr<Credentials> file_credentials(CredentialFiles files) {
  return std::make_unique<FileCredentials>(std::move(files));
}

std::unique_ptr<Credentials> plugin_credentials(CredentialPlugin plugin) {
  return std::make_unique<PluginCredentials>(std::move(plugin));
}

}  // namespace isogate::k8s
