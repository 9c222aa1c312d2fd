// An isolated place for programs: what the runner needs to start them inside, and inits made in
// advance.
//
// Its maker passes the namespaces as descriptors, ready to enter: a mount namespace that every init gets a
// copy of, with /proc, /dev/shm and /run as empty directories and /dev/null in it; and a network namespace.
// The runner adds pid, ipc, uts and cgroup namespaces, their /proc and /dev/shm, and an init
// (init_protocol.h) as pid 1, and drops what the profile says: capabilities, the right to new privileges,
// system calls.
//
// An init and its namespaces cost more than everything else together. So one whose run has left nothing in
// them (no process, no use of /dev/shm, no System V IPC, no signal for the init; init.cc looks), while no
// other run goes on, stays for the next run of the same user, together with the groups it is in, and proves
// itself again. Any other ends with its run. Where none stayed one is made in advance after each run. Those
// that are not needed for a while are ended.
//
// close() ends it permanently: afterwards nothing is made or started in it.
#pragma once

#include <linux/filter.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/cgroup/cgroup.h"
#include "runner/enclosure/enclosure_plan.h"
#include "runner/enclosure/init_proof.h"
#include "runner/exec/command.h"
#include "runner/exec/spawn/process_limits.h"

namespace isogate {

// The same for all enclosures of a backend. Immutable once made.
struct EnclosureProfile {
  std::string shm_options = "mode=1777,size=64m,nr_inodes=65536";
  std::vector<EnclosureCover> covers;  // their texts are literals
  std::vector<ProcessLimit> limits;
  std::vector<sock_filter> filter;
  bool inits_ahead = true;  // false: each run has an init of its own, made on demand
};

struct EnclosureOptions {
  std::shared_ptr<const EnclosureProfile> profile;
  Identity identity;
  Fd user;  // a user namespace that the others belong to; empty: this process's own
  Fd mounts, network;
  Fd cgroups;                          // a cgroup namespace for its programs; empty: a new one for each run
  FileMark root = {}, workspace = {};  // what its programs find as / and /workspace (init_proof.h)
  Fd landlock;                         // a ruleset; empty: none
  Fd null;                          // its own /dev/null, for streams that are not given; empty: this host's
  Limits limits;                    // of all that runs in it together
  bool limits_best_effort = false;  // a limit that cannot be enforced is left out
};

// How many inits of one enclosure exist, including zombies, and how many are being made or given a
// run.
class InitTally {
 public:
  void add() { change(1); }
  void remove() { change(-1); }
  int wait_for_none(std::chrono::seconds patience);  // how many the kernel delays

 private:
  void change(int by);
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

// The inits whose run has been answered and that have not been reaped: they still count in their sandbox's
// limits.
class Departures {
 public:
  void begin();
  void end();  // also of one that the kernel delays
  // Those that have begun by now.
  void wait_for_all(std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  uint64_t begun_count_ = 0, ended_count_ = 0;
};

class Enclosure;

struct InitProcess {
  int pid = -1;
  Fd pidfd, socket;
  std::shared_ptr<InitTally> tally;
  CgroupSlot slot;  // the groups of the sandbox that its run used
  // Whose they are: they are returned when the init is reaped. Null: it has none, or waits there.
  std::shared_ptr<Enclosure> place;
  uint64_t cpu_ns = 0;   // of the runs that it has ended
  bool departs = false;  // counted in place->departures()
  bool lasts = false;    // made by the keeper: the kernel kills an init when the thread that made it ends
};

class Enclosure : public std::enable_shared_from_this<Enclosure> {
 public:
  using Clock = std::chrono::steady_clock;

  // `marks`: what its inits must find. `bounding`: the bounding set of this process. `reap_later` takes an
  // init that is no longer used.
  Enclosure(EnclosureOptions options, const EnclosureMarks& marks, int init_image, uint64_t bounding,
            std::function<void(InitProcess)> reap_later);
  ~Enclosure();
  Enclosure(const Enclosure&) = delete;
  Enclosure& operator=(const Enclosure&) = delete;

  [[nodiscard]] const EnclosurePlan& plan() const { return plan_; }
  [[nodiscard]] const EnclosureMarks& marks() const { return marks_; }
  [[nodiscard]] const std::shared_ptr<InitTally>& tally() const { return tally_; }
  [[nodiscard]] int null_fd() const { return options_.null.get(); }  // -1: this host's
  [[nodiscard]] const Identity& identity() const { return options_.identity; }
  [[nodiscard]] bool is_of(const Identity& identity) const;
  [[nodiscard]] Cgroups* groups() const { return groups_.get(); }                    // null: no limits
  void set_groups(std::unique_ptr<Cgroups> groups) { groups_ = std::move(groups); }  // before its first run
  [[nodiscard]] Departures& departures() { return departures_; }
  [[nodiscard]] const EnclosureProfile& profile() const { return *options_.profile; }

  // Any thread. While one of these lives, close() waits: nothing begins in a closed enclosure.
  class Visit {
   public:
    explicit Visit(Enclosure& place) : place_(place), admitted_(place.admit(false)) {}
    ~Visit() {
      if (admitted_) place_.leave();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    explicit operator bool() const { return admitted_; }

   private:
    Enclosure& place_;
    const bool admitted_;
  };
  InitProcess take_ready() { return take(ready_); }  // no program has run in it; pid -1: there is none
  InitProcess take_used() { return take(used_); }    // one that a run has left, with its slot; the same
  bool ask_for_keeper();  // true: nothing waits, or what waits is not watched, and this is the first request
  bool begin_making();    // counts in the tally until end_making(); false: one is there, or it is closed
  void end_making() { tally_->remove(); }
  bool close();  // nothing more begins, and waiting inits end; false: it was closed already
  void put_ready(InitProcess init);
  // With its slot, during the visit of its run. It is ended if another run goes on: that may have got
  // descriptors of its file systems from this one.
  void put_used(InitProcess init);
  InitProcess take_idle(Clock::time_point before);  // one that waits since then
  bool stop_watching();                             // false: something waits
  // One that has its slot, before it is reaped: its slot is returned then, and it is in the departures.
  InitProcess leaving(InitProcess init);

 private:
  struct Waiting {
    InitProcess init;
    Clock::time_point since;
  };
  InitProcess take(Waiting& from);
  bool admit(bool makes_ready);
  void leave();
  [[nodiscard]] bool nothing_waits() const { return ready_.init.pid < 0 && used_.init.pid < 0; }

  EnclosureOptions options_;
  const EnclosureMarks marks_;
  std::function<void(InitProcess)> reap_later_;
  std::unique_ptr<Cgroups> groups_;
  std::shared_ptr<InitTally> tally_ = std::make_shared<InitTally>();
  Departures departures_;
  sock_fprog filter_;
  EnclosurePlan plan_;
  std::mutex mutex_;
  Waiting ready_, used_;
  int visits_ = 0;
  bool asked_ = false, watched_ = false, closed_ = false;
};

// The init's program, sealed, executable and readable by nobody.
Result<Fd> init_image();

}  // namespace isogate
