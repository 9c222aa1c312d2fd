#include "gateway/host/sandboxes.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <vector>

#include "gateway/base/budgets.h"
#include "gateway/base/log_left.h"
#include "gateway/host/abi_call.h"
#include "gateway/host/text.h"
#include "lib/capabilities.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate {
namespace {

constexpr size_t kClosers = 64;

Error not_open(const std::string& id) { return {ISOGATE_NO_SANDBOX, 0, "sandbox `" + id + "` is not open"}; }

isogate_sandbox_spec spec_of(const ipc::OpenCall& call, const LimitList& limits, uint32_t egress,
                             const isogate_pair& image) {
  isogate_sandbox_spec spec{};
  spec.struct_size = sizeof spec;
  spec.flags = call.flags;
  spec.egress = egress;
  spec.sandbox_id = abi_str(call.sandbox_id);
  spec.tenant = abi_str(call.tenant);
  spec.agent_id = abi_str(call.agent_id);
  spec.handle = abi_str(call.handle);
  spec.limits = limits.items.data();
  spec.limit_count = limits.count;
  spec.options = &image;
  spec.option_count = call.image.empty() ? 0 : 1;
  return spec;
}

// A plugin may claim no more for a sandbox than its descriptor does.
const char* implausible(const isogate_sandbox_info& info, const Description& description) {
  if (!known_isolation(info.isolation)) return "open() answered with an unknown isolation";
  if (info.isolation > description.isolation)
    return "open() answered with more isolation than its descriptor";
  return nullptr;
}

// What the plugin does not have is not open any more either.
bool is_closed(isogate_status status) { return status == ISOGATE_OK || status == ISOGATE_NO_SANDBOX; }

void log_close_failed(const std::string& id, const Error& error) {
  log::warn("sandbox_close_failed", {{"sandbox", id}, {"reason", error.message}});
}

}  // namespace

Result<ipc::Opened> Sandboxes::open(const ipc::OpenCall& call, const Limits& limits, uint32_t egress) {
  Lock lock(mutex_);
  for (auto found = boxes_.find(call.sandbox_id); found != boxes_.end();
       found = boxes_.find(call.sandbox_id)) {
    Box& box = found->second;
    if (box.state == State::kOpening || box.state == State::kClosing) {
      if (auto waited = wait(lock, call.call.cancel.get()); !waited) return waited.error();
      continue;
    }
    const bool broken = box.state == State::kBroken;
    const bool to_close = (call.flags & ISOGATE_OPEN_ATTACH_ONLY) != 0;
    if (broken && !to_close && !box.own_close)
      return Error{ISOGATE_UNAVAILABLE, 0, "an earlier close of this sandbox failed, and is to be repeated"};
    if (!box.own_close || (broken && to_close)) {
      ipc::Opened opened = box.opened;
      opened.flags |= ISOGATE_SANDBOX_ATTACHED;
      opened.flags &= ~ISOGATE_SANDBOX_FRESH;
      return opened;
    }
    AbiCall abi(call.call);
    if (auto closed = close_box(lock, call.sandbox_id, box, abi.call, *box.own_close); !closed)
      return closed.error();
  }
  Box& box = boxes_[call.sandbox_id];
  lock.unlock();
  isogate_sandbox* sandbox = nullptr;
  auto opened = call_open(call, limits, egress, sandbox);
  lock.lock();
  changed_.notify_all();
  if (!opened && sandbox == nullptr) {
    boxes_.erase(call.sandbox_id);
    return opened;
  }
  box.sandbox = sandbox;
  if (opened) {
    box.state = State::kOpen;
    box.opened = *opened;
  } else {
    box.state = State::kBroken;
    box.own_close = ISOGATE_CLOSE_STOP;
  }
  return opened;
}

Result<ipc::Opened> Sandboxes::call_open(const ipc::OpenCall& call, const Limits& limits, uint32_t egress,
                                         isogate_sandbox*& sandbox) {
  AbiCall abi(call.call);
  const LimitList list = limits.list();
  const isogate_pair image{abi_str(ISOGATE_OPTION_IMAGE), abi_str(call.image)};
  isogate_sandbox_spec spec = spec_of(call, list, egress, image);
  isogate_sandbox_info info{};
  info.struct_size = sizeof info;
  info.uid = UINT32_MAX;
  const isogate_backend_api& api = instance_.api();
  isogate_status status = api.open(instance_.get(), &abi.call, &spec, &sandbox, &info, &abi.error);
  if (status != ISOGATE_OK) {
    sandbox = nullptr;
    return plugin_failure(status, abi.error);
  }
  if (sandbox == nullptr) return plugin_defect("open() answered OK without a sandbox");
  if (const char* why = implausible(info, instance_.description())) {
    Error defect = plugin_defect(why);
    status = api.close(sandbox, &abi.call, ISOGATE_CLOSE_STOP, &abi.error);
    if (is_closed(status)) {
      sandbox = nullptr;
    } else {
      defect.status = ISOGATE_LOST;
      log_close_failed(call.sandbox_id, plugin_failure(status, abi.error));
    }
    return defect;
  }
  ipc::Opened opened;
  opened.flags = info.flags & (ISOGATE_SANDBOX_ATTACHED | ISOGATE_SANDBOX_RUNS | ISOGATE_SANDBOX_FRESH);
  opened.isolation = info.isolation;
  opened.uid = info.uid;
  opened.handle = clean_text(info.handle);
  return opened;
}

