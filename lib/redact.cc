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
constexpr size_t kLookBack = 1024;  // for the quotes before a value

struct Span {
  size_t begin = 0, end = 0;
  std::string_view name;
  std::string_view stops;  // if further parts follow, after an empty one, too: what ends them
  [[nodiscard]] bool found() const { return end > begin || !stops.empty(); }
};

bool word(char c) { return is_alnum(c) || c == '_' || c == '-'; }
bool token68(char c) { return word(c) || c == '.' || c == '~' || c == '+' || c == '/' || c == '='; }
bool is_hex(char c) { return hex_value(c) >= 0; }
bool capital(char c) { return is_digit(c) || is_upper(c); }
bool space(char c) { return c == ' ' || c == '\t'; }
bool ends_operator(char c) { return c == '=' || c == '>'; }

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
    "_pass",         "_pwd",      "accesskey",  "access_key",  "api_key",        "apikey",
    "authorization", "cookie",    "credential", "credentials", "encryption_key", "encryptionkey",
    "passphrase",    "passwd",    "password",   "private_key", "privatekey",     "secret",
    "secret_key",    "secretkey", "token"};

constexpr std::string_view kWordStops = " \t\r\n\"'`,;&)]}<>", kLineStops = "\r\n\"'";

bool is_quote(std::string_view text, size_t at) {
  return at < text.size() && (text[at] == '"' || text[at] == '\'');
}

// The other end of the quoted part that begins at `at`, or the text's. An escaped quote ends at the next one.
size_t closing(std::string_view text, size_t at) {
  const bool escaped = at > 0 && text[at - 1] == '\\';
  size_t end = at + 1;
  while (end < text.size() && text[end] != text[at]) end += text[end] == '\\' && !escaped ? 2 : 1;
  return std::min(end, text.size());
}

// Whether a prefix and a quote begin a text, as in b'…', f"…" and $'…'.
bool is_literal(std::string_view text, const Span& bare) {
  const std::string_view prefix = text.substr(bare.begin, bare.end - bare.begin);
  return is_quote(text, bare.end) && prefix.find_first_not_of("bBfFrRuUlL8$@\\") == std::string_view::npos;
}

// Also an escaped one ends a value: the next line may hold another secret.
bool is_line_end(std::string_view text, size_t at) {
  return at < text.size() && (text[at] == '\n' || text[at] == '\r');
}

bool ends_word(std::string_view text, size_t at) {
  return at >= text.size() || kWordStops.find(text[at]) != std::string_view::npos;
}

// Whether the quote at `quote` may end a text around the value at `begin`: of its kind one is open there.
bool may_end_text(std::string_view text, size_t begin, size_t quote) {
  if (begin > kLookBack) return false;
  const auto escaped = [text](size_t at) { return at > 0 && text[at - 1] == '\\'; };
  const auto is_apostrophe = [&](size_t at) {
    return text[at] == '\'' && at > 0 && at + 1 < begin && word(text[at - 1]) && word(text[at + 1]);
  };
  bool open = false;
  for (size_t at = 0; at < begin; ++at)
    if (text[at] == text[quote] && escaped(at) == escaped(quote) && (open || !is_apostrophe(at)))
      open = !open;
  return open;
}

// Whether the value at `begin` goes on at `at`, as in abc"def" and "abc"def, and what is there is no part of
// a text around it. `last`: the quote of its last quoted part, or 0.
bool goes_on(std::string_view text, size_t begin, size_t at, char last) {
  if (at >= text.size()) return false;
  const size_t quote = at + (text[at] == '\\' ? 1 : 0), next = quote + 1;
  if (!is_quote(text, quote))
    return !ends_word(text, at) && (text[at - 1] != last || word(text[at]) || !ends_word(text, at + 1));
  if (text[quote] == last) return true;
  if (is_quote(text, next)) return last != 0 || text[next] == text[quote];
  return (!ends_word(text, next) && text[next] != ':') || !may_end_text(text, begin, quote);
}

// The value that begins at `at`, up to where its quoting or, bare, the next quote or separator ends it.
Span value_at(std::string_view text, size_t at, bool header) {
  const size_t escape = starts(text, at, "\\") ? 1 : 0;
  if (!is_quote(text, at + escape)) {
    const std::string_view stops = header ? kLineStops : kWordStops;
    size_t stop = std::min(text.find_first_of(stops, at), text.size());
    while (stop < text.size() && stop > at && text[stop - 1] == '\\' && !is_quote(text, stop) &&
           !is_line_end(text, stop))  // as in a\ b
      stop = std::min(text.find_first_of(stops, stop + 1), text.size());
    const Span bare{at, stop};
    const bool more = is_literal(text, bare) || goes_on(text, at, bare.end, 0);
    return {bare.begin, bare.end, {}, more ? stops : ""};
  }
  const size_t begin = at + escape + 1, end = closing(text, begin - 1);
  if (escape == 0) return {begin, end, {}, goes_on(text, at, end + 1, text[at]) ? kWordStops : ""};
  return {begin, end == text.size() ? end : std::max(begin, end - 1)};
}

// \"'\", the escape of an apostrophe within a text that is itself escaped.
bool is_escaped_pair(std::string_view text, size_t at) {
  const std::string_view pair = text.substr(at, 5);
  return pair.size() == 5 && is_quote(pair, 2) && pair[2] != pair[1] && pair.substr(3) == pair.substr(0, 2);
}

