// What happens to sandboxes without a call: a new host re-attaches what runs, what a crash left half-made or
// half-closed is ended, and what is idle is stopped. The front's one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "gateway/front/sandboxes/sandbox_changes.h"

namespace isogate::front {

class SandboxUpkeep {
 public:
  SandboxUpkeep(boost::asio::any_io_executor executor, Backends& backends, SandboxRegister& records,
                SandboxChanges& changes)
      : executor_(std::move(executor)), backends_(backends), records_(records), changes_(changes) {}

  // Opens the running sandboxes of that backend in its new host, a few at a time, until none is left or
  // another host comes. A sandbox with calls in the previous host stays there until they end.
  boost::asio::awaitable<void> reattach(std::shared_ptr<Backend> backend);
  // Something may run that no host has, and a host comes to have it.
  [[nodiscard]] bool reattaching() const;
  // None begins from now on: what is between two hosts at the end of the gateway would be stopped by neither.
  void begin_no_more() { ending_ = true; }
  // The ids of what no host has and runs, or may run: its backend could not list what does. Without those of
  // removed backends.
  [[nodiscard]] std::vector<std::string> without_host() const;
  // Releases the sandboxes of backends that are no longer configured.
  void release_removed();

  // Stops sandboxes without a call for the time that limit() returns, 0 for never; never returns.
  // The workspace stays, and the next call opens the sandbox again.
  boost::asio::awaitable<void> stop_idle(std::function<std::chrono::seconds()> limit);

 private:
  struct Reattachment;
  boost::asio::awaitable<void> stop_if_idle(SandboxPtr sandbox, std::chrono::seconds limit);

  boost::asio::any_io_executor executor_;
  Backends& backends_;
  SandboxRegister& records_;
  SandboxChanges& changes_;
  const std::shared_ptr<void> at_work_ = std::make_shared<char>();  // held by each Reattachment at work
  std::unordered_set<std::string> stopping_idle_;                   // backends
  bool ending_ = false;
};

}  // namespace isogate::front
