// What the supervisor sends to its children: after two bytes each line of the input is one record, with or
// without a descriptor. The front and a backend host accept well-formed orders and skip all others; the
// result is the same when the supervisor repeats them; an end is reported once.
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/config/load.h"
#include "gateway/front/control.h"
#include "gateway/host/orders.h"
#include "gateway/ipc/channel.h"
#include "gateway/supervisor/control.h"
#include "isogate/backend.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;

bool send(int socket, std::string_view record, size_t descriptors) {
  std::vector<Fd> owned;
  std::vector<int> fds;
  for (size_t i = 0; i < descriptors; ++i) fds.push_back(owned.emplace_back(::eventfd(0, EFD_CLOEXEC)).get());
  return ipc::send_record(socket, record, fds, ipc::Wait::kDont).ok();
}

// --- the front's first record

Result<front::StartOrder> received(std::string_view record, size_t sockets) {
  auto pair = ipc::make_socket_pair();
  require(pair.ok() && send(pair->theirs.get(), record, sockets));
  return front::receive_start(pair->own.get());
}

std::string said(const front::StartOrder& order) {
  return supervisor::front_start_message({&order.config, order.local_key_sha256, order.state_dir,
                                          order.peer_uids, order.listeners, order.kinds, &order.tls});
}

void look_at_front_start(std::string_view record, size_t sockets) {
  const auto order = received(record, sockets);
  if (!order.ok()) return require(!order.error().message.empty());
  require(order->sockets.size() == sockets && order->listeners.size() == sockets);
  const std::string text = said(*order);
  const auto again = received(text, sockets);
  require(again.ok() && said(*again) == text);
}

// --- a host's

std::string said(const HostOrder& order) {
  return supervisor::host_start_message({&order.config, &order.backend, order.generation,
                                         order.places.sandboxes_dir, order.places.uids_dir, order.copy_dir,
                                         order.places.probe_only});
}

void look_at_host_start(const std::string& record) {
  const auto order = parse_start(record);
  if (!order.ok()) return require(!order.error().message.empty());
  // The host does not get the other backends and the keys.
  const auto own = parse_start(said(*order));
  require(own.ok() && own->backend.name == order->backend.name && own->generation == order->generation);
  require(own->config.backends.size() == 1 && own->config.keys.empty());
  const std::string text = said(*own);
  const auto again = parse_start(text);
  require(again.ok() && said(*again) == text);
}

void look_at_stop(const std::string& record) {
  const auto order = parse_close(record);
  require(!order || order->mode == ISOGATE_CLOSE_STOP || order->mode == ISOGATE_CLOSE_DETACH);
  const auto detach = parse_close(supervisor::host_stop_message(true));
  require(detach && detach->now && detach->mode == ISOGATE_CLOSE_DETACH);
  const auto stop = parse_close(supervisor::host_stop_message(false));
  require(stop && stop->now && stop->mode == ISOGATE_CLOSE_STOP);
  const auto later = parse_close(supervisor::host_drain_message());
  require(later && !later->now && later->mode == ISOGATE_CLOSE_STOP);
}

// --- what the front receives then

struct Told {
  size_t orders = 0, adopted = 0, ended = 0;
};

front::ControlHooks hooks_of(Told& told) {
  front::ControlHooks hooks;
  hooks.host_up = [&told](const std::string&, front::HostIdentity, Fd socket) {
    require(static_cast<bool>(socket));
    ++told.orders;
  };
  hooks.host_down = [&told](const std::string&, uint64_t, const std::string&, bool, bool) { ++told.orders; };
  hooks.adopt = [&told](const Config& config, const std::string&, const TlsMaterial&) {
    require(config_from_json(config_to_json(config)).ok());
    ++told.adopted;
    return Result<void>();
  };
  hooks.adopted = [] {};
  hooks.drain = [&told](unsigned) { ++told.orders; };
  hooks.ended = [&told] { ++told.ended; };
  return hooks;
}

void look_at_orders(const std::vector<std::string>& records, size_t with_descriptor) {
  auto pair = ipc::make_socket_pair();
  require(pair.ok());
  size_t sent = 0;
  for (size_t i = 0; i < records.size(); ++i)
    sent += send(pair->theirs.get(), records[i], with_descriptor >> (i % 8) & 1) ? 1 : 0;
  ::shutdown(pair->theirs.get(), SHUT_WR);
  Told told;
  boost::asio::io_context io{1};
  front::Control control(io.get_executor(), pair->own.release(), hooks_of(told));
  boost::asio::co_spawn(io, control.run(), boost::asio::detached);
  io.run();
  require(told.ended == 1);
  // It answers each reload.
  size_t adopted = 0, refused = 0;
  for (;;) {
    const auto answer = ipc::receive_bytes(pair->theirs.get(), ipc::Wait::kDont);
    if (!answer.ok()) break;
    const auto from_child = supervisor::parse_from_child(*answer);
    require(from_child.ok() && (from_child->type == "reloaded" || from_child->type == "reload_refused"));
    ++(from_child->type == "reloaded" ? adopted : refused);
  }
  require(adopted == told.adopted && told.orders + adopted + refused <= sent);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kRecordsMost = 32;
  if (size < 2) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::vector<std::string> records;
  while (!rest.empty() && records.size() < kRecordsMost) {
    const std::string_view record = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(record.size() + 1, rest.size()));
    if (!record.empty()) records.emplace_back(record);
  }
  for (const std::string& record : records) {
    look_at_front_start(record, data[0] % 3);
    look_at_host_start(record);
    look_at_stop(record);
  }
  look_at_orders(records, data[1]);
  return 0;
}
