// Files that appeared below a directory while an exec ran: compares its listing before with that
// after. Works on every backend, because it uses the contract's list.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <set>
#include <string>
#include <string_view>

#include "gateway/front/exec/exec.h"
#include "gateway/front/sandboxes/file_calls.h"
#include "gateway/front/sandboxes/sandbox.h"

namespace isogate::front {

class ArtifactWatch {
 public:
  // Listings are held in `memory`.
  ArtifactWatch(Lease& lease, const ExecSpec& spec, ByteShare& memory);

  // A missing directory counts as empty. Throws ApiError for a refused path, and for a directory too
  // large to compare; not when it was killed.
  boost::asio::awaitable<void> before(Killer& killer);
  // Fills in the artifacts, and the message if some or all of them could not be listed. Throws ApiError.
  boost::asio::awaitable<void> after(ExecAnswer& answer, Killer& killer);

 private:
  Lease& lease_;
  const ListRequest request_;
  ByteShare& memory_;
  std::set<std::string> known_;  // ordered: a tenant cannot choose names that collide
};

// The prefix that makes a name a path again: the directory without `.` and doubled slashes, then a slash;
// empty for the workspace itself.
std::string artifact_prefix(std::string_view dir);

}  // namespace isogate::front
