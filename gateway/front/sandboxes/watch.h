// A directory that a backend watches, for as long as somebody reads what it reports. No HTTP here.
//
// It is no call of its sandbox: it outlives the lease that it was begun with, and does not keep the sandbox
// from being stopped, ended or opened in another host. Whoever does that ends it: by Sandbox::watches, or by
// BackendChannel::on_retire. The front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gateway/front/base/alarm.h"
#include "gateway/front/sandboxes/file_calls.h"
#include "lib/changes.h"

namespace isogate::front {

inline constexpr size_t kMostWatchesPerSandbox = 16;
inline constexpr size_t kWatchBytes = 128 << 10;  // held for one: what was read and what is made of it

class Watch {
 public:
  Watch(Lease& lease, FileTarget target);  // throws ApiError
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Waits until what changes is reported. False: it is over.
  boost::asio::awaitable<bool> begin();
  using Take = std::function<bool(const FileChange&)>;  // false: no more for now
  // Gives changes to `take` as they come. Returns after some, when it is over, or when none came for `limit`.
  boost::asio::awaitable<void> read(std::chrono::nanoseconds limit, const Take& take);

  void end(WatchEnd why, std::string message = {});
  // Why it is over; none: it is not.
  [[nodiscard]] std::optional<WatchEnd> over() const;
  // Of the failure; empty: there is nothing to say.
  [[nodiscard]] const std::string& message() const;
  // Where the backend ended it, what it answered; else null.
  [[nodiscard]] const ipc::Reply* reply() const;

 private:
  struct Shared;
  void wake();
  bool take_kept(const Take& take);
  boost::asio::awaitable<size_t> read_some();

  boost::asio::posix::stream_descriptor pipe_;
  std::shared_ptr<Shared> shared_;
  Alarm silence_;
  std::string buffer_;  // a record that has not come whole
  bool ready_ = false, at_end_ = false;
  std::chrono::seconds begins_within_;
};

}  // namespace isogate::front
