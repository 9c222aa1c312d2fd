// The pod of one sandbox and the way to its runner: made at the first need, kept warm, made anew on the same
// workspace when it has died. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/lease.h"

namespace isogate::k8s {

class Pool;

// Each exec of the API server is a process of the container's beside its program, and costs it a while.
inline constexpr int kExecsAtOnce = 8;
using Slots = std::counting_semaphore<kExecsAtOnce>;

struct OpenWish {
  bool attach_only = false, known = false;
  bool as_it_is = false;  // take up what runs, and make nothing
  std::string handle;     // uid of the Lease, as answered before; may be empty
  Pool* ready = nullptr;  // where one made ahead may be taken; borrowed
};

// A pod that somebody else has made, and now is the taker's.
struct ReadyPod {
  Record record;
  std::shared_ptr<sdk::RunnerLink> link;
};

class SandboxPod {
 public:
  SandboxPod(Services& services, Parts parts, const isogate_limits& limits);  // `services` is borrowed
  ~SandboxPod();  // lets go of it; whatever runs stays
  SandboxPod(const SandboxPod&) = delete;
  SandboxPod& operator=(const SandboxPod&) = delete;

  // The recorded one if it runs and is what we made, else a new one. True: it was there. Throws sdk::Error;
  // then nothing is left of a sandbox that was new.
  bool open(const OpenWish& wish, const sdk::Call& call);
  [[nodiscard]] std::string handle() const { return lease_.uid(); }
  // A way to its runner, made anew if need be. ISOGATE_SANDBOX_LOST where the workspace went with the pod.
  std::shared_ptr<sdk::RunnerLink> link(const sdk::Call& call);
  // What was measured before the first command of a tenant; measures if that is now.
  isogate_evidence evidence(const sdk::Call& call, const isogate_evidence_request& request);
  // In a few words how it ended, for the call that saw it; empty: it runs, or nobody knows.
  std::string how_it_ended(const sdk::Call& call);
  // Lets go of the runner: what it runs ends.
  void detach();
  // The same, and this gateway does not count as one that uses it.
  void leave(const sdk::Call& call);
  // Ends and removes the pod, unless other gateways use it; the workspace stays where it is a claim.
  void end(const sdk::Call& call);
  // And all the rest. Gone already is fine.
  void purge(const sdk::Call& call);

  // Of one made ahead, by its pool alone. It runs, and nobody has used it.
  bool warm();
  // Still this gateway's, for as long as a Lease is held. False: not any more.
  bool renew(const sdk::Call& call);
  // What open() would do after give_to(), when this gateway's question is known. False: it is not.
  bool measure(const sdk::Call& call);
  // None: it is another's, or has died. Else this object holds nothing any more.
  std::optional<ReadyPod> give_to(const Parts& taker, const sdk::Call& call);
  void drop(const sdk::Call& call);  // purge() that waits for no end

 private:
  bool adopt(const sdk::Call& call);
  bool take_up(const sdk::Call& call);
  bool join(const sdk::Call& call);
  bool others_use_it(const sdk::Call& call);
  void forget_user() noexcept;
  void let_go();
  void stop(const sdk::Call& call);
  std::shared_ptr<sdk::RunnerLink> lend(const sdk::Call& call);
  bool attach();
  bool claim(const OpenWish& wish, const sdk::Call& call);
  std::shared_ptr<sdk::RunnerLink> relink(const sdk::Call& call);
  void wait_for_others(const sdk::Call& call, std::chrono::steady_clock::time_point since);
  bool take(Pool& pool, const sdk::Call& call);
  void make(const sdk::Call& call);
  void try_make(const sdk::Call& call);
  void prepare_policy(const sdk::Call& call);
  void prepare_workspace(const sdk::Call& call);
  void adopt_workspace(const sdk::Call& call);
  void check_place(const sdk::Call& call);
  bool is_there(Place place, const sdk::Call& call);
  bool ends_with_pod();
  void wait_for_volume(const sdk::Call& call);
  void name_anew();
  PodState run(const Json& pod, const sdk::Call& call);
  PodState await_start(const sdk::Call& call, std::chrono::milliseconds most);
  void follow();
  // Whether it is waited for until nothing of a pod runs: not where a call failed, and nobody has run in it.
  enum class Patience { kNone, kUntilGone };
  void discard(const sdk::Call& call, Patience patience = Patience::kUntilGone);
  void discard_held(const sdk::Call& call);
  void discard_now() noexcept;
  void give_up() noexcept;
  void remove_all(const sdk::Call& call, Patience patience = Patience::kUntilGone);
  std::shared_ptr<sdk::RunnerLink> connect(const sdk::Call& call);
  std::shared_ptr<sdk::RunnerLink> reconnect(const sdk::Call& call);
  bool make_anew(const std::string& why, const sdk::Call& call);
  void prove_again(const sdk::Call& call);
  void keep_proof(const isogate_evidence& found, const sdk::Call& call);

  Services& services_;
  Parts parts_;
  const isogate_limits limits_;
  std::timed_mutex mutex_;
  Lease lease_;
  bool fresh_ = false;  // no command of a tenant has run in it yet
  struct Proof {
    isogate_evidence evidence;
    std::string address;
    uint32_t port = 0;
  };
  std::optional<Proof> proven_;  // at open; what takes its place has to have the same walls
  std::shared_ptr<sdk::RunnerLink> link_;
  std::shared_ptr<Slots> slots_ = std::make_shared<Slots>(kExecsAtOnce);  // RunnerTransport::kExec
};

}  // namespace isogate::k8s
