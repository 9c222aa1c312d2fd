// Sessions that outlive their streams: whatever the other side sends, however it is split, and two sides that
// communicate over streams which are cut anywhere.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "runner/agent/link/sessions.h"
#include "sdk/runner_link/exchange.h"
#include "sdk/runner_link/resumable_stream.h"
#include "tests/fuzz/require.h"

namespace isogate {
namespace {

using sdk::link::Exchange;

struct Heard {
  std::string bytes;
  bool faulty = false, over = false;
  bool operator==(const Heard&) const = default;
};

// `pieces`: how many bytes arrive at a time, repeated.
Heard hear(std::string bytes, std::string_view pieces) {
  Exchange exchange;
  exchange.add("what was said before");
  exchange.next();
  Heard heard;
  size_t turn = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t most =
        pieces.empty() ? SIZE_MAX : 1 + static_cast<unsigned char>(pieces[turn++ % pieces.size()]);
    const size_t size = std::min(most, bytes.size() - at);
    const size_t left = exchange.receive({bytes.data() + at, size});
    require(left <= size);
    heard.bytes.append(bytes, at, left);
    at += size;
  }
  require(exchange.received() == heard.bytes.size() && exchange.kept() <= 20);
  heard.faulty = exchange.fault() != nullptr;
  heard.over = exchange.is_over();
  require(!(heard.faulty && heard.over));
  return heard;
}

void look_at_resume_request(std::string_view bytes) {
  isogate_runner_resume request{};
  isogate_runner_resumed answer{};
  bytes.copy(reinterpret_cast<char*>(&request), sizeof request);
  bytes.copy(reinterpret_cast<char*>(&answer), sizeof answer);
  if (agent::fault_of(request) == nullptr)
    require(request.magic == ISOGATE_RUNNER_RESUME_MAGIC && request.version == ISOGATE_RUNNER_RESUME_VERSION);
  if (sdk::link::fault_of(answer, request) == nullptr && answer.status == ISOGATE_RUNNER_RESUMED) {
    const std::string none(sizeof request.session, '\0');
    const bool is_new = std::memcmp(request.session, none.data(), none.size()) == 0;
    require(is_new ? std::memcmp(answer.session, none.data(), none.size()) != 0
                   : std::memcmp(answer.session, request.session, sizeof request.session) == 0);
  }
}

struct Side {
  Exchange exchange;
  std::string to_say, heard;
  size_t said = 0;
};

// At most that many bytes arrive; as many more are accepted and lost.
void pass(Side& from, Side& to, size_t arrive, size_t lost) {
  while (arrive > 0 || lost > 0) {
    const std::string_view next = from.exchange.next();
    if (next.empty()) return;
    std::string bytes(next.substr(0, arrive > 0 ? arrive : lost));
    from.exchange.took(bytes.size());
    if (arrive == 0) {
      lost -= bytes.size();
      continue;
    }
    arrive -= bytes.size();
    const size_t left = to.exchange.receive({bytes.data(), bytes.size()});
    require(to.exchange.fault() == nullptr);
    to.heard.append(bytes, 0, left);
    require(to.heard.size() <= from.said && from.to_say.starts_with(to.heard));
  }
}

void talk(std::string_view script) {
  Side a, b;
  for (uint32_t i = 0; i < 40'000; ++i) a.to_say += static_cast<char>(i * 2654435761u >> 13);
  b.to_say.assign(a.to_say.rbegin(), a.to_say.rend());
  for (size_t i = 0; i + 4 <= script.size(); i += 4) {
    const auto at = [&](size_t n) { return static_cast<size_t>(static_cast<unsigned char>(script[i + n])); };
    Side &from = (at(0) & 1) != 0 ? a : b, &to = (at(0) & 1) != 0 ? b : a;
    const size_t size = std::min(at(1) * 16, from.to_say.size() - from.said);
    from.exchange.add(std::string_view(from.to_say).substr(from.said, size));
    from.said += size;
    pass(from, to, at(2) * 8, (at(0) & 2) != 0 ? at(3) * 8 : 0);
    if ((at(0) & 2) != 0)
      require(a.exchange.resume(b.exchange.received()) && b.exchange.resume(a.exchange.received()));
  }
  require(a.exchange.resume(b.exchange.received()) && b.exchange.resume(a.exchange.received()));
  pass(a, b, SIZE_MAX, 0);
  pass(b, a, SIZE_MAX, 0);
  require(b.heard.size() == a.said && a.heard.size() == b.said);
}

}  // namespace
}  // namespace isogate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view pieces = all.substr(0, std::min<size_t>(size, 4));
  const std::string_view bytes = all.substr(pieces.size());
  look_at_resume_request(bytes);
  require(hear(std::string(bytes), pieces) == hear(std::string(bytes), {}));
  talk(all.substr(0, 4096));
  return 0;
}
