#include "gateway/config/grammar.h"

#include <sys/un.h>

#include <algorithm>

#include "gateway/config/images.h"
#include "lib/loopback.h"
#include "lib/text.h"

namespace isogate {
namespace {

bool control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

bool number(std::string_view text, uint64_t most, uint64_t& value) {
  const auto found = number_in<uint64_t>(text);
  value = found.value_or(0);
  return found && text.size() <= 10 && value <= most;
}

bool any_text(std::string_view text) { return !std::any_of(text.begin(), text.end(), control); }

bool name(std::string_view text) { return is_name(text, "_-"); }

bool tenant(std::string_view text) { return is_name(text, "_-.@"); }

bool search_path(std::string_view text) {
  const auto parts = split(text, ':');
  return std::all_of(parts.begin(), parts.end(), is_absolute_path);
}

bool listen_address(std::string_view text) {
  ListenAddress ignored;
  return parse_listen_address(text, ignored);
}

bool host_name(std::string_view text) { return is_name(text, "-._", 253); }

bool host_port(std::string_view text) {
  size_t colon = text.rfind(':');
  uint64_t port = 0;
  if (colon == std::string_view::npos || !number(text.substr(colon + 1), 65535, port) || port == 0)
    return false;
  ListenAddress address;
  return host_name(text.substr(0, colon)) || (text[0] == '[' && parse_listen_address(text, address));
}

bool sha256(std::string_view text) {
  return text.size() == 64 && std::none_of(text.begin(), text.end(), [](char c) { return hex_value(c) < 0; });
}

bool user_name(std::string_view text) {
  return is_alnum_or(text, "_-") && text.size() <= 32 && !is_digit(text[0]) && text[0] != '-' &&
         std::none_of(text.begin(), text.end(), is_upper);
}

bool request_user(std::string_view text) {
  uint64_t uid = 0;
  return user_name(text) || (number(text, 4294967294u, uid) && uid != 0 && text[0] != '0');
}

bool plugin_name(std::string_view text) { return name(text) || is_absolute_path(text); }

bool prefix(std::string_view text) {
  if (text == "workspace" || text.substr(0, 10) == "workspace/") return false;
  return text.size() <= 255 && is_path_below(text) && is_alnum_or(text, "_-./");
}

// RFC 6454's serialisation, as browsers send it.
bool origin(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || !is_alnum_or(text.substr(0, scheme), "+-.")) return false;
  if (!is_upper(text[0]) && !is_lower(text[0])) return false;
  const std::string_view place = text.substr(scheme + 3);
  if (host_name(place) || host_port(place)) return true;
  ListenAddress address;
  return !place.empty() && place[0] == '[' &&
         parse_listen_address(place.back() == ']' ? std::string(place) + ":0" : std::string(place), address);
}

bool san(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.size() > 1024 || !any_text(text)) return false;
  const std::string_view kind = text.substr(0, colon), value = text.substr(colon + 1);
  if (kind == "DNS") return host_name(value);
  if (kind == "URI") return value.find(':') != std::string_view::npos;
  if (kind == "email") return value.find('@') != std::string_view::npos;
  return kind == "IP" && !address_bytes(value).empty();
}

bool variable_name(std::string_view text) { return is_alnum_or(text, "_") && !is_digit(text[0]); }

}  // namespace

bool is_absolute_path(std::string_view text) {
  if (text.empty() || text[0] != '/' || text.size() >= 4096 || !any_text(text)) return false;
  const auto parts = split(text, '/');
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

bool parse_listen_address(std::string_view text, ListenAddress& out) {
  if (text.substr(0, 5) == "unix:") {
    out = {std::string(text.substr(5)), -1, true, true};
    return is_absolute_path(out.host) && out.host.back() != '/' &&
           out.host.size() < sizeof(sockaddr_un::sun_path);
  }
  size_t colon = text.rfind(':');
  uint64_t port = 0;
  if (colon == std::string_view::npos || !number(text.substr(colon + 1), 65535, port)) return false;
  out = {std::string(text.substr(0, colon)), static_cast<int>(port), false, false};
  if (out.host == "localhost") return out.loopback = true;
  const bool bracketed = out.host.starts_with('[') && out.host.ends_with(']');
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  out.loopback = is_loopback(out.host);
  return !address_bytes(out.host).empty() && bracketed == (out.host.find(':') != std::string::npos);
}

const Grammar kName = {"a name of 1 to 63 letters, digits, `_` and `-`, a letter or digit first",
                       "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$", name};
const Grammar kTenant = {"a name of 1 to 63 letters, digits, `_`, `-`, `.` and `@`, a letter or digit first",
                         "^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$", tenant};
const Grammar kAbsolutePath = {"an absolute path without `..`", "^/", is_absolute_path,
                               "`~` and variables are not expanded"};
const Grammar kSearchPath = {"absolute paths without `..`, separated by `:`", "^/", search_path};
const Grammar kListenAddress = {
    "HOST:PORT with a literal address or localhost, [V6]:PORT, or unix:/PATH of at most 107 characters",
    "^(unix:/.*|.*:[0-9]{1,5})$", listen_address,
    "every address of this machine is 0.0.0.0:PORT or [::]:PORT"};
const Grammar kHostName = {"a host name without a port", "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$", host_name};
const Grammar kHostPort = {"HOST:PORT", "^.+:[0-9]{1,5}$", host_port};
const Grammar kKeyHash = {
    "64 hexadecimal digits", "^[0-9a-fA-F]{64}$", sha256,
    "`isogate key new` and `isogate key hash` print them; the key itself never goes here", true};
const Grammar kSha256 = {"64 hexadecimal digits", "^[0-9a-fA-F]{64}$", sha256, "as sha256sum prints them",
                         true};
const Grammar kUserName = {"the name of a user or group of this machine", "^[a-z_][a-z0-9_-]{0,31}$",
                           user_name};
const Grammar kRequestUser = {"a user name, or a number in quotes from 1 to 4294967294",
                              "^([a-z_][a-z0-9_-]{0,31}|[1-9][0-9]{0,9})$", request_user,
                              "root has to be spelled `root`"};
const Grammar kImagePattern = {"an image's name, one that ends in `*` for all that begin so, or `*`",
                               "^(\\*|[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}\\*?)$", is_image_pattern};
const Grammar kPluginName = {"the name of a file in plugin_dir without .so, or an absolute path",
                             "^(/.*|[A-Za-z0-9][A-Za-z0-9_-]{0,62})$", plugin_name};
const Grammar kPrefix = {"a relative prefix like `shared/docs`: no `/` at its ends, no `..`, not `workspace`",
                         "^[A-Za-z0-9._-][A-Za-z0-9._/-]{0,254}$", prefix};
const Grammar kVariableName = {"a variable's name: letters, digits and `_`, no digit first",
                               "^[A-Za-z_][A-Za-z0-9_]*$", variable_name};
const Grammar kTemplateName = {"a name of 1 to 255 letters, digits and `._:/@-`, a letter or digit first",
                               "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$", is_image_name};
const Grammar kOrigin = {"an origin like `https://console.example.org` or `http://localhost:3000`",
                         "^[A-Za-z][A-Za-z0-9+.-]*://[^/?#@*]+$", origin,
                         "scheme, host and port alone: no path, no `*`"};
const Grammar kSan = {"DNS:NAME, URI:…, email:NAME@HOST or IP:ADDRESS", "^(DNS|URI|email|IP):.+$", san,
                      "as `openssl x509 -noout -ext subjectAltName` shows it, without wildcards"};

}  // namespace isogate
