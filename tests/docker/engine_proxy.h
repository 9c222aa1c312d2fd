// Stands between a client and a real Engine at a Unix socket, and lets single requests fail.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/fd.h"
#include "tests/support/program.h"

namespace isogate::docker {

enum class Fault {
  kError,     // the Engine does not get it, the client gets a 500
  kInUse,     // the same, and a 409: the name is in use
  kReset,     // the Engine does not get it, the client's connection ends
  kNoAnswer,  // the Engine executes it, the client's connection ends
  kHang,      // the Engine does not get it, the client waits
  kLate,      // the client's connection ends, the Engine executes it half a second later
};

class EngineProxy {
 public:
  explicit EngineProxy(std::string engine_socket);  // a path
  EngineProxy(const EngineProxy&) = delete;
  EngineProxy& operator=(const EngineProxy&) = delete;
  ~EngineProxy();
  [[nodiscard]] std::string address() const { return "unix://" + directory_.path() + "/s"; }

  // The request with that number from now on, from 0. Only requests that name containers, volumes, networks
  // or execs count, because others come at any time.
  void fail(size_t number, Fault fault);
  // Every request of that kind, until heal(): "POST /containers/*/kill", where * is one part of the path.
  void fail_all(const std::string& kind, Fault fault);
  // What the Engine gets to create instead; until the end.
  using Edit = std::function<std::string(const std::string& body)>;
  void edit_containers(Edit edit);
  // Ends the streams of events, and every new one, until it is false.
  void cut_events(bool cut) { no_events_ = cut; }
  void heal();
  [[nodiscard]] size_t count() const { return count_; }  // since the last of these three
  [[nodiscard]] std::string failed() const;              // which request that was; empty: none

 private:
  struct Side;
  void serve();
  void talk(int client);
  std::optional<Fault> fault_of(const std::string& kind);
  Edit edit_of(const std::string& kind);

  const std::string engine_;
  test::TemporaryDirectory directory_;
  Fd listener_;
  mutable std::mutex mutex_;
  std::atomic<size_t> count_ = 0;
  std::optional<std::pair<size_t, Fault>> planned_;
  std::optional<std::pair<std::string, Fault>> planned_kind_;
  std::string failed_;
  Edit edit_;
  std::atomic<bool> ending_ = false, no_events_ = false;
  std::vector<std::thread> talks_;
  std::thread server_;
};

}  // namespace isogate::docker
