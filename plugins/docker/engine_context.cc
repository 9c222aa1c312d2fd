// Which Engine is meant when nobody wrote an address: the docker client's rules.
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "plugins/docker/engine_address.h"
#include "plugins/docker/engine_error.h"
#include "runner/fd.h"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(isogate_status status, const std::string& message) {
  throw EngineError(status, message);
}

std::optional<std::string> value_of(const Environment& environment, const std::string& name) {
  auto value = environment(name);
  if (value && value->empty()) value.reset();
  return value;
}

// Nothing when there is no such file.
std::optional<std::string> read_file(const std::string& path) {
  constexpr size_t kMost = 1 << 20;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file) sdk::fail_with_errno("cannot read `" + path + "`", errno);
  std::string text;
  std::array<char, 16384> buffer{};
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) sdk::fail_with_errno("cannot read `" + path + "`", errno);
    if (n == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(n));
    if (text.size() > kMost) fail(ISOGATE_INVALID_ARGUMENT, "`" + path + "` is larger than 1 MiB");
  }
}

std::optional<Json> read_json(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) fail(ISOGATE_INVALID_ARGUMENT, "`" + path + "` is no JSON object");
  return json;
}

bool there(const std::string& path, mode_t type) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == type;
}

// ca.pem, cert.pem and key.pem, each where it exists.
TlsFiles tls_files(const std::string& directory) {
  const auto file = [&](const char* name) {
    const std::string path = directory + "/" + name;
    return there(path, S_IFREG) ? path : std::string();
  };
  return {file("ca.pem"), file("cert.pem"), file("key.pem"), true};
}

std::string config_directory(const Environment& environment) {
  if (auto directory = value_of(environment, "DOCKER_CONFIG")) return *directory;
  if (auto home = value_of(environment, "HOME")) return *home + "/.docker";
  return {};
}

EngineAddress from_environment(const std::string& host, const Environment& environment) {
  const auto certificates = value_of(environment, "DOCKER_CERT_PATH");
  const bool tls = certificates || value_of(environment, "DOCKER_TLS_VERIFY");
  EngineAddress address = parse_address(host, "DOCKER_HOST", tls);
  if (address.unix_path.empty() && (tls || address.tls))
    address.tls = tls_files(certificates ? *certificates : config_directory(environment));
  return address;
}

// A context's directories are named by the SHA-256 of its name.
std::string sha256_hex(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    fail(ISOGATE_INTERNAL, "cannot compute a SHA-256");
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

std::optional<std::string> context_name(const Environment& environment, const std::string& directory) {
  if (auto name = value_of(environment, "DOCKER_CONTEXT")) return name;
  if (directory.empty()) return std::nullopt;
  const auto config = read_json(directory + "/config.json");
  if (!config || !config->contains("currentContext")) return std::nullopt;
  const Json& name = (*config)["currentContext"];
  if (!name.is_string())
    fail(ISOGATE_INVALID_ARGUMENT, "currentContext in `" + directory + "/config.json` is no text");
  return name.get<std::string>();
}

EngineAddress from_context(const std::string& name, const std::string& directory) {
  const std::string source = "docker context `" + printable(name) + "`";
  const std::string hash = sha256_hex(name);
  const std::string path = directory + "/contexts/meta/" + hash + "/meta.json";
  const auto meta = read_json(path);
  if (!meta) fail(ISOGATE_INVALID_ARGUMENT, "there is no " + source + ": `" + path + "` is missing");
  const auto host = meta->value("/Endpoints/docker/Host"_json_pointer, Json());
  const auto skip = meta->value("/Endpoints/docker/SkipTLSVerify"_json_pointer, Json(false));
  if (!host.is_string()) fail(ISOGATE_INVALID_ARGUMENT, source + " has no docker endpoint");
  const std::string certificates = directory + "/contexts/tls/" + hash + "/docker";
  const bool tls = there(certificates, S_IFDIR);
  EngineAddress address = parse_address(host.get<std::string>(), source, tls);
  if (address.unix_path.empty() && (tls || address.tls)) {
    address.tls = tls_files(certificates);
    address.tls->verify = skip != Json(true);
  }
  return address;
}

EngineAddress from_usual_sockets(const Environment& environment, const std::vector<std::string>& sockets) {
  static const std::string kRuntime = "$XDG_RUNTIME_DIR";
  std::string tried;
  for (std::string path : sockets) {
    if (path.starts_with(kRuntime)) {
      const auto directory = value_of(environment, "XDG_RUNTIME_DIR");
      if (!directory) continue;
      path.replace(0, kRuntime.size(), *directory);
    }
    if (there(path, S_IFSOCK)) return parse_address("unix://" + path, "the usual places");
    tried += (tried.empty() ? "" : ", ") + path;
  }
  fail(ISOGATE_UNAVAILABLE, "no Engine is configured, and there is no socket at the usual places: " + tried);
}

}  // namespace

const std::vector<std::string> kUsualSockets = {
    "/var/run/docker.sock",
    "$XDG_RUNTIME_DIR/docker.sock",
    "/run/podman/podman.sock",
    "$XDG_RUNTIME_DIR/podman/podman.sock",
};

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = ::secure_getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

EngineAddress resolve_address(const std::string& configured, const std::optional<TlsFiles>& tls,
                              const Environment& environment, const std::vector<std::string>& usual_sockets) {
  if (!configured.empty()) {
    EngineAddress address = parse_address(configured, "the configuration", tls.has_value());
    if (tls && !address.unix_path.empty())
      fail(ISOGATE_INVALID_ARGUMENT, "the Engine address `" + printable(configured) + "` cannot have TLS");
    if (tls) address.tls = tls;
    return address;
  }
  if (auto host = value_of(environment, "DOCKER_HOST")) return from_environment(*host, environment);
  const std::string directory = config_directory(environment);
  const auto name = context_name(environment, directory);
  if (name && !name->empty() && *name != "default") return from_context(*name, directory);
  return from_usual_sockets(environment, usual_sockets);
}

}  // namespace isogate::docker
