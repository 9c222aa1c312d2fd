// Where a gateway is, as a person writes it, and how messages name it and its failures.
#pragma once

#include <cstdint>
#include <string>

#include "lib/error.h"
#include "lib/net/transport.h"

namespace isogate::cli {

struct Endpoint {
  std::string host;  // of TCP
  uint16_t port = 0;
  std::string unix_path;  // not empty: a Unix socket
  bool tls = false;  // of TCP: the gateway proves itself for `host`, by ca_file or the system's authorities
  std::string ca_file;                   // PEM; empty: the system's
  std::string cert_file, cert_key_file;  // PEM; both empty: no client certificate

  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string name() const { return "the gateway at " + text(); }
  [[nodiscard]] std::string host_field() const;  // the header Host
  [[nodiscard]] bool on_this_machine() const;    // a Unix socket, localhost, 127.0.0.0/8 or ::1

  // For Transport::connect(). Throws sdk::Error with ISOGATE_INVALID_ARGUMENT for a file that cannot be used.
  [[nodiscard]] net::Target target() const;
  // What a failure of lib/net means here, with the remedy. ISOGATE_UNAVAILABLE: nothing was done, with EPROTO
  // because of TLS. ISOGATE_LOST: the gateway may have received the request. Else its own status.
  [[nodiscard]] Error failure(const sdk::Error& error) const;
};

// http(s)://HOST[:PORT], http(s)://[V6]:PORT or unix:/PATH
Result<Endpoint> parse_url(const std::string& url);

// Whether the files of TLS can be read, before anything is done. ISOGATE_INVALID_ARGUMENT.
Result<void> check_files(const Endpoint& endpoint);

// 0 when a process listens on that Unix socket; else the errno of an attempt to connect.
int socket_error(const std::string& unix_path);

}  // namespace isogate::cli
