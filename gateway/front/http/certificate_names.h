// The names of a certificate. Pure; does not verify the certificate.
#pragma once

#include <openssl/types.h>

#include <string>
#include <vector>

#include "gateway/config/config.h"

namespace isogate::front {

// Its subject alternative names as `tls.clients` spells them: "DNS:agent.example.org", "URI:…", "email:…",
// "IP:192.0.2.1". Names of other kinds, and with anything but printable ASCII, are left out.
std::vector<std::string> certificate_names(const X509& certificate);

// The first entry of `tls.clients` that matches one of a verified certificate's names; nullptr:
// none.
const TlsClientConfig* client_of(const std::vector<TlsClientConfig>& clients,
                                 const std::vector<std::string>& names);

}  // namespace isogate::front
