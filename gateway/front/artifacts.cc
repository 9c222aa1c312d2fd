#include "gateway/front/artifacts.h"

#include "gateway/front/file_calls.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr uint64_t kMostEntries = 100000;

ListRequest listing_of(const ExecSpec& spec) {
  FileTarget target{.path = *spec.artifact_dir, .user = spec.user, .request_id = spec.request_id};
  return {.target = std::move(target), .recursive = true, .limit = kMostEntries};
}

}  // namespace

asio::awaitable<void> ArtifactWatch::before() {
  const Listing listing = co_await list_files(lease_, listing_of(spec_), memory_);
  if (listing.status == ISOGATE_NOT_FOUND) co_return;
  if (listing.status != ISOGATE_OK)
    throw from_backend({listing.status, 0, "artifact_dir: " + listing.message});
  if (listing.truncated) {
    throw ApiError{.code = Code::kInvalidRequest,
                   .message = "artifact_dir holds over " + std::to_string(kMostEntries) +
                              " entries, or over 16 MiB of names: too many to see what is new"};
  }
  for (const auto& entry : listing.entries) {
    if (entry.type == ISOGATE_ENTRY_REGULAR) known_.insert(entry.name);
  }
}

asio::awaitable<std::vector<Artifact>> ArtifactWatch::after() {
  std::vector<Artifact> artifacts;
  const Listing listing = co_await list_files(lease_, listing_of(spec_), memory_);
  if (listing.status != ISOGATE_OK) co_return artifacts;
  for (const auto& entry : listing.entries) {
    if (entry.type != ISOGATE_ENTRY_REGULAR || known_.contains(entry.name)) continue;
    const std::string& dir = *spec_.artifact_dir;
    const std::string prefix = dir.empty() || dir == "." ? "" : dir.back() == '/' ? dir : dir + '/';
    artifacts.push_back({prefix + entry.name, entry.size});
  }
  co_return artifacts;
}

}  // namespace isogate::front
