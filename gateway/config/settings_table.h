// The table behind settings.h: inside gateway/config only, except that the command line makes its flags of
// it.
//
// A setting knows its field: one accessor serves parsing and writing, and the default is what a fresh
// Config holds. `owner` is a Config*, and for items of lists a KeyConfig*, TlsClientConfig*,
// SharedDirConfig* or BackendConfig*; nullptr is one with only defaults, which nobody changes.
#pragma once

#include <span>
#include <variant>

#include "gateway/config/config.h"
#include "gateway/config/grammar.h"

namespace isogate {

using TextList = std::vector<std::string>;
using TextMap = std::vector<std::pair<std::string, std::string>>;

struct AnyJson {
  std::string* text;  // a JSON object
  std::string& operator*() const { return *text; }
};
using Field = std::variant<bool*, uint32_t*, uint64_t*, double*, std::string*, TextList*, TextMap*, AnyJson,
                           std::vector<KeyConfig>*, std::vector<TlsClientConfig>*,
                           std::vector<SharedDirConfig>*, std::vector<BackendConfig>*>;

struct Choice {
  std::string_view name;
  uint32_t value = 0;  // for fields that are numbers or booleans
};

// Which value of a boolean (false, true) or of `choices` is the strictest. Of several sources that name the
// setting, the strictest wins, not the strongest source.
enum class Strictest { kNone, kFirst, kLast };

struct Range {
  double least = 0, most = 0;
};

struct Setting {
  std::string_view path;  // inside its owner, dotted
  Field (*field)(void* owner);
  std::string_view brief, details = {};
  Range range = {};      // numbers
  bool or_zero = false;  // 0 is a value too, below the range
  uint64_t scale = 1;    // the field counts in units of 1/scale of the setting's
  std::span<const Choice> choices = {};
  const Grammar* grammar = nullptr;      // of the text, or of each text of a list
  bool may_be_empty = false;             // texts: "" is a value
  std::string_view other_variable = {};  // a second name of its variable
  std::string_view fallback = {};        // the default in words, if it is computed at start
  bool required = false;                 // in an item
  Strictest strictest = Strictest::kNone;
  bool needs_restart = false;  // a reload keeps the value that runs
};

std::span<const Setting> top_settings();
std::span<const Setting> key_settings();
std::span<const Setting> tls_client_settings();
std::span<const Setting> shared_dir_settings();
std::span<const Setting> backend_settings();

// The settings of a list's items; empty: it has none.
std::span<const Setting> item_settings(const Setting& list);

// "boolean", "integer", "number", "string", "list", "object", "a | b | c".
std::string type_of(const Setting& setting);
// The default, as JSON, or in words where `fallback` has them; empty: it is required.
std::string fallback_of(const Setting& setting);
std::string details_of(const Setting& setting);  // with what `strictest` and `needs_restart` mean

const Setting* find_top_setting(std::string_view path);
std::string environment_name(std::string_view path);  // ISOGATE_LIMITS_MAX_EXECS
std::string flag_name(std::string_view path);         // --limits-max-execs

// Backends where the configuration names none, in this order (settings_lists.cc).
extern const std::vector<std::string> kDefaultBackends;

inline constexpr std::string_view kBestEffort = "best_effort";  // limits: best_effort

}  // namespace isogate
