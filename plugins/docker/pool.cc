#include "plugins/docker/pool.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "plugins/docker/or_throw.h"
#include "runner/workspace.h"
#include "runner/workspace_state.h"

namespace isogate::docker {
namespace {

using std::chrono::milliseconds;

std::string name_for(const std::string& backend) { return "ready." + backend; }

std::string directory_of(const std::string& sandboxes_dir, const std::string& backend) {
  return sandboxes_dir + "/" + name_for(backend);
}

constexpr milliseconds kLook{5'000}, kFirstPause{1'000}, kLongestPause{60'000};

bool same(const isogate_limits& a, const isogate_limits& b) {
  return a.memory_bytes == b.memory_bytes && a.cpu_millis == b.cpu_millis && a.pids == b.pids;
}

std::string random_id() {
  unsigned char bytes[26];
  if (::getentropy(bytes, sizeof bytes) != 0) sdk::fail_with_errno("cannot draw a random name", errno);
  std::string id = "isg-";
  for (const unsigned char byte : bytes) id += "abcdefghijklmnopqrstuvwxyz234567"[byte & 31];
  return id;
}

isogate_call call_until(int cancel_fd) { return {sizeof(isogate_call), cancel_fd, INT64_MAX, {}}; }

Fd open_at(int sandboxes, const std::string& id) { return or_throw(open_sandbox_directory(sandboxes, id)); }

void make_directory(const std::string& sandboxes_dir, const std::string& name) {
  const Fd parent = or_throw(open_state_directory(sandboxes_dir));
  if (::mkdirat(parent.get(), name.c_str(), 0711) != 0 && errno != EEXIST)
    sdk::fail_with_errno("cannot make the directory of the sandboxes made ahead", errno);
}

}  // namespace

Pool::Pool(Options options)
    : options_(std::move(options)),
      directory_(directory_of(options_.sandboxes_dir, options_.backend)),
      registry_({.uids_dir = options_.uids_dir, .sandboxes_dir = directory_}),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stopping_(call_until(stop_.get())),
      wanted_(options_.limits) {
  if (!stop_) sdk::fail_with_errno("cannot make an eventfd", errno);
  thread_ = std::thread([this] { run(); });
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  changed_.notify_all();
  thread_.join();
  // An Engine that does not answer once is not waited for again: the next start finds the rest.
  left_behind_ = false;
  for (; !ready_.empty() && !left_behind_; ready_.pop_front()) remove(std::move(ready_.front()));
}

void Pool::run() {
  milliseconds pause = kFirstPause;
  for (;;) {
    if (const std::lock_guard lock(mutex_); ending_) return;
    milliseconds time = kLook;
    try {
      if (left_behind_) remove_leftovers();
      drop_the_dead();
      fill();
      pause = kFirstPause;
    } catch (const std::exception& error) {
      if (sdk::Call(stopping_).cancelled()) return;
      options_.host.log(ISOGATE_LOG_WARN, "no sandbox can be made ahead, next try in " +
                                              std::to_string(pause.count() / 1000) + " s: " + error.what());
      time = std::exchange(pause, std::min(pause * 2, kLongestPause));
    }
    std::unique_lock lock(mutex_);
    const auto wakes = [this, &pause] {
      return ending_ || (pause == kFirstPause && ready_.size() < options_.size);
    };
    changed_.wait_for(lock, time, wakes);
  }
}

void Pool::fill() {
  for (;;) {
    isogate_limits wanted;
    {
      const std::lock_guard lock(mutex_);
      if (ending_ || ready_.size() >= options_.size) return;
      wanted = wanted_;
    }
    Ready made = make(wanted);
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(made));
  }
}

std::unique_ptr<Container> Pool::container_of(const std::string& id, uint32_t uid,
                                              const isogate_limits& limits) {
  const Fd parent = or_throw(open_state_directory(directory_));
  Fd gate = or_throw(Workspace::beside(directory_, id, kGateDirectory, {}, 0755));
  return std::make_unique<Container>(options_.services(), options_.parts(id, directory_ + "/" + id, uid),
                                     limits, open_at(parent.get(), id), std::move(gate));
}

Pool::Ready Pool::make(const isogate_limits& limits) {
  make_directory(options_.sandboxes_dir, name_for(options_.backend));
  Ready ready;
  ready.id = random_id();
  ready.limits = limits;
  ready.uid = options_.own_uids ? or_throw(registry_.assign(ready.id, ready.id)) : ::geteuid();
  try {
    const Identity identity{options_.own_uids, ready.uid, ready.uid};
    or_throw(Workspace::open({directory_, ready.id, identity, nullptr, false, options_.backend}, false));
    const Fd parent = or_throw(open_state_directory(directory_));
    ready.lock = open_at(parent.get(), ready.id);
    if (::flock(ready.lock.get(), LOCK_EX | LOCK_NB) != 0)
      sdk::fail_with_errno("cannot lock a sandbox made ahead", errno);
    or_throw(create_state_file(ready.lock.get(), kMadeAsFile, ready.id));
    ready.container = container_of(ready.id, ready.uid, limits);
    ready.container->open(sdk::Call(stopping_));
  } catch (...) {
    remove(std::move(ready));
    throw;
  }
  return ready;
}

// Whatever there is of it. What cannot be removed now is a leftover of the next start.
void Pool::remove(Ready ready) {
  try {
    const isogate_call unbounded = call_until(-1);
    const sdk::Call call(unbounded);
    if (ready.container != nullptr) {
      ready.container->end(call);
      ready.container->purge(call);
    }
    or_throw(Workspace::purge(directory_, ready.id));
    if (options_.own_uids) or_throw(registry_.release(ready.id, ready.uid));
  } catch (const std::exception& error) {
    options_.host.log(ISOGATE_LOG_WARN,
                      "a sandbox made ahead, " + ready.id + ", stays for now: " + error.what());
    left_behind_ = true;
  }
}

// One that cannot be looked at hides none of the others, and is looked at again.
void Pool::remove_leftovers() {
  left_behind_ = false;
  if (::access(directory_.c_str(), F_OK) != 0) return;
  const Fd parent = or_throw(open_state_directory(directory_));
  for (const std::string& id : or_throw(Workspace::enumerate(directory_, options_.backend))) {
    sdk::Call(stopping_).check();
    try {
      remove_leftover(parent.get(), id);
    } catch (const std::exception& error) {
      options_.host.log(ISOGATE_LOG_WARN, "what is left of " + id + " stays for now: " + error.what());
      left_behind_ = true;
    }
  }
}

void Pool::remove_leftover(int parent, const std::string& id) {
  Ready left;
  left.id = id;
  left.lock = open_at(parent, id);
  if (::flock(left.lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  if (may_still_be_made(left.lock.get())) {
    left_behind_ = true;
    return;
  }
  // Handed over already, but not renamed: then the uid is not ours to release.
  if (options_.own_uids)
    if (const auto uid = registry_.assign(id, id); uid) left.uid = *uid;
  left.container = container_of(id, left.uid, options_.limits);
  remove(std::move(left));
}

void Pool::drop_the_dead() {
  std::deque<Ready> dead;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = ready_.begin(); each != ready_.end();) {
      const bool other = misses_ > 1 && !same(each->limits, wanted_);
      if (each->container->warm() && !other) {
        ++each;
        continue;
      }
      dead.push_back(std::move(*each));
      each = ready_.erase(each);
    }
  }
  while (!dead.empty()) {
    remove(std::move(dead.front()));
    dead.pop_front();
  }
}

// What takers ask for twice in a row and do not find is made from then on.
void Pool::wish(const isogate_limits& limits) {
  if (++misses_ > 1) wanted_ = limits;
}

std::optional<Pool::Ready> Pool::pick(const isogate_limits& limits) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(ready_.begin(), ready_.end(), [&](const Ready& each) {
    return same(each.limits, limits) && each.container->warm();
  });
  if (found == ready_.end()) {
    if (!same(wanted_, limits)) wish(limits);
    changed_.notify_all();
    return std::nullopt;
  }
  misses_ = 0;
  Ready taken = std::move(*found);
  ready_.erase(found);
  changed_.notify_all();
  return taken;
}

