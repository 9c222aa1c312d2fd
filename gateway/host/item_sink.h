// Receives the items of a listing: writes them to a small buffer, then to the body's descriptor. Waits
// for the descriptor or for cancellation, whichever comes first. Memory is bounded by the buffer. One
// call, one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/ipc/messages.h"
#include "lib/error.h"

namespace isogate {

// An entry that `function` of a plugin filled in, whose name has been checked. An unknown type, perhaps of a
// later version, becomes ISOGATE_ENTRY_OTHER. A defect of the plugin: more bytes than a file can have; of one
// that was read they may be ISOGATE_SIZE_UNKNOWN.
Result<ipc::Entry> entry_of(const isogate_entry& entry, std::string_view function, std::string name = {});

class ItemSink {
 public:
  ItemSink(int out, int cancel_fd);  // sets O_NONBLOCK on `out`

  // For the plugin; ctx is the sink. Items are checked: a name is a relative path without `..`, of one
  // component unless the listing is recursive, and a sandbox has an id of ours. A failure is kept, and
  // returned to the next call.
  isogate_entry_sink entries(bool recursive);
  isogate_record_sink records();

  // After the plugin's function returned `called`: the failure of an item, else of the function, else of
  // writing the rest. Of a listing that is to be marked as truncated (backend.h) the rest is written first.
  Result<void> finish(Result<void> called);

 private:
  static isogate_status add_entry(void* ctx, const isogate_entry* entry) noexcept;
  static isogate_status add_record(void* ctx, const isogate_record* record) noexcept;
  isogate_status add(Result<std::string> item);
  Result<void> flush();

  int out_, cancel_;
  bool recursive_ = false;
  std::string buffer_;
  std::optional<Error> failure_;
};

}  // namespace isogate
