#include "gateway/front/control.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "gateway/config/load.h"
#include "gateway/ipc/channel.h"
#include "lib/json.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
using nlohmann::json;

namespace {

constexpr size_t kReserved = 8;  // a record takes one; the others are for the threads beside

void send_json_record(int control, const json& record) {
  const std::string text = record.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto sent = ipc::send_record(control, text, {}, ipc::Wait::kDont);
  if (!sent) log::error("control_send_failed", {{"reason", sent.error().message}});
}

TlsMaterial tls_of(const json& record) {
  const json& tls = record.at("tls");
  return {tls.at("certificate"), tls.at("key"), tls.at("client_ca"), tls.at("client_required")};
}

}  // namespace

Result<StartOrder> receive_start(int control) {
  auto received = ipc::receive_record(control, ipc::Wait::kBlock);
  if (!received) return received.error();
  try {
    const json record = json::parse(is_shallow(received->bytes) ? received->bytes : "");
    if (record.at("type") != "start") return invalid("the supervisor's first record is not `start`");
    StartOrder order;
    auto config = config_from_json(record.at("config").dump());
    if (!config) return config.error();
    order.config = std::move(*config);
    order.local_key_sha256 = record.at("local_key_sha256");
    order.state_dir = record.at("state_dir");
    order.peer_uids = record.at("peer_uids").get<std::vector<uint32_t>>();
    order.listeners = record.at("listeners").get<std::vector<std::string>>();
    order.kinds = record.at("kinds").get<std::vector<ListenerKind>>();
    order.tls = tls_of(record);
    order.sockets = std::move(received->fds);
    if (order.sockets.size() != order.listeners.size() || order.kinds.size() != order.listeners.size())
      return invalid("the supervisor sent another number of sockets than of listeners");
    return order;
  } catch (const json::exception& error) {
    return invalid(std::string("the supervisor's `start` is malformed: ") + error.what());
  }
}

Control::Control(asio::any_io_executor executor, int control, ControlHooks hooks)
    : socket_(std::move(executor), control), hooks_(std::move(hooks)) {
  socket_.native_non_blocking(true);
  keep_reserve();
}

void Control::keep_reserve() {
  while (reserve_.size() < kReserved) {
    auto event = make_event();
    if (!event) return;
    reserve_.push_back(std::move(*event));
  }
}

void Control::send(const char* type, const std::string& message) {
  json record{{"type", type}};
  if (!message.empty()) record["message"] = message;
  send_json_record(socket_.native_handle(), record);
}

void Control::send_stuck(const std::string& backend, const BackendChannel& host) {
  send_json_record(socket_.native_handle(), {{"type", "stuck"},
                                             {"message", backend},
                                             {"generation", host.identity().generation},
                                             {"reason", host.given_up()},
                                             {"probed", host.probed()}});
}

std::string violation_record(const char* system_call) {
  return ipc::inline_record(json{{"type", "violation"}, {"message", system_call}}.dump());
}

void send_fatal(int control, const std::string& message) {
  send_json_record(control, {{"type", "fatal"}, {"message", message}});
}

asio::awaitable<void> Control::run() {
  for (;;) {
    boost::system::error_code error;
    co_await socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
    reserve_.clear();
    auto received = ipc::receive_record(socket_.native_handle(), ipc::Wait::kDont);
    if (!received && received.error().os_errno != EAGAIN) break;
    if (received && received->fds_lost) {
      log::error("control_record_lost", {{"reason", "the front is out of descriptors"}});
      socket_.close(error);  // the supervisor sees at once that this front ends
      break;
    }
    if (received) take(received->bytes, std::move(received->fds));
    keep_reserve();
  }
  hooks_.ended();
}

void Control::take(const std::string& text, std::vector<Fd> fds) {
  try {
    const json record = json::parse(is_shallow(text) ? text : "");
    const std::string type = record.at("type");
    if (type == "backend" && record.at("state") == "up") {
      if (fds.size() != 1)
        return log::error("control_record_malformed", {{"reason", "a backend host without its socket"}});
      hooks_.host_up(record.at("name"), {record.at("generation"), record.at("settings")}, std::move(fds[0]));
    } else if (type == "backend") {
      hooks_.host_down(record.at("name"), record.at("generation"), record.at("reason"),
                       record.value("quarantined", false), record.value("restarting", false));
    } else if (type == "reload") {
      const uint64_t number = record.at("number");
      TlsMaterial tls = tls_of(record);
      auto config = config_from_json(record.at("config").dump());
      const Result<void> adopted =
          config ? hooks_.adopt(std::move(*config), record.value("local_key_sha256", ""), std::move(tls))
                 : Result<void>(config.error());
      json answer{{"type", adopted ? "reloaded" : "reload_refused"}, {"number", number}};
      if (!adopted) answer["message"] = adopted.error().message;
      send_json_record(socket_.native_handle(), answer);
      if (adopted) hooks_.adopted();
    } else if (type == "drain") {
      hooks_.drain(record.value("deadline_sec", 30u));
    }
  } catch (const json::exception& error) {
    log::error("control_record_malformed", {{"reason", error.what()}});
  }
}

}  // namespace isogate::front
