// A plugin's structs, copied into the host's memory: magic and versions first, then only the bytes that
// struct_size covers; the rest is zero. The pointers inside are the plugin's and are trusted: only call
// this where a crash is acceptable, or after a describing child survived it. [any]
#pragma once

#include <algorithm>
#include <cstring>

#include "gateway/host/plugin/description.h"
#include "isogate/backend.h"

namespace isogate {

// For structs whose first member is struct_size.
template <typename T>
T import_struct(const T* from) {
  uint32_t size = 0;
  std::memcpy(&size, from, sizeof size);
  T own{};
  std::memcpy(static_cast<void*>(&own), from, std::min<size_t>(size, sizeof own));
  own.struct_size = sizeof own;
  return own;
}

struct ImportedPlugin {
  Description description;  // without path and sha256
  isogate_backend_api api{};
};

// `name` is how messages call it before its id is known.
Result<ImportedPlugin> import_plugin(const isogate_plugin* plugin, const std::string& name);

}  // namespace isogate
