#include "plugins/docker/requirements.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/text.h"
#include "plugins/docker/client/engine.h"
#include "plugins/docker/container/network.h"
#include "plugins/docker/files/copies.h"
#include "plugins/docker/files/host_paths.h"

namespace isogate::docker {
namespace {

// "linux/arm64/v8"; an image without a variant is "linux/arm64".
std::string platform_of(const Json& image) {
  const std::string variant = image.value("Variant", "");
  return image.value("Os", "") + "/" + image.value("Architecture", "") +
         (variant.empty() ? "" : "/" + variant);
}

std::string without_variant(const std::string& platform) {
  const size_t slash = platform.find('/', platform.find('/') + 1);
  return platform.substr(0, slash);
}

// An image that does not name its variant fits any; so does a requested platform without one.
bool fits_image(const std::string& image, const std::string& wish) {
  if (image == wish) return true;
  const bool open = without_variant(image) == image || without_variant(wish) == wish;
  return open && without_variant(image) == without_variant(wish);
}

std::string why_no_image(Services& services, const std::string& name, const std::string& option,
                         const std::string& remedy, Json& image, const Budget& budget) {
  if (net::unless_gone([&] { image = services.engine.inspect_image(name, budget); })) return "";
  return "the image `" + name + "` is not on this Engine: " + remedy + ", or name another one as `" + option +
         "`";
}

std::string why_no_platform(const Config& config, const EngineInfo& info, const std::string& name,
                            const Json& image) {
  if (config.platform.empty()) return "";
  const bool knows = info.podman || parse_api_version(info.api_version) >= std::pair(1, 41);
  if (!knows) return "this Engine takes no platform (API " + info.api_version + "): leave `platform` out";
  if (fits_image(platform_of(image), config.platform)) return "";
  return "the image `" + name + "` is for " + platform_of(image) + ", and `platform` is " + config.platform +
         ": pull or build it for that platform, or leave `platform` out";
}

// Engines interpret a name with a dot as a shim of containerd, which they do not list; some list none.
std::string why_no_runtime(const Config& config, const EngineInfo& info) {
  const std::string& wish = config.runtime;
  const auto& known = info.runtimes;
  if (wish.empty() || known.empty() || wish.find('.') != std::string::npos) return "";
  if (std::find(known.begin(), known.end(), wish) != known.end()) return "";
  const auto all = join(known, ", ", [](const std::string& each) { return one_line(each, 80); });
  return "this Engine knows no runtime `" + wish + "`, but " + all +
         ": add it to the Engine's `runtimes`, or name another one as `runtime`, or leave it out";
}

std::string why_no_seccomp(const Config& config, const EngineInfo& info) {
  const auto& known = info.security_options;
  const auto is_it = [](const std::string& each) { return each.find("seccomp") != std::string::npos; };
  if (!config.own_seccomp || known.empty() || std::any_of(known.begin(), known.end(), is_it)) return "";
  return "this Engine has no seccomp, so programs could call all that the kernel has: enable it, or set "
         "`seccomp_profile: engine`";
}

std::string why_no_sources(const Services& services) {
  try {
    for (const Mount& each : services.config.mounts) check_mount_source(services, each);
    const isogate_host& host = services.host.abi();
    for (uint64_t i = 0; i < host.shared_dir_count; ++i)
      check_shared_source(services, std::string(sdk::view(host.shared_dirs[i].path)),
                          "/mnt/" + std::string(sdk::view(host.shared_dirs[i].prefix)));
    (void)places_of_copies(services.config);
    return "";
  } catch (const HostPathError& error) {
    return error.what();
  }
}

}  // namespace

Json require_image(Services& services, const std::string& name, const Budget& budget) {
  Json image;
  std::string why = why_no_image(services, name, "image", "pull it", image, budget);
  if (why.empty()) why = why_no_platform(services.config, services.engine.info(budget), name, image);
  if (why.empty()) {
    const Json config = image.value("Config", Json::object());
    const Json volumes = config.is_object() ? config.value("Volumes", Json()) : Json();
    if (volumes.is_object() && !volumes.empty())
      why = "the image `" + name + "` declares the volume `" + one_line(volumes.begin().key(), 200) +
            "`, whose disk nothing bounds: name an image without volumes";
  }
  if (!why.empty()) throw sdk::Error(ISOGATE_UNSUPPORTED, why);
  return image;
}

std::string why_not(Services& services, const EngineInfo& info, const Budget& budget) {
  const Config& config = services.config;
  Json image;
  std::string why = why_no_image(services, config.image, "image",
                                 "build it with deploy/sandbox-image/build.sh, pull it", image, budget);
  if (why.empty()) why = why_no_platform(config, info, config.image, image);
  if (why.empty()) why = why_no_runtime(config, info);
  if (why.empty()) why = why_no_seccomp(config, info);
  for (const Companion& each : config.companions) {
    Json its;
    if (why.empty())
      why = why_no_image(services, each.image, "image` of companion `" + each.name, "pull it", its, budget);
  }
  if (why.empty() && config.internal && info.podman) why = kNoInternal;
  if (why.empty()) why = why_no_copies(config, info.podman, info.rootless);
  if (why.empty()) why = why_no_sources(services);
  return why;
}

}  // namespace isogate::docker
