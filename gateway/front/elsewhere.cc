#include "gateway/front/elsewhere.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <utility>

#include "gateway/front/event.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

struct Work {
  Work(const asio::any_io_executor& executor, std::function<void()> given)
      : done(executor), work(std::move(given)) {}
  Event done;
  std::function<void()> work;
  std::exception_ptr failure;
};

}  // namespace

struct Elsewhere::Thread {
  asio::thread_pool pool{1};
};

Elsewhere::Elsewhere(asio::any_io_executor executor)
    : executor_(std::move(executor)), thread_(std::make_unique<Thread>()) {}

Elsewhere::~Elsewhere() = default;

asio::awaitable<void> Elsewhere::run(std::function<void()> work) {
  const auto task = std::make_shared<Work>(executor_, std::move(work));
  asio::post(thread_->pool, [task, executor = executor_]() mutable {
    try {
      task->work();
    } catch (...) {
      task->failure = std::current_exception();
    }
    asio::post(executor, [task = std::move(task)] { task->done.set(); });
  });
  co_await task->done.wait();
  if (task->failure) std::rethrow_exception(task->failure);
}

}  // namespace isogate::front
