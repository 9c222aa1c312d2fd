// Lines of the log that any peer of a listener can cause: requests without a key, malformed ones, wrong keys,
// refused connections. The first lines of a peer are written; further ones are counted, and written as one
// line for each peer when the window ends. Peers are those of peer_key(); beyond `max_peers` they share one
// count. So neither the log nor memory grows with what is sent. The front's one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace isogate::front {

class PeerLines {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    uint32_t per_peer = 20, in_all = 200;  // lines written in a window
    size_t max_peers = 64;
    std::chrono::seconds window{60};
  };
  PeerLines() = default;
  explicit PeerLines(Options options) : options_(options) {}

  // Whether to write this line. Lines are counted by `kind`, one of a small fixed set: a status, an event's
  // name.
  [[nodiscard]] bool admit(std::string_view peer_ip, std::string_view kind, Time now);

  void tick(Time now);  // writes the counts of a window that has ended
  void flush();         // writes them now

  [[nodiscard]] size_t peers() const { return peers_.size(); }

 private:
  struct Counts {
    std::string shown;  // the first address of this peer
    uint32_t written = 0;
    uint64_t counted = 0;
    std::map<std::string, uint64_t, std::less<>> kinds;
  };
  Counts& counts_of(std::string_view peer_ip);

  Options options_;
  Time began_{};
  uint32_t written_ = 0;
  std::map<std::string, Counts, std::less<>> peers_;
};

}  // namespace isogate::front
