#include "gateway/front/base/elsewhere.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <utility>

#include "gateway/front/base/event.h"

namespace isogate::front {
namespace asio = boost::asio;

struct Elsewhere::Thread {
  asio::thread_pool pool{1};
};

struct Elsewhere::Piece {
  Piece(const asio::any_io_executor& executor, std::function<void()> given)
      : done(executor), work(std::move(given)) {}
  Event done;
  std::function<void()> work;  // empty: nobody wants it any more
  std::exception_ptr failure;
  bool begun = false;
};

Elsewhere::Elsewhere(asio::any_io_executor executor)
    : executor_(std::move(executor)), thread_(std::make_unique<Thread>()) {}

Elsewhere::~Elsewhere() = default;

asio::awaitable<void> Elsewhere::run(const std::string& tenant, Killer& killer, std::function<void()> work) {
  const auto piece = enqueue(tenant, std::move(work));
  const OnKill leave(killer, [piece] {
    if (!piece->begun) piece->work = {};
    piece->done.set();
  });
  co_await piece->done.wait();
  if (killer.killed()) throw ClientGone{};
  if (piece->failure) std::rethrow_exception(piece->failure);
}

void Elsewhere::post(const std::string& tenant, std::function<void()> work) {
  enqueue(tenant, std::move(work));
}

std::shared_ptr<Elsewhere::Piece> Elsewhere::enqueue(const std::string& tenant, std::function<void()> work) {
  auto piece = std::make_shared<Piece>(executor_, std::move(work));
  auto& waiting = waiting_[tenant];
  if (waiting.empty()) turn_.push_back(tenant);
  waiting.push_back(piece);
  begin_next();
  return piece;
}

void Elsewhere::begin_next() {
  while (!busy_ && !turn_.empty()) {
    const std::string tenant = std::move(turn_.front());
    turn_.pop_front();
    const auto found = waiting_.find(tenant);
    const std::shared_ptr<Piece> piece = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) {
      waiting_.erase(found);
    } else {
      turn_.push_back(tenant);
    }
    if (!piece->work) continue;
    piece->begun = busy_ = true;
    asio::post(thread_->pool, [this, piece, executor = executor_]() mutable {
      try {
        piece->work();
      } catch (...) {
        piece->failure = std::current_exception();
      }
      asio::post(executor, [this, piece = std::move(piece)] {
        busy_ = false;
        piece->done.set();
        begin_next();
      });
    });
  }
}

}  // namespace isogate::front
