#include "gateway/host/instance.h"

#include "gateway/base/lookup.h"
#include "gateway/base/privileges.h"
#include "gateway/config/schema.h"
#include "gateway/host/abi_call.h"
#include "gateway/host/text.h"
#include "lib/capabilities.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate {
namespace {

log::Level level_of(uint32_t level) {
  switch (level) {
    case ISOGATE_LOG_DEBUG:
      return log::Level::kDebug;
    case ISOGATE_LOG_INFO:
      return log::Level::kInfo;
    case ISOGATE_LOG_WARN:
      return log::Level::kWarn;
    default:
      return log::Level::kError;
  }
}

constexpr uint64_t kMaxLogBytes = 2048;

void write_log(void* ctx, uint32_t level, isogate_str message) noexcept {
  const auto* backend = static_cast<const BackendConfig*>(ctx);
  if (message.ptr == nullptr || !log::enabled(level_of(level))) return;
  std::string text =
      clean_text({message.ptr, std::min<size_t>(message.len, kMaxLogBytes)}, size_t{kMaxLogBytes});
  log::write(level_of(level), "plugin_message", {{"backend", backend->name}, {"message", text}});
}

const void* no_extension(void*, const char*) noexcept { return nullptr; }

// By its own claim, which is its best case.
bool on_this_host(const Description& description) {
  return description.locality == ISOGATE_LOCALITY_PROCESS || description.locality == ISOGATE_LOCALITY_HOST;
}

// An object without members, which config.h returns when nothing is configured.
constexpr const char* kEmptySchema = R"({"type":"object","maxProperties":0})";

Result<void> check_config(const Description& description, const BackendConfig& backend) {
  std::string what = "config of backend `" + backend.name + "`";
  if (description.takes_config)
    return validate_json(description.config_schema_json, backend.config_json, what);
  if (validate_json(kEmptySchema, backend.config_json, what)) return {};
  return invalid(what + ": plugin `" + description.id + "` takes no configuration; remove it");
}

Result<bool> is_somebody(const std::string& user) {
  if (is_digits(user)) return true;
  const auto found = look_up_user(user);
  if (!found) return found.error();
  return found->has_value();
}

}  // namespace

Result<void> check_users(const Description& description, const BackendConfig& backend) {
  const bool are_ours = on_this_host(description) && description.isolation <= ISOGATE_ISOLATION_NAMESPACE;
  if (!started_by_root() || !are_ours) return {};
  for (const std::string& user : backend.users) {
    if (user == "root" && description.isolation != ISOGATE_ISOLATION_NONE)
      return invalid("`users` of backend `" + backend.name +
                     "` names root, and what isolates programs of this host runs none as root; take it out");
    auto found = is_somebody(user);
    if (!found) return found.error();
    if (!*found)
      return invalid("`users` of backend `" + backend.name + "` names `" + user +
                     "`, and this host has no such user; make it, or take it out");
  }
  return {};
}

Result<std::unique_ptr<Instance>> Instance::create(ImportedPlugin plugin, Config config,
                                                   BackendConfig backend, HostPaths places) {
  std::unique_ptr<Instance> instance(
      new Instance(std::move(plugin), std::move(config), std::move(backend), std::move(places)));
  if (auto checked = check_config(instance->description(), instance->settings()); !checked)
    return checked.error();
  if (auto made = instance->make(); !made) return made.error();
  return instance;
}

bool Instance::forbidden(const Description& description, const Config& config) {
  return (description.isolation == ISOGATE_ISOLATION_NONE && !config.allow_unisolated) ||
         (config.require_remote && on_this_host(description));
}

Instance::Instance(ImportedPlugin plugin, Config config, BackendConfig backend, HostPaths places)
    : plugin_(std::move(plugin)),
      config_(std::move(config)),
      backend_(std::move(backend)),
      places_(std::move(places)) {
  for (const SharedDirConfig& dir : config_.shared_dirs)
    shared_dirs_.push_back({abi_str(dir.prefix), abi_str(dir.path)});
  host_.struct_size = sizeof host_;
  host_.abi_minor = ISOGATE_ABI_MINOR;
  host_.flags = (config_.allow_unisolated ? ISOGATE_HOST_ALLOW_UNISOLATED : 0) |
                (places_.probe_only ? ISOGATE_HOST_PROBE_ONLY : 0) |
                (places_.many_tenants ? ISOGATE_HOST_MANY_TENANTS : 0) |
                (backend_.limits_best_effort ? ISOGATE_HOST_LIMITS_BEST_EFFORT : 0);
  host_.ctx = &backend_;
  host_.log = &write_log;
  host_.get_extension = &no_extension;
  host_.instance = abi_str(config_.instance);
  host_.backend_name = abi_str(backend_.name);
  host_.sandboxes_dir = abi_str(places_.sandboxes_dir);
  host_.uids_dir = abi_str(places_.uids_dir);
  host_.shell = abi_str(config_.shell);
  host_.toolchain_path = abi_str(config_.toolchain_path);
  host_.shared_dirs = shared_dirs_.data();
  host_.shared_dir_count = shared_dirs_.size();
}

Result<void> Instance::make() {
  AbiCall abi(-1);
  isogate_status status = api().create(&host_, abi_str(backend_.config_json), &made_, &abi.error);
  if (status == ISOGATE_OK && made_ != nullptr) return {};
  made_ = nullptr;
  if (status == ISOGATE_PERMISSION_DENIED && config_.require_remote && on_this_host(description()))
    return Error{ISOGATE_PERMISSION_DENIED, 0,
                 "backend `" + backend_.name + "` runs commands on this host, so it can never serve under " +
                     "require_remote; take it out of `backends`, or do without require_remote"};
  const bool without_isolation =
      description().isolation == ISOGATE_ISOLATION_NONE && !config_.allow_unisolated;
  if (status == ISOGATE_PERMISSION_DENIED && without_isolation &&
      config_.min_isolation > ISOGATE_ISOLATION_NONE)
    return Error{ISOGATE_PERMISSION_DENIED, 0,
                 "backend `" + backend_.name +
                     "` does not isolate, so it can never serve under min_isolation: " +
                     std::string(isolation_name(config_.min_isolation)) +
                     "; take it out of `backends`, or lower min_isolation"};
  Error error = status == ISOGATE_OK ? plugin_defect("create() answered OK without a backend")
                                     : plugin_failure(status, abi.error);
  if (const std::string name = "backend `" + backend_.name + "` "; !error.message.starts_with(name))
    error.message = name + "cannot be created: " + error.message;
  return error;
}

Instance::~Instance() {
  if (made_ != nullptr) api().destroy(made_);
}

ipc::Hello Instance::hello() const {
  const Description& d = description();
  return {d.id, d.version, d.summary, d.isolation, d.locality, d.capabilities};
}

}  // namespace isogate
