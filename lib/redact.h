// Takes secrets out of text that leaves the process: the log, the journal of execs, error messages.
//
// Two ways: by shapes of well-known secrets (one table with a reason for each), and by the
// exact secrets that are registered, which is the reliable way. A plugin cannot register any: what it logs
// is redacted by shapes. Linear in the text; no regular expressions. Never used on an exec's output, which
// is the caller's. Any thread; never throws but bad_alloc.
#pragma once

#include <string>
#include <string_view>

namespace isogate {

// Every secret in `text` replaced by "[redacted:<name>]"; what surrounds it stays readable.
std::string redact(std::string_view text);

// A field, setting or variable whose name alone marks its value as a secret: "password",
// "X-Api-Token", "DB_PASSWORD", …
bool is_secret_name(std::string_view name);

// From now on redact() finds these very bytes, and their base64, base64url and percent-encoded
// forms. False, and not registered, below 8 bytes: that would blank out ordinary words.
bool register_secret(std::string_view secret);

}  // namespace isogate
