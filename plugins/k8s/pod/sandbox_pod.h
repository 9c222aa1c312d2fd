// The pod of one sandbox and the connection to its runner: created when first needed, kept running, and
// recreated on the same workspace when it has died. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "isogate/runner_link.hpp"
#include "lib/semaphore.h"
#include "plugins/k8s/lease.h"
#include "plugins/k8s/pod/provision.h"
#include "plugins/k8s/pod/stuck_pod.h"

namespace isogate::k8s {

class Pool;

// Each exec of the API server is a process of the container's beside its program, and costs it a while.
inline constexpr int kExecsAtOnce = 8;

struct OpenWish {
  bool attach_only = false, known = false;
  bool unchanged = false;  // re-attach what runs, and create nothing
  std::string handle;      // uid of the Lease, as answered before; may be empty
  Pool* ready = nullptr;   // where a pod created in advance may be taken; borrowed
  // Why nothing may run in it now. With attach_only calls throw it; with `unchanged` what runs is ended.
  std::optional<sdk::Error> refusal;
};

// A pod that the pool has created, and that now belongs to the taker.
struct ReadyPod {
  Record record;
  std::shared_ptr<sdk::RunnerLink> link;
  std::shared_ptr<PodUse> use;
};

class SandboxPod {
 public:
  SandboxPod(Services& services, Parts parts, const Limits& limits);  // `services` is borrowed
  ~SandboxPod();                                                      // releases it; whatever runs stays
  SandboxPod(const SandboxPod&) = delete;
  SandboxPod& operator=(const SandboxPod&) = delete;

  struct Opened {
    bool fresh = false;        // this open created its pod, or it was created in advance, and it is unused
    bool used_before = false;  // its workspace: a tenant may have been there
  };
  // The recorded pod if it runs and is unchanged since its measurement, else a new one. Within
  // open_timeout_sec. Throws sdk::Error; then nothing is left of a new sandbox.
  Opened open(const OpenWish& wish, const sdk::Call& call);
  [[nodiscard]] std::string handle() const { return lease_.uid(); }
  // While one lives, calls of a tenant run over the result of link().
  class Running {
   public:
    explicit Running(SandboxPod& pod) : pod_(pod) { ++pod_.use_->calls; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() { --pod_.use_->calls; }

   private:
    SandboxPod& pod_;
  };
  // What a call does in the pod, and when a pod that must be replaced is replaced before it.
  enum class Use {
    kStart,   // starts a program, with a Running: before every one where something is left, else as kCall
    kCall,    // with a Running: once no other call runs
    kBeside,  // runs no program, without a Running: once no call runs
  };
  // No call runs but the one that asks.
  [[nodiscard]] bool is_alone(Use use) const { return use_->calls <= (use == Use::kBeside ? 0 : 1); }
  struct Way {  // to the runner of that pod
    std::shared_ptr<sdk::RunnerLink> link;
    std::string pod_uid;
  };
  // Reconnects if necessary. ISOGATE_SANDBOX_LOST if the workspace was lost with the pod.
  Way link(Use use, const sdk::Call& call);
  // The same, if it is connected now; else null.
  std::shared_ptr<sdk::RunnerLink> link_if_connected();
  // The measurement of this very container from before the first command of a tenant; measures if there is
  // none yet. A pod that was not tried against all of this gateway's listeners is replaced, unless another
  // gateway uses it.
  isogate_evidence evidence(const sdk::Call& call, const isogate_evidence_request& request);
  // In a few words how that pod ended, for the call that saw it; empty: it runs, or that is not known.
  std::string how_it_ended(const Way& way, const sdk::Call& call);
  // Contact was lost while something ran in that pod, or its runner cannot start programs: its runner's
  // report is not trusted. If its files outlive it, and no other gateway uses it, the pod is removed, at once
  // if possible, and the next link() is to another pod. Nothing if it was replaced already.
  void distrust(const Way& way, const std::string& why, bool now) noexcept;
  // Its runner reports that something could not be killed: no further program starts there.
  void note_left() noexcept { left_ = true; }
  // After each of these link() and evidence() throw, even if it fails; then it may be tried again. Each
  // releases the runner first.
  //
  // Releases the runner: what it runs ends.
  void detach();
  // Ends and removes the pod, unless other gateways use it; the workspace stays where it is a claim. Throws
  // while something of it may still run.
  void end(const sdk::Call& call);
  // The same of a sandbox that no gateway uses or works on, this one included; of others nothing. Waits for
  // no end. False: something of it may still run.
  bool end_unused(const sdk::Call& call);
  // Also removes the rest: pods, claim, policy, the objects that create them, and the Lease last. Throws
  // unless the API server has confirmed each removal. For all gateways.
  void purge(const sdk::Call& call);

  // Of a pod created in advance, only for its pool. It runs, and is unused.
  bool warm();
  // Keeps it this gateway's for another Lease duration. False: it no longer is.
  bool renew(const sdk::Call& call);
  // What open() would do after give_to(), when this gateway's question is known. False: it is not.
  bool measure(const sdk::Call& call);
  // None: another gateway has it, or it has died. Else this object holds nothing any more.
  std::optional<ReadyPod> give_to(const Parts& taker, const sdk::Call& call);
  // purge() that waits for no end. False: it stays until it expires, which was logged.
  bool drop() noexcept;

