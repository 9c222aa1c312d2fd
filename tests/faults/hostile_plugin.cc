// A backend that uses its host's sockets itself and violates their protocol, as its configuration says. It
// runs nothing, isolates nothing, and reports that.
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"
#include "isogate/backend.hpp"

namespace sdk = isogate::sdk;
namespace ipc = isogate::ipc;

namespace {

constexpr int kControl = 3;

bool carries_records(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

// The one socket of records that is not the supervisor's.
int socket_to_front() {
  for (int fd = kControl + 1; fd < 1024; ++fd)
    if (carries_records(fd)) return fd;
  return -1;
}

std::string reply_nobody_asked_for() {
  ipc::Reply reply;
  reply.id = 1u << 30;
  reply.status = ISOGATE_OK;
  return ipc::encode(reply).bytes;
}

struct Wrong {
  int socket;
  std::string record;
  std::vector<int> fds;
};

Wrong wrong_in(std::string_view how) {
  const int front = socket_to_front();
  const std::vector<int> many(60, kControl);
  if (how == "hello") return {front, ipc::encode(ipc::Hello{}).bytes, {}};
  if (how == "reply") return {front, reply_nobody_asked_for(), {}};
  if (how == "descriptors") return {front, ipc::encode(ipc::Hello{}).bytes, many};
  if (how == "malformed") return {front, std::string(60000, 'x'), {}};
  if (how == "large") return {front, std::string(16 << 20, 'x'), {}};
  if (how == "ready") return {kControl, R"({"type":"ready"})", {}};
  if (how == "ready_descriptors") return {kControl, R"({"type":"ready"})", many};
  if (how == "ready_large")
    return {kControl, R"({"type":"ready","message":")" + std::string(15 << 20, 'x') + "\"}", {}};
  return {-1, {}, {}};
}

// Who signals it waits until somebody reads it, if it is an eventfd that both have.
void block_signals_of(int event) {
  const uint64_t full = UINT64_MAX - 1;
  [[maybe_unused]] const bool set = ::fcntl(event, F_SETFL, 0) == 0 && ::write(event, &full, sizeof full) > 0;
  ::pause();
}

class HostileSandbox final : public sdk::Sandbox {
 public:
  explicit HostileSandbox(bool blocks) : blocks_(blocks) {}
  void exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result&) override {
    if (blocks_) block_signals_of(call.cancel_fd());
    [[maybe_unused]] const bool written = call.write_all(request.stdout_fd, "half\n");
  }
  void read(const sdk::Call&, const isogate_file_request&, isogate_entry&) override {}
  void list(const sdk::Call&, const isogate_file_request&, const sdk::EntrySink&) override {}

 private:
  const bool blocks_;
};

class HostileBackend final : public sdk::Backend {
 public:
  HostileBackend(sdk::Host, std::string_view config) {
    const size_t at = config.find("\"how\":\"");
    if (at != config.npos) how_ = config.substr(at + 7, config.find('"', at + 7) - at - 7);
  }
  // By then the front has this host's first record.
  void probe(const sdk::Call&, isogate_probe& probe) override {
    probe.verdict = ISOGATE_PROBE_AVAILABLE;
    probe.locality = ISOGATE_LOCALITY_PROCESS;
    const Wrong wrong = wrong_in(how_);
    if (wrong.socket < 0) return;
    std::thread([wrong] {
      while (ipc::send_record(wrong.socket, wrong.record, wrong.fds, ipc::Wait::kBlock)) {
      }
    }).detach();
  }
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call&, const isogate_sandbox_spec&,
                                     isogate_sandbox_info&) override {
    return std::make_unique<HostileSandbox>(how_ == "event");
  }
  std::unique_ptr<sdk::Sandbox> attach(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                       isogate_sandbox_info& info) override {
    return open(call, spec, info);
  }
  void enumerate(const sdk::Call&, const sdk::RecordSink& sink) override {
    if (how_ != "ids") return;
    for (int i = 0; i < 3'000'000; ++i) {
      std::string number = std::to_string(i);
      const std::string id = "isg-" + std::string(26 - number.size(), 'a') + number;
      sink.add(id, std::string(200, 'h'), ISOGATE_SANDBOX_RUNS);
    }
  }

 private:
  std::string how_;
};

}  // namespace

ISOGATE_EXPORT_BACKEND(
    HostileBackend, HostileSandbox, .id = "com.example.hostile", .version = "1.0.0",
    .summary = "speaks its channels wrongly",
    .config_schema_json =
        R"({"type":"object","additionalProperties":false,"properties":{"how":{"type":"string"}}})")
