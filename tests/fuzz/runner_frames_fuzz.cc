// The frames of the runner protocol, whatever a client sends and however it is split.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sdk/runner_link/requests.h"
#include "tests/fuzz/require.h"

namespace isogate::sdk::link {
namespace {

struct Seen {
  std::vector<std::pair<uint64_t, std::string>> frames;
  std::string fault;
  bool operator==(const Seen&) const = default;
};

size_t total(const std::vector<std::pair<std::string, std::string>>& env) {
  size_t bytes = 0;
  for (const auto& [key, value] : env) bytes += key.size() + value.size();
  return bytes;
}

void look_at(const Frame& frame) {
  const std::string_view payload = frame.payload;
  if (frame.head.type == ISOGATE_RUNNER_EXEC) {
    ExecOrder order;
    if (!parse(payload, order)) return;
    size_t bytes = order.cwd.size() + order.user.size() + total(order.env);
    for (const auto& argument : order.argv) bytes += argument.size();
    require(bytes <= payload.size());
    require(order.too_many || (order.argv.size() == order.head.argc && order.env.size() == order.head.envc));
    require((order.head.flags & ISOGATE_RUNNER_EXEC_KEEP) == 0 || order.keep.grace_sec != 0);
    require(order.argv.size() + 2 * order.env.size() <= kMaxStrings);
  } else if (frame.head.type == ISOGATE_RUNNER_FILE) {
    FileOrder order;
    if (!parse(payload, order)) return;
    require(sizeof order.head + 12 + order.path.size() + order.path_to.size() + order.user.size() ==
            payload.size());
  } else if (frame.head.type == ISOGATE_RUNNER_EVIDENCE) {
    MeasureOrder order;
    if (parse(payload, order)) require(order.head.gateway_port <= 0xffff);
  } else if (frame.head.type == ISOGATE_RUNNER_REJOIN) {
    if (const auto asked = parse_rejoin(payload)) require(asked->reserved == 0);
  } else if (frame.head.type == ISOGATE_RUNNER_CONNECT) {
    if (const auto port = parse_connect(payload)) require(*port != 0);
  }
}

// `pieces`: how many bytes arrive at a time, repeated.
Seen decode(std::string_view bytes, std::string_view pieces) {
  Decoder decoder(Sender::kClient);
  Seen seen;
  size_t turn = 0;
  for (;;) {
    Frame frame;
    const Decoder::Next next = decoder.next(frame);
    if (next == Decoder::Next::kFault) {
      seen.fault = decoder.fault();
      require(!seen.fault.empty() && decoder.next(frame) == Decoder::Next::kFault);
      return seen;
    }
    if (next == Decoder::Next::kFrame) {
      require(frame.payload.size() == frame.head.size && check_head(frame.head, Sender::kClient) == nullptr);
      look_at(frame);
      const uint64_t head =
          uint64_t{frame.head.stream} << 32 | uint32_t{frame.head.type} << 16 | frame.head.flags;
      seen.frames.emplace_back(head, frame.payload);
      continue;
    }
    if (bytes.empty()) return seen;
    const auto room = decoder.room();
    require(!room.empty() && room.size() <= ISOGATE_RUNNER_MAX_REQUEST + sizeof frame.head);
    const size_t wanted =
        pieces.empty() ? SIZE_MAX : 1 + static_cast<unsigned char>(pieces[turn++ % pieces.size()]);
    const size_t size = std::min({room.size(), bytes.size(), wanted});
    bytes.copy(room.data(), size);
    bytes.remove_prefix(size);
    decoder.took(size);
  }
}

}  // namespace
}  // namespace isogate::sdk::link

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate::sdk::link;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view pieces = all.substr(0, std::min<size_t>(size, 4));
  const std::string_view bytes = all.substr(pieces.size());
  require(decode(bytes, pieces) == decode(bytes, {}));
  return 0;
}
