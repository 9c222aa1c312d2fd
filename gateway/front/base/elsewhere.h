// Work that would block the front's one thread (the JSON of a large body), done on another thread: one
// piece after the other, tenants taking turns.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "gateway/front/base/killer.h"

namespace isogate::front {

class Elsewhere {
 public:
  explicit Elsewhere(boost::asio::any_io_executor executor);
  ~Elsewhere();  // waits for what is at work

  // Returns when `work` has ended, and throws what it has thrown. `work` must own all that it uses, and must
  // not block. Throws ClientGone once the killer, which outlives the call, kills: work that has not begun is
  // then dropped, and work that has begun is not waited for. On the front's thread.
  boost::asio::awaitable<void> run(const std::string& tenant, Killer& killer, std::function<void()> work);
  // The same without waiting.
  void post(const std::string& tenant, std::function<void()> work);

 private:
  struct Thread;
  struct Piece;
  std::shared_ptr<Piece> enqueue(const std::string& tenant, std::function<void()> work);
  void begin_next();

  boost::asio::any_io_executor executor_;
  std::unordered_map<std::string, std::deque<std::shared_ptr<Piece>>> waiting_;  // by tenant; none is empty
  std::list<std::string> turn_;                                                  // those tenants
  bool busy_ = false;
  std::unique_ptr<Thread> thread_;  // the last member: it ends first
};

}  // namespace isogate::front
