// One connection to a server: over a Unix socket or TCP, plain or TLS, through a proxy or not; non-blocking.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/fd.h"
#include "lib/net/budget.h"
#include "lib/net/net_error.h"

namespace isogate::net {

// Of an HTTP proxy, asked with CONNECT: RFC 9110, 9.3.6.
struct Proxy {
  std::string host;
  uint16_t port = 0;
  std::string authorization;  // "Basic …"; empty: none. A secret.
};

struct Tls {
  std::optional<std::string> authority;  // PEM; none: the system's
  std::string certificate, key;          // PEM; both empty: no client certificate. The key is a secret.
  std::string server_name;               // which the certificate must name; empty: the target's host
  bool verify = true;                    // false only where the operator wrote so
  bool trust_listed = false;  // a chain may end at any certificate of `authority`, not only at a root
};

// Where a server is, and how messages name it.
struct Target {
  std::string name;       // "the Engine"
  std::string address;    // "tcp://host:port"
  std::string unix_path;  // empty: TCP
  std::string host;       // without brackets
  uint16_t port = 0;
  std::optional<Proxy> proxy = {};
  std::optional<Tls> tls = {};
  bool reads_late = false;  // it may read nothing for minutes, and has not vanished

  [[nodiscard]] std::string text() const { return name + " at " + address; }
};

// One thread may read while another one writes; shutdown() is for any thread.
class Transport {
 public:
  virtual ~Transport() = default;
  // Throws NetError.
  static std::unique_ptr<Transport> connect(const Target& target, const Budget& budget);
  // A connected socket, non-blocking.
  static std::unique_ptr<Transport> adopt(Fd socket);

  [[nodiscard]] virtual int fd() const = 0;
  // As read(2) and write(2): -1 with errno (EAGAIN: poll first), 0 at the end. No SIGPIPE.
  virtual ssize_t read_some(char* to, size_t size) = 0;
  virtual ssize_t write_some(const char* from, size_t size) = 0;
  // After EAGAIN, write_some() must be repeated with the same bytes, and no fewer.
  [[nodiscard]] virtual bool must_repeat() const { return false; }
  [[nodiscard]] virtual bool has_buffered() const { return false; }
  // Why TLS has failed since the handshake; empty: it has not. The other side may refuse a certificate then.
  [[nodiscard]] virtual std::string tls_failure() const { return ""; }
  virtual void shutdown() = 0;
  // It ended or has bytes without a request: it must not be used again.
  [[nodiscard]] virtual bool stale() = 0;
};

struct NameAddress;  // name_lookup.h
// Connects to the first address that accepts. Each has its share of the time that is left, at least 2 s.
// `attempt`: what messages begin with. Throws NetError.
Fd connect_to_one(const std::vector<NameAddress>& addresses, const std::string& attempt,
                  const Budget& budget);

// The addresses of a name, as numbers; of an address itself. Throws NetError.
std::vector<std::string> addresses_of(const std::string& host, const Budget& budget);

}  // namespace isogate::net
