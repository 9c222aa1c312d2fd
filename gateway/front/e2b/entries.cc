#include "gateway/front/e2b/entries.h"

#include <nlohmann/json.hpp>

#include "gateway/front/base/api_error.h"
#include "gateway/front/e2b/sandbox.h"
#include "lib/clock.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

using nlohmann::ordered_json;

std::string permissions(const ipc::Entry& entry) {
  const char kind = entry.type == ISOGATE_ENTRY_DIRECTORY ? 'd'
                    : entry.type == ISOGATE_ENTRY_SYMLINK ? 'L'
                                                          : '-';
  std::string text(1, kind);
  constexpr std::string_view kLetters = "rwxrwxrwx";
  for (size_t i = 0; i < kLetters.size(); ++i)
    text += (entry.mode >> (kLetters.size() - 1 - i) & 1) != 0 ? kLetters[i] : '-';
  return text;
}

std::string_view type_of(const ipc::Entry& entry) {
  switch (entry.type) {
    case ISOGATE_ENTRY_REGULAR:
      return "FILE_TYPE_FILE";
    case ISOGATE_ENTRY_DIRECTORY:
      return "FILE_TYPE_DIRECTORY";
    case ISOGATE_ENTRY_SYMLINK:
      return "FILE_TYPE_SYMLINK";
    default:
      return "FILE_TYPE_UNSPECIFIED";
  }
}

// RFC 3339, as JSON of protobuf has a Timestamp.
std::string timestamp(int64_t ns) {
  int64_t seconds = ns / 1'000'000'000;
  int64_t rest = ns % 1'000'000'000;
  if (rest < 0) {
    rest += 1'000'000'000;
    --seconds;
  }
  std::string fraction = std::to_string(rest);
  fraction.insert(0, 9 - fraction.size(), '0');
  return utc_text(seconds) + "." + fraction + "Z";
}

std::string name_in(const std::string& shown) {
  const std::string name = shown.substr(shown.rfind('/') + 1);
  return name.empty() ? "/" : name;
}

}  // namespace

Target target_of(App& app, const Exchange& exchange, std::string_view path, const std::string& user) {
  const Found found = find_sandbox(app, exchange.principal.tenant, exchange.agent_param);
  Target target{.place = place_of(path, found.record.home), .request = {}};
  FileTarget file;
  file.path = target.place.path;
  check_path("path", file.path);
  file.scope = target.place.scope;
  file.user = user;
  target.request = request_for(app.config, exchange, std::move(file));
  target.request.wanted.existing = true;
  return target;
}

ordered_json entry_json(const ipc::Entry& entry, const std::string& shown) {
  const uint64_t size = entry.size == ISOGATE_SIZE_UNKNOWN ? 0 : entry.size;
  return {{"name", name_in(shown)},
          {"type", type_of(entry)},
          {"path", shown},
          {"size", std::to_string(size)},
          {"mode", entry.mode & 07777},
          {"permissions", permissions(entry)},
          {"owner", "user"},
          {"group", "user"},
          {"modifiedTime", timestamp(entry.mtime_ns)}};
}

Task<ipc::Reply> file_call_on(App& app, Exchange& exchange, ipc::FileVerb verb, Target target) {
  const std::string shown = target.place.shown;
  try {
    co_return co_await plain_call(app, exchange, verb, std::move(target.request));
  } catch (ApiError& error) {
    if (error.of_file && error.message.find(shown) == std::string::npos)
      error.message = "`" + printable(shown, 200) + "`: " + error.message;  // quoted: the log leaves it out
    throw error;
  }
}

Task<ipc::Entry> stat_of(App& app, Exchange& exchange, Target target) {
  target.request.target.flags = target.request.target.mode = 0;
  const ipc::Reply reply = co_await file_call_on(app, exchange, ipc::FileVerb::kStat, std::move(target));
  co_return std::get<ipc::Entry>(reply.value);
}

}  // namespace isogate::front::e2b
