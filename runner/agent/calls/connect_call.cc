#include "runner/agent/calls/call.h"
#include "runner/ports/port.h"

namespace isogate::agent {
namespace {

// A connection to a port of this container: its bytes go through a descriptor of the client, or in frames.
class ConnectCall final : public Call {
 public:
  ConnectCall(Place& place, Wire wire, const link::Frame& frame, uint16_t port)
      : Call(place, wire, frame), port_(port) {}

  [[nodiscard]] size_t descriptors() const override { return 1; }
  Result<void> open(std::vector<Fd> batch) override;
  Answer run() override;

 private:
  Result<void> connect();

  const uint16_t port_;
  Fd given_stream_, in_, out_;  // one, or the other two
};

Result<void> ConnectCall::open(std::vector<Fd> batch) {
  if (auto made = make_cancel(); !made) return made;
  if (given_) {
    given_stream_ = std::move(batch[0]);
    return {};
  }
  auto in = inlet_.open();
  if (!in) return in.error();
  auto out = outlet_.open();
  if (!out) return out.error();
  in_ = std::move(*in);
  out_ = std::move(*out);
  return {};
}

Result<void> ConnectCall::connect() {
  auto sockets = make_port_sockets();
  if (!sockets) return sockets.error();
  auto socket = dial(std::move(*sockets), port_, cancel_fd());
  if (!socket) return socket.error();
  if (!wire_.connection.send(ISOGATE_RUNNER_READY, stream(), {}))
    return Error{ISOGATE_CANCELLED, 0, "the client is gone"};
  if (given_) return carry_stream(socket->get(), given_stream_.get(), cancel_fd());
  return carry({socket->get(), in_.get(), out_.get(),
                [this] {
                  outlet_.announce_end();
                  out_.reset();
                },
                cancel_fd()});
}

Answer ConnectCall::run() {
  const auto connected = connect();
  given_stream_.reset();
  in_.reset();
  out_.reset();
  inlet_.close();
  if (!given_) outlet_.drain();
  if (!connected) return Answer(connected.error());
  return {};
}

}  // namespace

std::unique_ptr<Call> make_connect(Place& place, Wire wire, const link::Frame& frame) {
  const auto port = link::parse_connect(frame.payload);
  if (!port) return nullptr;
  return std::make_unique<ConnectCall>(place, wire, frame, *port);
}

}  // namespace isogate::agent
