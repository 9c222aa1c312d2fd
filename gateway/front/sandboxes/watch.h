// A directory that a backend watches while a client reads the changes. No HTTP here.
//
// It is no call of its sandbox: it outlives the lease with which it began, and does not keep the sandbox
// from being stopped, ended or opened in another host. The code that does so ends it: by Sandbox::watches,
// or by BackendChannel::on_retire. The front's one thread.
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
inline constexpr size_t kWatchBytes = 128 << 10;  // held for one: read bytes and the events made of them

class Watch {
 public:
  Watch(Lease& lease, FileTarget target);  // throws ApiError
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Waits until changes are reported (READY). False: it has ended.
  boost::asio::awaitable<bool> begin();
  using Take = std::function<bool(const FileChange&)>;  // false: no more for now
  // Passes changes to `take` as they come. Returns after some, when it has ended, or when none came for
  // `limit`.
  boost::asio::awaitable<void> read(std::chrono::nanoseconds limit, const Take& take);

  void end(WatchEnd why, std::string message = {});
  // Why it has ended; none: it has not.
  [[nodiscard]] std::optional<WatchEnd> over() const;
  // The failure's message; may be empty.
  [[nodiscard]] const std::string& message() const;
  // The backend's reply, if the backend ended it; else null.
  [[nodiscard]] const ipc::Reply* reply() const;

 private:
  struct Shared;
  void wake();
  bool take_kept(const Take& take);
  boost::asio::awaitable<size_t> read_some();

  boost::asio::posix::stream_descriptor pipe_;
  std::shared_ptr<Shared> shared_;
  Alarm silence_;
  std::string buffer_;  // an incomplete record
  bool ready_ = false, at_end_ = false;
  std::chrono::seconds begins_within_;
};

}  // namespace isogate::front
