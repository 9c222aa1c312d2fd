#include "plugins/docker/files/volumes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "lib/fd.h"
#include "lib/hash.h"
#include "lib/tar/tar_writer.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/await_late.h"
#include "runner/files/workspace_state.h"

namespace isogate::docker {
namespace {

constexpr std::chrono::milliseconds kFillerPatience{2'000};
constexpr int kInUse = 409;
constexpr const char* kMaking = "making";
constexpr const char* kVolumeFile =
    "volume";  // in the sandbox's directory: the workspace is a volume that we created

Fd open_runner(const Services& services) {
  Fd file(::open(services.runner.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail_with_io("cannot read " + services.runner, errno);
  return file;
}

template <typename Sink>
void read_whole(int file, Sink sink) {
  std::array<char, 64u << 10> piece;
  for (;;) {
    const ssize_t n = ::read(file, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_io("cannot read the program isogate-runner", errno);
    if (n == 0) return;
    sink(std::string_view(piece.data(), static_cast<size_t>(n)));
  }
}

Owner owner_of_runner(const Services& services) {
  return {std::string(sdk::view(services.host.abi().instance)),
          std::string(sdk::view(services.host.abi().backend_name)), "-"};
}

// Whether it is there; one that is somebody else's is an error.
bool is_there(Services& services, const Owner& owner, const std::string& volume, const sdk::Call& call) {
  Json seen;
  if (!net::unless_gone([&] { seen = services.engine.inspect(volume, call, ObjectKind::kVolume); }))
    return false;
  if (carries(seen.value("Labels", Json()), owner)) return true;
  throw sdk::Error(ISOGATE_UNAVAILABLE, "the volume " + volume + " is not this gateway's: it is left alone");
}

void make_volume(Services& services, const Owner& owner, const std::string& volume, const std::string& role,
                 const sdk::Call& call, const std::string& option = {}) {
  Json body = {{"Labels", labels_of(owner, role)}};
  if (!option.empty()) body["DriverOpts"] = {{"o", option}};
  services.engine.create_volume(volume, body, call);
}

// Gone already is OK.
void remove(Services& services, const std::string& volume, const sdk::Call& call) {
  net::unless_gone([&] { services.engine.remove(volume, call, ObjectKind::kVolume); });
}

// Somebody may prune volumes at any time.
void prepare_runner(Services& services, const std::string& volume, const sdk::Call& call) {
  const Owner owner = owner_of_runner(services);
  bool there = is_there(services, owner, volume, call);
  const auto lock = lock_for(services.preparing, call);
  there = there || is_there(services, owner, volume, call);
  if (there && services.runner_filled == volume) return;
  services.runner_filled.clear();
  if (!there) make_volume(services, owner, volume, "runner", call);
  const Fd file = open_runner(services);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_with_io("cannot look at " + services.runner, errno);
  const auto fill = [&](TarWriter& tar) {
    tar.begin_file({.name = "isogate-runner", .mode = 0111}, static_cast<uint64_t>(info.st_size));
    read_whole(file.get(), [&](std::string_view piece) { tar.bytes(piece); });
    tar.end_file();
  };
  fill_volumes(services, owner, volume, {{volume, kRunnerDirectory}}, kRunnerDirectory, fill, call);
  services.runner_filled = volume;
}

void forget_volume(int directory) {
  if (::unlinkat(directory, kVolumeFile, 0) != 0 && errno != ENOENT)
    fail_with_io("cannot forget the volume of a sandbox", errno);
}

bool is_being_made(int directory) {
  return own_or_throw(read_state_file(directory, kVolumeFile)).value_or("") == kMaking;
}

}  // namespace

bool remove_filler(Services& services, const Owner& owner, const std::string& name, const Budget& budget) {
  const auto seen = services.engine.find(name + ".filler", budget);
  if (!seen || !carries(seen->value("Config", Json::object()).value("Labels", Json()), owner)) return false;
  net::unless_gone([&] { services.engine.remove(seen->value("Id", ""), budget); });
  return true;
}

void with_filler(Services& services, const Owner& owner, const std::string& name, Json body,
                 const std::string& platform, const Budget& budget,
                 const std::function<void(const std::string& id)>& work) {
  body["Entrypoint"] = {"/bin/false"};
  body["Labels"] = labels_of(owner, "filler");
  body["HostConfig"]["NetworkMode"] = "none";
  remove_filler(services, owner, name, budget);  // of a gateway that was killed
  const auto undo = [&](bool unsure) {
    try {
      await_late(unsure, Budget(kMadeLate),
                 [&] { return remove_filler(services, owner, name, Budget(kFillerPatience)); });
    } catch (const NetError& error) {
      services.warn("the container " + name + ".filler stays for now: " + error.what());
    }
  };
  std::string id;
  try {
    id = services.engine.create_container(name + ".filler", body, budget, platform);
    work(id);
  } catch (const NetError& error) {
    undo(id.empty() && error.maybe_done());
    throw;
  } catch (...) {
    undo(false);
    throw;
  }
  net::unless_gone([&] { services.engine.remove(id, budget); });
}

void fill_volumes(Services& services, const Owner& owner, const std::string& name,
                  const std::vector<std::pair<std::string, std::string>>& volumes, const std::string& place,
                  const Filler& fill, const Budget& budget) {
  Json mounts = Json::array();
  for (const auto& [volume, target] : volumes)
    mounts.push_back(
        {{"Type", "volume"}, {"Source", volume}, {"Target", target}, {"VolumeOptions", {{"NoCopy", true}}}});
  const auto archive = [&fill](const ByteSink& sink) {
    TarWriter tar(sink);
    fill(tar);
    tar.finish();
  };
  const Json body = {{"Image", services.config.image}, {"HostConfig", {{"Mounts", std::move(mounts)}}}};
  with_filler(services, owner, name, body, "", budget,
              [&](const std::string& id) { services.engine.put_archive(id, place, archive, budget); });
}

std::string runner_volume(const Services& services) {
  const Owner owner = owner_of_runner(services);
  Sha256 sum;
  sum.add(owner.instance + '\0' + owner.backend + '\0');
  read_whole(open_runner(services).get(), [&](std::string_view piece) { sum.add(piece); });
  return "isg-runner-" + hex(std::move(sum).digest().substr(0, 16));
}

bool is_volume(int directory) {
  if (::faccessat(directory, kVolumeFile, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (errno != ENOENT) fail_with_io("cannot look at the record of the sandbox's volume", errno);
  return false;
}

void prepare_volumes(Services& services, const Parts& parts, int directory, const sdk::Call& call) {
  prepare_runner(services, parts.runner, call);
  const bool recorded = is_volume(directory);
  if (parts.known && !recorded)
    throw sdk::Error(ISOGATE_UNAVAILABLE,
                     "the workspace of this sandbox is a directory of the gateway's host, and `workspace` is "
                     "volume: set it to bind");
  const bool there = is_there(services, parts.owner, parts.workspace, call);
  const bool making = recorded && is_being_made(directory);
  if (there && recorded && !making) return;
  if (there && !recorded) {
    throw sdk::Error(ISOGATE_UNAVAILABLE,
                     "the volume " + parts.workspace +
                         " is there, and this gateway did not make it: give each gateway of this Engine an "
                         "`instance` name of its own, or remove the volume");
  }
  if (parts.known)
    throw sdk::Error(
        ISOGATE_SANDBOX_LOST,
        "the volume with the workspace of this sandbox is gone; DELETE the sandbox to begin with "
        "an empty one");
  own_or_throw(replace_state_file(directory, kVolumeFile, kMaking));
  // podman gives a volume to the owner of the image's directory, unless it was created for a user.
  const bool podman = services.kind(call).podman;
  const std::string user = "uid=" + std::to_string(parts.uid) + ",gid=" + std::to_string(parts.gid);
  try {
    if (!there) make_volume(services, parts.owner, parts.workspace, "workspace", call, podman ? user : "");
  } catch (const NetError& error) {
    if (!error.maybe_done() && !recorded) forget_volume(directory);
    throw;
  }
  const auto fill = [&](TarWriter& tar) {
    tar.directory({.name = podman ? "./" : kWorkspace + 1, .mode = 0700, .uid = parts.uid, .gid = parts.gid});
  };
  fill_volumes(services, parts.owner, parts.workspace, {{parts.workspace, kWorkspace}},
               podman ? kWorkspace : "/", fill, call);
  own_or_throw(replace_state_file(directory, kVolumeFile, "filled"));
}

void remove_workspace_volume(Services& services, const Owner& owner, int directory, const sdk::Call& call) {
  if (!is_volume(directory)) return;
  remove_filler(services, owner, owner.sandbox_id, call);
  await_late(is_being_made(directory), Budget(call, kMadeLate), [&] {
    if (!is_there(services, owner, owner.sandbox_id, call)) return false;
    remove(services, owner.sandbox_id, call);
    return true;
  });
  forget_volume(directory);
}

void remove_copies(Services& services, const Owner& owner, const sdk::Call& call) {
  const auto all = services.engine.list({{kLabelInstance, owner.instance},
                                         {kLabelBackend, owner.backend},
                                         {kLabelSandbox, owner.sandbox_id},
                                         {kLabelRole, "copy"}},
                                        call, ObjectKind::kVolume);
  for (const Json& each : all) {
    try {
      remove(services, each.value("Name", ""), call);
    } catch (const NetError& error) {
      if (error.http_status() != kInUse) throw;
    }
  }
}

}  // namespace isogate::docker
