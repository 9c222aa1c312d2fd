// What a runner sends, read by the client: bytes of a stream that arrive in pieces, during calls of every
// kind. Nothing crashes or hangs, and nothing outlives the end of the stream.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "isogate/runner_link.hpp"
#include "isogate/runner_protocol.h"
#include "require.h"

namespace {

namespace sdk = isogate::sdk;

// Always ready; returns a HELLO, then the input in pieces of a size that the input chooses, then the end.
class Scripted final : public sdk::RunnerStream {
 public:
  Scripted(std::string_view bytes, size_t piece) : bytes_(bytes), piece_(piece) {
    isogate_runner_hello hello{};
    hello.magic = ISOGATE_RUNNER_MAGIC;
    hello.major = ISOGATE_RUNNER_MAJOR;
    hello.minor = ISOGATE_RUNNER_MINOR;
    hello.flags = ISOGATE_RUNNER_HAS_PTY;
    const isogate_runner_frame head{sizeof hello, ISOGATE_RUNNER_HELLO, 0, 0};
    hello_.append(reinterpret_cast<const char*>(&head), sizeof head);
    hello_.append(reinterpret_cast<const char*>(&hello), sizeof hello);
    greeting_ = hello_;
  }
  [[nodiscard]] int fd() const override {
    static const int ready = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    return ready;
  }
  ssize_t read_some(char* to, size_t size) override {
    std::string_view& from = greeting_.empty() ? bytes_ : greeting_;
    const size_t count = std::min({from.size(), size, &from == &greeting_ ? from.size() : piece_});
    std::memcpy(to, from.data(), count);
    from.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write_some(const char*, size_t size) override { return static_cast<ssize_t>(size); }
  void shutdown() override {}

 private:
  std::string hello_;
  std::string_view greeting_, bytes_;
  const size_t piece_;
};

bool is_path_below(std::string_view name) {
  const std::string around = "/" + std::string(name) + "/";
  return !name.empty() && name.size() <= 4095 && name.find('\0') == name.npos &&
         around.find("//") == around.npos && around.find("/./") == around.npos &&
         around.find("/../") == around.npos;
}

isogate_status take(void* count, const isogate_entry* entry) {
  require(is_path_below(sdk::view(entry->name)));
  require(entry->type >= 1 && entry->type <= 4 && entry->mode <= 07777 && entry->size <= INT64_MAX);
  return ++*static_cast<int*>(count) > 1000 ? ISOGATE_RESOURCE_EXHAUSTED : ISOGATE_OK;
}

enum class Way { kExec, kStart, kRejoin };

void exec(sdk::RunnerLink& link, const sdk::Call& call, int null, Way way) {
  const isogate_str argv[] = {sdk::str("true")};
  isogate_exec_request request{};
  request.argv = argv;
  request.argc = 1;
  request.stdin_fd = -1;
  request.stdout_fd = request.stderr_fd = null;
  request.control_fd = -1;
  request.exec_id = sdk::str("0123456789abcdef0123456789abcdef");
  isogate_exec_result result{};
  const isogate_kept_exec kept{sizeof kept, 1, -1, -1, way == Way::kRejoin ? null : -1};
  if (way == Way::kExec) link.exec(call, request, result);
  if (way == Way::kStart) link.start_kept(call, request, kept, result);
  if (way == Way::kRejoin) link.rejoin(call, request, kept, result);
  require(result.exit_code >= 0 && result.exit_code <= 255 && result.term_signal >= 0 &&
          result.term_signal <= 64);
}

void call_one(sdk::RunnerLink& link, const sdk::Call& call, unsigned kind, int null) {
  isogate_file_request request{};
  request.path = sdk::str("f");
  request.fd = null;
  request.complete_fd = -1;
  isogate_entry entry{};
  isogate_evidence evidence{};
  int count = 0;
  const isogate_entry_sink sink{&count, take};
  isogate_disk_use use{};
  switch (kind % 10) {
    case 0:
      return exec(link, call, null, Way::kExec);
    case 6:
      return exec(link, call, null, Way::kStart);
    case 7:
      return exec(link, call, null, Way::kRejoin);
    case 8:
      return link.disk_use(call, use);
    case 9:
      return link.watch(call, request);
    case 1:
      return link.list(call, request, sdk::EntrySink(sink));
    case 2:
      request.limit = UINT64_MAX;
      return link.read(call, request, entry);
    case 3:
      return link.stat(call, request, entry);
    case 4:
      return static_cast<void>(link.write(call, request));
    default:
      return link.evidence(call, {}, evidence);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const isogate_call abi{sizeof abi, -1, INT64_MAX, {nullptr, 0}};
  const sdk::Call call(abi);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  auto stream = std::make_unique<Scripted>(bytes, size_t{1} << (data[0] % 17));
  const auto link = sdk::RunnerLink::connect(std::move(stream), std::chrono::seconds(5), call);
  for (unsigned kind = data[1]; link->alive(); ++kind) {
    try {
      call_one(*link, call, kind, null);
    } catch (const sdk::Error& error) {
      require(error.status() != ISOGATE_OK && std::strlen(error.what()) > 0);
    }
  }
  return 0;
}
