#include "lib/redact.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "lib/text.h"

namespace isogate {
namespace {

constexpr size_t kLook =
    256;  // how far a shape may look ahead before it must decide; keeps everything linear

struct Span {
  size_t begin = 0, end = 0;
  std::string_view name;
  [[nodiscard]] bool found() const { return end > begin; }
};

bool word(char c) { return is_alnum(c) || c == '_' || c == '-'; }
bool token68(char c) { return word(c) || c == '.' || c == '~' || c == '+' || c == '/' || c == '='; }
bool capital(char c) { return is_digit(c) || is_upper(c); }
bool space(char c) { return c == ' ' || c == '\t'; }

bool starts(std::string_view text, size_t at, std::string_view prefix) {
  return text.size() - at >= prefix.size() && text.compare(at, prefix.size(), prefix) == 0;
}

bool starts_any_case(std::string_view text, size_t at, std::string_view prefix) {
  if (text.size() - at < prefix.size()) return false;
  return std::equal(prefix.begin(), prefix.end(), text.begin() + static_cast<std::ptrdiff_t>(at),
                    [](char a, char b) { return a == to_lower(b); });
}

bool ends_any_case(std::string_view name, std::string_view ending) {  // and '-' is '_'
  if (name.size() < ending.size()) return false;
  return std::equal(ending.begin(), ending.end(), name.end() - static_cast<std::ptrdiff_t>(ending.size()),
                    [](char a, char b) { return a == (b == '-' ? '_' : to_lower(b)); });
}

template <typename Class>
size_t run(std::string_view text, size_t at, Class in_class, size_t most = std::string_view::npos) {
  size_t end = at;
  while (end < text.size() && end - at < most && in_class(text[end])) ++end;
  return end;
}

// A token of known prefix: enough characters of its alphabet after it, a digit among them.
template <typename Class>
Span token(std::string_view text, size_t at, std::string_view prefix, size_t least, Class in_class) {
  if (!starts(text, at, prefix) || (at > 0 && is_alnum(text[at - 1]))) return {};
  size_t body = at + prefix.size(), near = run(text, body, in_class, kLook);
  if (near - body < least || std::none_of(text.begin() + static_cast<std::ptrdiff_t>(body),
                                          text.begin() + static_cast<std::ptrdiff_t>(near), is_digit))
    return {};
  return {at, run(text, near, in_class), {}};
}

bool looks_random(std::string_view value) {
  if (value.size() < 8) return false;
  if (value.size() >= 20) return true;
  bool upper_inside = std::any_of(value.begin() + 1, value.end(), is_upper);
  return std::any_of(value.begin(), value.end(),
                     [](char c) { return is_digit(c) || c == '=' || c == '+'; }) ||
         (upper_inside && std::any_of(value.begin(), value.end(), is_lower));
}

// "<scheme> <value>", as in an Authorization header.
Span credentials(std::string_view text, size_t at, std::string_view scheme) {
  if (!starts_any_case(text, at, scheme) || (at > 0 && word(text[at - 1]))) return {};
  size_t gap = at + scheme.size(), begin = run(text, gap, space, 8);
  size_t end = run(text, begin, token68);
  if (begin == gap || !looks_random(text.substr(begin, end - begin))) return {};
  return {begin, end, {}};
}

constexpr std::string_view kSecretEndings[] = {
    "accesskey",  "access_key",  "api_key",    "apikey",    "authorization", "cookie",
    "credential", "credentials", "passphrase", "passwd",    "password",      "private_key",
    "privatekey", "secret",      "secret_key", "secretkey", "token"};

// The value that begins at `at`, up to where its quoting or, bare, the next separator ends it.
Span value_at(std::string_view text, size_t at, bool whole_line) {
  size_t escape = at < text.size() && text[at] == '\\' ? 1 : 0;
  char quote = at + escape < text.size() ? text[at + escape] : '\0';
  if (quote == '"' || quote == '\'') {
    size_t begin = at + escape + 1, end = begin;
    while (end < text.size() && text[end] != quote) end += text[end] == '\\' && escape == 0 ? 2 : 1;
    end = std::min(end, text.size());
    return {begin, end > begin && escape == 1 && end < text.size() ? end - 1 : end, {}};
  }
  std::string_view stops = whole_line ? "\"'\r\n" : " \t\r\n\"'`,;&)]}<>";
  size_t end = text.find_first_of(stops, at);
  return {at, end == std::string_view::npos ? text.size() : end, {}};
}

// name=value, name: value, "name": "value", --name value.
Span assignment(std::string_view text, size_t at) {
  if (!word(text[at]) || (at > 0 && word(text[at - 1]))) return {};
  size_t end = run(text, at, word);
  std::string_view name = text.substr(at, end - at);
  if (end < text.size() && text[end] == '\\') ++end;
  if (end < text.size() && (text[end] == '"' || text[end] == '\'')) ++end;
  size_t sign = run(text, end, space, 8);
  bool equals = starts(text, sign, "="), colon = starts(text, sign, ":");
  bool flag = !equals && !colon && sign > end && name.substr(0, 2) == "--";
  if ((!equals && !colon && !flag) || !is_secret_name(name)) return {};
  size_t begin = flag ? sign : run(text, sign + 1, space, 8);
  bool header = colon && (ends_any_case(name, "authorization") || ends_any_case(name, "cookie"));
  Span value = value_at(text, begin, header);
  bool quoted = value.begin > begin;
  if (colon && !quoted && value.end - value.begin < 6) return {};
  return value;
}

Span pem(std::string_view text, size_t at) {
  if (!starts(text, at, "-----BEGIN ")) return {};
  size_t label = at + 11, dashes = text.substr(label, 64).find("-----");
  if (dashes == std::string_view::npos) return {};
  if (text.substr(label, dashes).find("PRIVATE KEY") == std::string_view::npos) return {};
  size_t end = text.find("-----END ", label + dashes);
  if (end == std::string_view::npos) return {at, text.size(), {}};
  size_t close = text.find("-----", end + 9);
  return {at, close == std::string_view::npos ? text.size() : close + 5, {}};
}

Span jwt(std::string_view text, size_t at) {
  if (!starts(text, at, "eyJ") || (at > 0 && word(text[at - 1]))) return {};
  size_t header = run(text, at, word);
  if (header - at < 10 || !starts(text, header, ".")) return {};
  size_t payload = run(text, header + 1, word);
  if (payload - header < 3 || !starts(text, payload, ".")) return {};
  return {at, run(text, payload, [](char c) { return word(c) || c == '.'; }), {}};
}

Span url_userinfo(std::string_view text, size_t at) {
  if (!starts(text, at, "://")) return {};
  size_t end = text.find_first_of("@/?# \t\r\n\"'<>", at + 3);
  if (end == std::string_view::npos || text[end] != '@') return {};
  return {at + 3, end, {}};
}

struct Rule {
  std::string_view name;   // appears as [redacted:name]
  std::string_view first;  // the characters that a match begins with; empty: any
  Span (*match)(std::string_view text, size_t at);
};

Span first_of(std::string_view text, size_t at, std::initializer_list<std::string_view> prefixes,
              size_t least, bool (*in_class)(char)) {
  for (std::string_view prefix : prefixes)
    if (Span span = token(text, at, prefix, least, in_class); span.found()) return span;
  return {};
}

using Text = std::string_view;

// Sorted by name; the order only decides which name is used if two match at the same place.
constexpr Rule kRules[] = {
    // password=…, "api_key": "…", --token …, Authorization: …: the name marks the value as a secret
    {"assignment", "", assignment},
    // AKIA… or ASIA…, 16 capitals and digits: names an AWS account's key
    {"aws_access_key", "A",
     [](Text t, size_t at) {
       Span span = first_of(t, at, {"AKIA", "ASIA"}, 16, capital);
       return span.end - span.begin == 20 && (span.end == t.size() || !word(t[span.end])) ? span : Span{};
     }},
    // Basic …: base64 of a user name and password (RFC 7617)
    {"basic_credentials", "bB", [](Text t, size_t at) { return credentials(t, at, "basic"); }},
    // Bearer …: whoever bears it is let in (RFC 6750)
    {"bearer_token", "bB", [](Text t, size_t at) { return credentials(t, at, "bearer"); }},
    // ghp_…, gho_…, ghu_…, ghs_…, ghr_…, github_pat_…: acts for a GitHub user or app
    {"github_token", "g",
     [](Text t, size_t at) {
       return first_of(t, at, {"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"}, 20, word);
     }},
    // glpat-…: acts for a GitLab user
    {"gitlab_token", "g", [](Text t, size_t at) { return first_of(t, at, {"glpat-"}, 16, word); }},
    // AIza…: bills a Google project
    {"google_api_key", "A", [](Text t, size_t at) { return first_of(t, at, {"AIza"}, 30, word); }},
    // isg_…: a key of this gateway
    {"isogate_key", "i", [](Text t, size_t at) { return first_of(t, at, {"isg_"}, 16, word); }},
    // eyJ….….…: a signed token is a credential until it expires (RFC 7519)
    {"jwt", "e", jwt},
    // sk-…: bills a model provider's account
    {"model_api_key", "s", [](Text t, size_t at) { return first_of(t, at, {"sk-"}, 16, word); }},
    // npm_…: publishes packages
    {"npm_token", "n", [](Text t, size_t at) { return first_of(t, at, {"npm_"}, 30, is_alnum); }},
    // -----BEGIN … PRIVATE KEY-----: a private key (RFC 7468)
    {"private_key", "-", pem},
    // xoxb-…, xoxp-…, xoxa-…, xoxr-…, xoxs-…: acts in a Slack workspace
    {"slack_token", "x",
     [](Text t, size_t at) {
       return first_of(t, at, {"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-"}, 10, word);
     }},
    // sk_live_…, sk_test_…, rk_live_…: moves money
    {"stripe_key", "sr",
     [](Text t, size_t at) {
       return first_of(t, at, {"sk_live_", "sk_test_", "rk_live_"}, 10, word);
     }},
    // https://user:password@host: credentials in a URL (RFC 3986, 3.2.1)
    {"url_userinfo", ":", url_userinfo},
};

// A bit for each rule that a match at this character may belong to.
constexpr auto kRulesAt = [] {
  std::array<uint32_t, 256> rules{};
  for (size_t i = 0; i < std::size(kRules); ++i) {
    for (const char c : kRules[i].first) rules[static_cast<unsigned char>(c)] |= 1u << i;
    if (kRules[i].first.empty())
      for (uint32_t& each : rules) each |= 1u << i;
  }
  return rules;
}();

struct Registry {
  std::shared_mutex mutex;
  std::vector<std::string> forms;  // every form of every registered secret
  std::atomic<bool> any{false};
};

Registry& registry() {
  static auto* one = new Registry;  // outlives every thread that still logs
  return *one;
}

std::vector<std::string> forms_of(std::string_view secret) {
  std::vector<std::string> forms = {std::string(secret)};
  for (const char* digits : {"0123456789ABCDEF", "0123456789abcdef"})  // RFC 3986 knows both
    if (std::string form = percent_encode(secret, {}, digits); form != forms.back())
      forms.push_back(std::move(form));
  for (size_t shift = 0; shift < 3; ++shift) {  // wherever it stands in what was encoded
    const std::string bytes = std::string(shift, '\0').append(secret);
    const size_t begin = (shift * 8 + 5) / 6, size = bytes.size() * 8 / 6 - begin;  // the secret's alone
    forms.push_back(base64_encode(bytes).substr(begin, size));
    forms.push_back(base64url_encode(bytes).substr(begin, size));
  }
  return forms;
}

void find_registered(std::string_view text, std::vector<Span>& spans) {
  Registry& known = registry();
  if (!known.any.load(std::memory_order_acquire)) return;
  std::shared_lock lock(known.mutex);
  for (const std::string& form : known.forms)
    for (size_t at = text.find(form); at != std::string_view::npos; at = text.find(form, at + form.size()))
      spans.push_back({at, at + form.size(), "registered"});
}

Span match_at(std::string_view text, size_t at) {
  for (uint32_t rules = kRulesAt[static_cast<unsigned char>(text[at])]; rules != 0; rules &= rules - 1) {
    const Rule& rule = kRules[std::countr_zero(rules)];
    Span span = rule.match(text, at);
    if (!span.found()) continue;
    span.name = rule.name;
    return span;
  }
  return {};
}

bool may_begin(std::string_view text, size_t at) {
  char c = text[at];
  return c == ':' || c == '-' || (is_alnum(c) && (at == 0 || !is_alnum(text[at - 1])));
}

void find_shapes(std::string_view text, std::vector<Span>& spans) {
  for (size_t at = 0; at < text.size();) {
    Span span = may_begin(text, at) ? match_at(text, at) : Span{};
    if (span.found()) spans.push_back(span);
    at = span.found() ? span.end : at + 1;
  }
}

std::string without(std::string_view text, std::vector<Span>& spans) {
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::string clean;
  size_t done = 0;
  for (const Span& span : spans) {
    if (span.begin >= done) {
      clean.append(text.substr(done, span.begin - done)).append("[redacted:").append(span.name).append("]");
    }
    done = std::max(done, span.end);
  }
  return clean.append(text.substr(done));
}

}  // namespace

std::string redact(std::string_view text) {
  std::vector<Span> spans;
  find_registered(text, spans);
  find_shapes(text, spans);
  return spans.empty() ? std::string(text) : without(text, spans);
}

bool is_secret_name(std::string_view name) {
  return std::any_of(std::begin(kSecretEndings), std::end(kSecretEndings),
                     [&](std::string_view ending) { return ends_any_case(name, ending); });
}

bool register_secret(std::string_view secret) {
  if (secret.size() < 8) return false;
  Registry& known = registry();
  std::unique_lock lock(known.mutex);
  for (std::string& form : forms_of(secret))
    if (std::find(known.forms.begin(), known.forms.end(), form) == known.forms.end())
      known.forms.push_back(std::move(form));
  known.any.store(true, std::memory_order_release);
  return true;
}

}  // namespace isogate
