#include "gateway/config/settings.h"

#include "gateway/config/document.h"

namespace isogate {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Made from the table of settings, gateway/config/settings_*.cc. Do not edit. -->

`isogate serve --config FILE` reads YAML; JSON is accepted too. `isogate config check` lists every mistake with its
place and what was meant. `configs/local-dev.yaml`, `configs/single-host.yaml`, `configs/production.yaml` and
`configs/k8s.yaml` are annotated line by line, and `configs/isogate.schema.json` lets an editor complete and check:

```yaml
# yaml-language-server: $schema=isogate.schema.json
```

## Where a value comes from

Flags take precedence over the environment, the environment over the file, the file over the defaults. A setting marked
"The strictest source wins" is the exception: of the sources that name it, the strictest value applies, and a warning at
start names what was ignored. No value of a list or an address is the strictest (`keys`, `tls.clients`, `hosts`,
`cors.origins`, `listen`, `metrics.listen`, `e2b.listen`, `shared_dirs`, `backends`). For these and for amounts, the value
of the higher source applies: flag, then environment, then file.

- Every setting below has a variable, except the members of list entries (names with `[]`). Lists are comma-separated
  or a JSON value; an empty variable is not set. An `ISOGATE_` variable that is no setting is a warning.
- The same settings have a flag, `--` and the path with dashes.
- Unknown and duplicate keys, values of another type or out of range, anchors, aliases, tags and further documents are
  errors. `yes` and `on` are texts in a file: booleans are `true` and `false`. Texts that look like numbers need quotes.

## Relaxations

What weakens the defaults is spelled out, reported by `isogate config check` and logged at every start:
`allow_unisolated: true`, `fallback: allowed`, `anonymous: loopback`, `metrics.listen` beyond loopback, and of a backend `limits.mode: best_effort`, `limits.exec: sampled`, `egress: allow`
and `root` among its `users`. What a plugin's own `config` relaxes is named by `isogate probe` and in the log.

## Settings
)";

// `list`: with "[]." behind it, the list whose items have this setting.
std::string paragraph(const Setting& setting, const std::string& list = "") {
  std::string text = "\n### `" + list + std::string(setting.path) + "`\n\n" + std::string(setting.brief);
  if (const std::string details = details_of(setting); !details.empty()) text += " " + details;
  const std::string type = type_of(setting), range = range_text(setting), fallback = fallback_of(setting);
  text += "\n\n- " + (type.find('|') == std::string::npos ? type : "one of " + type);
  if (!range.empty()) text += ", " + range;
  text += fallback.empty() ? "; required"
                           : "; default: " + (setting.fallback.empty() ? "`" + fallback + "`" : fallback);
  text += "\n";
  if (!list.empty()) return text;
  text += "- `" + environment_name(setting.path) + "`";
  if (!setting.other_variable.empty()) text += " or `" + std::string(setting.other_variable) + "`";
  return text + ", `" + flag_name(setting.path) + "`\n";
}

}  // namespace

std::string config_docs_markdown() {
  std::string text(kIntroduction);
  for (const Setting& setting : top_settings()) {
    text += paragraph(setting);
    for (const Setting& item : item_settings(setting))
      text += paragraph(item, std::string(setting.path) + "[].");
  }
  return text;
}

}  // namespace isogate
