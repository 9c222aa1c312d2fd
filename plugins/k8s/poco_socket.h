// A Transport where Poco expects a socket. Includes Poco: for http.cc alone.
#pragma once

#include <Poco/Net/StreamSocketImpl.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "plugins/k8s/transport.h"

namespace isogate::k8s {

// Blocks within the budget of the step under way. What goes wrong is kept, since Poco's streams swallow it;
// from then on nothing is sent or received: a request that was broken off never gets the end that Poco's
// destructors would write. HTTPClientSession sends a request anew after an IOException, so this throws
// RuntimeException, and never connects.
class PocoSocket : public Poco::Net::StreamSocketImpl {
 public:
  explicit PocoSocket(std::unique_ptr<Transport> transport);

  void begin(const Budget& budget) { budget_ = budget; }
  void begin_request();
  void kill();                                               // nothing more goes out or comes in
  [[nodiscard]] bool usable();                               // for another request
  void rethrow_failure();                                    // when there was one
  [[nodiscard]] bool ended() const { return ended_; }        // the other side has gone
  [[nodiscard]] bool received() const { return received_; }  // a byte, since begin_request()
  // The other side stopped taking what was sent; what it has said can be read still.
  bool refused_to_take();
  [[nodiscard]] const std::string& tail() const { return tail_; }  // the last five bytes received
  std::unique_ptr<Transport> release();

  int sendBytes(const void* buffer, int length, int flags) override;
  int receiveBytes(void* buffer, int length, int flags) override;
  void connect(const Poco::Net::SocketAddress& address) override;
  void connect(const Poco::Net::SocketAddress& address, const Poco::Timespan& timeout) override;
  void connectNB(const Poco::Net::SocketAddress& address) override;
  void close() override;
  void shutdown() override;

 protected:
  ~PocoSocket() override;

 private:
  void wait(short events);
  [[noreturn]] void fail(isogate_status status, const std::string& why);
  void note(const char* bytes, size_t size);

  std::unique_ptr<Transport> transport_;
  Budget budget_{std::chrono::milliseconds(0)};
  std::exception_ptr failure_;
  std::string tail_;
  bool dead_ = false, ended_ = false, received_ = false, refused_ = false;
};

}  // namespace isogate::k8s
