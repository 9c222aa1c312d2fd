#include "plugins/common/run_own.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lib/fd.h"
#include "plugins/common/or_throw.h"

namespace isogate {

Ran run_own(sdk::RunnerLink& link, const std::vector<std::string>& argv, const sdk::Call& call) {
  Pipe out = or_throw(make_pipe());
  if (::fcntl(out.read.get(), F_SETFL, O_NONBLOCK) != 0) sdk::fail_with_errno("cannot read a pipe", errno);
  std::vector<isogate_str> words;
  for (const std::string& each : argv) words.push_back(sdk::str(each));
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.argv = words.data();
  request.argc = words.size();
  request.stdin_fd = request.stderr_fd = request.control_fd = -1;
  request.stdout_fd = out.write.get();
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  link.exec(call, request, result);
  out.write.reset();
  Ran ran;
  if ((result.flags & (ISOGATE_RESULT_KILLED | ISOGATE_RESULT_NOT_STARTED)) == 0 && result.term_signal == 0)
    ran.exit_code = result.exit_code;
  std::array<char, 4096> piece;
  for (ssize_t n = 0; (n = ::read(out.read.get(), piece.data(), piece.size())) > 0;)
    ran.out.append(piece.data(), static_cast<size_t>(n));
  return ran;
}

isogate_evidence measure_in(sdk::RunnerLink& link, const isogate_evidence_request& request,
                            const sdk::Call& call) {
  isogate_evidence found{};
  found.struct_size = sizeof found;
  link.evidence(call, request, found);
  return found;
}

}  // namespace isogate
