// The front's end of its control socket to the supervisor: JSON records with descriptors.
// nlohmann/json stays in the source. The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>
#include <vector>

#include "gateway/base/tls_context.h"
#include "gateway/config/config.h"
#include "gateway/front/backends/backend_channel.h"
#include "lib/fd.h"

namespace isogate::front {

struct StartOrder {
  Config config;
  std::string local_key_sha256, state_dir;
  std::vector<uint32_t> peer_uids;
  std::vector<std::string> listeners;
  std::vector<ListenerKind> kinds;  // one for each
  TlsMaterial tls;
  std::vector<Fd> sockets;  // one per listener
};

// Blocks until the supervisor's first record.
Result<StartOrder> receive_start(int control);

struct ControlHooks {
  std::function<void(const std::string& name, HostIdentity identity, Fd socket)> host_up;
  std::function<void(const std::string& name, uint64_t generation, std::string reason, bool quarantined,
                     bool restarting)>
      host_down;
  // A reload has two steps, and the supervisor gets the answer between them: it has to have it before the
  // sockets of removed hosts are closed. First the front adopts the configuration; an error: it has changed
  // nothing. Then its parts follow.
  std::function<Result<void>(Config config, std::string local_key_sha256, TlsMaterial tls)> adopt;
  std::function<void()> adopted;
  std::function<void(unsigned deadline_sec)> drain;
  std::function<void()> ended;  // the supervisor is gone, or a record of it is lost: the front has to end
};

// A record is lost when the process has no descriptor for what comes with it: a large configuration, a host's
// socket. So some are kept in reserve, whatever tenants hold open. Should they not suffice, the front ends:
// the next one gets everything again.
class Control {
 public:
  Control(boost::asio::any_io_executor executor, int control, ControlHooks hooks);

  boost::asio::awaitable<void> run();
  void send(const char* type, const std::string& message = {});
  void send_stuck(const std::string& backend, const BackendChannel& host);
  // Completes the reserve as far as there is room: the socket of a host takes one of it.
  void keep_reserve();

 private:
  void take(const std::string& text, std::vector<Fd> fds);

  boost::asio::posix::stream_descriptor socket_;
  ControlHooks hooks_;
  std::vector<Fd> reserve_;
};

// The same before there is an executor.
void send_fatal(int control, const std::string& message);

// The record that reports the system call that its filter is about to kill this process for. For
// install_front_filter().
std::string violation_record(const char* system_call);

}  // namespace isogate::front
