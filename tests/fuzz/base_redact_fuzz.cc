// Text that leaves the process: whatever surrounds a secret, nothing of it is left, and text without one is
// unchanged.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/log_line.h"
#include "lib/redact.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;

// This much of a secret, or more, is a leak.
constexpr size_t kLeak = 8;

bool shows(std::string_view text, std::string_view secret) {
  for (size_t at = 0; at + kLeak <= secret.size(); ++at)
    if (text.find(secret.substr(at, kLeak)) != std::string_view::npos) return true;
  return false;
}

// The text around the secret. By chance the input may contain parts of it, which are no leak.
struct Around {
  std::string before, after;
  [[nodiscard]] bool shows(std::string_view secret) const {
    return ::shows(before, secret) || ::shows(after, secret);
  }
};

// The registered secret in the promised forms: unchanged, percent-encoded, base64 and base64url at each of
// three offsets.
const std::vector<std::string>& registered() {
  static const std::vector<std::string> forms = [] {
    require(register_secret("Qx7/Zk+pW9? rT2&"));
    require(!register_secret("Qx7/Zk+"));
    return std::vector<std::string>{"Qx7/Zk+pW9? rT2&",         "Qx7%2FZk%2BpW9%3F%20rT2%26",
                                    "UXg3L1prK3BXOT8gclQyJg==", "LVF4Ny9aaytwVzk/IHJUMiY=",
                                    "LS1ReDcvWmsrcFc5PyByVDIm", "LVF4Ny9aaytwVzk_IHJUMiY"};
  }();
  return forms;
}

// Known by their shapes; put together here so that no scanner takes this file for a leak.
const std::vector<std::string>& shaped() {
  static const std::vector<std::string> all = {
      std::string("ghp") + "_Zq0123456789abcdefghij0123456789ABCDEF",
      std::string("glpat") + "-Zq0123456789abcdefghij",
      std::string("isg") + "_zqabcdefghijkl234567mnop",
      std::string("sk") + "-proj-Zqabc123DEF456ghi789",
      std::string("npm") + "_Zqabcdefghijklmnopqrstuvwxyz0123456789",
      std::string("AIza") + "SyZq0123456789abcdefghijklmnopqrstuv",
      std::string("xoxb") + "-Zq123456789012-abcdef",
      std::string("sk_live") + "_Zq0123456789abcdef",
      std::string("eyJ") + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiJZcSJ9.c2lnbmF0dXJl",
  };
  return all;
}

void look_at_registered(const Around& around) {
  for (const std::string& form : registered()) {
    const std::string_view inner = std::string_view(form).substr(2, form.size() - 6);
    if (around.shows(inner)) continue;
    const std::string clean = redact(around.before + form + around.after);
    // The ends of an encoded form depend on the bytes next to it.
    require(clean.find(form) == std::string::npos);
    require(!shows(clean, inner));
  }
}

// Where a word begins; characters of a word that follow belong to it.
void look_at_shaped(const Around& around) {
  for (const std::string& secret : shaped()) {
    if (around.shows(secret)) continue;
    const std::string clean = redact(around.before + " " + secret + " " + around.after);
    require(!shows(clean, secret));
  }
}

void look_at_named(const Around& around) {
  const std::string secret = "zq-hunter2-0815";
  if (around.shows(secret)) return;
  const bool quotes = around.before.find_first_of("'\"") != std::string::npos;  // the value's may close them
  for (const char* name :
       {"password", "api_key", "DB_PASSWORD", "X-Api-Token", "client-secret", "_authToken"}) {
    require(is_secret_name(name));
    for (const char* value : {"=b'", "=$'", " == '", " := '", " => '", "='a''", "=a'", ": b'", "=''",
                              "=\"a\"", " = \"\"\"", ": it'", "'] = '", "='o'\"'\"', ", "='a'\" "}) {
      const std::string text = name + (value + secret) + "'";
      require(quotes || !shows(redact(around.before + "\n" + text + "\n" + around.after), secret));
    }
    for (const std::string& text :
         {std::string(name) + "=" + secret, std::string(name) + ": " + secret,
          std::string("\"") + name + "\": \"" + secret + "\"", std::string("--") + name + " " + secret,
          std::string("\\\"") + name + "\\\":\\\"" + secret + "\\\""})
      require(!shows(redact(around.before + "\n" + text + "\n" + around.after), secret));
  }
}

// A whole line of the log, which escapes what it holds.
void look_at_line(const Around& around) {
  const auto line_of = [](const log::Field& message) {
    return log::line_of("front", log::Level::kInfo, "event", {message});
  };
  const std::string surroundings = around.before + "  " + around.after;
  const std::string escaped = line_of({"message", log::Own{surroundings}});
  for (const std::string& secret : {registered()[0], shaped()[0]}) {
    if (around.shows(secret) || shows(escaped, secret)) continue;
    const std::string text = around.before + " " + secret + " " + around.after,
                      line = line_of({"message", text});
    require(line.find('\n') == std::string::npos && line.starts_with("{"));
    require(!shows(line, secret));
  }
  const std::string line =
      log::line_of("front", log::Level::kInfo, "event", {{"password", "zq-hunter2-0815"}});
  require(!shows(line, "zq-hunter2-0815"));
}

// What is not replaced is unchanged, in its order.
void look_at_rest(const std::string& text) {
  if (text.find("[redacted:") != std::string::npos) return;
  const std::string clean = redact(text);
  if (clean.find("[redacted:") == std::string::npos) return require(clean == text);
  size_t at = 0;
  for (size_t begin = 0;;) {
    const size_t mark = clean.find("[redacted:", begin);
    const std::string kept = clean.substr(begin, mark - begin);
    const size_t found = text.find(kept, at);
    require(found != std::string::npos);
    if (mark == std::string::npos) return;
    at = found + kept.size();
    begin = clean.find(']', mark);
    require(begin != std::string::npos);
    ++begin;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Around around{text.substr(0, size / 2), text.substr(size / 2)};
  look_at_registered(around);
  look_at_shaped(around);
  look_at_named(around);
  look_at_line(around);
  look_at_rest(text);
  return 0;
}
