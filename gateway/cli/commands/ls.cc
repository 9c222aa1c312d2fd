// isogate ls
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

std::string name_of(const Json& entry) {
  const std::string name =
      decoded_name(entry.at("name").get<std::string>(), entry.value("name_encoding", ""));
  return ::isatty(1) == 0 ? name : printable(name, SIZE_MAX);
}

std::string details_of(const Json& entry) {
  std::string type = entry.at("type").get<std::string>();
  char line[128];
  char letter = type == "file" ? '-' : type == "directory" ? 'd' : type == "symlink" ? 'l' : '?';
  ::snprintf(line, sizeof line, "%c%-5.5s %12llu  %s  ", letter, entry.at("mode").get<std::string>().c_str(),
             static_cast<unsigned long long>(entry.at("size").get<uint64_t>()),
             date_text(entry.at("mtime_ms").get<int64_t>()).c_str());
  return line;
}

int show_listing(const std::string& body, bool with_details) {
  Json answer = Json::parse(body);
  std::string text;
  for (const Json& entry : answer.at("entries")) {
    if (with_details) text += details_of(entry);
    text += name_of(entry);
    if (entry.at("type") == "directory") text += '/';
    text += '\n';
  }
  print(text);
  if (!answer.value("truncated", false)) return kDone;
  complain("the listing was cut: there are more entries than one answer may hold");
  advise("List a directory below it.");
  return kFailed;
}

}  // namespace

int run_list(const ListOptions& options) {
  auto body = file_body(options);
  if (options.recursive) body["recursive"] = true;
  return ask_and_show(options.client, post("/workspace/list", body), [&options](const std::string& answer) {
    return show_listing(answer, options.with_details);
  });
}

}  // namespace isogate::cli
