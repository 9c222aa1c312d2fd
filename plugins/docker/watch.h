// Follows the Engine's events of this backend's containers, in its own thread that begins with the first
// container. When one ends, that is known at once, with the reason, and the link to its runner is closed.
// This is an optimization: calls also check by themselves, and if the Engine reports nothing, only time is
// lost.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "isogate/runner_link.hpp"
#include "lib/fd.h"

namespace isogate::docker {

struct Services;

class Watch {
 public:
  explicit Watch(Services& services);  // borrowed
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { stop(); }
  // Ends the thread, whatever the Engine does: nothing is reported any more.
  void stop();

  // Any thread. `link` is closed when the container `id` has ended, unless forget() was first; a later add()
  // replaces an earlier one. The name is for the log. `shape`: shape_of() it; one that the Engine describes
  // otherwise counts as ended, and is killed.
  void add(const std::string& id, const std::string& name, const std::string& shape,
           const std::shared_ptr<sdk::RunnerLink>& link);
  void forget(const std::string& id);

 private:
  struct Watched {
    std::string name, shape;
    std::weak_ptr<sdk::RunnerLink> link;
  };
  void run();
  void follow();
  void take_stock();
  void look(const std::string& id, bool ended);  // `ended`: the Engine has reported that it did
  void report_end(const std::string& id, const std::string& how);

  Services& services_;
  const Fd end_;
  std::mutex mutex_;
  std::map<std::string, Watched> watched_;
  std::thread thread_;
  bool followed_ = true;  // run() alone: the last line of the log
};

}  // namespace isogate::docker
