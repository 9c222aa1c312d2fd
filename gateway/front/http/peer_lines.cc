#include "gateway/front/http/peer_lines.h"

#include "gateway/front/http/auth.h"
#include "lib/log.h"

namespace isogate::front {

namespace {
constexpr std::string_view kOthers = "other peers";
}

PeerLines::Counts& PeerLines::counts_of(std::string_view peer_ip) {
  std::string key = peer_key(peer_ip);
  const auto found = peers_.find(key);
  if (found != peers_.end()) return found->second;
  const bool own = peers_.size() < options_.max_peers;
  Counts& counts = peers_[own ? std::move(key) : std::string(kOthers)];
  if (counts.shown.empty()) counts.shown = own ? peer_ip : kOthers;
  return counts;
}

bool PeerLines::admit(std::string_view peer_ip, std::string_view kind, Time now) {
  tick(now);
  if (peers_.empty()) began_ = now;
  Counts& counts = counts_of(peer_ip);
  if (counts.written < options_.per_peer && written_ < options_.in_all) {
    ++counts.written;
    ++written_;
    return true;
  }
  ++counts.counted;
  const auto of_kind = counts.kinds.find(kind);
  ++(of_kind != counts.kinds.end() ? of_kind->second : counts.kinds[std::string(kind)]);
  return false;
}

void PeerLines::tick(Time now) {
  if (!peers_.empty() && now - began_ >= options_.window) flush();
}

void PeerLines::flush() {
  for (const auto& [key, counts] : peers_) {
    if (counts.counted == 0) continue;
    std::string kinds;
    for (const auto& [kind, count] : counts.kinds)
      kinds += (kinds.empty() ? "" : ", ") + kind + ": " + std::to_string(count);
    log::record("peer_lines_counted", {{"peer", log::Own{counts.shown}},
                                       {"lines", counts.counted},
                                       {"of", log::Own{kinds}},
                                       {"window_sec", options_.window.count()}});
  }
  peers_.clear();
  written_ = 0;
}

}  // namespace isogate::front
