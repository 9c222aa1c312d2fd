#include "gateway/host/workers.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "lib/log.h"

namespace isogate {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = 2u << 20;  // their frames are larger
#else
constexpr size_t kStackBytes = 256u << 10;
#endif

}  // namespace

Workers::Workers(int socket, size_t most, Work work) : socket_(socket), most_(most), work_(std::move(work)) {}

Workers::~Workers() { join_ended(); }

Result<void> Workers::start() {
  timeval patience{kIdleTime.count(), 0};
  if (::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
    return os_error("cannot set a timeout on the front's socket", errno);
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < std::min(kSpare, most_); ++i)
    if (!start_one()) return Error{ISOGATE_RESOURCE_EXHAUSTED, 0, "cannot start a thread"};
  least_idle_ = idle_;
  return {};
}

bool Workers::start_one() {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  int failed = ::pthread_create(&thread, &attributes, &enter, this);
  ::pthread_attr_destroy(&attributes);
  if (failed != 0) {
    log::warn("worker_start_failed",
              {{"threads", threads_}, {"reason", os_error("pthread_create", failed).message}});
    return false;
  }
  ++threads_;
  ++idle_;
  return true;
}

void* Workers::enter(void* self) noexcept {
  static_cast<Workers*>(self)->run();
  return nullptr;
}

void Workers::run() noexcept {
  for (bool stay = true; stay;) {
    auto received = ipc::receive_record(socket_, ipc::Wait::kBlock);
    if (received) {
      taken();
      if (!work_.serve(std::move(*received))) work_.ended(invalid("the front sent a malformed record"));
      stay = returned();
    } else if (received.error().os_errno == EAGAIN) {
      stay = !dismissed();
    } else {
      work_.ended(received.error());
      break;
    }
  }
  std::lock_guard lock(mutex_);
  --threads_;
  ended_.push_back(::pthread_self());
  changed_.notify_all();
}

void Workers::taken() {
  std::lock_guard lock(mutex_);
  --idle_;
  least_idle_ = std::min(least_idle_, idle_);
  if (idle_ == 0 && threads_ < most_ && !closing_) start_one();
}

bool Workers::returned() {
  std::lock_guard lock(mutex_);
  ++idle_;
  return !leaves();
}

bool Workers::dismissed() {
  std::lock_guard lock(mutex_);
  return leaves();
}

bool Workers::leaves() {
  if (surplus_ == 0 || idle_ <= kSpare) return false;
  --surplus_;
  --idle_;
  least_idle_ = std::min(least_idle_, idle_);
  return true;
}

void Workers::trim() {
  {
    std::lock_guard lock(mutex_);
    surplus_ = least_idle_ > kSpare ? least_idle_ - kSpare : 0;
    if (idle_ == 0 && threads_ < most_ && !closing_) start_one();  // taken() could not
    least_idle_ = idle_;
  }
  join_ended();
}

bool Workers::wait(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  closing_ = true;
  const bool ended = changed_.wait_until(lock, deadline, [this] { return threads_ == 0; });
  lock.unlock();
  join_ended();
  return ended;
}

void Workers::join_ended() {
  std::vector<pthread_t> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (pthread_t thread : ended) ::pthread_join(thread, nullptr);
}

size_t Workers::count() const {
  std::lock_guard lock(mutex_);
  return threads_;
}

}  // namespace isogate
