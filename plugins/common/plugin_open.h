// The checks of every backend whose sandboxes are directories of its host, before it opens one.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "isogate/backend.h"
#include "lib/error.h"
#include "lib/limits.h"

namespace isogate {

struct OpenCall {
  std::string id;
  bool attach_only;  // never create
};

// The limits of the specification. For limits that are not `enforced` here, ISOGATE_UNSUPPORTED
// names the settings, or they are left out with ISOGATE_OPEN_LIMITS_BEST_EFFORT.
Result<Limits> take_limits(const isogate_sandbox_spec& spec, const char* backend,
                           std::span<const uint32_t> enforced);

// The same without a refusal: as far as they are known and enforced here.
Limits wanted_limits(const isogate_sandbox_spec& spec, std::span<const uint32_t> enforced);

struct Asked {
  Limits limits;
  std::optional<Error> refusal;  // of a sandbox that is opened only to be closed: what its calls are answered
};
// What a specification asks for, where `checked` is the backend's answer. With ISOGATE_OPEN_ATTACH_ONLY a
// refusal is no failure: whatever is configured now, the sandbox can be ended.
Result<Asked> asked_of(const isogate_sandbox_spec& spec, const Result<Limits>& checked,
                       std::span<const uint32_t> enforced);

// ISOGATE_UNSUPPORTED where the specification has an option of this sandbox alone.
Result<void> refuse_options(const isogate_sandbox_spec& spec, const char* backend);
// The image of this sandbox alone, empty: none. ISOGATE_UNSUPPORTED for any other option.
Result<std::string> take_image(const isogate_sandbox_spec& spec, const char* backend);

// Refuses a specification with other flags than `known`, or with fields that these sources do not know.
Result<void> check_known(const isogate_sandbox_spec& spec, uint32_t known);

// Refuses a specification with anything unknown to these sources, and, with ISOGATE_SANDBOX_LOST or
// ISOGATE_NO_SANDBOX, an attach to a missing sandbox. Allocates nothing: no uid, no directory.
Result<OpenCall> check_open(const isogate_sandbox_spec& spec, const std::string& sandboxes_dir);

}  // namespace isogate
