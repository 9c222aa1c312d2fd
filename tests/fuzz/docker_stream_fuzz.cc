// What an Engine sends on a hijacked connection: the same bytes result however they are split, and no memory
// is allocated by the lengths that they claim. Addresses and versions come from outside, too.
#include <algorithm>
#include <cstdint>
#include <string>

#include "plugins/docker/client/engine_address.h"
#include "plugins/docker/client/engine_error.h"
#include "plugins/docker/client/engine_stream.h"
#include "tests/fuzz/require.h"

namespace {

using isogate::docker::Demultiplexer;

struct Taken {
  std::string out;
  bool broken, whole;
  bool operator==(const Taken&) const = default;
};

Taken take_apart(const std::string& bytes, size_t piece, size_t room) {
  Demultiplexer demultiplexer;
  std::string all, out(room, '\0');
  for (size_t at = 0; at < bytes.size() && !demultiplexer.broken();) {
    const size_t size = std::min(piece, bytes.size() - at);
    const auto step = demultiplexer.feed(bytes.data() + at, size, out.data(), room);
    require(step.taken <= size && step.given <= room && step.given <= step.taken);
    require(step.taken > 0);  // there was room, so it must continue
    all.append(out, 0, step.given);
    at += step.taken;
  }
  return {all, demultiplexer.broken(), demultiplexer.between_frames()};
}

void read_address(const std::string& text) {
  try {
    const auto address = isogate::docker::parse_address(text, "the test");
    const auto again = isogate::docker::parse_address(address.text(), "the test");
    require(again.unix_path == address.unix_path && again.host == address.host && again.port == address.port);
  } catch (const isogate::docker::NetError& error) {
    require(error.status() == ISOGATE_INVALID_ARGUMENT);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const Taken whole = take_apart(bytes, size, std::max<size_t>(size, 1));
  require(take_apart(bytes, 1, 1) == whole);
  require(take_apart(bytes, 7, 3) == whole);
  require(take_apart(bytes, size, 1) == whole);
  read_address(bytes);
  for (const char c : isogate::docker::one_line(bytes, size)) require(static_cast<unsigned char>(c) >= ' ');
  return 0;
}
