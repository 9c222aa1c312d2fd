// For as long as the library isogate_runner_link does not exist.
#include <cerrno>

#include "isogate/runner_link.hpp"

namespace isogate::sdk {

ssize_t RunnerStream::write_with(const char*, size_t, const int*, size_t) { return errno = ENOTSUP, -1; }

}  // namespace isogate::sdk
