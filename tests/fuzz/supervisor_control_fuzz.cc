// What a child sends over its control socket: each line of the input is one raw record. The supervisor
// accepts known messages, up to a rate, and closes the channel at the first invalid one.
#include <sys/socket.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "gateway/ipc/channel.h"
#include "gateway/supervisor/control.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;

bool known(const std::string& type) {
  static const std::set<std::string> all = {"ready",    "drained",        "fatal",     "failed", "stuck",
                                            "reloaded", "reload_refused", "violation", "serving"};
  return all.contains(type);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  auto pair = ipc::make_socket_pair();
  require(pair.ok());
  supervisor::ControlChannel channel(std::move(pair->own));
  int taken = 0;
  for (bool open = true; open && !rest.empty();) {
    const std::string_view record = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(record.size() + 1, rest.size()));
    if (::send(pair->theirs.get(), record.data(), record.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) continue;
    const auto said = channel.receive();
    open = said.ok();
    require(open == (channel.fd() >= 0));
    if (!open || !said->has_value()) continue;
    ++taken;
    require(known((*said)->type));
    require(record.size() <= ipc::kMaxInlineBytes + 1);
  }
  require(taken <= 2 * supervisor::ControlChannel::kBurst);
  return 0;
}
