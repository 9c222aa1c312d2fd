// Configuration files and documents: every mistake is told, and what is accepted says the same when it is
// written out and read again.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "gateway/config/load.h"
#include "runner/fd.h"
#include "tests/fuzz/require.h"

namespace {

// A file with these bytes, for as long as the descriptor is open.
isogate::Fd memory_file(const uint8_t* data, size_t size) {
  isogate::Fd file(::memfd_create("config", MFD_CLOEXEC));
  require(file && ::write(file.get(), data, size) == static_cast<ssize_t>(size));
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate;
  const Fd file = memory_file(data, size);
  LoadOptions options;
  options.file = "/proc/self/fd/" + std::to_string(file.get());
  const auto loaded = load_config(options);
  if (loaded.ok()) {
    const auto again = config_from_json(loaded->document);
    require(again.ok() && config_to_json(*again) == loaded->document);
  } else {
    require(!loaded.error().message.empty());
  }
  const auto document = config_from_json(std::string(reinterpret_cast<const char*>(data), size));
  if (document.ok()) {
    const std::string text = config_to_json(*document);
    const auto again = config_from_json(text);
    require(again.ok() && config_to_json(*again) == text);
  }
  return 0;
}
