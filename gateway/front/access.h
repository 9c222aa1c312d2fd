// Who may make this request: the key, the Unix peer, or the one relaxation.
#pragma once

#include <string>
#include <vector>

#include "gateway/front/app.h"
#include "gateway/front/exchange.h"
#include "gateway/front/server.h"

namespace isogate::front {

Authenticator::Options authenticator_options(const Config& config, const std::string& local_key_sha256,
                                             const std::vector<uint32_t>& peer_uids);

// "127.0.0.1:9090" and "[::1]:9090" in their parts.
BoundAddress bound_address(std::string_view listener);

// The first entry of `tls.clients` that one of a verified certificate's names fits; nullptr: none.
const TlsClientConfig* client_of(const std::vector<TlsClientConfig>& clients,
                                 const std::vector<std::string>& names);

// Sets exchange.principal or throws ApiError. The metrics listener asks nobody. `peer_uid` is -1 unless the
// listener is a Unix socket.
void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, int peer_uid,
                  const std::string& peer);

}  // namespace isogate::front
