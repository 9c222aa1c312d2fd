// The bytes to and from one client: a socket, or a pair of pipes.
//
// One thread at a time reads. Any thread sends: whole frames, one after the other, and nothing is queued: who
// sends to a client that does not read waits, until the connection is stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "isogate/runner_protocol.h"
#include "runner/fd.h"

namespace isogate::resident {

// The descriptors of one frame.
struct Batch {
  std::vector<Fd> fds;
  bool cut = false;  // the kernel could not install all of them: the limit on open files is reached
};

class Connection {
 public:
  // A connected stream socket, or two pipes (`out` is then made non-blocking). `interrupt`: when that
  // descriptor is readable a sender that waits calls `interrupted`, and gives up where it answers true.
  static Result<std::unique_ptr<Connection>> make(Fd in, Fd out, int interrupt,
                                                  std::function<bool()> interrupted);

  [[nodiscard]] bool takes_descriptors() const { return descriptors_; }

  // At least one byte, waited for; 0: the end, or stopped.
  size_t read(std::span<char> room);
  // What came with the bytes read so far, oldest first; nullopt: nothing did.
  std::optional<Batch> take_batch();

  // False: the connection is broken, or stopped. `body` and `bytes` follow the head that is made of the rest.
  bool send(uint16_t type, uint32_t stream, std::string_view body, std::string_view bytes = {});

  // Ends both directions; whoever waits returns.
  void stop();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  Connection() = default;
  ssize_t receive(std::span<char> room);
  bool keep_descriptors(void* message);
  bool wait(int fd, short events);

  Fd in_, out_, stop_;  // out_ is empty where in_ is a socket
  bool socket_ = false, descriptors_ = false;
  int interrupt_ = -1;
  std::function<bool()> interrupted_;
  std::deque<Batch> batches_;
  std::mutex sending_;
  std::atomic<bool> stopped_{false};
};

}  // namespace isogate::resident
