#include "plugins/docker/container/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "lib/fd.h"
#include "plugins/common/or_throw.h"
#include "runner/files/workspace_state.h"

namespace isogate::docker {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Record, name, id, profile, socket, started_at, pid, shape)

namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "container";
constexpr size_t kMost = 65536;

}  // namespace

std::optional<Json> read_json_file(int directory, const char* name, const std::string& whose) {
  const Fd file(::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) fail_with_io("cannot open the record of the sandbox's " + whose, errno);
  auto text = read_to_end(file.get(), kMost, "cannot read the record of the sandbox's " + whose);
  if (!text && text.error().os_errno == EFBIG) return Json(Json::value_t::discarded);
  return Json::parse(own_or_throw(std::move(text)), nullptr, false);
}

std::optional<Record> read_record(int directory) {
  const auto found = read_json_file(directory, kFile, "container");
  if (!found) return std::nullopt;
  const Json& json = *found;
  try {
    Record record = json;
    if (read_proof(json, record.proof)) return record;
  } catch (const Json::exception&) {
  }
  throw sdk::Error(ISOGATE_INTERNAL,
                   "the record of the sandbox's container is damaged: an operator must remove "
                   "the container, and then the file `container` in the directory of the sandbox");
}

void write_record(int directory, const Record& record) {
  Json json = record;
  write_proof(json, record.proof);
  own_or_throw(replace_state_file(directory, kFile, json.dump()));
}

bool is_young(const struct stat& info) {
  return std::abs(std::difftime(std::time(nullptr), info.st_mtime)) < 30;  // the clock may have been set back
}

bool may_still_be_made(int directory) {
  const auto record = read_record(directory);
  struct stat info {};
  return record && record->id.empty() && ::fstatat(directory, kFile, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         is_young(info);
}

void remove_record(int directory) {
  if (::unlinkat(directory, kFile, 0) != 0 && errno != ENOENT)
    fail_with_io("cannot remove the record of the sandbox's container", errno);
}

}  // namespace isogate::docker
