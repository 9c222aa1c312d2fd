// The client's side of the runner protocol: a backend that has a byte stream to an isogate-runner gets exec,
// files and evidence from it. Compile runner_link/*.cc (installed: share/isogate/runner_link/*.cc) into the plugin, in
// CMake with isogate_sdk_plugin(NAME RUNNER_LINK sources…). docs/writing-a-backend.md shows such a backend.
//
// Errors are isogate::sdk::Error (backend.hpp). Data from the runner is trusted only as the tenant's own result:
// sizes are checked before anything is allocated, and a violation of the protocol ends the connection.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isogate/backend.hpp"

namespace isogate::sdk {

// What a backend with a runner may claim: it samples what an exec uses.
constexpr uint64_t kSampledLimits =
    ISOGATE_CAP_LIMIT_MEMORY_SAMPLED | ISOGATE_CAP_LIMIT_CPU_SAMPLED | ISOGATE_CAP_LIMIT_PIDS_SAMPLED;

// The bytes between both sides. read_some() is called by one thread at a time, write_some() by another one at
// a time, shutdown() by any.
class RunnerStream {
 public:
  virtual ~RunnerStream() = default;
  // Poll it for POLLIN before read_some(), unless has_buffered().
  [[nodiscard]] virtual int fd() const = 0;
  // Poll it for POLLOUT before write_some().
  [[nodiscard]] virtual int room_fd() const { return fd(); }
  // As read(2) and write(2) on a non-blocking descriptor: -1 with errno (EAGAIN: poll first), 0 at the end.
  virtual ssize_t read_some(char* to, size_t size) = 0;
  virtual ssize_t write_some(const char* from, size_t size) = 0;
  // After EAGAIN from write_some() the same bytes must be written again, and no fewer, before any other: TLS may
  // have sent a part of them.
  [[nodiscard]] virtual bool must_repeat() const { return false; }
  // read_some() would return data without POLLIN.
  [[nodiscard]] virtual bool has_buffered() const { return false; }
  // Sends bytes with descriptors attached to the first one; only where carries_descriptors().
  [[nodiscard]] virtual bool carries_descriptors() const { return false; }
  virtual ssize_t write_with(const char* from, size_t size, const int* fds, size_t count);
  // If descriptors are passed with the bytes: the user that programs run as, as the kernel reports it. Programs
  // must be able to open their own pipes by name, as /dev/stderr. -1: not known.
  [[nodiscard]] virtual int64_t user() const { return -1; }
  // Ends both directions and wakes all waiting threads.
  virtual void shutdown() = 0;
  // Any thread. hung_up(): the other side has closed. last_received(): when a byte last came from it; now, if not
  // known. is_away(): the stream is reconnecting, so a stalled write does not mean that contact is lost.
  [[nodiscard]] virtual bool hung_up() const;
  [[nodiscard]] virtual std::chrono::steady_clock::time_point last_received() const {
    return std::chrono::steady_clock::now();
  }
  [[nodiscard]] virtual bool is_away() const { return false; }
};

// A connected stream socket, whose descriptor it takes and makes non-blocking. `descriptors`: a Unix socket
// to a process of this kernel. `user`: as whom programs run; without it, whoever made the other end. The two ends of
// a socketpair() have the user of the backend host.
std::unique_ptr<RunnerStream> socket_stream(int fd, bool descriptors, std::optional<uid_t> user = std::nullopt);

// A new stream to the same runner. Throws Error: ISOGATE_NOT_FOUND if the runner no longer exists.
// Ends soon when the call is cancelled.
using RunnerDial = std::function<std::unique_ptr<RunnerStream>(const Call&)>;

struct ResumeOptions {
  std::array<uint8_t, 16> owner{};             // the client's identity: a new session ends its older ones
  std::chrono::milliseconds patience{40'000};  // after the last byte received; then the session ends
  std::chrono::milliseconds first{10'000};     // for the handshake of the first stream
  std::chrono::milliseconds attempt{10'000};   // for each later stream to connect and complete its handshake
  std::chrono::seconds grace{60};              // how long programs keep running without a stream
};

// A session with an `isogate-runner serve` (isogate/runner_resume.h) that survives the loss of its streams: it
// opens another stream, and each byte arrives once. This function opens the first stream. It throws what that
// throws, ISOGATE_UNAVAILABLE if the handshake fails, or ISOGATE_CANCELLED. A thread reconnects, and exists only
// while there is no stream. shutdown() also ends the session on the other side, if that can be sent at once;
// otherwise the grace ends it.
std::unique_ptr<RunnerStream> resumable_stream(RunnerDial dial, const ResumeOptions& options,
                                               const Call& call);

// Contact was lost after a read or a listing may have delivered a part. The client may call again, so the status
// is ISOGATE_UNAVAILABLE; the backend must not: the descriptor or the sink would get that part twice.
class BrokenOff final : public Error {
 public:
  explicit BrokenOff(std::string message) : Error(ISOGATE_UNAVAILABLE, std::move(message)) {}
};

// One connection to one runner. Any number of threads may call it at once. It has no thread of its own: one of
// the threads that wait for a reply reads for all.
class RunnerLink {
 public:
  // Sends HELLO and waits for the reply, at most `patience`, or until the call is cancelled. Throws
  // ISOGATE_UNAVAILABLE with the reason. `killed`: how long an exec may take to end once it is cancelled; then
  // contact counts as lost.
  static std::shared_ptr<RunnerLink> connect(
      std::unique_ptr<RunnerStream> stream, std::chrono::milliseconds patience, const Call& call,
      std::chrono::milliseconds killed = std::chrono::milliseconds(10'000));
  virtual ~RunnerLink() = default;  // no call of it is running

  // The verbs of backend.h. When contact is lost, an exec or a change that may have begun throws ISOGATE_LOST, a
  // read or a listing that may have delivered something BrokenOff, and any other call ISOGATE_UNAVAILABLE: it may
  // be repeated. A call that does not end within ten seconds of its cancellation ends the connection; for an exec
  // the time is `killed` of connect(). While the stream is away, the call ends without the connection; but if a part
  // of its request is sent, it waits until the stream is back or has ended.
  virtual void exec(const Call& call, const isogate_exec_request& request, isogate_exec_result& result) = 0;
  virtual void read(const Call& call, const isogate_file_request& request, isogate_entry& entry) = 0;
  virtual uint64_t write(const Call& call, const isogate_file_request& request) = 0;
  virtual void list(const Call& call, const isogate_file_request& request, const EntrySink& sink) = 0;
  virtual void stat(const Call& call, const isogate_file_request& request, isogate_entry& entry) = 0;
  virtual void mkdir(const Call& call, const isogate_file_request& request) = 0;
  virtual void move(const Call& call, const isogate_file_request& request) = 0;
  virtual void remove(const Call& call, const isogate_file_request& request) = 0;
  virtual void evidence(const Call& call, const isogate_evidence_request& request, isogate_evidence& out) = 0;
  // How much disk the workspace uses, and may use. ISOGATE_UNSUPPORTED with a runner without a limit.
  virtual void disk_use(const Call& call, isogate_disk_use& out) = 0;
  // When contact is lost after it began, it throws ISOGATE_IO: changes since then are not known, so it is not
  // restarted silently.
  virtual void watch(const Call& call, const isogate_file_request& request) = 0;
  // start() and rejoin() of kept_exec.h.
  virtual void start_kept(const Call& call, const isogate_exec_request& request,
                          const isogate_kept_exec& kept, isogate_exec_result& result) = 0;
  virtual void rejoin(const Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
                      isogate_exec_result& result) = 0;
  // connect() of backend.h.
  virtual void connect_to_port(const Call& call, const isogate_connect_request& request) = 0;

  // Whether the runner replies within `patience`. One that cannot start programs may still reply: prove().
  virtual bool ping(std::chrono::milliseconds patience) = 0;
  // Whether the runner starts a program of its own within `patience`, as it would a tenant's, sees it end and
  // reaps it. It costs what an exec costs, about 1 ms.
  virtual bool prove(std::chrono::milliseconds patience) = 0;
  // Stays true once the end of an exec is not known, or an exec left something behind. The backend then ends
  // the container or pod before anything else runs in it.
  [[nodiscard]] virtual bool spent() const = 0;

  struct Peer {
    uint32_t pid = 0, uid = 0;  // as the runner reports them
    bool is_init = false, has_pty = false;
    std::string build;
  };
  [[nodiscard]] virtual const Peer& peer() const = 0;
  // False once contact is lost, even while no call was running; why() then gives the reason.
  [[nodiscard]] virtual bool alive() const = 0;
  [[nodiscard]] virtual std::string why() const = 0;
  // Ends the connection: running calls throw as above.
  virtual void close(const std::string& why) = 0;
};

// The first 16 KiB of a file in the runner's own view, such as /proc/sys/kernel/random/boot_id for the evidence
// of a virtual machine. Throws what read() throws.
std::string read_text(RunnerLink& link, const Call& call, std::string_view path);

}  // namespace isogate::sdk
