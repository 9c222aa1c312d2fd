#include "plugins/docker/companions/companion_record.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "plugins/common/or_throw.h"
#include "plugins/docker/container/record.h"
#include "runner/files/workspace_state.h"

namespace isogate::docker {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CompanionRecord, companion, name, id, hooked)

namespace {

using Json = nlohmann::json;

constexpr const char* kCompanionsFile = "companions";

}  // namespace

std::vector<CompanionRecord> read_companions(int directory) {
  const auto json = read_json_file(directory, kCompanionsFile, "companions");
  if (!json) return {};
  try {
    return json->at("companions").get<std::vector<CompanionRecord>>();
  } catch (const Json::exception&) {
    throw sdk::Error(ISOGATE_INTERNAL,
                     "the record of the sandbox's companions is damaged: an operator must remove "
                     "their containers, and then the file `companions` in the directory of the sandbox");
  }
}

void write_companions(int directory, const std::vector<CompanionRecord>& records) {
  if (records.empty()) {
    if (::unlinkat(directory, kCompanionsFile, 0) != 0 && errno != ENOENT)
      fail_with_io("cannot remove the record of the sandbox's companions", errno);
    return;
  }
  or_throw(replace_state_file(directory, kCompanionsFile, Json{{"companions", records}}.dump()));
}

}  // namespace isogate::docker
