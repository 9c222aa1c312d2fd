// An API server that a test scripts, for what no real one does. Plain or TLS.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lib/fd.h"
#include "plugins/k8s/client/api.h"
#include "tests/support/authority.h"

struct ssl_st;
struct ssl_ctx_st;

namespace isogate::k8s {

// One connection, on the server's side; each call blocks for at most 20 s.
class Peer {
 public:
  Peer(int socket, ssl_st* ssl) : socket_(socket), ssl_(ssl) {}
  // The head of a request, including its empty line; empty at the connection's end.
  std::string read_head();
  std::string read(size_t size);  // fewer at the end
  std::string read_some();        // the available bytes, waiting for the first one
  void write(std::string_view bytes);
  void hang_up();
  [[nodiscard]] int socket() const { return socket_; }

 private:
  int socket_;
  ssl_st* ssl_;
  std::string pending_;
};

struct Heard {
  std::string method, target, head, body;
  [[nodiscard]] std::string header(const std::string& name) const;
};

class FakeCluster {
 public:
  // False: the connection ends after it.
  using Handler = std::function<bool(Peer&, const Heard&)>;
  // `name`: what `authority` signed with a server's certificate; null: plain. `ask`: for a certificate of the
  // client's.
  explicit FakeCluster(Handler handler, const test::Authority* authority = nullptr,
                       const std::string& name = "server", bool ask = false);
  FakeCluster(const FakeCluster&) = delete;
  FakeCluster& operator=(const FakeCluster&) = delete;
  ~FakeCluster();

  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] ClusterAccess access() const;  // without credentials of any kind
  [[nodiscard]] std::vector<Heard> heard() const;
  [[nodiscard]] size_t connections() const;
  void stop_shaking_hands() { mute_ = true; }  // connections are accepted, and nothing is sent

  static std::string json(const std::string& body, int status = 200, const std::string& headers = {});
  // `name`: of the object in it.
  static std::string status(int code, const std::string& reason, const std::string& headers = {},
                            const std::string& name = "one");

 private:
  void serve();
  void talk(int socket);
  void converse(Peer& peer);

  const Handler handler_;
  const test::Authority* const authority_;
  ssl_ctx_st* context_ = nullptr;
  Fd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> mute_{false};
  mutable std::mutex mutex_;
  std::vector<Heard> heard_;
  std::vector<int> open_;
  std::vector<std::thread> talks_;
  std::thread server_;
};

// A frame of a server's WebSocket.
std::string frame(const std::string& payload, int opcode = 2, bool final = true);
// What a client sent, unmasked: false at the end, or for a frame without a mask.
bool read_frame(Peer& peer, int& opcode, std::string& payload);

inline Budget usual() { return Budget(std::chrono::seconds(20)); }

// The status, message and more of what `work` throws.
struct Failure {
  isogate_status status = ISOGATE_OK;
  int http_status = 0;
  bool maybe_done = false;
  std::string message, reason;
};
Failure failure_of(const std::function<void()>& work);

}  // namespace isogate::k8s
