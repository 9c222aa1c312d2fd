// Breaks the first rule of the ABI: its entry throws.
#include <stdexcept>

#include "isogate/backend.h"

extern "C" __attribute__((visibility("default"))) const isogate_plugin* isogate_plugin_entry(uint32_t,
                                                                                             uint32_t) {
  throw std::runtime_error("across the border");
}
