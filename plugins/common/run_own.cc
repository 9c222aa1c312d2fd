#include "plugins/common/run_own.h"

#include <unistd.h>

#include <array>

#include "lib/fd.h"
#include "plugins/common/or_throw.h"

namespace isogate {

isogate_exec_result exec_own(sdk::RunnerLink& link, const std::vector<std::string>& argv,
                             const std::vector<std::pair<std::string, std::string>>& env, int stdout_fd,
                             const sdk::Call& call) {
  std::vector<isogate_str> words;
  for (const std::string& each : argv) words.push_back(sdk::str(each));
  std::vector<isogate_pair> pairs;
  for (const auto& [key, value] : env) pairs.push_back({sdk::str(key), sdk::str(value)});
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.argv = words.data();
  request.argc = words.size();
  request.env = pairs.data();
  request.envc = pairs.size();
  request.stdin_fd = request.stderr_fd = request.control_fd = -1;
  request.stdout_fd = stdout_fd;
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  link.exec(call, request, result);
  return result;
}

Ran run_own(sdk::RunnerLink& link, const std::vector<std::string>& argv, const sdk::Call& call) {
  Pipe out = or_throw(make_pipe(NonBlocking::kRead));
  const isogate_exec_result result = exec_own(link, argv, {}, out.write.get(), call);
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
