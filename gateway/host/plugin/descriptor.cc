#include "gateway/host/plugin/descriptor.h"

#include <cstddef>

#include "gateway/host/text.h"
#include "lib/capabilities.h"
#include "lib/text.h"

namespace isogate {
namespace {

constexpr size_t kMaxStringBytes = 1u << 20;

std::string version_text(uint32_t major, uint32_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string own_abi() { return version_text(ISOGATE_ABI_MAJOR, ISOGATE_ABI_MINOR); }

// nullptr is the empty string; a string without an end within 1 MiB is cut, and fails the check of its
// length.
std::string copy_text(const char* text) {
  if (text == nullptr) return {};
  return std::string(text, ::strnlen(text, kMaxStringBytes));
}

struct Function {
  const char* name;
  size_t offset;
  uint64_t needed_by;  // the capability that it serves; 0: none
};

constexpr uint64_t kRequired = UINT64_MAX;  // whatever the plugin can do

#define ISOGATE_API_ENTRY(name, needed_by) \
  { #name, offsetof(isogate_backend_api, name), needed_by }
constexpr Function kFunctions[] = {
    ISOGATE_API_ENTRY(create, kRequired),
    ISOGATE_API_ENTRY(destroy, kRequired),
    ISOGATE_API_ENTRY(probe, kRequired),
    ISOGATE_API_ENTRY(open, kRequired),
    ISOGATE_API_ENTRY(close, kRequired),
    ISOGATE_API_ENTRY(enumerate, kRequired),
    ISOGATE_API_ENTRY(exec, kRequired),
    ISOGATE_API_ENTRY(read, kRequired),
    ISOGATE_API_ENTRY(write, kRequired),
    ISOGATE_API_ENTRY(list, kRequired),
    ISOGATE_API_ENTRY(stat, kRequired),
    ISOGATE_API_ENTRY(mkdir, 0),
    ISOGATE_API_ENTRY(move, 0),
    ISOGATE_API_ENTRY(remove, 0),
    ISOGATE_API_ENTRY(evidence, ISOGATE_CAP_EVIDENCE),
    ISOGATE_API_ENTRY(get_extension, ISOGATE_CAP_KEPT_EXECS),
    ISOGATE_API_ENTRY(watch, ISOGATE_CAP_WATCH),
    ISOGATE_API_ENTRY(connect, ISOGATE_CAP_PORTS),
};
#undef ISOGATE_API_ENTRY

Result<void> check_functions(const isogate_backend_api& api, Description& description) {
  if (api.reserved != 0)
    return invalid("plugin `" + description.id + "`: `reserved` of its isogate_backend_api must be 0");
  std::string missing;
  for (const Function& function : kFunctions) {
    void* pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char*>(&api) + function.offset, sizeof pointer);
    if (pointer != nullptr) continue;
    if (function.needed_by != kRequired) {
      description.absent.emplace_back(function.name);
      if ((description.capabilities & function.needed_by) == 0) continue;
      return invalid("plugin `" + description.id + "` " + description.version + " claims the capability `" +
                     join(capability_names(function.needed_by), ", ") + "` and has no " + function.name +
                     ": add this function to its isogate_backend_api, or do not claim the capability");
    }
    missing += missing.empty() ? "" : ", ";
    missing += function.name;
  }
  if (missing.empty()) return {};
  return invalid("plugin `" + description.id + "` " + description.version + " has no " + missing +
                 ": these functions of isogate_backend_api are required");
}

Result<void> check_head(const isogate_plugin& head, const std::string& name) {
  if (head.magic != ISOGATE_ABI_MAGIC)
    return invalid("plugin `" + name +
                   "` is not one of isogate's: the magic number of its descriptor is wrong");
  if (head.abi_major != ISOGATE_ABI_MAJOR)
    return unsupported("plugin `" + name + "` is built for ABI " +
                       version_text(head.abi_major, head.abi_minor) + ", this gateway offers " + own_abi() +
                       ": use a plugin built for ABI " + std::to_string(ISOGATE_ABI_MAJOR) +
                       ".x, or the gateway that goes with it");
  if (head.struct_size < offsetof(isogate_plugin, api) + sizeof(head.api))
    return invalid("plugin `" + name + "`: struct_size of its descriptor is " +
                   std::to_string(head.struct_size) +
                   ", which does not reach `api`; set it to sizeof(isogate_plugin)");
  return {};
}

Description describe(const isogate_plugin& p) {
  Description d;
  d.id = copy_text(p.id);
  d.version = copy_text(p.version);
  d.summary = copy_text(p.summary);
  d.vendor = copy_text(p.vendor);
  d.license = copy_text(p.license);
  d.abi_major = p.abi_major;
  d.abi_minor = p.abi_minor;
  d.flags = p.flags;
  d.isolation = p.isolation;
  d.locality = p.locality;
  d.capabilities = p.capabilities;
  d.linux_capabilities = p.linux_capabilities;
  d.takes_config = p.config_schema_json != nullptr;
  d.config_schema_json = copy_text(p.config_schema_json);
  return d;
}

// The four fields that never move are read before anything else is trusted.
isogate_plugin read_head(const isogate_plugin* plugin) {
  isogate_plugin head{};
  std::memcpy(static_cast<void*>(&head), plugin, offsetof(isogate_plugin, flags));
  return head;
}

isogate_plugin read_rest(const isogate_plugin* plugin, uint32_t size) {
  isogate_plugin own{};
  std::memcpy(static_cast<void*>(&own), plugin, std::min<size_t>(size, sizeof own));
  return own;
}

}  // namespace

Result<ImportedPlugin> import_plugin(const isogate_plugin* plugin, const std::string& name) {
  if (plugin == nullptr)
    return unsupported("plugin `" + name +
                       "`: its entry function returned NULL, so it does not offer itself to ABI " +
                       own_abi());
  isogate_plugin head = read_head(plugin);
  if (auto checked = check_head(head, name); !checked) return checked.error();
  isogate_plugin own = read_rest(plugin, head.struct_size);
  ImportedPlugin imported;
  imported.description = describe(own);
  Description& d = imported.description;
  if (own.abi_minor > ISOGATE_ABI_MINOR)
    return unsupported("plugin `" + clean_text(d.id, 80) + "` " + clean_text(d.version, 80) + " needs ABI " +
                       version_text(own.abi_major, own.abi_minor) + ", this gateway offers " + own_abi() +
                       ": upgrade the gateway, or use a plugin built for ABI " + own_abi() + " or less");
  if (auto checked = check(d); !checked) return invalid("plugin `" + name + "`: " + checked.error().message);
  if (own.api == nullptr)
    return invalid("plugin `" + d.id + "` " + d.version +
                   " has no functions: `api` of its descriptor is NULL");
  imported.api = import_struct(own.api);
  if (auto checked = check_functions(imported.api, d); !checked) return checked.error();
  return imported;
}

}  // namespace isogate
