// Files that appeared below a directory while an exec ran: its listing before, compared with after.
// Works on every backend, since it uses the contract's own list.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <set>
#include <string>
#include <string_view>

#include "gateway/front/exec/exec.h"
#include "gateway/front/sandboxes/file_calls.h"
#include "gateway/front/sandboxes/sandboxes.h"

namespace isogate::front {

class ArtifactWatch {
 public:
  // Listings are held in `memory`.
  ArtifactWatch(Lease& lease, const ExecSpec& spec, ByteShare& memory);

  // A directory that is not there yet counts as empty. Throws ApiError for a refused path, and for a
  // directory too large to be compared; not when it was killed.
  boost::asio::awaitable<void> before(Killer& killer);
  // Fills in the artifacts, and the message where some or all of them could not be seen. Throws ApiError.
  boost::asio::awaitable<void> after(ExecAnswer& answer, Killer& killer);

 private:
  Lease& lease_;
  const ListRequest request_;
  ByteShare& memory_;
  std::set<std::string> known_;  // ordered: nobody can choose names that collide
};

// What stands before a name to make it a path again: the directory without `.` and doubled slashes, and a
// slash behind it; empty for the workspace itself.
std::string artifact_prefix(std::string_view dir);

}  // namespace isogate::front
