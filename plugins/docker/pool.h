// Sandboxes made ahead: containers that run, each with a workspace and a uid of its own, and nobody's yet. A
// new agent's first call takes one: a directory is renamed, its uid is handed over, no container is made.
//
// A thread keeps the number up; it lives as long as the pool. On disk: <sandboxes_dir>/ready.<backend>/<id>/
// is what becomes <sandboxes_dir>/<sandbox_id>/. It is locked (flock(2)) as long as its maker lives, so that
// the next one removes what a crash has left, and leaves alone what another generation of the backend has
// ready.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "plugins/docker/container.h"
#include "runner/uid_registry.h"

namespace isogate::docker {

class Pool {
 public:
  struct Options {
    sdk::Host host;
    unsigned size = 0;
    std::string sandboxes_dir, uids_dir, backend;
    bool own_uids = false;
    isogate_limits limits{};  // of the first ones
    // Both may throw sdk::Error. Of a sandbox whose directory is `directory`.
    std::function<Services&()> services;
    std::function<Parts(const std::string& id, const std::string& directory, uint32_t uid)> parts;
  };
  explicit Pool(Options options);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();  // ends and removes what nobody took

  struct Taken {
    std::unique_ptr<Container> container;  // with the path below
    uint32_t uid = 0;
    std::string made_as;  // as what the Engine knows it
  };
  // One with these limits, now the sandbox `id` at <sandboxes_dir>/<id>, which must not be there yet. None:
  // it has to be made. Any thread. Throws sdk::Error.
  std::optional<Taken> take(const std::string& id, const isogate_limits& limits);
  // Whether a pool of this backend was here and did not end in order.
  static bool left_anything(const std::string& sandboxes_dir, const std::string& backend);
  // How many are ready, in a few words.
  [[nodiscard]] std::string text() const;

 private:
  struct Ready {
    std::string id;
    uint32_t uid = 0;
    isogate_limits limits{};
    Fd lock;
    std::unique_ptr<Container> container;
  };
  void run();
  void fill();
  Ready make(const isogate_limits& limits);
  void remove(Ready ready);
  void remove_leftovers();
  void remove_leftover(int parent, const std::string& id);
  void drop_the_dead();
  std::optional<Ready> pick(const isogate_limits& limits);
  void wish(const isogate_limits& limits);
  std::unique_ptr<Container> container_of(const std::string& id, uint32_t uid, const isogate_limits& limits);

  const Options options_;
  const std::string directory_;
  const UidRegistry registry_;
  std::atomic<bool> left_behind_{true};  // there may be what nobody needs any more
  const Fd stop_;                        // an eventfd: cancels what the thread is about
  const isogate_call stopping_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  isogate_limits wanted_;
  unsigned misses_ = 1;  // takes in a row that found none of their limits
  std::deque<Ready> ready_;
  std::thread thread_;
};

}  // namespace isogate::docker
