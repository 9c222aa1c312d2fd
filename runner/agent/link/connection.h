// The bytes to and from one client: a socket, a pair of pipes, or a session that outlives them
// (resumable_connection.h).
//
// One thread at a time reads. Any thread sends: whole frames, one after the other. A send blocks while the
// client does not read, until the connection is stopped.
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
#include "lib/fd.h"

namespace isogate::agent {

// The descriptors of one frame.
struct Batch {
  std::vector<Fd> fds;
  bool cut = false;  // the kernel could not install all of them: the limit on open files is reached
};

class Connection {
 public:
  virtual ~Connection() = default;
  [[nodiscard]] virtual bool takes_descriptors() const { return false; }

  // At least one byte, waited for; 0: the end, or stopped.
  virtual size_t read(std::span<char> room) = 0;
  // Descriptors that came with the bytes read so far, oldest first; nullopt: none.
  virtual std::optional<Batch> take_batch() { return std::nullopt; }

  // False: the connection is broken, or stopped. `body` and `bytes` follow the head that is made of the rest.
  virtual bool send(uint16_t type, uint32_t stream, std::string_view body, std::string_view bytes = {}) = 0;

  // Ends both directions; waiting threads return.
  virtual void stop() = 0;
  [[nodiscard]] virtual bool stopped() const = 0;
};

// A connection that ends with its socket or pipes.
class PlainConnection final : public Connection {
 public:
  // A connected stream socket, or two pipes (`out` is then made non-blocking). `interrupt`: when that
  // descriptor is readable, a waiting sender calls `interrupted`, and gives up where that returns true.
  static Result<std::unique_ptr<PlainConnection>> make(Fd in, Fd out, int interrupt,
                                                       std::function<bool()> interrupted);

  [[nodiscard]] bool takes_descriptors() const override { return descriptors_; }
  size_t read(std::span<char> room) override;
  std::optional<Batch> take_batch() override;
  bool send(uint16_t type, uint32_t stream, std::string_view body, std::string_view bytes) override;
  void stop() override;
  [[nodiscard]] bool stopped() const override { return stopped_; }

 private:
  PlainConnection() = default;
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

}  // namespace isogate::agent
