#include "gateway/front/exec/artifacts.h"

#include <utility>

#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr uint64_t kMostEntries = 100000;

std::string too_many() {
  return "artifact_dir holds over " + std::to_string(kMostEntries) +
         " entries, over 16 MiB of names, or directories deeper than a path of 4,095 bytes";
}

}  // namespace

ArtifactWatch::ArtifactWatch(Lease& lease, const ExecSpec& spec, ByteShare& memory)
    : lease_(lease),
      request_{.target = {{.path = spec.artifact_dir.value_or(""), .user = spec.call.user}, spec.request_id},
               .recursive = true,
               .limit = kMostEntries},
      memory_(memory) {}

asio::awaitable<void> ArtifactWatch::before(Killer& killer) {
  Listing listing = co_await list_files(lease_, request_, memory_, killer);
  if (killer.killed()) co_return;
  if (listing.reply.status == ISOGATE_NOT_FOUND) co_return;
  lease_.note(listing.reply.status);
  listing.reply.message = "artifact_dir: " + listing.reply.message;
  if (listing.reply.status != ISOGATE_OK) {
    ApiError error = from_backend(listing.reply.error());
    error.of_file = true;
    throw error;
  }
  if (listing.truncated) {
    throw invalid_request(too_many() + ": too many to see what is new");
  }
  for (auto& entry : listing.entries) {
    if (entry.type == ISOGATE_ENTRY_REGULAR) known_.insert(std::move(entry.name));
  }
}

asio::awaitable<void> ArtifactWatch::after(ExecAnswer& answer, Killer& killer) {
  Listing listing = co_await list_files(lease_, request_, memory_, killer);
  if (killer.killed()) {
    answer.reason = "its artifacts could not be listed within its timeout";
    co_return;
  }
  if (listing.reply.status == ISOGATE_NOT_FOUND) co_return;
  lease_.note(listing.reply.status);
  if (listing.reply.status != ISOGATE_OK) {
    answer.reason = "its artifacts could not be listed: " + listing.reply.message;
    co_return;
  }
  if (listing.truncated) answer.reason = "not all of its artifacts are listed: " + too_many();
  answer.artifact_prefix = artifact_prefix(request_.target.path);
  for (auto& entry : listing.entries) {
    if (entry.type != ISOGATE_ENTRY_REGULAR || known_.contains(entry.name)) continue;
    answer.artifacts.push_back({std::move(entry.name), entry.size});
  }
}

std::string artifact_prefix(std::string_view dir) {
  std::string prefix = dir.starts_with('/') ? "/" : "";
  while (!dir.empty()) {
    const std::string_view part = next_part(dir, '/');
    if (!part.empty() && part != ".") prefix.append(part).append(1, '/');
  }
  return prefix;
}

}  // namespace isogate::front
