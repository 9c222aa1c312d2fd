#include "gateway/front/mcp/tools.h"

#include <algorithm>

#include "gateway/front/base/api_error.h"
#include "gateway/front/mcp/rpc.h"
#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::ordered_json;

const std::vector<Tool>& tools() {
  static const std::vector<Tool> all = [] {
    std::vector<Tool> made;
    for (const auto each : {status_tools(), exec_tools(), search_tools(), file_tools(), end_tools()})
      made.insert(made.end(), each.begin(), each.end());
    return made;
  }();
  return all;
}

// The same member in each: whose sandbox it is.
ordered_json input_schema(const Tool& tool, bool of_agent) {
  ordered_json schema = ordered_json::parse(tool.input);
  if (!of_agent)
    schema["properties"]["agent_id"] = {
        {"type", "string"}, {"description", "whose sandbox; left out: the one that the connection names"}};
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  return schema;
}

ordered_json output_schema(const Tool& tool) {
  ordered_json schema = ordered_json::parse(tool.output);
  schema["type"] = "object";
  return schema;
}

ordered_json description_of(const Tool& tool, bool of_agent) {
  return {{"name", tool.name},
          {"title", tool.title},
          {"description", tool.description},
          {"inputSchema", input_schema(tool, of_agent)},
          {"outputSchema", output_schema(tool)},
          {"annotations",
           {{"readOnlyHint", tool.reads_only},
            {"destructiveHint", tool.destroys},
            {"idempotentHint", tool.idempotent},
            {"openWorldHint", tool.name == "exec"}}}};
}

}  // namespace

const Tool* find_tool(std::string_view name) {
  const auto found = std::ranges::find(tools(), name, &Tool::name);
  return found == tools().end() ? nullptr : &*found;
}

const ordered_json& tool_list(bool of_agent) {
  const auto made = [](bool its) {
    ordered_json list = ordered_json::array();
    for (const Tool& tool : tools()) list.push_back(description_of(tool, its));
    return list;
  };
  static const ordered_json any = made(false), of_one = made(true);
  return of_agent ? of_one : any;
}

ToolResult refused(const ApiError& error) {
  ToolResult result;
  result.text = std::string(error.code_text()) + ": " + printable(error.message, 2000);
  result.is_error = true;
  return result;
}

std::string result_text(const ToolResult& result, bool modern) {
  std::string text = "{" + (modern ? modern_members(false) : "") + R"("content":[{"type":"text","text":)";
  append_json_string(text, result.text);
  text += "}]";
  if (!result.structured.empty()) text.append(",\"structuredContent\":").append(result.structured);
  return text.append(result.is_error ? ",\"isError\":true}" : ",\"isError\":false}");
}

void check_arguments(const Tool& tool, const nlohmann::json& arguments, bool of_agent) {
  const ordered_json& all = tool_list(of_agent);
  const auto own = std::ranges::find_if(all, [&](const auto& each) { return each["name"] == tool.name; });
  const ordered_json& known = (*own)["inputSchema"]["properties"];
  for (const auto& item : arguments.items()) {
    if (known.contains(item.key()) || item.key() == "agent_id") continue;
    throw invalid_request("`" + printable(item.key(), 80) + "` is no argument of " + std::string(tool.name) +
                          "; it takes " + join(known.items(), ", ", [](const auto& of) { return of.key(); }));
  }
}

}  // namespace isogate::front::mcp
