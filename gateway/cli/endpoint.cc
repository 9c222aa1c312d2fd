#include "gateway/cli/endpoint.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>

#include "lib/fd.h"
#include "lib/loopback.h"
#include "lib/net/operator_file.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

std::string read_pem(const std::string& path, const char* option) {
  auto text = net::read_operator_file(path);
  if (!text)
    throw sdk::Error(ISOGATE_INVALID_ARGUMENT,
                     "cannot read `" + path + "`, the file of " + option + ": No such file or directory");
  return *std::move(text);
}

// "; <what to do>" about a failure of TLS, or "".
std::string tls_hint(const Endpoint& endpoint, std::string why) {
  why = to_lower(std::move(why));
  const auto has = [&why](const char* words) { return why.find(words) != std::string::npos; };
  if (has("wrong version") || has("packet length") || has("http request"))
    return "; it seems to speak no TLS: write http://";
  if (endpoint.cert_file.empty() && (has("certificate required") || has("handshake failure")))
    return "; it asks for a client certificate: give --cert and --cert-key, or use its Unix socket";
  if (!endpoint.cert_file.empty() && has("alert") &&
      (has("certificate") || has("unknown ca") || has("access denied") || has("handshake failure")))
    return "; it does not accept the client certificate `" + endpoint.cert_file + "`";
  if (has("verif") || has("certificate"))
    return endpoint.ca_file.empty() ? "; name its certificate authority with --ca-file or ISOGATE_CA_FILE"
                                    : "; its certificate is not of `" + endpoint.ca_file +
                                          "`, or for another name than " + endpoint.host;
  return "";
}

// " (--ca-file `a.pem`, --cert `b.pem`)": those of TLS that are given.
std::string files(const Endpoint& endpoint) {
  std::string all;
  const auto add = [&all](const char* option, const std::string& path) {
    if (!path.empty()) all += (all.empty() ? " (" : ", ") + std::string(option) + " `" + path + "`";
  };
  add("--ca-file", endpoint.ca_file);
  add("--cert", endpoint.cert_file);
  add("--cert-key", endpoint.cert_key_file);
  return all.empty() ? all : all + ")";
}

}  // namespace

std::string Endpoint::text() const {
  return unix_path.empty() ? (tls ? "https://" : "http://") + host_field() : "unix:" + unix_path;
}

std::string Endpoint::host_field() const {
  if (!unix_path.empty()) return "localhost";
  return join_address(host, std::to_string(port));
}

bool Endpoint::on_this_machine() const {
  return !unix_path.empty() || host == "localhost" || is_loopback(host);
}

net::Target Endpoint::target() const {
  net::Target target{"the gateway", text(), unix_path, host, port};
  target.reads_late = true;  // a write opens its sandbox first, and a program may not read its input
  if (!tls) return target;
  target.tls.emplace();
  if (!ca_file.empty()) target.tls->authority = read_pem(ca_file, "--ca-file");
  if (cert_file.empty()) return target;
  target.tls->certificate = read_pem(cert_file, "--cert");
  target.tls->key = read_pem(cert_key_file, "--cert-key");
  return target;
}

Error Endpoint::failure(const sdk::Error& error) const {
  std::string message = error.what();
  const auto* of_net = dynamic_cast<const net::NetError*>(&error);
  const bool of_tls = of_net != nullptr && of_net->of_tls();
  if (of_tls && error.status() == ISOGATE_INVALID_ARGUMENT) message += files(*this);
  if (of_net == nullptr || error.status() != ISOGATE_UNAVAILABLE) return {error.status(), 0, message};
  const std::string hint = of_tls ? tls_hint(*this, of_net->reason()) : "";
  // By TLS 1.3 a server asks for a certificate, and refuses one, after the client's handshake.
  const bool refused = !hint.empty() && of_net->reason().find("alert") != std::string::npos;
  const bool sent = of_net->maybe_done() && !refused;
  if (of_tls && !sent) return {ISOGATE_UNAVAILABLE, EPROTO, message + hint};
  return {sent ? ISOGATE_LOST : ISOGATE_UNAVAILABLE, 0, message};
}

Result<Endpoint> parse_url(const std::string& url) {
  auto refused = [&](const std::string& why) {
    return invalid("cannot use the url `" + url + "`: " + why +
                   "; give http://HOST:PORT, https://HOST:PORT or unix:/PATH");
  };
  Endpoint endpoint;
  if (url.rfind("unix:", 0) == 0) {
    endpoint.unix_path = url.substr(5);
    if (endpoint.unix_path.rfind("//", 0) == 0) endpoint.unix_path.erase(0, 2);
    if (endpoint.unix_path.empty() || endpoint.unix_path[0] != '/')
      return refused("the path is not absolute");
    if (endpoint.unix_path.size() >= sizeof(sockaddr_un::sun_path)) return refused("the path is too long");
    return endpoint;
  }
  endpoint.tls = url.rfind("https://", 0) == 0;
  if (!endpoint.tls && url.rfind("http://", 0) != 0)
    return refused("it begins with none of http://, https:// and unix:");
  std::string rest = url.substr(url.find("//") + 2);
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  if (rest.find_first_of("/?#@ ") != std::string::npos) return refused("only a host and a port may be there");
  const auto place = split_host(rest);
  if (!place) return refused("a `]` is missing");
  if (!place->rest.empty() && place->rest[0] != ':')
    return refused("a port, and nothing else, may follow the `]`");
  endpoint.host = place->host;
  const std::string port(place->rest.empty() ? "9090" : place->rest.substr(1));
  endpoint.port = number_in<uint16_t>(port).value_or(0);
  if (endpoint.host.empty()) return refused("there is no host");
  if (endpoint.host.find_first_of("[]") != std::string::npos) return refused("a bracket is misplaced");
  if (endpoint.port == 0) return refused("`" + port + "` is not a port");
  return endpoint;
}

Result<void> check_files(const Endpoint& endpoint) try {
  (void)endpoint.target();
  return {};
} catch (const sdk::Error& error) {
  return endpoint.failure(error);
}

int socket_error(const std::string& unix_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (unix_path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  unix_path.copy(address.sun_path, unix_path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return 0;
  return errno == EAGAIN ? 0 : errno;  // its queue is full
}

}  // namespace isogate::cli
