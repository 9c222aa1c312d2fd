#include "plugins/docker/sandbox.h"

#include <csignal>

#include "plugins/common/bounded_call.h"
#include "plugins/common/or_throw.h"
#include "runner/files/workspace.h"

namespace isogate::docker {

namespace {

using std::chrono::milliseconds;

// A cancelled call is answered soon, whatever the Engine does; a busy machine gets the time to report that
// the program has ended, because otherwise that is not known.
constexpr milliseconds kTold{300}, kKilled{2'000};

}  // namespace

void Home::remove(Container* container, const sdk::Call& call) const {
  if (container != nullptr) {
    container->end(call);
    container->purge(call);
  }
  own_or_throw(disk != nullptr ? disk->release() : unmount_left(sandboxes_dir, sandbox_id));
  own_or_throw(Workspace::purge(sandboxes_dir, sandbox_id, call.cancel_fd()));
  if (sweeper != nullptr) sweeper->wake();
  if (registry != nullptr) own_or_throw(registry->release(sandbox_id, uid));
}

void Sandbox::tell_loss(const Container::Way& way, const sdk::Error& error, const sdk::Call& call) {
  std::string how;
  // The Engine may have reported it already.
  if (!call.cancelled() && std::string_view(error.what()).find("its container") == std::string_view::npos) {
    try {
      const BoundedCall soon(kTold, call.cancel_fd());
      how = container_->how_it_ended(way.id, soon.call());
    } catch (const sdk::Error&) {  // it stays unknown: contact is lost all the same
    }
  }
  const bool ended = container_->lose(way, call.cancelled() ? kKilled : milliseconds(0));
  throw LostContact(error, how, ended);
}

// Nothing that it ran continues.
void Sandbox::with_runner(const sdk::Call& call, const Verb& verb) {
  for (int tries = 0;; ++tries) {
    const Container::Way way = container_->link(call);
    try {
      verb(*way.link);
      if (way.link->spent() && way.link->alive()) container_->lose(way, milliseconds(0));
      return;
    } catch (const sdk::Error& error) {
      const bool alive = way.link->alive();
      if (!alive && error.status() == ISOGATE_LOST) tell_loss(way, error, call);
      if (!alive || way.link->spent()) container_->lose(way, milliseconds(0));
      if (alive || !is_repeatable(error) || tries > 0) throw;
    }
  }
}

void Sandbox::with_program(const sdk::Call& call, isogate_exec_result& result, const Verb& verb) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    with_runner(call, verb);
  } catch (const LostContact& lost) {
    if (!lost.ended || !call.cancelled()) throw;
    result = isogate_exec_result{};
    result.struct_size = sizeof result;
    result.flags = ISOGATE_RESULT_KILLED;
    result.term_signal = SIGKILL;
    result.wall_ns = static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count());
  }
}

void Sandbox::close(const sdk::Call& call, uint32_t mode) {
  if (mode == ISOGATE_CLOSE_DETACH) {
    container_->detach();
    return home_.disk->leave();
  }
  if (mode == ISOGATE_CLOSE_STOP) return container_->end(call);
  home_.remove(container_.get(), call);
}

}  // namespace isogate::docker
