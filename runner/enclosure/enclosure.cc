#include "runner/enclosure/enclosure.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lib/fd.h"

extern "C" {
extern const char isogate_init_begin[] __attribute__((visibility("hidden")));
extern const char isogate_init_end[] __attribute__((visibility("hidden")));
}
asm(R"(
  .pushsection .rodata
  .hidden isogate_init_begin
  .globl isogate_init_begin
  .hidden isogate_init_end
  .globl isogate_init_end
isogate_init_begin:
  .incbin ")" ISOGATE_INIT_IMAGE R"("
isogate_init_end:
  .popsection
)");

namespace isogate {

void InitTally::change(int by) {
  const std::lock_guard lock(mutex_);
  count_ += by;
  if (count_ == 0) none_.notify_all();
}

int InitTally::wait_for_none(std::chrono::seconds patience) {
  std::unique_lock lock(mutex_);
  none_.wait_for(lock, patience, [this] { return count_ == 0; });
  return count_;
}

void Departures::begin() {
  const std::lock_guard lock(mutex_);
  ++begun_count_;
}

void Departures::end() {
  {
    const std::lock_guard lock(mutex_);
    ++ended_count_;
  }
  ended_.notify_all();
}

void Departures::wait_for_all(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, patience, [this, awaited = begun_count_] { return ended_count_ >= awaited; });
}

Enclosure::Enclosure(EnclosureOptions options, const EnclosureMarks& marks, int image, uint64_t bounding,
                     std::function<void(InitProcess)> reap_later)
    : options_(std::move(options)), marks_(marks), reap_later_(std::move(reap_later)) {
  const EnclosureProfile& profile = *options_.profile;
  filter_ = {static_cast<unsigned short>(profile.filter.size()),
             const_cast<sock_filter*>(profile.filter.data())};
  plan_.user_fd = options_.user.get();
  plan_.mounts_fd = options_.mounts.get();
  plan_.cgroups_fd = options_.cgroups.get();
  plan_.network_fd = options_.network.get();
  plan_.landlock_fd = options_.landlock.get();
  plan_.init_fd = image;
  plan_.shm_options = profile.shm_options.c_str();
  plan_.covers = profile.covers.data();
  plan_.cover_count = profile.covers.size();
  plan_.bounding = options_.user ? ~uint64_t{0} : bounding;  // entering one's own fills it
  plan_.filter = &filter_;
}

Enclosure::~Enclosure() {
  for (Waiting* each : {&ready_, &used_}) reap_later_(std::move(each->init));
}

bool Enclosure::is_of(const Identity& identity) const {
  const Identity& own = options_.identity;
  return own.change == identity.change && own.uid == identity.uid && own.gid == identity.gid;
}

InitProcess Enclosure::take(Waiting& from) {
  const std::lock_guard lock(mutex_);
  return std::exchange(from.init, {});
}

bool Enclosure::ask_for_keeper() {
  const std::lock_guard lock(mutex_);
  if (nothing_waits()) return !std::exchange(asked_, true);
  return !std::exchange(watched_, true);
}

bool Enclosure::admit(bool makes_ready) {
  const std::lock_guard lock(mutex_);
  if (makes_ready) {
    asked_ = false;
    watched_ = true;
  }
  if (closed_ || (makes_ready && !nothing_waits())) return false;
  if (!makes_ready) ++visits_;
  tally_->add();
  return true;
}

void Enclosure::leave() {
  {
    const std::lock_guard lock(mutex_);
    --visits_;
  }
  tally_->remove();
}

bool Enclosure::begin_making() { return admit(true); }

InitProcess Enclosure::leaving(InitProcess init) {
  if (init.pid < 0 || groups_ == nullptr) return init;
  init.place = shared_from_this();
  init.departs = true;
  departures_.begin();
  return init;
}

bool Enclosure::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return false;
  }
  for (InitProcess init; (init = take_idle(Clock::time_point::max())).pid >= 0;) reap_later_(std::move(init));
  return true;
}

void Enclosure::put_ready(InitProcess init) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      ready_ = {std::move(init), Clock::now()};
      return;
    }
  }
  reap_later_(std::move(init));
}

void Enclosure::put_used(InitProcess init) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_ && visits_ == 1 && used_.init.pid < 0) {
      used_ = {std::move(init), Clock::now()};
      return;
    }
  }
  reap_later_(leaving(std::move(init)));
}

InitProcess Enclosure::take_idle(Clock::time_point before) {
  const std::lock_guard lock(mutex_);
  if (used_.init.pid >= 0 && used_.since <= before) return leaving(std::exchange(used_.init, {}));
  if (ready_.init.pid < 0 || ready_.since > before) return {};
  return std::exchange(ready_.init, {});
}

bool Enclosure::stop_watching() {
  const std::lock_guard lock(mutex_);
  if (nothing_waits()) watched_ = false;
  return !watched_;
}

Result<Fd> init_image() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kExecutable = 0x10;  // MFD_EXEC, Linux 6.3: before that all are
  Fd image(::memfd_create("init", kFlags | kExecutable));
  if (!image && errno == EINVAL) image = Fd(::memfd_create("init", kFlags));
  if (!image)
    return os_error("cannot make the memory file of the init (is sysctl vm.memfd_noexec 2?)", errno);
  const auto size = static_cast<size_t>(isogate_init_end - isogate_init_begin);
  if (!write_all(image.get(), {isogate_init_begin, size}))
    return os_error("cannot write the memory file of the init", errno);
  // Executable and not readable: the kernel then never makes its process dumpable.
  if (::fchmod(image.get(), 0111) != 0 ||
      ::fcntl(image.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return os_error("cannot seal the memory file of the init", errno);
  return image;
}

}  // namespace isogate
