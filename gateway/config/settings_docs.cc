#include "gateway/config/settings.h"

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

Flags beat the environment, the environment beats the file, the file beats the defaults. A setting marked "the
strictest source wins" is the exception: of the sources that name it the strictest value is taken, and a warning at
start names what was ignored. The other settings that bear on security are lists and addresses, of which none is the
strictest (`keys`, `tls.clients`, `hosts`, `cors.origins`, `listen`, `metrics.listen`, `backends`), and amounts: there the
stronger source replaces the weaker one's value.

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

std::string paragraph(const SettingInfo& info) {
  std::string text = "\n### `" + info.path + "`\n\n" + info.brief;
  if (!info.details.empty()) text += " " + info.details;
  text += "\n\n- " + (info.type.find('|') == std::string::npos ? info.type : "one of " + info.type);
  if (!info.range.empty()) text += ", " + info.range;
  text += info.fallback.empty()
              ? "; required"
              : "; default: " + (info.fallback_in_words ? info.fallback : "`" + info.fallback + "`");
  text += "\n";
  if (info.environment.empty()) return text;
  text += "- `" + info.environment + "`" + (info.historical.empty() ? "" : " or `" + info.historical + "`");
  return text + ", `" + info.flag + "`\n";
}

}  // namespace

std::string config_docs_markdown() {
  std::string text(kIntroduction);
  for (const SettingInfo& info : settings()) text += paragraph(info);
  return text;
}

}  // namespace isogate
