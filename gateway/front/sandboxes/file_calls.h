// File calls to a backend: records out, bodies through pipes. No HTTP here. The front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/front/base/byte_budget.h"
#include "gateway/front/base/killer.h"
#include "gateway/front/sandboxes/sandbox.h"
#include "gateway/ipc/messages.h"

namespace isogate::front {

struct FileTarget : ipc::FileArguments {
  std::string request_id;
  // How long the backend may transfer no byte; also the limit for a reply without bytes.
  std::chrono::seconds idle{30};
};

struct ListRequest {
  FileTarget target;
  bool recursive = false;
  uint64_t limit = 0;  // entries
};

struct Listing {
  ipc::Reply reply;
  std::vector<ipc::Entry> entries;
  // There were more than `limit`, 16 MiB of names, or directories deeper than a path can name.
  bool truncated = false;
};

ipc::FileCall file_call(const Lease& lease, ipc::FileVerb verb, FileTarget target);

// `killer` cancels it.
boost::asio::awaitable<ipc::Reply> plain_file_call(Lease& lease, ipc::FileVerb verb, FileTarget target,
                                                   Killer& killer);
// Its entries are held in `memory`: throws ApiError when they do not fit. `killer` cancels it.
boost::asio::awaitable<Listing> list_files(Lease& lease, ListRequest request, ByteShare& memory,
                                           Killer& killer);

// A running read or write: the backend has the other end of its pipe. It is cancelled when the backend
// neither transfers a byte nor replies for the target's idle time; time spent waiting for the client does not
// count, but all of ready() and reply() does. The pipe is closed if the backend keeps it even then.
class Transfer {
 public:
  // `killer` cancels it. Throws ApiError.
  Transfer(Lease& lease, ipc::FileVerb verb, FileTarget target, Killer* killer = nullptr);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  boost::asio::posix::stream_descriptor pipe;  // read: read it to its end; write: write to it
  void cancel();                               // a write commits nothing from now on
  void complete();                             // a write: the body is complete, it may be committed
  void moved(uint64_t bytes);                  // into the pipe, or out of it
  boost::asio::awaitable<ipc::Reply> reply();
  // A read: returns when there are bytes in the pipe, or the reply has arrived.
  boost::asio::awaitable<void> ready();
  [[nodiscard]] bool answered() const;
  // A read of so many bytes is answered before any of them is taken.
  [[nodiscard]] uint64_t room() const;

 private:
  struct Shared;
  void close_pipe();
  void stop_waiting();

  std::shared_ptr<Shared> shared_;
  bool slow_end_;  // its end may take long without a byte: it is flushed, or copied
  Fd complete_;    // of a mark
  std::optional<OnKill> on_kill_;
};

}  // namespace isogate::front
