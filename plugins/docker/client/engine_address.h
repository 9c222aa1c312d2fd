// Where a Docker Engine listens, and how to find that without configuration. Values; no network access.
//
// The paths here are the operator's: configuration, environment and home directory of the backend host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/common/environment.h"

namespace isogate::docker {

struct TlsFiles {
  std::string ca, certificate, key;  // PEM; empty ca: the system's authorities; empty certificate: none shown
};

struct EngineAddress {
  std::string unix_path;  // empty: TCP
  std::string host;       // without brackets
  uint16_t port = 0;
  std::optional<TlsFiles> tls;

  [[nodiscard]] std::string text() const;        // unix:///path, tcp://host:port
  [[nodiscard]] std::string relaxation() const;  // TCP without TLS, in words; else empty
};

// unix:///path, tcp://host[:port] (2375, with TLS 2376), http:// and https:// as tcp. Throws
// ISOGATE_INVALID_ARGUMENT; ssh:// is refused with what to do instead. `tls`: the caller will add TLS.
EngineAddress parse_address(const std::string& text, const std::string& source, bool tls = false);

// The sockets tried in the end, in order; the first that exists is taken. "$XDG_RUNTIME_DIR" may begin one.
extern const std::vector<std::string> kUsualSockets;

// In the docker client's order: `configured`, DOCKER_HOST (with DOCKER_TLS_VERIFY, DOCKER_CERT_PATH), the
// context (DOCKER_CONTEXT, else currentContext of config.json in DOCKER_CONFIG or ~/.docker), the usual
// sockets. A name that leads nowhere is an error, never the next place. Unlike the client, TLS always
// verifies: also with DOCKER_CERT_PATH alone, and a context that skips it (SkipTLSVerify) is refused. `tls`
// belongs to `configured`.
EngineAddress resolve_address(const std::string& configured, const std::optional<TlsFiles>& tls,
                              const Environment& environment,
                              const std::vector<std::string>& usual_sockets = kUsualSockets);

}  // namespace isogate::docker
