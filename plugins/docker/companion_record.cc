#include "plugins/docker/companion_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "runner/fd.h"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "companions";
constexpr const char* kNext = "companions.next";
constexpr size_t kMost = 65536;

std::string read_whole(int file) {
  std::string text(kMost, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(file, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) sdk::fail_with_errno("cannot read the record of the sandbox's companions", errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  return text;
}

}  // namespace

std::vector<CompanionRecord> read_companions(int directory) {
  const Fd file(::openat(directory, kFile, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  if (!file) sdk::fail_with_errno("cannot open the record of the sandbox's companions", errno);
  const Json json = Json::parse(read_whole(file.get()), nullptr, false);
  try {
    std::vector<CompanionRecord> records;
    for (const Json& each : json.at("companions"))
      records.push_back({each.at("companion"), each.at("name"), each.at("id"), each.at("hooked")});
    return records;
  } catch (const Json::exception&) {
    throw sdk::Error(ISOGATE_INTERNAL,
                     "the record of the sandbox's companions is damaged: purge the sandbox");
  }
}

void write_companions(int directory, const std::vector<CompanionRecord>& records) {
  if (records.empty()) {
    if (::unlinkat(directory, kFile, 0) != 0 && errno != ENOENT)
      sdk::fail_with_errno("cannot remove the record of the sandbox's companions", errno);
    return;
  }
  Json rows = Json::array();
  for (const CompanionRecord& each : records)
    rows.push_back(
        {{"companion", each.companion}, {"name", each.name}, {"id", each.id}, {"hooked", each.hooked}});
  const std::string text = Json{{"companions", std::move(rows)}}.dump();
  const Fd file(::openat(directory, kNext, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) sdk::fail_with_errno("cannot write the record of the sandbox's companions", errno);
  const ssize_t n = ::write(file.get(), text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size()))
    sdk::fail_with_errno("cannot write the record of the sandbox's companions", n < 0 ? errno : ENOSPC);
  if (::renameat(directory, kNext, directory, kFile) != 0)
    sdk::fail_with_errno("cannot write the record of the sandbox's companions", errno);
}

}  // namespace isogate::docker
