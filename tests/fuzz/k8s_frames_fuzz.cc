// What a server sends on a WebSocket: the same bytes result however they are split, and no memory is
// allocated by the lengths that they claim. The end of a Kubernetes exec is read from such bytes, too.
#include <algorithm>
#include <cstdint>
#include <string>

#include "lib/net/websocket.h"
#include "plugins/k8s/client/exec_channel.h"
#include "tests/fuzz/require.h"

namespace {

using isogate::net::FrameReader;
using Event = FrameReader::Event;

struct Taken {
  std::string data, controls, why;
  size_t messages = 0;
  bool operator==(const Taken&) const = default;
};

// `room`: how much of a piece of data is read at once.
Taken take_apart(const std::string& bytes, bool takes_text, size_t piece, size_t room) {
  FrameReader reader(takes_text);
  Taken all;
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view in = std::string_view(bytes).substr(at, piece);
    const auto step = reader.next(in);
    require(step.taken <= in.size());
    at += step.taken;
    if (step.event == Event::kMore) {
      require(step.taken == in.size());
    } else if (step.event == Event::kBroken) {
      all.why = reader.why();
      require(reader.next(in).event == Event::kBroken);
      return all;
    } else if (step.event == Event::kData) {
      require(step.taken + step.data.size() <= in.size());
      const size_t size = std::min(room, step.data.size());
      if (step.begins) ++all.messages;
      all.data += step.data.substr(0, size);
      reader.took(size);
      at += size;
    } else {
      require(step.data.size() <= 125);
      all.controls += static_cast<char>('0' + static_cast<int>(step.event));
      all.controls += step.data;
    }
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const size_t all = std::max<size_t>(size, 1);
  std::string messages;
  for (const bool takes_text : {true, false}) {
    const Taken whole = take_apart(bytes, takes_text, all, all);
    require(take_apart(bytes, takes_text, 1, 1) == whole);
    require(take_apart(bytes, takes_text, 7, 3) == whole);
    require(take_apart(bytes, takes_text, all, 1) == whole);
    messages = whole.data;
  }
  for (const std::string& text : {bytes, messages}) (void)isogate::k8s::is_exec_status(text);
  return 0;
}
