#include "plugins/docker/run_own.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "plugins/docker/background.h"
#include "plugins/docker/profile.h"
#include "plugins/docker/random_hex.h"
#include "runner/fd.h"

namespace isogate::docker {

Ran run_own(sdk::RunnerLink& link, const std::vector<std::string>& arguments, std::chrono::milliseconds most,
            const sdk::Call& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) sdk::fail_with_errno("cannot make a pipe", errno);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const std::string id = random_hex(16);
  std::vector<isogate_str> argv{sdk::str(kRunner)};
  for (const std::string& each : arguments) argv.push_back(sdk::str(each));
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.exec_id = sdk::str(id);
  request.argv = argv.data();
  request.argc = argv.size();
  request.stdin_fd = request.stderr_fd = request.control_fd = -1;
  request.stdout_fd = writer.get();
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  const Bounded bounded(most, call.cancel_fd());
  link.exec(bounded.call(), request, result);
  call.check();
  if ((result.flags & (ISOGATE_RESULT_KILLED | ISOGATE_RESULT_NOT_STARTED)) != 0 || result.term_signal != 0)
    throw sdk::Error(ISOGATE_UNAVAILABLE, "the runner in the sandbox's container runs nothing");
  writer.reset();
  if (::fcntl(reader.get(), F_SETFL, O_NONBLOCK) != 0) sdk::fail_with_errno("cannot read a pipe", errno);
  Ran ran{result.exit_code, {}};
  std::array<char, 4096> piece;
  for (ssize_t n = 0; (n = ::read(reader.get(), piece.data(), piece.size())) > 0;)
    ran.out.append(piece.data(), static_cast<size_t>(n));
  return ran;
}

}  // namespace isogate::docker
