// What is read of a plugin before it may run: its ELF headers, and the description that a quarantined child
// sends, which may be the plugin's own bytes.
#include <cstdlib>
#include <string>

#include "gateway/host/plugin/description.h"
#include "gateway/host/plugin/elf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  auto elf = isogate::read_elf(bytes);
  if (elf.ok() && elf->exports.size() > 256) std::abort();
  auto description = isogate::unpack(bytes);
  if (description.ok() && !isogate::check(*description).ok()) std::abort();
  if (description.ok()) (void)isogate::to_json(*description);
  return 0;
}
