// The companions of one sandbox: further containers on its network. Each has a thread here that creates it,
// waits until it is healthy, runs post_start in the sandbox's own container, and restarts it when it ends,
// at most three times and later each time. No call waits for this: failures are logged, and the sandbox's
// calls do not fail because of them. The next container of the sandbox has fresh companions.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "isogate/runner_link.hpp"
#include "lib/fd.h"
#include "plugins/docker/companions/companion_record.h"
#include "plugins/docker/container/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

class Companions {
 public:
  // The runner of the sandbox's own container, once that is measured; null: not now. Ends early, with
  // ISOGATE_CANCELLED, when the call does. Called by several threads.
  using Primary = std::function<std::shared_ptr<sdk::RunnerLink>(const sdk::Call&)>;

  // Begins: re-attaches those that are recorded and run, makes the others. `parts` with the network;
  // `directory`: the sandbox's, borrowed. Throws sdk::Error.
  Companions(Services& services, Parts parts, int directory, Primary primary);
  ~Companions();  // releases them: they keep running
  Companions(const Companions&) = delete;
  Companions& operator=(const Companions&) = delete;

  // Created in advance, they belong to this sandbox from now on: only the log uses its name. Any
  // thread.
  void belong_to(const std::string& sandbox_id);

 private:
  void stop();
  void tend(const Companion& companion) noexcept;
  void keep_up(const Companion& companion);
  void once(const Companion& companion);
  std::string bring_up(const Companion& companion);
  // `may_come`: the recorded one may still be made; its name is used again, so that there is only one.
  std::string make(const Companion& companion, bool may_come);
  void check_limits(const Companion& companion, const std::string& id);
  bool await_health(const Companion& companion, const std::string& id);
  void run_hook(const Companion& companion, const std::string& started_at);
  void run_hook_in(sdk::RunnerLink& link, const Companion& companion, const sdk::Call& call);
  [[nodiscard]] std::string named(const Companion& companion);
  CompanionRecord recorded(const std::string& companion);
  void record(const CompanionRecord& row);

  Services& services_;
  const Parts parts_;
  const int directory_;
  const Primary primary_;
  const Fd stop_;  // an eventfd
  const isogate_call stopping_{sizeof(isogate_call), stop_.get(), INT64_MAX, {}};
  const sdk::Call call_{stopping_};  // of the threads' own work
  std::mutex mutex_;
  std::string sandbox_id_;
  std::vector<CompanionRecord> records_;
  std::vector<std::thread> threads_;
};

// Removes those that are recorded and ours, and that no thread manages any more. Throws
// sdk::Error.
void remove_companions(Services& services, const Owner& owner, int directory, const sdk::Call& call);

}  // namespace isogate::docker
