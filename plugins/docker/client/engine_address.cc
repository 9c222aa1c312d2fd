#include "plugins/docker/client/engine_address.h"

#include "lib/text.h"
#include "plugins/docker/client/engine_error.h"

namespace isogate::docker {
namespace {

[[noreturn]] void refuse_text(const std::string& text, const std::string& source, const std::string& why) {
  throw NetError(ISOGATE_INVALID_ARGUMENT,
                 "cannot use the Engine address `" + one_line(text) + "` of " + source + ": " + why);
}

bool take_prefix(std::string& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.erase(0, prefix.size());
  return true;
}

EngineAddress tcp_address(std::string rest, const std::string& text, const std::string& source) {
  if (rest.ends_with('/')) rest.pop_back();
  if (rest.find_first_of("/?#@") != std::string::npos)
    refuse_text(text, source, "only a host and a port may follow");
  EngineAddress address;
  const auto place = split_host(rest);
  if (!place) refuse_text(text, source, "a `]` is missing");
  address.host = place->host;
  if (!is_alnum_or(address.host, place->bracketed ? ".-_:%" : ".-_") || address.host.size() > 255)
    refuse_text(text, source, "no host");
  if (place->rest.empty()) return address;
  address.port = number_in<uint16_t>(place->rest.substr(1)).value_or(0);
  if (place->rest[0] != ':' || address.port == 0)
    refuse_text(text, source, "its port has to be a number from 1 to 65535");
  return address;
}

}  // namespace

std::string EngineAddress::text() const {
  if (!unix_path.empty()) return "unix://" + unix_path;
  return "tcp://" + join_address(host, std::to_string(port));
}

std::string EngineAddress::relaxation() const {
  return unix_path.empty() && !tls ? "the Engine is spoken to over " + text() + " without TLS" : "";
}

EngineAddress parse_address(const std::string& text, const std::string& source, bool tls) {
  constexpr size_t kUnixPathMost = 107;  // sockaddr_un
  std::string rest = text;
  EngineAddress address;
  if (take_prefix(rest, "unix://")) {
    if (!rest.starts_with('/')) refuse_text(text, source, "its path has to be absolute, unix:///path");
    if (rest.size() > kUnixPathMost) refuse_text(text, source, "the path of a socket has 107 bytes at most");
    if (rest.find('\0') != std::string::npos) refuse_text(text, source, "its path holds a NUL byte");
    address.unix_path = rest;
  } else if (take_prefix(rest, "tcp://") || take_prefix(rest, "http://")) {
    address = tcp_address(rest, text, source);
  } else if (take_prefix(rest, "https://")) {
    address = tcp_address(rest, text, source);
    address.tls = TlsFiles{};
  } else if (rest.starts_with("ssh://")) {
    refuse_text(
        text, source,
        "ssh is not spoken here; forward the socket (ssh -nNT -L /run/engine.sock:/var/run/docker.sock HOST) "
        "and use unix:///run/engine.sock");
  } else {
    refuse_text(text, source, "it is neither unix:///path nor tcp://host:port");
  }
  if (address.unix_path.empty() && address.port == 0) address.port = address.tls || tls ? 2376 : 2375;
  return address;
}

}  // namespace isogate::docker
