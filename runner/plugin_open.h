// What every backend whose sandboxes are directories of its host makes sure of before it opens one.
#pragma once

#include <string>

#include "isogate/backend.h"
#include "runner/error.h"

namespace isogate {

struct OpenCall {
  std::string id;
  bool attach_only;  // never create
};

// Refuses a specification with anything in it that these sources do not know, and with ISOGATE_SANDBOX_LOST
// or ISOGATE_NO_SANDBOX to attach to what is not there. Takes nothing: no uid, no directory.
Result<OpenCall> check_open(const isogate_sandbox_spec& spec, const std::string& sandboxes_dir);

}  // namespace isogate
