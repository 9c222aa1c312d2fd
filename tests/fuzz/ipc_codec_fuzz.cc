// Records between front and backend host, in both directions, and the items of listings. An accepted record
// is the same when it is encoded again.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gateway/ipc/codec.h"

namespace {

using namespace isogate::ipc;

void require(bool condition) {
  if (!condition) std::abort();
}

void decode_as_host(std::string_view bytes) {
  // As many descriptors as the record announces, so that its fields are parsed.
  static const int event = isogate::make_event()->release();
  std::vector<isogate::Fd> fds;
  for (int bits = bytes.size() > 2 ? bytes[2] & 0x1f : 0; bits != 0; bits &= bits - 1)
    fds.emplace_back(::dup(event));
  auto call = decode_call(bytes, std::move(fds));
  if (call.ok()) require(encode(*call).bytes == bytes);
}

void decode_as_front(std::string_view bytes) {
  auto message = decode_from_host(bytes);
  if (!message.ok()) return;
  if (const auto* reply = std::get_if<Reply>(&*message)) require(encode(*reply).bytes == bytes);
  if (const auto* hello = std::get_if<Hello>(&*message)) require(encode(*hello).bytes == bytes);
}

template <typename Take>
void take_items(std::string_view bytes, Take take) {
  for (std::string_view rest = bytes;;) {
    size_t before = rest.size();
    auto item = take(rest);
    if (!item.ok() || !item->has_value()) return;
    require(rest.size() < before);
    require(encode_item(**item) == bytes.substr(bytes.size() - before, before - rest.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      decode_as_host(bytes);
      break;
    case 1:
      decode_as_front(bytes);
      break;
    case 2:
      take_items(bytes, take_entry);
      break;
    default:
      take_items(bytes, take_found);
  }
  return 0;
}
