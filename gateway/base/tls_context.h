// A TLS server's files, from PEM texts to a context for connections.
//
// TLS 1.2 and 1.3, forward secrecy and AEAD ciphers alone, no compression, no renegotiation, ALPN
// `http/1.1` (a client that offers ALPN without it is refused, RFC 7301). The supervisor makes a context
// to see whether new files fit, the front to serve with it: one function, so both always agree.
#pragma once

#include <memory>
#include <string>

#include "lib/error.h"

struct ssl_ctx_st;

namespace isogate {

// Private key included: never logged, never in a message.
struct TlsMaterial {
  std::string certificate;  // PEM: the server's own, then its chain
  std::string key;          // PEM, not encrypted
  std::string client_ca;    // PEM; empty: no client certificate is requested
  bool client_required = false;

  [[nodiscard]] bool empty() const { return certificate.empty(); }
};

// Each connection made from it keeps it alive.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// The message of an error names the setting (tls.cert, tls.key, tls.client_ca) and what to do. [any]
Result<TlsContext> make_tls_context(const TlsMaterial& material);

// For the log: the subject and the end of the certificate's validity.
struct CertificateInfo {
  std::string subject, not_after;
  bool expired = false, not_yet_valid = false;
};
CertificateInfo describe_certificate(const TlsContext& context);

}  // namespace isogate