 private:
  bool adopt(const sdk::Call& call);
  bool re_attach(const OpenWish& wish, const sdk::Call& call);
  bool join(const sdk::Call& call);
  [[nodiscard]] bool has_others() const;
  std::vector<std::string> other_users(const sdk::Call& call);
  void forget_user() noexcept;
  void release(const char* why = "the sandbox is closed");
  void check_image(const sdk::Call& call);
  void attach();
  Opened claim(const OpenWish& wish, const sdk::Call& call);
  [[noreturn]] void nothing_there(const OpenWish& wish, const sdk::Call& call);
  bool make_first(const OpenWish& wish, const sdk::Call& call);
  [[nodiscard]] Parts made_as() const;
  std::string why_other(const sdk::Call& call);
  void remember_likeness(const sdk::Call& call);
  void tie() { tie_->set(lease_.record(), policy_of(services_.config, made_as())); }
  void await_ends(const std::vector<PodName>& pods, const sdk::Call& call);
  void end_place(const sdk::Call& call);
  void in_time(const sdk::Call& call, const std::function<void(const sdk::Call&)>& work);
  [[noreturn]] void too_late();
  void check_serves() const;
  [[nodiscard]] bool is_usable(Use use);
  [[nodiscard]] bool is_settled(const std::string& pod_uid, const std::shared_ptr<sdk::RunnerLink>& link);
  isogate_evidence measure_now(const isogate_evidence_request& request, const sdk::Call& call);
  isogate_evidence replace_and_measure(const isogate_evidence_request& request, const sdk::Call& call);
  void find_own(const sdk::Call& call);
  void replace(const std::string& before, const std::string& why, const sdk::Call& call);
  void relink(Use use, const sdk::Call& call);
  void wait_for_others(const sdk::Call& call, std::chrono::steady_clock::time_point since);
  bool take(Pool& pool, const sdk::Call& call);
  void make(const sdk::Call& call);
  void try_make(const sdk::Call& call);
  [[nodiscard]] bool is_starting() const;
  void prepare_policy(const sdk::Call& call);
  void prepare_workspace(const sdk::Call& call);
  void adopt_workspace(const sdk::Call& call);
  void check_place(const sdk::Call& call);
  bool is_there(Place place, const sdk::Call& call);
  bool ends_with_pod();
  void wait_for_volume(const sdk::Call& call);
  void take_new_name();
  PodState run(const Json& pod, const sdk::Call& call);
  PodState await_start(const sdk::Call& call, std::chrono::milliseconds most);
  void follow();
  // Whether to wait until nothing of a pod runs: not if a call failed and no program has run in it.
  enum class Patience { kNone, kUntilGone };
  bool stop(const sdk::Call& call, Patience patience = Patience::kUntilGone,
            const std::function<bool()>& is_used = {});
  bool discard(const sdk::Call& call, Patience patience = Patience::kUntilGone);
  template <typename Work>
  void while_held(const Work& work);
  void discard_now() noexcept;
  void give_up() noexcept;
  template <typename Work>
  bool clean_up(const char* failure, const Work& work) const noexcept;
  void remove_all(const sdk::Call& call, Patience patience = Patience::kUntilGone);
  std::shared_ptr<sdk::RunnerLink> connect(const sdk::Call& call, std::chrono::milliseconds patience);
  std::shared_ptr<sdk::RunnerLink> reconnect(const sdk::Call& call);
  bool recreate(const std::string& why, const sdk::Call& call);
  void prove_again(const sdk::Call& call);
  void keep_proof(const isogate_evidence& found, const sdk::Call& call);

  Services& services_;
  Parts parts_;
  const Limits limits_;
  Semaphore mutex_;
  Lease lease_;
  bool fresh_ = false;                                        // no command of a tenant has run in it yet
  bool closing_ = false;                                      // only a close may follow
  std::optional<sdk::Error> refusal_;                         // it was opened only to be closed
  std::shared_ptr<PodUse> use_ = std::make_shared<PodUse>();  // a pod made ahead comes with its own
  // The pod that a cancelled call was creating: the cluster continues, and the next call of this object waits
  // for that pod. Empty: none.
  std::string starting_;
  std::chrono::steady_clock::time_point starts_until_;
  std::atomic<bool> left_ = false;  // noted without the mutex, which an opening may hold; relink() looks
  struct Suspicion {
    std::string pod_uid;
    std::weak_ptr<sdk::RunnerLink> link;  // it may hold a place
    std::string why;
  };
  std::mutex noting_;
  std::optional<Suspicion> noted_;  // the latest; without the mutex, too, under `noting_`: is_usable() looks
  std::string suspicion_;           // why the pod must be replaced before the next call; empty: it need not
  std::string waits_for_;           // what an opening waits for
  // What a reconnected stream must find: by then it may be another container. Any thread.
  class Tie {
   public:
    // `policy`: as it was asked for.
    void set(const Record& record, nlohmann::json policy);
    // Throws ISOGATE_NOT_FOUND for another one. Nothing was set: any will do.
    void check(Services& services, const Budget& budget);

   private:
    std::mutex mutex_;
    Record record_;
    nlohmann::json policy_;
  };
  const std::shared_ptr<Tie> tie_ = std::make_shared<Tie>();
  std::optional<Proof> proven_;  // at open; a replacement must have the same isolation profile
  std::shared_ptr<sdk::RunnerLink> link_;
  std::shared_ptr<Semaphore> slots_ = std::make_shared<Semaphore>(kExecsAtOnce);  // RunnerTransport::kExec
};

}  // namespace isogate::k8s
