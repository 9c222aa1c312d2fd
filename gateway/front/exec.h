// One exec: admitted, journalled, handed to its backend with fresh pipes, its output carried, its one
// outcome told. The same for a whole answer and for a stream; they differ in the Output they pass.
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

#include "gateway/front/api_error.h"
#include "gateway/front/app.h"
#include "gateway/front/killer.h"
#include "isogate/backend.h"

namespace isogate::front {

struct ExecSpec {
  std::string tenant, agent, request_id;
  std::vector<std::string> argv;
  std::string shown;  // short and printable, for the journal
  std::vector<std::pair<std::string, std::string>> env;
  std::string cwd, user;
  std::shared_ptr<const std::string> stdin_bytes;  // null: no stdin
  double timeout_sec = 0;
  isogate_limits limits{};
  std::optional<std::string> artifact_dir, backend;
  std::optional<uint32_t> min_isolation;

  [[nodiscard]] uint64_t bytes() const;  // of what it has from the request
};

struct Artifact {
  std::string name;  // below artifact_dir
  uint64_t size = 0;
};

struct ExecAnswer {
  std::string exec_id, outcome, backend;
  std::optional<int32_t> exit_code;  // none: unknown
  int32_t signal = 0;
  uint32_t isolation = 0;
  bool isolation_known = true;  // false: it is what its sandbox has, and where the program ran was not proven
  uint64_t stdout_bytes = 0, stderr_bytes = 0;
  double duration_ms = 0, cpu_ms = 0;
  uint64_t max_rss_bytes = 0;
  bool left_behind = false;  // something it started could not be ended in time
  bool with_artifacts = false;
  std::vector<Artifact> artifacts;
  std::string artifact_prefix;  // + name = path; once, since a directory's name may be 4,095 bytes
  std::string message;          // why, when unknown; what is missing of the artifacts
};

// Where the bytes go. Both calls may wait: the program is then held by its full pipe.
class Output {
 public:
  virtual ~Output() = default;
  // The last before the program starts: when it throws, nothing was started.
  virtual boost::asio::awaitable<void> started(const ExecAnswer& so_far) = 0;
  // `error` tells stderr from stdout. `data` is valid until the first wait. An exception kills the exec.
  virtual boost::asio::awaitable<void> bytes(bool error, std::string_view data) = 0;
  // How many bytes it takes at a time.
  [[nodiscard]] virtual size_t at_a_time() const { return SIZE_MAX; }
  // True: further bytes of this stream are only counted; they are drained without being looked at.
  [[nodiscard]] virtual bool full(bool error) const = 0;
};

// Throws ApiError when nothing was started; once something may have been, there is an answer. Listings of
// artifacts are held in `memory`.
boost::asio::awaitable<ExecAnswer> run_exec(App& app, const ExecSpec& spec, Output& output, Killer& killer,
                                            MemoryShare& memory);

// "SIGKILL" and so on; "SIG42" for the nameless.
std::string signal_name(int signal);

}  // namespace isogate::front
