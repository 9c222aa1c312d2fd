// One exec: it is admitted, recorded in the journal and handed to its backend with new pipes; its output is
// passed on, and its outcome returned. A complete response and a stream differ in the Output that they
// pass.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/front/base/api_error.h"
#include "gateway/front/base/byte_budget.h"
#include "gateway/front/base/killer.h"
#include "gateway/front/sandboxes/sandbox.h"
#include "gateway/front/state/state.h"
#include "gateway/ipc/messages.h"
#include "isogate/kept_exec.h"

namespace isogate::front {

struct App;

// The ends of an exec that its backend may keep (isogate/kept_exec.h).
struct KeptEnds {
  Fd detach;          // a shared event
  Mark input_end;     // before the end of its stdin
  bool kept = false;  // it is
  bool detached = false;
};

struct Artifact {
  std::string name;  // below artifact_dir
  uint64_t size = 0;
};

// `reason`: why, when unknown; which artifacts are missing. Its end has no date yet.
struct ExecAnswer : ExecOutcome {
  std::string exec_id, backend;
  int64_t started_ms = 0;  // since 1970
  uint32_t isolation = 0;
  bool isolation_known = true;  // false: `isolation` is that of its sandbox, and was not proven for this exec
  double cpu_ms = 0;
  uint64_t max_rss_bytes = 0;
  bool left_behind = false;  // something it started could not be ended in time
  std::vector<Artifact> artifacts;
  std::string artifact_prefix;  // + name = path; once, since a directory's name may be 4,095 bytes
  bool fault = false;           // its backend did not start it, and not for what was asked (is_fault())
  bool found = false;           // a rejoined one was there
  bool goes_on = false;         // contact was lost, and its backend keeps it: it may be rejoined
};

// run_exec fills in what it wants of its sandbox beyond the request: `capabilities`, and of one that is
// rejoined `existing` and `running`.
struct ExecSpec : Wanted {
  ipc::ExecCall call;                              // the request's part; run_exec fills in the rest
  std::string shown;                               // short and printable, for the journal
  std::shared_ptr<const std::string> stdin_bytes;  // null: no stdin, unless `call` has one
  double timeout_sec = 0;
  std::optional<std::string> artifact_dir;
  std::shared_ptr<KeptEnds> kept;    // null: it ends with the gateway
  std::optional<ExecAnswer> rejoin;  // what is known of one that was started before, and still runs
  KeptTerms terms;                   // of a long-lived one; run_exec fills in its deadline
  bool found_later = true;           // of a long-lived one: who knows its id may ask for it after its call

  [[nodiscard]] uint64_t bytes() const;          // of what it has from the request
  [[nodiscard]] uint64_t needed_limits() const;  // ISOGATE_CAP_LIMIT_*
};

// Where the bytes go. Both calls may wait: the program is then held by its full pipe.
class Output {
 public:
  virtual ~Output() = default;
  // It is admitted: from here on it may hold descriptors. If it throws, nothing was started.
  virtual void admitted() {}
  // The last step before the program starts: if it throws, nothing was started.
  virtual boost::asio::awaitable<void> started(const ExecAnswer& so_far) = 0;
  // `error`: of stderr, not of stdout. `data` is valid until the first wait. An exception kills the exec.
  virtual boost::asio::awaitable<void> bytes(bool error, std::string_view data) = 0;
  // How many bytes it takes at a time.
  [[nodiscard]] virtual size_t at_a_time() const { return SIZE_MAX; }
  // It is being killed: the remaining output must not wait for a reader.
  virtual void killed() {}
  // It has ended by itself, or its host has: what the pipes still hold must not wait for a reader either.
  virtual void call_ended() {}
  // It is a rejoined one, and the next bytes have these offsets.
  virtual void rejoined(const isogate_kept_state&) {}
  // True: further bytes of this stream are only counted, and drained unread.
  [[nodiscard]] virtual bool full(bool error) const = 0;
};

// Throws ApiError if nothing was started; once something may have started, it returns a result. `spec.call`
// is consumed, and with an end, which is journaled and logged, all of `spec`. Listings of artifacts are held
// in `memory`.
boost::asio::awaitable<ExecAnswer> run_exec(App& app, ExecSpec& spec, Output& output, Killer& killer,
                                            ByteShare& memory);

// The end of an exec that cannot be rejoined: `answer` becomes `unknown`.
void give_up_exec(App& app, ExecSpec& spec, ExecAnswer& answer, const std::string& why);

// "SIGKILL" and so on; "SIG42" for the nameless.
std::string signal_name(int signal);

}  // namespace isogate::front
