#include "plugins/docker/orphans.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/container/container.h"
#include "plugins/docker/container/profile.h"
#include "plugins/docker/container/record.h"
#include "runner/files/workspace.h"
#include "runner/files/workspace_path.h"
#include "runner/files/workspace_state.h"
#include "runner/files/workspace_tree.h"

namespace isogate::docker {
namespace {

std::vector<std::string> names_in(int directory) {
  if (::lseek(directory, 0, SEEK_SET) != 0) fail_with_io("cannot list the sandboxes", errno);
  std::vector<std::string> all;
  const int code = each_name(directory, [&](auto& name) { all.push_back(std::move(name.text)); });
  if (code < 0) fail_with_io("cannot list the sandboxes", -code);
  return all;
}

// A directory that disappears meanwhile claims nothing.
void claim_below(int directory, const std::string& backend, const sdk::Call& call,
                 std::unordered_map<std::string, std::string>& claims) {
  for (const std::string& name : names_in(directory)) {
    call.check();
    if (!is_sandbox_id(name)) continue;
    auto sandbox = open_sandbox_directory(directory, name);
    if (!sandbox && sandbox.error().os_errno == ENOENT) continue;
    try {
      const Fd open = or_throw(std::move(sandbox));
      const auto whose = or_throw(read_state_file(open.get(), kBackendFile));
      if (whose && *whose != backend) continue;  // its agent has moved to another backend
      const auto record = read_record(open.get());
      claims[name] = record ? record->id : kNoContainer;
      if (const auto made_as = or_throw(read_state_file(open.get(), kMadeAsFile)))
        claims[*made_as] = claims[name];
    } catch (const sdk::Error& error) {
      throw sdk::Error(error.status(), "what the sandbox " + name + " claims is not known: " + error.what(),
                       error.os_errno());
    }
  }
}

bool runs(const Json& container) {
  const Json state = container.value("State", Json());
  constexpr std::array kEnded = {"created", "configured", "exited", "stopped", "dead"};
  return std::none_of(kEnded.begin(), kEnded.end(), [&](const char* ended) { return state == ended; });
}

}  // namespace

// Those created in advance come first: they are renamed to the other place, never back.
std::unordered_map<std::string, std::string> claims_in(const std::string& sandboxes_dir,
                                                       const std::string& backend, const sdk::Call& call) {
  const Fd sandboxes = or_throw(open_state_directory(sandboxes_dir));
  std::unordered_map<std::string, std::string> claims;
  for (const std::string& name : names_in(sandboxes.get())) {
    if (!name.starts_with("ready.")) continue;
    const Fd ready(::openat(sandboxes.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!ready) fail_with_io("cannot look at the sandboxes made ahead", errno);
    claim_below(ready.get(), backend, call, claims);
  }
  claim_below(sandboxes.get(), backend, call, claims);
  return claims;
}

// The Engine first: an object that is created meanwhile already has its directory.
std::vector<EngineOrphans::Object> EngineOrphans::find(const sdk::Call& call) const {
  Engine& engine = services_().engine;
  const std::vector<LabelFilter> labels = {
      {kLabelInstance, instance_}, {kLabelBackend, backend_}, {kLabelSandbox, ""}};
  std::vector<Object> all;
  for (const ObjectKind kind : {ObjectKind::kContainer, ObjectKind::kNetwork, ObjectKind::kVolume})
    for (const Json& row : engine.list(labels, call, kind)) {
      const Json& its = row.at("Labels");
      all.push_back({kind, text_at(row, kind == ObjectKind::kVolume ? "Name" : "Id"),
                     text_at(its, kLabelSandbox), text_at(its, kLabelRole),
                     kind == ObjectKind::kContainer && runs(row)});
    }
  const auto claims = claims_in(sandboxes_dir_, backend_, call);
  std::erase_if(all, [&](const Object& each) {
    const auto claim = claims.find(each.sandbox);
    const bool own =
        claim != claims.end() && (each.kind != ObjectKind::kContainer || each.role != "sandbox" ||
                                  claim->second.empty() || claim->second == each.id);
    return own || each.id.empty() || !is_sandbox_id(each.sandbox);
  });
  return all;
}

void EngineOrphans::list(const sdk::Call& call, const sdk::RecordSink& sink) {
  for (const Object& each : find(call))
    sink.add(each.sandbox, each.name(), each.runs ? ISOGATE_SANDBOX_RUNS : 0);
}

void EngineOrphans::remove(const sdk::Call& call, std::string_view sandbox_id, uint32_t flags) {
  const auto lock = lock_for(removing_, call);
  auto all = find(call);
  std::erase_if(all, [&](const Object& each) { return each.sandbox != sandbox_id; });
  const bool any_runs = std::any_of(all.begin(), all.end(), [](const Object& each) { return each.runs; });
  if (any_runs && (flags & ISOGATE_ORPHANS_RUNNING) == 0)
    throw sdk::Error(ISOGATE_INVALID_ARGUMENT,
                     "containers of this sandbox still run: confirm that they may be killed");
  for (const Object& each : all) {
    // An unnamed volume is removed with its container.
    net::unless_gone([&] { services_().engine.remove(each.id, call, each.kind); });
    services_().info("removed: the " + each.name() + " of the lost sandbox " + each.sandbox);
  }
  if (all.empty())
    throw sdk::Error(ISOGATE_NOT_FOUND,
                     "the Engine has nothing of a lost sandbox " + std::string(sandbox_id));
}

}  // namespace isogate::docker
