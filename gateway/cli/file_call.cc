#include "gateway/cli/file_call.h"

namespace isogate::cli {

std::string raw_target(const FileOptions& options, std::string query) {
  std::string agent = options.agent.empty() ? "default" : options.agent;
  auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) query += (query.empty() ? "" : "&") + std::string(name) + "=" + escape_value(value);
  };
  add("scope", options.scope);
  add("user", options.user);
  std::string target = "/workspace/files/" + escape_value(agent) + "/" + escape_path(options.path);
  return query.empty() ? target : target + "?" + query;
}

}  // namespace isogate::cli
