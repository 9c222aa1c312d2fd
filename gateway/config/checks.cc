#include "gateway/config/checks.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "gateway/config/grammar.h"
#include "gateway/config/images.h"
#include "gateway/config/load.h"
#include "lib/text.h"

namespace isogate {
namespace {

std::string item(std::string_view list, size_t i, std::string_view field = "") {
  return std::string(list) + "[" + std::to_string(i) + "]" + (field.empty() ? "" : "." + std::string(field));
}

template <typename Item>
void check_unique(const std::vector<Item>& items, std::string_view list, std::string_view field,
                  std::string Item::*value, const std::string& text, Problems& problems) {
  std::set<std::string> seen;
  for (size_t i = 0; i < items.size(); ++i)
    if (!(items[i].*value).empty() && !seen.insert(items[i].*value).second)
      problems.at(item(list, i, field), text);
}

void check_keys(const Config& config, Problems& problems) {
  check_unique(config.keys, "keys", "name", &KeyConfig::name,
               "another key has this name; a key is known in the log by its name", problems);
  check_unique(config.keys, "keys", "sha256", &KeyConfig::sha256,
               "another entry has the same key; create one key per entry with `isogate key new`", problems);
}

void check_backends(const Config& config, Problems& problems) {
  check_unique(config.backends, "backends", "name", &BackendConfig::name,
               "another backend has this name; give each its own `name`, `plugin` may be the same", problems);
  for (size_t i = 0; i < config.backends.size(); ++i)
    if (config.backends[i].run_as == "root" || config.backends[i].run_as == "0")
      problems.at(item("backends", i, "run_as"),
                  "a backend that needs root declares it, and keeps the capabilities that it declares; leave "
                  "this out");
}

// The settings of addresses that clients reach.
struct Addresses {
  const char* setting;
  const std::vector<std::string>& all;
};
std::array<Addresses, 2> public_addresses(const Config& config) {
  return {{{"listen", config.listen}, {"e2b.listen", config.e2b.listen}}};
}

void check_listeners(const Config& config, Problems& problems) {
  if (config.listen.empty()) problems.at("listen", "expected at least one address");
  for (const auto& [setting, all] : public_addresses(config)) {
    std::set<std::string> seen;
    for (size_t i = 0; i < all.size(); ++i) {
      ListenAddress address;
      if (!parse_listen_address(all[i], address)) continue;  // reported when it was read
      if (!seen.insert(all[i]).second && address.port != 0)
        problems.at(item(setting, i), "`" + all[i] + "` is there twice");
      if (address.loopback || config.names_callers()) continue;
      problems.at(item(setting, i),
                  "`" + all[i] +
                      "` can be reached from other machines, and there are neither `keys` nor "
                      "`tls.clients`; add `keys: [{name: …, tenant: …, sha256: …}]` (`isogate key new`), or "
                      "listen on 127.0.0.1");
    }
  }
}

void check_policy(const Config& config, Problems& problems) {
  if (config.require_remote && config.allow_unisolated)
    problems.at("allow_unisolated", "contradicts `require_remote: true`; remove one of them");
  if (config.require_remote && config.anonymous == "loopback")
    problems.at("anonymous", "`loopback` is refused under `require_remote: true`; use keys");
}

void check_tls(const Config& config, Problems& problems) {
  const TlsConfig& tls = config.tls;
  if (tls.cert.empty() != tls.key.empty())
    problems.at(tls.cert.empty() ? "tls.key" : "tls.cert",
                tls.cert.empty() ? "a key without a certificate; add `tls.cert`"
                                 : "a certificate without its key; add `tls.key`");
  if (!tls.client_ca.empty() && !tls.enabled())
    problems.at("tls.client_ca", "client certificates need TLS; add `tls.cert` and `tls.key`");
  if (!tls.clients.empty() && tls.client_ca.empty())
    problems.at("tls.clients", "nothing would verify these certificates; add `tls.client_ca`");
  check_unique(tls.clients, "tls.clients", "name", &TlsClientConfig::name,
               "another entry has this name; a certificate is known in the log by its name", problems);
  check_unique(tls.clients, "tls.clients", "san", &TlsClientConfig::san,
               "another entry has this name of a certificate; only the first would ever count", problems);
}

void check_metrics(const Config& config, Problems& problems) {
  ListenAddress address;
  const std::string& listen = config.metrics.listen;
  if (listen.empty()) return;
  if (!parse_listen_address(listen, address) || address.is_unix)
    return problems.at("metrics.listen",
                       "expected HOST:PORT with a literal address or localhost, got `" + listen + "`");
  if (address.port != 0 &&
      std::find(config.listen.begin(), config.listen.end(), listen) != config.listen.end())
    problems.at("metrics.listen", "`" + listen + "` is in `listen`, too; choose another port");
}

void check_e2b(const Config& config, Problems& problems) {
  for (size_t i = 0; i < config.e2b.listen.size(); ++i) {
    const std::string &listen = config.e2b.listen[i], path = "e2b.listen[" + std::to_string(i) + "]";
    ListenAddress address;
    if (!parse_listen_address(listen, address) || address.is_unix)
      problems.at(path, "expected HOST:PORT with a literal address or localhost, got `" + listen + "`");
    else if (address.port != 0 &&
             (std::ranges::count(config.listen, listen) > 0 || listen == config.metrics.listen))
      problems.at(path, "`" + listen + "` is in `listen` or `metrics.listen`, too; choose another port");
  }
  for (const auto& [name, image] : config.e2b.templates)
    if (!image.empty() && !is_image_name(image))
      problems.at("e2b.templates." + name, "expected the name of an image, got `" + image + "`");
  if (config.e2b.timeout_sec > config.e2b.max_timeout_sec)
    problems.at("e2b.timeout_sec", "more than `e2b.max_timeout_sec`");
}

void check_amounts(const Config& config, Problems& problems) {
  if (config.exec.timeout_sec > config.exec.max_timeout_sec)
    problems.at("exec.timeout_sec", "more than `exec.max_timeout_sec`");
  if (config.exec.max_output_bytes > config.exec.max_max_output_bytes)
    problems.at("exec.max_output_bytes", "more than `exec.max_max_output_bytes`");
  // What one call may ask for has to fit, or it would be refused for ever with "try again".
  const LimitsConfig& limits = config.limits;
  const uint64_t share = limits.tenant_share(limits.max_held_bytes);
  const uint64_t output = std::max(config.exec.max_max_output_bytes, kStreamBytes);
  const uint64_t most = std::max(limits.max_json_bytes * 3 / 2, limits.max_json_bytes + 2 * output);
  if (most > share)
    problems.at("limits.max_held_bytes",
                "one tenant's share of it, " + std::to_string(share) +
                    " bytes, is less than one call may take by `limits.max_json_bytes` and "
                    "`exec.max_max_output_bytes`, " +
                    std::to_string(most));
  const uint64_t of_tenant = limits.max_disk_mb_per_tenant << 20;
  for (const BackendConfig& backend : config.backends)
    if (of_tenant != 0 && backend.sandbox_limits.get(ISOGATE_LIMIT_DISK_BYTES) > of_tenant)
      problems.at("limits.max_disk_mb_per_tenant", "less than `limits.disk_mb` of backend `" + backend.name +
                                                       "`: none of its sandboxes could be opened");
}

void check_prefixes(const Config& config, Problems& problems) {
  const auto& dirs = config.shared_dirs;
  for (size_t i = 0; i < dirs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      std::string a = dirs[i].prefix + "/", b = dirs[j].prefix + "/";
      if (dirs[i].prefix.empty() || dirs[j].prefix.empty() || (a.rfind(b, 0) != 0 && b.rfind(a, 0) != 0))
        continue;
      problems.at(item("shared_dirs", i, "prefix"), "`" + dirs[i].prefix + "` overlaps `" + dirs[j].prefix +
                                                        "`: a path would mean two directories");
    }
  }
}

// ---- directories ----

std::string normal(const std::string& path, bool follow_links) {
  std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  std::error_code failed;
  if (follow_links)
    if (auto real = std::filesystem::weakly_canonical(normal, failed); !failed) normal = real;
  std::string text = normal.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

struct Own {
  std::string setting, path;
};

// What the programs of every sandbox may read must not be the gateway's or the kernel's. False: it is, which
// is reported. `links`: of its place behind symlinks.
bool check_shown(const Config& config, bool links, const std::string& setting, const std::string& path,
                 Problems& problems) {
  const std::string place = normal(path, links);
  const std::string shown =
      "`" + path + "`" + (place == normal(path, false) ? "" : " (that is `" + place + "`)");
  for (const char* kernel : {"/proc", "/sys", "/dev", "/run", "/var/run"}) {
    if (!lies_in(place, kernel) && !lies_in(kernel, place)) continue;
    problems.at(setting, shown + " would show `" + kernel + "` to every sandbox; name a directory of data");
    return false;
  }
  for (const Own& own : {Own{"state_dir", config.state_dir}, Own{"plugin_dir", config.plugin_dir},
                         Own{"workdir", config.workdir}}) {
    if (own.path.empty()) continue;
    const std::string other = normal(own.path, links);
    if (!lies_in(place, other) && !lies_in(other, place)) continue;
    const std::string behind = other == normal(own.path, false) ? "" : ", that is " + other;
    problems.at(setting, shown + " overlaps `" + own.setting + "` (" + own.path + behind +
                             "); name another directory");
    return false;
  }
  return true;
}

// The gateway keeps other things there: another owner or mode for the sandboxes would break both.
void check_workdir(const Config& config, bool follow_links, Problems& problems) {
  if (config.workdir.empty() || config.state_dir.empty()) return;
  const std::string place = normal(config.workdir, follow_links),
                    root = normal(config.state_dir, follow_links);
  std::string taken = place == root ? root : "";
  for (const char* part : {"/front", "/uids", "/run", "/sandboxes"})
    if (lies_in(place, root + part)) taken = root + part;
  if (!taken.empty())
    problems.at("workdir", "`" + config.workdir + "` is the gateway's own directory `" + taken +
                               "`; name another one, or leave it out for " + root + "/sandboxes");
}

}  // namespace

void check_together(const Config& config, Problems& problems) {
  check_listeners(config, problems);
  check_policy(config, problems);
  check_keys(config, problems);
  check_tls(config, problems);
  check_metrics(config, problems);
  check_e2b(config, problems);
  check_amounts(config, problems);
  check_prefixes(config, problems);
  check_backends(config, problems);
}

void check_directories(const Config& config, bool follow_links, Problems& problems) {
  check_workdir(config, follow_links, problems);
  for (const Own& own : {Own{"state_dir", config.state_dir}, Own{"workdir", config.workdir}})
    if (!own.path.empty() && normal(own.path, false) == "/")
      problems.at(own.setting, "expected a directory of its own, got `/`");
  const auto check = [&](const std::string& setting, const std::string& path) {
    if (path.empty()) return;
    if (check_shown(config, false, setting, path, problems) && follow_links)
      check_shown(config, true, setting, path, problems);
  };
  for (size_t i = 0; i < config.shared_dirs.size(); ++i)
    check(item("shared_dirs", i, "path"), config.shared_dirs[i].path);
  for (const std::string_view path : split(config.toolchain_path, ':'))
    check("toolchain_path", std::string(path));
}

std::vector<std::string> warnings_of(const Config& config) {
  std::vector<std::string> warnings;
  for (const auto& [setting, all] : public_addresses(config))
    for (const std::string& listen : all) {
      ListenAddress address;
      if (parse_listen_address(listen, address) && !address.loopback && !config.tls.enabled())
        warnings.push_back(setting + (": `" + listen) +
                           "` speaks HTTP without TLS: set `tls`, or put a TLS proxy in front of it");
    }
  if (!config.hosts.empty() && config.anonymous == "never")
    warnings.push_back("hosts: has no effect without `anonymous: loopback`");
  if (config.limits.max_execs_per_sandbox > config.limits.max_execs)
    warnings.push_back("limits.max_execs_per_sandbox: more than `limits.max_execs`, which bounds it");
  return warnings;
}

std::vector<std::string> relaxations_of(const Config& config) {
  std::vector<std::string> list;
  if (config.allow_unisolated)
    list.push_back("allow_unisolated: true — commands may run on this host without isolation");
  if (config.fallback_allowed)
    list.push_back("fallback: allowed — a backend with less isolation may stand in for one that is down");
  if (config.anonymous == "loopback")
    list.push_back("anonymous: loopback — every program on this machine may run commands without a key");
  ListenAddress metrics;
  if (parse_listen_address(config.metrics.listen, metrics) && !metrics.loopback)
    list.push_back("metrics.listen: " + config.metrics.listen +
                   " — whoever reaches it reads the metrics, without a key and without TLS");
  for (const BackendConfig& backend : config.backends) {
    std::string name = "backend `" + backend.name + "`: ";
    if (backend.limits_best_effort)
      list.push_back(name + "limits.mode: best_effort — limits that cannot be enforced are left out");
    if (backend.exec_limits_sampled)
      list.push_back(
          name +
          "limits.exec: sampled — the limits of one exec are sampled where the kernel cannot enforce them");
    if (backend.egress == ISOGATE_EGRESS_ALLOW)
      list.push_back(name + "egress: allow — its programs have outbound network access");
    if (std::find(backend.users.begin(), backend.users.end(), "root") != backend.users.end())
      list.push_back(name + "users: root — a request may run as root in its sandboxes");
  }
  return list;
}

}  // namespace isogate
