#include "plugins/docker/files/copies.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plugins/docker/files/copy_tree.h"
#include "plugins/docker/files/volumes.h"

namespace isogate::docker {
namespace {

constexpr std::chrono::minutes kLongest{10};

std::string directory_of(const std::string& target) { return target.substr(0, target.rfind('/')); }

CopyPlace copy_place_of(const Copy& copy, bool directory) {
  if (directory) return {copy.target, false};
  const std::string around = directory_of(copy.target);
  for (const char* whole : {"", "/run", "/mnt"})
    if (around == whole)
      throw HostPathError("cannot copy `" + copy.source + "` to " + copy.target +
                          ": a file needs a directory around it that may be a volume, and not " +
                          (around.empty() ? "/" : around));
  return {around, true};
}

// The names that the Engine gave to the volumes of a container, and where they are.
std::vector<std::pair<std::string, std::string>> volumes_of(const Services& services, const Parts& parts,
                                                            const Json& container) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const CopyPlace& place : parts.copies)
    for (const Json& each : container.value("Mounts", Json::array()))
      if (each.value("Destination", "") == place.target && each.value("Type", "") == "volume")
        found.emplace_back(each.value("Name", ""), place.target);
  if (found.size() == parts.copies.size()) return found;
  services.warn("the Engine made " + std::to_string(found.size()) + " of " +
                std::to_string(parts.copies.size()) + " volumes for what is copied");
  throw sdk::Error(ISOGATE_UNAVAILABLE,
                   "the Engine made no volume for what is to be copied into the sandbox");
}

void copy_one(TarWriter& tar, const Parts& parts, const Copy& copy, CopyRoom& room, const sdk::Call& call) {
  const Fd source = open_real(copy.source);
  const CopyPlace place = copy_place_of(copy, is_directory(source.get()));
  if (std::find(parts.copies.begin(), parts.copies.end(), place) == parts.copies.end())
    throw HostPathError("cannot copy `" + copy.source + "`: it changed its kind just now");
  const CopyOwner owner = copy.writable ? CopyOwner{parts.uid, parts.gid, true} : CopyOwner{};
  copy_tree(tar, copy, source.get(), owner, room, call);
}

}  // namespace

std::vector<CopyPlace> places_of_copies(const Config& config) {
  std::vector<CopyPlace> places;
  for (const Copy& each : config.copies) {
    const CopyPlace place = copy_place_of(each, is_directory(open_real(each.source).get()));
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return places;
}

std::string why_no_copies(const Config& config, bool podman, bool rootless) {
  if (config.copies.empty()) return {};
  if (podman) return kNoCopies;
  const bool all_writable =
      std::all_of(config.copies.begin(), config.copies.end(), [](const Copy& each) { return each.writable; });
  return rootless && !all_writable ? kOnlyWritableCopies : "";
}

void fill_copies(Services& services, const Parts& parts, const std::string& name, const std::string& id,
                 const sdk::Call& call) {
  const Config& config = services.config;
  if (config.copies.empty()) return;
  const EngineKind kind = services.kind(call);
  if (const std::string why = why_no_copies(config, kind.podman, kind.rootless); !why.empty())
    throw sdk::Error(ISOGATE_UNAVAILABLE, why);
  const auto volumes = volumes_of(services, parts, services.engine.inspect(id, call));
  CopyRoom room{config.copies_max_mb << 20, config.copies_max_entries};
  std::string target;
  const auto fill = [&](TarWriter& tar) {
    for (const Copy& each : config.copies) {
      target = each.target;
      copy_one(tar, parts, each, room, call);
    }
  };
  try {
    fill_volumes(services, parts.owner, name, volumes, "/", fill, Budget(call, kLongest));
  } catch (const HostPathError& error) {
    services.warn(error.what());
    throw sdk::Error(ISOGATE_UNAVAILABLE,
                     "what belongs at `" + target + "` cannot be copied: the gateway's log has the reason");
  }
}

}  // namespace isogate::docker
