// The running children of the supervisor: the front, and backend hosts of one generation each.
#pragma once

#include <optional>
#include <string>

#include "gateway/supervisor/backends/restart_policy.h"
#include "gateway/supervisor/child.h"
#include "gateway/supervisor/control.h"

namespace isogate::supervisor {

enum class HostRole {
  kStarting,  // not ready yet
  kTrial,     // of an undecided reload: the front does not know it
  kServing,   // the front has its socket, or will get it as soon as there is a front
  kLeaving,   // replaced, removed or without a front: its end is no crash
};

// A running child, and the deadline by which it has to have ended.
struct ChildProcess {
  Child child;
  ControlChannel control;
  std::optional<TimePoint> kill_at;
  std::string kill_reason;
  bool killed = false;  // for that reason

  void kill_later(std::chrono::milliseconds delay, std::string why);  // unless an earlier kill is due already
  void kill_now(std::string why);
};

struct HostProcess : ChildProcess {
  uint64_t generation = 0;
  std::string settings;  // host_settings() of it
  HostRole role = HostRole::kStarting;
  Fd front_end;  // of the socket to the front, until the front has it
  bool reported_ready = false;
  std::optional<std::string> given_up;  // by the front, for this reason
  bool never_probed = false;            // with that: it has answered no probe
  std::optional<std::string> failed;    // its message
  std::optional<std::string> setting;   // with that: the one that the operator has to correct
  std::string copy_dir_name;

  void kill_now(std::string why);
};

inline constexpr int kPermanent = 3;  // exit code of a host that sent `failed`
bool ended_with(int wait_status, int code);

// The end of a host in words, for the log and for the front's answers.
std::string reason_of_end(const HostProcess& process, int wait_status);

}  // namespace isogate::supervisor
