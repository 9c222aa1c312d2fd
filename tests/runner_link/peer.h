// A scripted runner: the other end of a socketpair, which sends what a test says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "calls.h"
#include "isogate/runner_link.hpp"
#include "isogate/runner_protocol.h"

namespace isogate::testing {

struct Heard {
  isogate_runner_frame head{};
  std::string payload;
  std::vector<int> fds;  // the receiver closes them; ~Peer() closes the rest

  template <typename Struct>
  [[nodiscard]] Struct as() const {
    Struct fixed{};
    payload.copy(reinterpret_cast<char*>(&fixed), sizeof fixed);
    return fixed;
  }
  [[nodiscard]] std::string bytes() const { return payload.substr(sizeof(isogate_runner_channel)); }
};

inline constexpr uint32_t kAble = ISOGATE_RUNNER_HAS_DESCRIPTORS | ISOGATE_RUNNER_HAS_PTY;

isogate_runner_hello hello(uint32_t flags);
isogate_runner_result success();

template <typename Struct>
std::string raw(const Struct& fixed) {
  return {reinterpret_cast<const char*>(&fixed), sizeof fixed};
}
std::string frame(uint16_t type, uint32_t stream, std::string_view payload, uint16_t flags = 0);
std::string result_frame(uint32_t stream, const isogate_runner_result& result, std::string_view message = {});
std::string channel_frame(uint16_t type, uint32_t stream, uint32_t channel, uint32_t bytes,
                          std::string_view data = {});
std::string entry(std::string_view name, uint32_t type = ISOGATE_ENTRY_REGULAR, uint64_t size = 1);

class Peer {
 public:
  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  std::unique_ptr<sdk::RunnerStream> client_end(bool descriptors = true);
  // A link to this peer, after both HELLOs.
  std::shared_ptr<sdk::RunnerLink> link(uint32_t flags = kAble, int patience_ms = 10'000);

  // Before that: the client sends at most 5 KB ahead of what is read.
  void narrow() const;

  void send(std::string_view bytes);  // false, not a signal, when the client has closed
  [[nodiscard]] bool try_send(std::string_view bytes);
  // The next frame; type 0 at the end. `expect` skips CREDIT frames.
  Heard hear();
  Heard expect(uint16_t type);
  [[nodiscard]] bool is_silent(int milliseconds) const;
  void close();
  [[nodiscard]] int fd() const { return fd_; }

 private:
  bool fill(char* to, size_t size, std::vector<int>* fds);

  int fd_ = -1, client_ = -1;
  std::vector<int> taken_;
};

// An exec without descriptors that has begun, as stream 1; `out` has what it writes.
struct Begun {
  explicit Begun(const std::string& program);
  void end();  // with success

  Peer peer;
  std::shared_ptr<sdk::RunnerLink> link = peer.link(0);
  Pipe out;
  Exec exec;
  std::future<Outcome> done;
};

}  // namespace isogate::testing
