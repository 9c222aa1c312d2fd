#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "plugins/docker/backend.h"
#include "plugins/docker/or_throw.h"
#include "runner/workspace.h"
#include "runner/workspace_state.h"

namespace isogate::docker {
namespace {

// What is recorded as the container of a sandbox: its id or, where it was about to be made, its name; empty:
// none. Nothing: that cannot be read.
std::optional<std::string> recorded(const sdk::Host& host, int sandboxes, const std::string& id) {
  try {
    const Fd directory = or_throw(open_sandbox_directory(sandboxes, id));
    const auto record = read_record(directory.get());
    if (!record) return "";
    return record->id.empty() ? "/" + record->name : record->id;
  } catch (const sdk::Error& error) {
    host.log(ISOGATE_LOG_WARN, "whether anything runs in " + id + " is not known: " + error.what());
    return std::nullopt;
  }
}

std::unordered_set<std::string> containers_of(Engine& engine, const std::string& instance,
                                              const std::string& backend, const sdk::Call& call) {
  std::unordered_set<std::string> there;
  for (const Json& each :
       engine.list({{kLabelInstance, instance}, {kLabelBackend, backend}, {kLabelRole, "sandbox"}}, call)) {
    there.insert(each.value("Id", ""));
    for (const Json& name : each.value("Names", Json::array()))
      if (name.is_string()) there.insert(name.get<std::string>());
  }
  return there;
}

}  // namespace

// One question to the Engine, and none where nothing was recorded.
void Backend::enumerate(const sdk::Call& call, const sdk::RecordSink& sink) {
  const Fd sandboxes = or_throw(open_state_directory(sandboxes_dir_));
  std::vector<std::pair<std::string, std::optional<std::string>>> all;
  bool any = false;
  for (std::string& id : or_throw(Workspace::enumerate(sandboxes_dir_, name_))) {
    auto container = recorded(host_, sandboxes.get(), id);
    any = any || (container && !container->empty());
    all.emplace_back(std::move(id), std::move(container));
  }
  std::unordered_set<std::string> there;
  if (any) there = containers_of(services().engine, instance_, name_, call);
  for (const auto& [id, container] : all) {
    const bool may_run = !container || (!container->empty() && there.contains(*container));
    sink.add(id, id, may_run ? ISOGATE_SANDBOX_RUNS : 0);
  }
}

}  // namespace isogate::docker
