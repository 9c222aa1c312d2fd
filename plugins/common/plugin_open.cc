#include "plugins/common/plugin_open.h"

#include "isogate/backend.hpp"
#include "plugins/common/or_throw.h"
#include "runner/files/workspace.h"
#include "runner/files/workspace_path.h"

namespace isogate {
namespace {

Result<void> check_present(const std::string& sandboxes_dir, const std::string& id, bool known) {
  auto present = Workspace::exists(sandboxes_dir, id);
  if (!present) return own_error(present.error());
  if (*present) return {};
  if (known)
    return Error{ISOGATE_SANDBOX_LOST, 0,
                 "the workspace of this sandbox is gone; DELETE the sandbox to begin with an empty one"};
  return Error{ISOGATE_NO_SANDBOX, 0, "there is no such sandbox"};
}

}  // namespace

Result<Limits> take_limits(const isogate_sandbox_spec& spec, const char* backend,
                           std::span<const uint32_t> enforced) {
  const std::string who = std::string("backend `") + backend + "` ";
  const bool best_effort = (spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0;
  auto limits =
      Limits::take(spec.limits, spec.limit_count, best_effort ? UnknownLimit::kSkip : UnknownLimit::kRefuse);
  if (!limits) return limits;
  if (const std::string why = limits->too_low(); !why.empty())
    return invalid(who + "refuses its limits: " + why);
  const std::string beside = limits->settings_beside(enforced);
  if (!beside.empty() && !best_effort)
    return unsupported(
        who + "cannot limit " + beside +
        " of a sandbox: leave it out, write limits.mode: best_effort, or choose another backend");
  return limits->only(enforced);
}

Limits wanted_limits(const isogate_sandbox_spec& spec, std::span<const uint32_t> enforced) {
  auto wanted = Limits::take(spec.limits, spec.limit_count, UnknownLimit::kSkip);
  return wanted ? wanted->only(enforced) : Limits();
}

Result<Asked> asked_of(const isogate_sandbox_spec& spec, const Result<Limits>& checked,
                       std::span<const uint32_t> enforced) {
  if (checked) return Asked{*checked, std::nullopt};
  if ((spec.flags & ISOGATE_OPEN_ATTACH_ONLY) == 0) return checked.error();
  return Asked{wanted_limits(spec, enforced), checked.error()};
}

Result<void> refuse_options(const isogate_sandbox_spec& spec, const char* backend) {
  if (spec.option_count == 0) return {};
  return unsupported(std::string("backend `") + backend +
                     "` takes no options of a single sandbox, such as an image of its own");
}

Result<std::string> take_image(const isogate_sandbox_spec& spec, const char* backend) {
  std::string image;
  for (uint64_t i = 0; i < spec.option_count; ++i) {
    const isogate_pair& option = spec.options[i];
    if (sdk::view(option.key) != ISOGATE_OPTION_IMAGE || !image.empty() || sdk::view(option.value).empty())
      return unsupported(std::string("backend `") + backend + "` knows no option `" +
                         std::string(sdk::view(option.key)) + "` of a single sandbox");
    image = sdk::view(option.value);
  }
  return image;
}

Result<void> check_known(const isogate_sandbox_spec& spec, uint32_t known) {
  const std::string whose = "the sandbox's specification has unknown ";
  if ((spec.flags & ~known) != 0) return unknown_bits(whose + "flags", spec.flags & ~known);
  return spec.reserved == 0 ? Result<void>() : unknown_bits(whose + "fields", spec.reserved);
}

Result<OpenCall> check_open(const isogate_sandbox_spec& spec, const std::string& sandboxes_dir) {
  constexpr uint32_t kFlags = ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_LIMITS_BEST_EFFORT | ISOGATE_OPEN_KNOWN;
  if (auto fits = check_known(spec, kFlags); !fits) return fits.error();
  if (spec.egress > ISOGATE_EGRESS_ALLOW) return invalid("the sandbox's specification has an unknown egress");
  OpenCall call{std::string(sdk::view(spec.sandbox_id)), false};
  if (!is_sandbox_id(call.id)) return malformed_id(call.id);
  if (spec.handle.len != 0 && sdk::view(spec.handle) != call.id)
    return Error{ISOGATE_SANDBOX_LOST, 0, "the handle is not one of this sandbox"};
  const bool known = (spec.flags & ISOGATE_OPEN_KNOWN) != 0;
  call.attach_only = known || (spec.flags & ISOGATE_OPEN_ATTACH_ONLY) != 0;
  if (!call.attach_only) return call;
  if (auto present = check_present(sandboxes_dir, call.id, known); !present) return present.error();
  return call;
}

}  // namespace isogate