// The end of a value and of all parts that follow it directly: b'…', abc"def", "abc"def, 'it'\''s'.
size_t end_of_parts(std::string_view text, const Span& value) {
  if (value.stops.empty()) return value.end;
  if (value.stops == kLineStops) return std::min(text.find_first_of("\r\n", value.end), text.size());
  const bool quoted = is_quote(text, value.begin - 1), quotes = quoted || is_literal(text, value);
  const size_t begin = value.begin - (quoted ? 1 : 0);
  size_t end = value.end + (quoted ? 1 : 0);
  char last = quotes ? text[quoted ? begin : end] : '\0';
  while (goes_on(text, begin, end, last)) {
    if (text[end] == '\\') {
      if (is_line_end(text, end + 1)) return end + 1;
      const bool opens = is_quote(text, end + 1), whole = opens && is_escaped_pair(text, end);
      if (opens) last = text[end + (whole ? 2 : 1)];
      end += whole ? 5 : 2;
      continue;
    }
    size_t close = is_quote(text, end) ? closing(text, end) : end;
    if (close == text.size() && !quotes) close = end;  // the apostrophe of a word
    if (close > end) last = text[end];
    if (close == end + 2 && is_quote(text, end + 1)) last = text[end + 1];
    end = close + 1;
  }
  return std::min(end, text.size());
}

// name=value, name: value, "name": "value", --name value; also by ==, +=, := and =>.
Span assignment(std::string_view text, size_t at) {
  if (!word(text[at]) || (at > 0 && word(text[at - 1]))) return {};
  size_t end = run(text, at, word);
  std::string_view name = text.substr(at, end - at);
  if (end < text.size() && text[end] == '\\') ++end;
  if (is_quote(text, end)) end += starts(text, end + 1, "]") ? 2 : 1;
  size_t sign = run(text, end, space, 8);
  if (starts(text, sign, "+=")) ++sign;
  const bool equals = starts(text, sign, "="), colon = starts(text, sign, ":");
  bool flag = !equals && !colon && sign > end && text[end - 1] != ']' && name.substr(0, 2) == "--";
  if ((!equals && !colon && !flag) || !is_secret_name(name)) return {};
  const bool header = colon && (ends_any_case(name, "authorization") || ends_any_case(name, "cookie"));
  size_t begin = flag ? sign : sign + 1;
  if (!flag && !header) begin = run(text, begin, ends_operator, 2);
  const bool prose = colon && !header && begin == sign + 1;
  begin = run(text, begin, space, 8);
  for (const std::string_view scheme : {"bearer", "basic"})
    if (Span value = credentials(text, begin, scheme); !header && value.found()) return value;
  Span value = value_at(text, begin, header);
  const bool bare = value.begin == begin && !is_literal(text, value);
  const auto in_word = [](char c) {
    return c == '"' || c == '\'' || kWordStops.find(c) == std::string_view::npos;
  };
  const size_t word_end = value.stops.empty() ? value.end : run(text, begin, in_word, 6);
  // 'name=a b', where the quote before the name begins a word
  const bool in_quotes = bare && !header && !flag && at > 0 && is_quote(text, at - 1) &&
                         text[end - 1] != text[at - 1] && (at < 2 || !word(text[at - 2]));
  const size_t close = in_quotes ? closing(text, at - 1) : text.size();
  if (close < text.size() && close > value.end + 1) return {begin, close - (text[close - 1] == '\\' ? 1 : 0)};
  if (prose && bare && word_end - begin < 6) return {};
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

// A word that has the form of a token of the E2B listener (gateway/front/e2b/sandbox.h, record.h): 52
// characters of base32, after the id of the sandbox or alone.
Span e2b_token(std::string_view text, size_t at) {
  constexpr size_t kId = 21, kSecret = 52;
  if (at > 0 && word(text[at - 1])) return {};
  const size_t end = run(text, at, word, kId + 1 + kSecret + 1), size = end - at;
  const std::string_view token = text.substr(at, size);
  const bool whole = size == kId + 1 + kSecret && token[0] == 'i' && token[kId] == 'x';
  if ((!whole && size != kSecret) || std::none_of(token.begin(), token.end(), is_digit)) return {};
  if (token.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567") != std::string_view::npos) return {};
  return {at, end, {}};
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
    // e2b_…: a key of this gateway for E2B's SDKs, or one of E2B itself
    {"e2b_key", "e", [](Text t, size_t at) { return first_of(t, at, {"e2b_"}, 32, is_hex); }},
    // envdAccessToken and trafficAccessToken: open one sandbox, or its ports
    {"e2b_token", "abcdefghijklmnopqrstuvwxyz234567", e2b_token},
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
  if (c == '_') return at == 0 || !word(text[at - 1]);
  return c == ':' || c == '-' || (is_alnum(c) && (at == 0 || !is_alnum(text[at - 1])));
}

// The parts that follow a value are looked at by themselves, too: what seems to be one of them may be what
// comes after a quoted text. No part of a part is looked for: that keeps it linear.
void find_shapes(std::string_view text, std::vector<Span>& spans) {
  size_t parts_end = 0;
  for (size_t at = 0; at < text.size();) {
    Span span = may_begin(text, at) ? match_at(text, at) : Span{};
    at = span.found() ? span.end : at + 1;
    if (!span.found()) continue;
    if (span.end >= parts_end) parts_end = span.end = end_of_parts(text, span);
    spans.push_back(span);
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
  if (const size_t number = name.find_last_not_of("0123456789") + 1; number < name.size())  // TOKEN_2
    name = name.substr(0, number - (number > 0 && !is_alnum(name[number - 1]) ? 1 : 0));
  return name == "PASS" || std::any_of(std::begin(kSecretEndings), std::end(kSecretEndings),
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
