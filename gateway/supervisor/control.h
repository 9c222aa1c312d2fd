// The supervisor's end of a control socket: its records, and a queue so that a child that
// does not read never makes the supervisor wait. The child may be hostile: it sends small records without
// descriptors, and few of them.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gateway/base/tls_context.h"
#include "gateway/config/config.h"
#include "lib/fd.h"

namespace isogate::supervisor {

// A record of a child: {"type":"ready"}, "drained", "fatal" and "failed" with a message; of the front also
// "serving" once it takes calls, which may be long before it is ready; "stuck" with a backend's name, the
// generation of its host, which it has abandoned, the reason, and whether that host had answered a probe;
// "reloaded", and "reload_refused" with the reason as message, with the number of the reload; and "violation"
// with the system call that its filter is about to kill it for. With "failed", a backend host whose
// configuration is wrong names the "setting" of its backend that the operator has to correct: "config",
// "plugin", …, or "" for the backend itself.
struct FromChild {
  std::string type, message, reason;
  uint64_t generation = 0, number = 0;
  std::optional<std::string> setting;
  bool probed = false;
};
Result<FromChild> parse_from_child(const std::string& record);

// The effective document reduced to what the front may know: no configuration of a plugin, which may hold
// a backend's secrets.
std::string front_document(const Config& config);
// … to what one backend's host needs: no key, no other backend.
std::string host_document(const Config& config, const BackendConfig& backend);

struct FrontStart {
  const Config* config;
  std::string local_key_sha256, state_dir;
  std::vector<unsigned> peer_uids;
  std::vector<std::string> listeners;
  std::vector<ListenerKind> kinds;  // one for each
  const TlsMaterial* tls;
};
std::string front_start_message(const FrontStart& start);
// The front answers with `number`.
std::string front_reload_message(uint64_t number, const Config& config, const std::string& local_key_sha256,
                                 const TlsMaterial& tls);
// `settings`: the first generation that had the same ones; the front learns nothing else of them.
std::string backend_up_message(const std::string& name, uint64_t generation, uint64_t settings);

struct BackendDown {
  std::string name;
  uint64_t generation;
  std::string reason;
  bool quarantined, restarting;
};
std::string backend_down_message(const BackendDown& down);
std::string drain_message(uint32_t deadline_sec);

struct HostStart {
  const Config* config;
  const BackendConfig* backend;
  uint64_t generation;
  std::string sandboxes_dir, uids_dir, plugin_copy_dir;
  bool probe_only = false;  // no sandbox will be opened
};
// With it: the socket to the front, and what its logger writes to (none: its stderr).
std::string host_start_message(const HostStart& start);
std::string host_stop_message(bool keep_sandboxes);  // mode "detach" or "stop"
// The host goes on, and closes its sandboxes as a stop does, should its front end first.
std::string host_drain_message();

class ControlChannel {
 public:
  ControlChannel() = default;
  explicit ControlChannel(Fd socket) : socket_(std::move(socket)) {}

  // Sends at once or queues, also while descriptors or memory are short. `borrowed` stay open until the child
  // has them; `owned` are closed then.
  void send(std::string record, std::vector<int> borrowed = {}, std::vector<Fd> owned = {});
  void flush();
  [[nodiscard]] bool wants_to_write() const { return !queue_.empty(); }

  static constexpr int kRecordsPerTurn = 16;          // of one child, before the others have their turn
  static constexpr int kBurst = 64, kPerSecond = 16;  // records; more break the protocol

  // The next record that is there; nullopt: none now. An error: the channel has ended or the child broke
  // the protocol; the channel is closed then.
  Result<std::optional<FromChild>> receive();

  [[nodiscard]] int fd() const { return socket_.get(); }
  // The child has closed its end, or does so within 50 ms: it is about to end. Also true once closed
  // here.
  [[nodiscard]] bool hung_up() const;
  void close();

 private:
  struct Outgoing {
    std::string record;
    std::vector<int> fds;
    std::vector<Fd> owned;
    bool delayed = false;  // by a shortage, which is in the log
  };
  bool is_over_rate();

  Fd socket_;
  std::deque<Outgoing> queue_;
  double allowance_ = kBurst;
  std::chrono::steady_clock::time_point counted_ = std::chrono::steady_clock::now();
};

}  // namespace isogate::supervisor
