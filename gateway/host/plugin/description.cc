#include "gateway/host/plugin/description.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "gateway/host/text.h"
#include "lib/capabilities.h"
#include "lib/json.h"
#include "lib/text.h"

namespace isogate {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxSchemaBytes = 512u << 10;

// capabilities(7), by bit.
constexpr std::array<std::string_view, 41> kLinuxCapabilities = {"chown",
                                                                 "dac_override",
                                                                 "dac_read_search",
                                                                 "fowner",
                                                                 "fsetid",
                                                                 "kill",
                                                                 "setgid",
                                                                 "setuid",
                                                                 "setpcap",
                                                                 "linux_immutable",
                                                                 "net_bind_service",
                                                                 "net_broadcast",
                                                                 "net_admin",
                                                                 "net_raw",
                                                                 "ipc_lock",
                                                                 "ipc_owner",
                                                                 "sys_module",
                                                                 "sys_rawio",
                                                                 "sys_chroot",
                                                                 "sys_ptrace",
                                                                 "sys_pacct",
                                                                 "sys_admin",
                                                                 "sys_boot",
                                                                 "sys_nice",
                                                                 "sys_resource",
                                                                 "sys_time",
                                                                 "sys_tty_config",
                                                                 "mknod",
                                                                 "lease",
                                                                 "audit_write",
                                                                 "audit_control",
                                                                 "setfcap",
                                                                 "mac_override",
                                                                 "mac_admin",
                                                                 "syslog",
                                                                 "wake_alarm",
                                                                 "block_suspend",
                                                                 "audit_read",
                                                                 "perfmon",
                                                                 "bpf",
                                                                 "checkpoint_restore"};

// `name_of`: returns the name of a bit; empty if it has none.
template <typename NameOf>
ordered_json names_of(uint64_t bits, NameOf name_of) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < 64; ++i) {
    if ((bits >> i & 1) == 0) continue;
    const std::string name(name_of(i));
    list.push_back(name.empty() ? "bit " + std::to_string(i) : name);
  }
  return list;
}

std::string_view capability_name(size_t bit) {
  const auto names = capability_names(1ull << bit);
  return names.empty() ? "" : names.front();
}

std::string_view linux_capability_name(size_t bit) {
  return bit < kLinuxCapabilities.size() ? kLinuxCapabilities[bit] : "";
}

Result<void> check_text(const std::string& text, const char* field, bool required) {
  std::string what = std::string("the descriptor's ") + field;
  if (required && text.empty()) return invalid(what + " is empty");
  if (text.size() > kMaxTextBytes) return invalid(what + " is over 1 KiB");
  if (clean_text(text, kMaxTextBytes) != text) return invalid(what + " is not one line of UTF-8");
  return {};
}

Error mark(const char* what) {
  return invalid(std::string("the plugin wrote invalid data in place of its description: ") + what);
}

// A cast from a value that does not fit is undefined.
template <typename T>
void take(const json& from, T& to) {
  constexpr bool is_number = std::is_unsigned_v<T> && !std::is_same_v<T, bool>;
  if constexpr (is_number)
    if (!from.is_number_unsigned() || from.get<uint64_t>() > std::numeric_limits<T>::max())
      throw json::other_error::create(599, "not a number that fits", &from);
  from.get_to(to);
}

// What travels over the pipe; one list serves both directions.
template <typename Fields, typename Each>
void for_each_field(Fields& d, Each each) {
  each("id", d.id);
  each("version", d.version);
  each("summary", d.summary);
  each("vendor", d.vendor);
  each("license", d.license);
  each("abi_major", d.abi_major);
  each("abi_minor", d.abi_minor);
  each("flags", d.flags);
  each("isolation", d.isolation);
  each("locality", d.locality);
  each("capabilities", d.capabilities);
  each("linux_capabilities", d.linux_capabilities);
  each("takes_config", d.takes_config);
  each("config_schema_json", d.config_schema_json);
  each("absent", d.absent);
}

}  // namespace

