#include "plugins/namespace/filter.h"

#include "runner/syscall_filter.h"

namespace isogate::ns {

Result<std::vector<sock_filter>> make_filter(Profile profile) {
  return make_sandbox_filter(profile == Profile::kDebug);
}

}  // namespace isogate::ns