std::optional<Pool::Taken> Pool::take(const std::string& id, const isogate_limits& limits) {
  auto ready = pick(limits);
  if (!ready) return std::nullopt;
  try {
    const Fd from = or_throw(open_state_directory(directory_));
    const Fd to = or_throw(open_state_directory(options_.sandboxes_dir));
    if (options_.own_uids) or_throw(registry_.hand_over(ready->uid, ready->id, id));
    if (::renameat2(from.get(), ready->id.c_str(), to.get(), id.c_str(), RENAME_NOREPLACE) != 0) {
      const int code = errno;
      if (options_.own_uids) or_throw(registry_.hand_over(ready->uid, id, ready->id));
      sdk::fail_with_errno("cannot take a sandbox made ahead", code);
    }
  } catch (...) {
    remove(std::move(*ready));
    throw;
  }
  return Taken{std::move(ready->container), ready->uid, ready->id};
}

bool Pool::left_anything(const std::string& sandboxes_dir, const std::string& backend) {
  const std::string directory = directory_of(sandboxes_dir, backend);
  if (::access(directory.c_str(), F_OK) != 0) return false;
  const auto found = Workspace::enumerate(directory, backend);
  return !found || !found->empty();
}

std::string Pool::text() const {
  const std::lock_guard lock(mutex_);
  return std::to_string(ready_.size()) + " of " + std::to_string(options_.size) + " sandboxes ready ahead";
}

}  // namespace isogate::docker
