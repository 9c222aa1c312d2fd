#include "plugins/docker/sandbox.h"

#include <algorithm>
#include <csignal>

#include "plugins/docker/background.h"
#include "plugins/docker/or_throw.h"
#include "runner/workspace.h"

namespace isogate::docker {

namespace {

using std::chrono::milliseconds;

// A cancelled call is answered soon, whatever the Engine does.
constexpr milliseconds kTold{300}, kKilled{100};

}  // namespace

void Sandbox::tell_loss(const Container::Way& way, const sdk::Error& error, const sdk::Call& call) {
  std::string how;
  // The Engine may have told already.
  if (!call.cancelled() && std::string_view(error.what()).find("its container") == std::string_view::npos) {
    const Bounded soon(kTold, call.cancel_fd());
    how = container_->how_it_ended(way.id, soon.call());
  }
  const bool ended = container_->lose(way, call.cancelled() ? kKilled : milliseconds(0));
  throw LostContact(error, how, ended);
}

// What finds its runner gone before anything was sent is tried once more, in a recreated container; what was
// lost on the way is told as lost, with what became of the container. Nothing it ran goes on.
template <typename Verb>
void Sandbox::with_runner(const sdk::Call& call, Verb verb) {
  for (int tries = 0;; ++tries) {
    const Container::Way way = container_->link(call);
    try {
      verb(*way.link);
      if (way.link->spent() && way.link->alive()) container_->lose(way, milliseconds(0));
      return;
    } catch (const sdk::Error& error) {
      if (way.link->alive()) throw;
      if (error.status() == ISOGATE_LOST) tell_loss(way, error, call);
      container_->lose(way, milliseconds(0));
      if (error.status() != ISOGATE_UNAVAILABLE || tries > 0) throw;
    }
  }
}

void Sandbox::exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) {
  std::vector<isogate_pair> env(request.env, request.env + request.envc);
  for (const auto& [key, value] : surroundings_) {
    const bool given = std::any_of(env.begin(), env.end(), [&key = key](const isogate_pair& each) {
      return sdk::view(each.key) == key;
    });
    if (!given) env.push_back({sdk::str(key), sdk::str(value)});
  }
  isogate_exec_request whole = request;
  whole.env = env.data();
  whole.envc = env.size();
  const auto begin = std::chrono::steady_clock::now();
  try {
    with_runner(call, [&](sdk::RunnerLink& link) { link.exec(call, whole, result); });
  } catch (const LostContact& lost) {
    if (!lost.ended || !call.cancelled()) throw;
    result = isogate_exec_result{};
    result.struct_size = sizeof result;
    result.flags = ISOGATE_RESULT_KILLED;
    result.term_signal = SIGKILL;
    result.wall_ns = static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count());
  }
}

void Sandbox::read(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.read(call, request, entry); });
}

uint64_t Sandbox::write(const sdk::Call& call, const isogate_file_request& request) {
  uint64_t written = 0;
  with_runner(call, [&](sdk::RunnerLink& link) { written = link.write(call, request); });
  return written;
}

void Sandbox::list(const sdk::Call& call, const isogate_file_request& request, const sdk::EntrySink& sink) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.list(call, request, sink); });
}

void Sandbox::stat(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.stat(call, request, entry); });
}

void Sandbox::mkdir(const sdk::Call& call, const isogate_file_request& request) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.mkdir(call, request); });
}

void Sandbox::move(const sdk::Call& call, const isogate_file_request& request) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.move(call, request); });
}

void Sandbox::remove(const sdk::Call& call, const isogate_file_request& request) {
  with_runner(call, [&](sdk::RunnerLink& link) { link.remove(call, request); });
}

void Sandbox::evidence(const sdk::Call& call, const isogate_evidence_request& request,
                       isogate_evidence& out) {
  const uint32_t size = out.struct_size;
  out = container_->evidence(call, request);
  out.struct_size = size;
}

void Sandbox::close(const sdk::Call& call, uint32_t mode) {
  if (mode > ISOGATE_CLOSE_PURGE) throw sdk::Error(ISOGATE_INVALID_ARGUMENT, "the close mode is unknown");
  if (mode == ISOGATE_CLOSE_DETACH) return container_->detach();
  container_->end(call);
  if (mode == ISOGATE_CLOSE_STOP) return;
  container_->purge(call);
  or_throw(Workspace::purge(home_.sandboxes_dir, home_.sandbox_id, call.cancel_fd()));
  if (home_.sweeper != nullptr) home_.sweeper->wake();
  if (home_.registry != nullptr) or_throw(home_.registry->release(home_.sandbox_id, home_.uid));
}

}  // namespace isogate::docker
