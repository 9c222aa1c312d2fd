// Work that no call waits for, retried until it is done: work that an Engine could not do at once, or in
// time. Each task has its own thread while it lasts. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "isogate/backend.hpp"

namespace isogate::docker {

class Background {
 public:
  using Work = std::function<void(const sdk::Call&)>;  // what throws is tried again
  explicit Background(sdk::Host host) : host_(host) {}
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background();  // cancels running tasks; the log names unfinished ones

  // Of one `key` there is never more than one: a second is the first. `what`: "the container x is killed".
  // False: none could begin, which the log says.
  bool begin(const std::string& key, const std::string& what, Work work);
  // Whether there is none of that key any more, within `patience`.
  bool is_done(const std::string& key, std::chrono::milliseconds patience);
  // Cancels the one of that key and waits for its end. Throws as `call` does.
  void cancel(const std::string& key, const sdk::Call& call);

 private:
  struct Task;
  void run(const std::string& key, const std::shared_ptr<Task>& task);

  const sdk::Host host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Task>> tasks_;  // those that are not done
};

}  // namespace isogate::docker
