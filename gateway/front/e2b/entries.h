// Files as E2B's envd describes them. The front's one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gateway/front/api/files.h"
#include "gateway/front/e2b/paths.h"

namespace isogate::front::e2b {

struct Target {
  Place place;
  FileRequest request;
};
// What a path of this request means. Throws ApiError.
Target target_of(App& app, const Exchange& exchange, std::string_view path, const std::string& user);

// `shown` is its absolute path.
nlohmann::ordered_json entry_json(const ipc::Entry& entry, const std::string& shown);

// A separate call, in addition to others of the request. `what` names the file in errors.
Task<ipc::Reply> file_call_on(App& app, Exchange& exchange, ipc::FileVerb verb, Target target);
// Without the flags and the mode that the target has for another call.
Task<ipc::Entry> stat_of(App& app, Exchange& exchange, Target target);

}  // namespace isogate::front::e2b
