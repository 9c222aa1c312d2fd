// The forms of texts in the configuration: one table. Inside gateway/config only, except
// parse_listen_address().
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isogate {

struct Grammar {
  std::string_view expected;  // for messages: "an absolute path"
  std::string_view pattern;   // for the JSON Schema; accepts() decides what it admits
  bool (*accepts)(std::string_view);
  std::string_view hint = {};  // what to do, after the message
  bool secret = false;         // the value never appears in a message
};

extern const Grammar kName, kTenant, kAbsolutePath, kSearchPath, kListenAddress, kHostName, kHostPort,
    kKeyHash, kSha256, kUserName, kRequestUser, kImagePattern, kPluginName, kPrefix, kVariableName,
    kTemplateName, kOrigin, kSan;

struct ListenAddress {
  std::string host;  // literal address or "localhost"; of a Unix socket its path
  int port = -1;
  bool is_unix = false, loopback = false;
};
// False: `text` is none.
bool parse_listen_address(std::string_view text, ListenAddress& out);

bool is_absolute_path(std::string_view text);  // no `..`, no control characters

}  // namespace isogate