Result<void> check(const Description& d) {
  if (!is_name(d.id, ".-") || std::any_of(d.id.begin(), d.id.end(), is_upper))
    return invalid("the descriptor's id `" + clean_text(d.id, 80) +
                   "` is not of the form [a-z0-9][a-z0-9.-]{0,62}, such as com.example.firecracker");
  if (auto checked = check_text(d.version, "version", true); !checked) return checked;
  if (auto checked = check_text(d.summary, "summary", false); !checked) return checked;
  if (auto checked = check_text(d.vendor, "vendor", false); !checked) return checked;
  if (auto checked = check_text(d.license, "license", false); !checked) return checked;
  if (!known_isolation(d.isolation))
    return invalid("the descriptor's isolation is " + std::to_string(d.isolation) +
                   ", which is no ISOGATE_ISOLATION_ level");
  if (!known_locality(d.locality))
    return invalid("the descriptor's locality is " + std::to_string(d.locality) +
                   ", which is no ISOGATE_LOCALITY_; set one, selection goes by it");
  if (const std::string claim = unmeasured(d.isolation, d.capabilities); !claim.empty())
    return invalid("the descriptor claims " + claim +
                   " without ISOGATE_CAP_EVIDENCE, and it is believed only as far as evidence() measures it: "
                   "write evidence() and claim that capability, or do not claim " +
                   claim);
  if ((d.flags & ~ISOGATE_PLUGIN_RUNS_AS_ROOT) != 0)
    return invalid("the descriptor's flags have bits that this ABI does not know");
  if (d.linux_capabilities >> kLinuxCapabilities.size() != 0)
    return invalid("the descriptor's linux_capabilities have bits that capabilities(7) does not know");
  if (d.linux_capabilities != 0 && (d.flags & ISOGATE_PLUGIN_RUNS_AS_ROOT) == 0)
    return invalid(
        "the descriptor has linux_capabilities without ISOGATE_PLUGIN_RUNS_AS_ROOT: its host would keep none "
        "of them");
  if (d.config_schema_json.size() > kMaxSchemaBytes) return invalid("the config schema is over 512 KiB");
  if (!is_utf8(d.config_schema_json)) return invalid("the config schema is not UTF-8");
  if (!d.takes_config) return {};
  if (!is_shallow(d.config_schema_json))
    return invalid("the config schema (config_schema_json) is nested too deeply");
  const json schema = json::parse(d.config_schema_json, nullptr, false);
  if (schema.is_discarded()) return invalid("the config schema (config_schema_json) is not JSON");
  if (!schema.is_object()) return invalid("the config schema (config_schema_json) is not a JSON object");
  return {};
}

std::string unmeasured(uint32_t isolation, uint64_t capabilities) {
  if ((capabilities & ISOGATE_CAP_EVIDENCE) != 0) return {};
  if (isolation != ISOGATE_ISOLATION_NONE)
    return "isolation `" + std::string(isolation_name(isolation)) + "`";
  const auto claimed = capability_names(capabilities & (ISOGATE_CAP_EGRESS_DENY | ISOGATE_CAP_PORTS));
  return claimed.empty() ? std::string() : "`" + std::string(claimed.front()) + "`";
}

std::string to_json(const Description& d) {
  ordered_json out;
  out["id"] = d.id;
  out["version"] = d.version;
  out["summary"] = d.summary;
  out["vendor"] = d.vendor;
  out["license"] = d.license;
  out["abi"] = std::to_string(d.abi_major) + "." + std::to_string(d.abi_minor);
  out["isolation"] = isolation_name(d.isolation);
  out["locality"] = locality_name(d.locality);
  out["capabilities"] = names_of(d.capabilities, capability_name);
  out["runs_as_root"] = (d.flags & ISOGATE_PLUGIN_RUNS_AS_ROOT) != 0;
  out["linux_capabilities"] = names_of(d.linux_capabilities, linux_capability_name);
  out["leaves_out"] = d.absent;
  out["config_schema"] =
      d.takes_config ? ordered_json::parse(d.config_schema_json, nullptr, false) : ordered_json(nullptr);
  out["path"] = d.path;
  out["sha256"] = d.sha256;
  out["warnings"] = d.warnings;
  return out.dump(2, ' ', false, json::error_handler_t::replace);
}

std::string pack(const Result<Description>& described) {
  json out;
  if (!described.ok()) {
    out["status"] = described.error().status;
    out["message"] = described.error().message;
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  for_each_field(*described, [&out](const char* name, const auto& value) { out[name] = value; });
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Description> unpack(const std::string& packed) {
  try {
    if (!is_shallow(packed)) return mark("nested too deeply");
    json in = json::parse(packed);
    if (in.contains("message")) {
      uint16_t status = 0;
      take(in.at("status"), status);
      Error error{status, 0, clean_text(in.at("message").get<std::string>(), 2000)};
      if (error.status <= ISOGATE_OK || error.status > ISOGATE_NO_SANDBOX) error.status = ISOGATE_INTERNAL;
      return error;
    }
    Description d;
    size_t fields = 0;
    for_each_field(d, [&fields](const char*, const auto&) { ++fields; });
    if (in.size() != fields) return mark("unknown fields");
    for_each_field(d, [&in](const char* name, auto& value) { take(in.at(name), value); });
    if (auto checked = check(d); !checked) return checked.error();
    return d;
  } catch (const json::exception&) {
    return mark("not the JSON object of a descriptor");
  }
}

}  // namespace isogate
