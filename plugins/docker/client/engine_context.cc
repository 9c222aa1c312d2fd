// Which Engine is meant when nobody wrote an address: the docker client's rules.
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "lib/hash.h"
#include "lib/net/operator_file.h"
#include "plugins/docker/client/engine_address.h"
#include "plugins/docker/client/engine_error.h"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(isogate_status status, const std::string& message) { throw NetError(status, message); }

std::optional<Json> read_json(const std::string& path) {
  std::optional<std::string> text;
  try {
    text = net::read_operator_file(path);
  } catch (const sdk::Error& error) {
    fail(ISOGATE_IO, error.what());  // not the caller's mistake
  }
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
  return {file("ca.pem"), file("cert.pem"), file("key.pem")};
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
  const std::string source = "docker context `" + one_line(name) + "`";
  const std::string hash = sha256_hex(name);  // the name of its directories
  const std::string path = directory + "/contexts/meta/" + hash + "/meta.json";
  const auto meta = read_json(path);
  if (!meta) fail(ISOGATE_INVALID_ARGUMENT, "there is no " + source + ": `" + path + "` is missing");
  const auto host = meta->value("/Endpoints/docker/Host"_json_pointer, Json());
  const auto skip = meta->value("/Endpoints/docker/SkipTLSVerify"_json_pointer, Json(false));
  if (!host.is_string()) fail(ISOGATE_INVALID_ARGUMENT, source + " has no docker endpoint");
  const std::string certificates = directory + "/contexts/tls/" + hash + "/docker";
  const bool tls = there(certificates, S_IFDIR);
  EngineAddress address = parse_address(host.get<std::string>(), source, tls);
  if (address.unix_path.empty() && skip == Json(true))  // also means TLS where there are no certificates
    fail(ISOGATE_INVALID_ARGUMENT,
         source +
             " skips the verification of the Engine's certificate, so anybody could pose as the Engine: "
             "put its authority into the context (docker context update --docker host=…,ca=…), or set "
             "`host` and `tls`");
  if (address.unix_path.empty() && (tls || address.tls)) address.tls = tls_files(certificates);
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

EngineAddress resolve_address(const std::string& configured, const std::optional<TlsFiles>& tls,
                              const Environment& environment, const std::vector<std::string>& usual_sockets) {
  if (!configured.empty()) {
    EngineAddress address = parse_address(configured, "the configuration", tls.has_value());
    if (tls && !address.unix_path.empty())
      fail(ISOGATE_INVALID_ARGUMENT, "the Engine address `" + one_line(configured) + "` cannot have TLS");
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