Result<void> Sandboxes::close(const ipc::CloseCall& call) {
  AbiCall abi(call.call);
  Lock lock(mutex_);
  for (;;) {
    auto found = boxes_.find(call.sandbox_id);
    if (found == boxes_.end()) return not_open(call.sandbox_id);
    if (found->second.state == State::kOpen || found->second.state == State::kBroken)
      return close_box(lock, call.sandbox_id, found->second, abi.call, call.mode);
    if (auto waited = wait(lock, call.call.cancel.get()); !waited) return waited;
  }
}

Result<void> Sandboxes::close_box(Lock& lock, const std::string& id, Box& box, const isogate_call& call,
                                  uint32_t mode) {
  mode = std::max(mode, box.own_close.value_or(mode));
  box.state = State::kClosing;
  while (box.calls > 0) {
    auto waited = wait(lock, call.cancel_fd);
    if (waited) continue;
    box.state = State::kBroken;
    changed_.notify_all();
    return waited;
  }
  isogate_error error{};
  error.struct_size = sizeof error;
  lock.unlock();
  isogate_status status = instance_.api().close(box.sandbox, &call, mode, &error);
  lock.lock();
  changed_.notify_all();
  if (is_closed(status))
    boxes_.erase(id);
  else
    box.state = State::kBroken;
  const bool may_leave = status == ISOGATE_NO_SANDBOX && mode == ISOGATE_CLOSE_PURGE;
  if (is_closed(status) && !may_leave) return {};
  return plugin_failure(status, error);
}

Result<void> Sandboxes::wait(Lock& lock, int cancel_fd) {
  changed_.wait(lock, cancel_fd);
  if (!is_signalled(cancel_fd)) return {};
  return Error{ISOGATE_CANCELLED, 0, "cancelled while another call of that sandbox was running"};
}

Result<Sandboxes::Lease> Sandboxes::lease(const std::string& sandbox_id) {
  Lock lock(mutex_);
  auto found = boxes_.find(sandbox_id);
  if (found == boxes_.end() || found->second.state != State::kOpen || found->second.own_close)
    return not_open(sandbox_id);
  ++found->second.calls;
  return Lease(*this, found->second);
}

void Sandboxes::give_back(Box& box) {
  Lock lock(mutex_);
  --box.calls;
  if (box.state == State::kClosing && box.calls == 0) changed_.notify_all();
}

void Sandboxes::mark_ended(Box& box) {
  Lock lock(mutex_);
  box.own_close = ISOGATE_CLOSE_DETACH;
}

std::vector<std::string> Sandboxes::ids() {
  Lock lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [id, box] : boxes_) all.push_back(id);
  return all;
}

std::vector<std::string> Sandboxes::close_all(uint32_t mode) {
  const std::vector<std::string> ids = this->ids();
  std::atomic<size_t> next = 0;
  const auto limit = make_timer(budget::kCloseAll);
  const int cancel_fd = limit ? limit->get() : -1;
  std::mutex ending;
  std::condition_variable ended;
  bool over = false;
  std::jthread watch;
  auto work = [&] {
    for (size_t i = next++; i < ids.size(); i = next++) {
      AbiCall abi(cancel_fd);
      Lock lock(mutex_);
      auto closed = close_box(lock, ids[i], boxes_.at(ids[i]), abi.call, mode);
      if (!closed) log_close_failed(ids[i], closed.error());
    }
  };
  std::vector<std::jthread> helpers;
  try {
    watch = std::jthread([&] {
      std::unique_lock lock(ending);
      if (ended.wait_for(lock, budget::kCloseAll + budget::kCloseLate, [&] { return over; })) return;
      log_left(this->ids(), "the plugin did not return from their close");
      log::flush();
      ::_exit(1);
    });
    for (size_t i = 1; i < std::min(kClosers, ids.size()); ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads: fewer at a time
  }
  work();
  helpers.clear();
  {
    const std::lock_guard lock(ending);
    over = true;
    ended.notify_all();
  }
  return this->ids();
}

}  // namespace isogate
