// File calls to a backend: records out, bodies through pipes. No HTTP here. The front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <string>
#include <vector>

#include "gateway/front/killer.h"
#include "gateway/front/memory_budget.h"
#include "gateway/front/sandboxes.h"
#include "gateway/ipc/messages.h"

namespace isogate::front {

struct FileTarget {
  std::string path, path_to, user, request_id;
  uint32_t scope = ISOGATE_SCOPE_WORKSPACE, flags = 0, mode = 0;
  uint64_t offset = 0, limit = 0;
};

struct ListRequest {
  FileTarget target;
  bool recursive = false;
  uint64_t limit = 0;  // entries
};

struct Listing {
  isogate_status status = ISOGATE_OK;
  std::string message;
  std::vector<ipc::Entry> entries;
  bool truncated = false;  // there were more than `limit`, or 16 MiB of names
};

ipc::FileCall file_call(const Lease& lease, ipc::FileVerb verb, FileTarget target);

boost::asio::awaitable<ipc::Reply> plain_file_call(Lease& lease, ipc::FileVerb verb, FileTarget target);
// Its entries are held in `memory`: throws ApiError when they do not fit. `killer` cancels it.
boost::asio::awaitable<Listing> list_files(Lease& lease, ListRequest request, MemoryShare& memory,
                                           Killer* killer = nullptr);

// A read or a write under way: the far end of its pipe is with the backend.
class Transfer {
 public:
  Transfer(Lease& lease, ipc::FileVerb verb, FileTarget target);  // throws ApiError
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  boost::asio::posix::stream_descriptor pipe;  // read: read it to its end; write: write to it
  void cancel();                               // a write commits nothing from now on
  void complete();                             // a write: the body is complete, it may be committed
  boost::asio::awaitable<ipc::Reply> reply();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  Fd complete_;
};

// While it lives, `killer` (if any) cancels the transfer.
class TransferKill {
 public:
  TransferKill(Killer* killer, Transfer& transfer);
  ~TransferKill();
  TransferKill(const TransferKill&) = delete;
  TransferKill& operator=(const TransferKill&) = delete;

 private:
  Killer* killer_;
};

}  // namespace isogate::front
