#include "plugins/docker/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "runner/fd.h"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "container";
constexpr const char* kNext = "container.next";
constexpr size_t kMost = 16384;

struct Field {
  const char* name;
  uint64_t isogate_evidence::*value;
};
constexpr Field kFields[] = {
    {"cap_inheritable", &isogate_evidence::cap_inheritable},
    {"cap_permitted", &isogate_evidence::cap_permitted},
    {"cap_effective", &isogate_evidence::cap_effective},
    {"cap_bounding", &isogate_evidence::cap_bounding},
    {"cap_ambient", &isogate_evidence::cap_ambient},
    {"ns_mnt", &isogate_evidence::ns_mnt},
    {"ns_pid", &isogate_evidence::ns_pid},
    {"ns_net", &isogate_evidence::ns_net},
    {"ns_ipc", &isogate_evidence::ns_ipc},
    {"ns_uts", &isogate_evidence::ns_uts},
    {"ns_user", &isogate_evidence::ns_user},
    {"ns_cgroup", &isogate_evidence::ns_cgroup},
    {"visible_processes", &isogate_evidence::visible_processes},
};

Json json_of(const isogate_evidence& evidence) {
  Json json = {{"flags", evidence.flags},
               {"uid", evidence.uid},
               {"gid", evidence.gid},
               {"no_new_privs", evidence.no_new_privs},
               {"seccomp_mode", evidence.seccomp_mode},
               {"memory_bytes", evidence.limits.memory_bytes},
               {"cpu_millis", evidence.limits.cpu_millis},
               {"pids", evidence.limits.pids}};
  for (const Field& field : kFields) json[field.name] = evidence.*field.value;
  return json;
}

isogate_evidence evidence_of(const Json& json) {
  isogate_evidence evidence{};
  evidence.struct_size = sizeof evidence;
  json.at("flags").get_to(evidence.flags);
  json.at("uid").get_to(evidence.uid);
  json.at("gid").get_to(evidence.gid);
  json.at("no_new_privs").get_to(evidence.no_new_privs);
  json.at("seccomp_mode").get_to(evidence.seccomp_mode);
  json.at("memory_bytes").get_to(evidence.limits.memory_bytes);
  json.at("cpu_millis").get_to(evidence.limits.cpu_millis);
  json.at("pids").get_to(evidence.limits.pids);
  for (const Field& field : kFields) json.at(field.name).get_to(evidence.*field.value);
  return evidence;
}

std::string read_whole(int file) {
  std::string text(kMost, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(file, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) sdk::fail_with_errno("cannot read the record of the sandbox's container", errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  return text;
}

}  // namespace

std::optional<Record> read_record(int directory) {
  const Fd file(::openat(directory, kFile, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) sdk::fail_with_errno("cannot open the record of the sandbox's container", errno);
  const Json json = Json::parse(read_whole(file.get()), nullptr, false);
  try {
    Record record{.name = json.at("name"),
                  .id = json.at("id"),
                  .profile = json.at("profile"),
                  .socket = json.at("socket"),
                  .started_at = json.at("started_at"),
                  .pid = json.value("pid", int64_t{0}),
                  .shape = json.value("shape", ""),
                  .gateway_address = json.at("gateway_address"),
                  .gateway_port = json.at("gateway_port"),
                  .gateway_listeners = json.value("gateway_listeners", ""),
                  .evidence = {}};
    if (json.contains("evidence")) record.evidence = evidence_of(json.at("evidence"));
    return record;
  } catch (const Json::exception&) {
    throw sdk::Error(ISOGATE_INTERNAL, "the record of the sandbox's container is damaged: purge the sandbox");
  }
}

void write_record(int directory, const Record& record) {
  Json json = {{"name", record.name},
               {"id", record.id},
               {"profile", record.profile},
               {"socket", record.socket},
               {"started_at", record.started_at},
               {"pid", record.pid},
               {"shape", record.shape},
               {"gateway_address", record.gateway_address},
               {"gateway_port", record.gateway_port},
               {"gateway_listeners", record.gateway_listeners}};
  if (record.evidence) json["evidence"] = json_of(*record.evidence);
  const std::string text = json.dump();
  const Fd file(::openat(directory, kNext, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) sdk::fail_with_errno("cannot write the record of the sandbox's container", errno);
  const ssize_t n = ::write(file.get(), text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size()))
    sdk::fail_with_errno("cannot write the record of the sandbox's container", n < 0 ? errno : ENOSPC);
  if (::renameat(directory, kNext, directory, kFile) != 0)
    sdk::fail_with_errno("cannot write the record of the sandbox's container", errno);
}

bool may_still_be_made(int directory) {
  const auto record = read_record(directory);
  struct stat info {};
  if (!record || !record->id.empty() || ::fstatat(directory, kFile, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return false;
  return std::time(nullptr) - info.st_mtime < 30;
}

void remove_record(int directory) {
  if (::unlinkat(directory, kFile, 0) != 0 && errno != ENOENT)
    sdk::fail_with_errno("cannot remove the record of the sandbox's container", errno);
}

}  // namespace isogate::docker
