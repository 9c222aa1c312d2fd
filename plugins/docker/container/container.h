// The container of one sandbox and the connection to its runner: created when first needed, kept running, and
// recreated on the same workspace when it has died, when contact with its runner is lost, or when the Engine
// describes it differently than when it was measured. Any thread.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "isogate/runner_link.hpp"
#include "lib/semaphore.h"
#include "plugins/docker/companions/companions.h"
#include "plugins/docker/container/container_state.h"
#include "plugins/docker/container/gate.h"
#include "plugins/docker/container/profile.h"
#include "plugins/docker/container/record.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

// In the sandbox's directory on this host.
inline constexpr const char* kGateDirectory = "gate";  // where its runner's socket is
inline constexpr const char* kMeasuredFile =
    "measured";                                        // once a container of it was: a tenant may have come
inline constexpr const char* kMadeAsFile = "made_as";  // if created in advance: Parts::owner's id

class Container {
 public:
  // `parts` names the directories of this host; where volumes are used instead, the container makes its own
  // of them. `directory`: the sandbox's; `gate`: the one in it for the runner's socket. Both O_PATH or
  // O_RDONLY.
  Container(Services& services, Parts parts, const Limits& limits, Fd directory, Fd gate);
  ~Container();  // releases it; whatever runs stays

  // The recorded container if it runs and is the one that we created, else a new one. True: it existed.
  // Throws sdk::Error.
  bool open(const sdk::Call& call);
  // The recorded container; if it cannot be used unchanged, it is ended: ISOGATE_NO_SANDBOX.
  void re_attach(const sdk::Call& call);
  // As open(), but a missing container is created when first needed: for a caller that closes it. Calls
  // throw `refusal`, if there is one.
  bool attach(const std::optional<sdk::Error>& refusal, const sdk::Call& call);
  struct Way {  // to the runner of that container
    std::shared_ptr<sdk::RunnerLink> link;
    // By which the container is judged: the same, unless each call has its own.
    std::shared_ptr<sdk::RunnerLink> first;
    std::string id, name;
  };
  // Recreates the container if need be.
  Way link(const sdk::Call& call);
  // Contact with that runner was lost, or it could not end an exec: nothing more starts there, and what it
  // may still run is killed from outside. True: the Engine confirms within `patience` that nothing of it
  // runs.
  bool lose(const Way& way, std::chrono::milliseconds patience);
  // The measurement from before the first command of a tenant; measures if there is none yet. If it does not
  // match the request to the Engine, it is an error, and the container is removed.
  isogate_evidence evidence(const sdk::Call& call, const isogate_evidence_request& request);
  // Created in advance, it belongs to this sandbox from now on: `parts` as if it had been created for it.
  // Before the first call through it.
  void take_over(const Parts& parts, const sdk::Call& call);
  // There is, or may be, a container that was not measured.
  bool is_unproven();
  // Its runner, if it is connected now; else null.
  std::shared_ptr<sdk::RunnerLink> link_if_connected();
  // Also while another thread has it: waits for none.
  bool seems_connected();
  // In a few words how the container with that id ended, for the call that saw it; empty: it runs.
  std::string how_it_ended(const std::string& id, const sdk::Call& call) const;
  // Releases the runner: what it runs ends.
  void detach();
  // Ends and removes it, its companions and its network. Already removed is OK. It may be called again after
  // an exception.
  void end(const sdk::Call& call);

  // After end(): removes the workspace, if it is a volume, and volumes of copies that outlived their
  // container. The caller removes this host's own directories.
  void purge(const sdk::Call& call);

 private:
  using State = ContainerState;
  // `ours`: it is also the recorded one.
  State state_of(const std::string& which, const sdk::Call& call) const;
  // The same for the recorded container, which an Engine may still be creating for a caller that
  // has gone.
  State state_of_recorded(const sdk::Call& call) const;
  // Why it must not be used; empty: it is as recorded and measured.
  [[nodiscard]] std::string why_unfit(const State& state) const;
  // Why its mounts must not stay; empty: they may.
  [[nodiscard]] std::string why_exposed() const;
  [[nodiscard]] std::string why_changed(const State& state) const;
  // How its limits in force differ from those that were asked for; empty: they do not, or need not be in
  // force.
  [[nodiscard]] std::string why_unlimited(const State& state) const;
  bool adopt(const sdk::Call& call, bool to_close = false);
  void prepare(const sdk::Call& call);
  void choose();
  void make(const sdk::Call& call);
  std::shared_ptr<sdk::RunnerLink> try_make(const sdk::Call& call);
  std::string create(const sdk::Call& call);
  void discard(const sdk::Call& call);
  void disconnect();
  void discard_soon() noexcept;  // what a failure left, if the Engine does it at once; else the next open()
  void remove_surely(const std::string& which, const sdk::Call& call);
  void watch();  // link_, until detach() or discard()
  // Null: the runner did not come in time. `settles`: if it comes, others are reached in this way, too.
  std::shared_ptr<sdk::RunnerLink> connect_socket(Gate& gate, int pid, std::chrono::milliseconds patience,
                                                  const sdk::Call& call, bool settles);
  std::shared_ptr<sdk::RunnerLink> connect_stream(const sdk::Call& call);
  std::shared_ptr<sdk::RunnerLink> reconnect(const State& state, const sdk::Call& call);
  void begin_companions(const sdk::Call& call);
  std::shared_ptr<sdk::RunnerLink> measured_link(const sdk::Call& call);
  isogate_evidence measure(const sdk::Call& call, const isogate_evidence_request& request);
  void check_syscalls(const sdk::Call& call);
  void prove_again(const sdk::Call& call);
  void keep_proof(const isogate_evidence& found);

  Services& services_;
  Parts parts_;
  const Limits limits_;
  const Fd directory_, gate_;
  std::string workspace_path_, gate_path_;  // as parts() came with them
  Semaphore mutex_;
  Record record_;
  bool unsure_ = false;          // the Engine may be creating one of the recorded name
  bool fresh_ = false;           // no command of a tenant has run in it yet
  std::optional<Proof> proven_;  // at open; a replacement must isolate in the same way
  std::optional<sdk::Error> refusal_;
  std::shared_ptr<sdk::RunnerLink> link_;
  std::unique_ptr<Companions> companions_;
};

}  // namespace isogate::docker
