// Which gateways live: each renews its own Lease while it has sandboxes open. So a gateway that stops an
// idle sandbox knows whether another one still uses it, and a dead gateway keeps nothing running. A gateway
// counts as alive while this one sees its Lease change, by Renewals. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "lib/fd.h"
#include "lib/semaphore.h"
#include "plugins/k8s/client/api.h"

namespace isogate::k8s {

struct Services;

class Presence {
 public:
  // `services` is borrowed. Nothing is written before begin().
  explicit Presence(Services& services);
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  // Deletes the Lease, unless a later generation of this gateway has begun, or pods are kept for the next
  // one.
  ~Presence();

  // Announces this gateway; when this returns, others see it. Throws what Api throws, until then.
  void begin(const sdk::Call& call);
  // Whether that gateway has renewed its Lease in time. Throws what Api throws: then that is not
  // known.
  bool lives(const std::string& holder, const Budget& budget);
  // All gateways that have. Removes the Leases of those that were silent for `forgotten`.
  std::set<std::string> all(const Budget& budget, std::chrono::seconds forgotten = std::chrono::hours(24));

 private:
  void run();
  void renew(const Budget& budget);
  bool lapsed(const nlohmann::json& lease, std::chrono::seconds least = {});
  void remove(const nlohmann::json& lease, const Budget& budget);
  [[nodiscard]] Resource lease_of(const std::string& holder) const;

  Services& services_;
  const Fd stop_;  // an eventfd: ends the thread, and its current work
  Semaphore beginning_;
  std::atomic<bool> begun_{false};
  const std::string generation_;
  bool superseded_ = false;
  nlohmann::json written_;
  std::thread thread_;
};

}  // namespace isogate::k8s
