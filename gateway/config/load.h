// From file, environment and command line to a checked Config, or every reason why not.
//
// Flags beat the environment, the environment beats the file, the file beats the defaults. Of the settings
// that are marked `strictest` in the table the strictest value wins instead, and a warning names what was
// ignored. No thread rule; reads the file, changes nothing.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gateway/config/config.h"
#include "lib/error.h"

namespace isogate {

using TextPairs = std::vector<std::pair<std::string, std::string>>;

// Where a value came from, "isogate.yaml:3:12" or "environment variable X", by its path, "backends[0].name".
// A default has none.
using SettingPlaces = std::map<std::string, std::string, std::less<>>;

struct LoadOptions {
  std::string file;                   // YAML or JSON, at most 1 MiB; empty: $ISOGATE_CONFIG, else none
  TextPairs environment;              // usually process_environment()
  TextPairs flags;                    // dotted path → text, "limits.max_execs" → "10"
  std::vector<std::string> backends;  // --backend: just these, in this order
  int port = -1;                      // --port: of the first TCP listener
  std::string binary_dir;             // for the default plugin_dir; empty: this program's
  bool reload = false;                // a file without any setting is a mistake, such as one half written
  std::vector<std::string> known_environment;  // ISOGATE_* variables that are no settings but known
};

struct Loaded {
  Config config;
  std::string document;                  // the effective document: config_to_json(config)
  std::string file;                      // what was read; empty: none
  std::vector<std::string> warnings;     // one line each
  std::vector<std::string> relaxations;  // each way in which this is weaker than the defaults
  SettingPlaces places;
};

TextPairs process_environment();

// /var/lib/isogate for root, else $XDG_STATE_HOME/isogate or ~/.local/state/isogate; empty: there is no HOME.
std::string default_state_dir(const TextPairs& environment);

// "isogate.yaml:3:12: `backends[0].config`: ", with the place of the value or of what is around it.
std::string setting_prefix(const SettingPlaces& places, std::string_view path);

// "cannot use isogate.yaml: 2 mistakes", and a line for each.
Error mistakes(const std::string& attempt, const std::vector<std::string>& lines);

// The message of an error has one line per mistake, each with its place (file:line:column, variable or
// flag), the key, what was expected and, for a mistyped name, the nearest one.
Result<Loaded> load_config(const LoadOptions& options);

// The effective document and back; both directions are exact. Strict: unknown keys are errors.
// `follow_links`: directories are checked behind symlinks, too.
Result<Config> config_from_json(const std::string& document, bool follow_links = false);
std::string config_to_json(const Config& config);

// For a reload: gives `config` the values of `running` in all settings that need a restart. The paths of
// those that differed.
std::vector<std::string> keep_start_settings(Config& config, const Config& running);

// Whether keys and client certificates name more than one tenant. Of the whole configuration: a backend
// host's part of it has neither.
bool has_many_tenants(const Config& config);

// Each way in which `config` is weaker than the defaults, in words.
std::vector<std::string> relaxations_of(const Config& config);

}  // namespace isogate
