#include "runner/agent/calls/kept_exec.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <vector>

namespace isogate::agent {
namespace {

constexpr size_t kPiece = ISOGATE_RUNNER_MAX_FRAME - sizeof(isogate_runner_channel);
constexpr std::chrono::milliseconds kOverdueLook{25};  // after a kill: a stopped reaper causes no event
constexpr std::chrono::minutes kKeepEnded{5};
constexpr size_t kMostEnded = 64, kMostEndedBytes = 4 << 20;

KeptId id_of(const isogate_runner_keep& keep) {
  KeptId id{};
  std::copy(std::begin(keep.id), std::end(keep.id), id.begin());
  return id;
}

int milliseconds_until(Clock::time_point when, Clock::time_point now) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

}  // namespace

KeptExec::KeptExec(Place& place, link::ExecOrder order)
    : place_(place),
      job_(place, std::move(order)),
      id_(id_of(job_.keep())),
      grace_(job_.keep().grace_sec),
      output_{Spool(job_.has(ISOGATE_RUNNER_EXEC_STDOUT) ? kKeptBytes : 0),
              Spool(job_.has(ISOGATE_RUNNER_EXEC_STDERR) ? kKeptBytes : 0)} {}

KeptExec::~KeptExec() {
  kill();
  if (program_.joinable()) program_.join();
  if (mover_.joinable()) mover_.join();
}

Result<void> KeptExec::open() {
  for (Fd* event : {&cancel_, &wake_}) {
    auto made = make_event();
    if (!made) return made.error();
    *event = std::move(*made);
  }
  if (wake_.get() >= place_.most_descriptors())
    return Error{ISOGATE_RESOURCE_EXHAUSTED, EMFILE, "this sandbox's limit on open files is reached"};
  if (auto opened = job_.open(); !opened) return opened;
  for (size_t i = 0; i < 3; ++i) {
    if (!job_.has(kStreamFlags[i])) continue;
    auto pipe = make_pipe(i == 0 ? NonBlocking::kWrite : NonBlocking::kRead);
    if (!pipe) return pipe.error();
    job_.give(i, std::move(i == 0 ? pipe->read : pipe->write));
    (i == 0 ? input_ : pipes_[i - 1]) = std::move(i == 0 ? pipe->write : pipe->read);
  }
  return {};
}

Result<void> KeptExec::start() {
  try {
    mover_ = std::thread([this] { move_bytes(); });
    program_ = std::thread([this] { run_program(); });
    return {};
  } catch (const std::system_error&) {
    const std::lock_guard lock(mutex_);
    program_ended_ = true;
    signal_event(wake_.get());
    return no_thread();
  }
}

void KeptExec::run_program() {
  Answer answer = Answer::of([this] { return job_.answer(job_.run(cancel_.get())); });
  const std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
  program_ended_ = true;
  signal_event(wake_.get());
}

void KeptExec::kill() {
  const std::lock_guard lock(mutex_);
  if (cancel_ && !killed_at_) signal_event(cancel_.get());
  if (!killed_at_) killed_at_ = Clock::now();
  if (wake_) signal_event(wake_.get());
}

std::optional<Clock::time_point> KeptExec::ended_at() {
  const std::lock_guard lock(mutex_);
  return ended_at_;
}

size_t KeptExec::held() {
  const std::lock_guard lock(mutex_);
  return output_[0].held() + output_[1].held();
}

Answer KeptExec::answer() {
  const std::lock_guard lock(mutex_);
  return answer_;
}

size_t KeptExec::room(size_t stream) const {
  if (view_ == nullptr || (view_->streams_ & kStreamFlags[stream + 1]) == 0) return SIZE_MAX;
  return output_[stream].room(view_->at_[stream]);
}

void KeptExec::read_some(size_t stream, size_t most) {
  if (most == 0) return;  // a read of 0 bytes would look like the end
  static thread_local std::vector<char> buffer(kPiece);
  const ssize_t got = ::read(pipes_[stream].get(), buffer.data(), std::min(buffer.size(), most));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return pipes_[stream].reset();
  output_[stream].append({buffer.data(), static_cast<size_t>(got)});
  changed_.notify_all();
}

void KeptExec::consume(size_t bytes) {
  const size_t foreign = std::min(foreign_input_, bytes);
  foreign_input_ -= foreign;
  if (view_ == nullptr || bytes == foreign) return;
  view_->window_.consume(bytes - foreign);
  if (view_->window_.is_due()) changed_.notify_all();
}

void KeptExec::write_input() {
  if (!waiting_input_.empty()) {
    ssize_t size = input_ ? ::write(input_.get(), waiting_input_.data(), waiting_input_.size())
                          : static_cast<ssize_t>(waiting_input_.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size < 0) {  // nothing reads any more: input is discarded
      input_.reset();
      size = static_cast<ssize_t>(waiting_input_.size());
    }
    waiting_input_.erase(0, static_cast<size_t>(size));
    consume(static_cast<size_t>(size));
  }
  if (waiting_input_.empty() && input_ended_) input_.reset();
}

void KeptExec::move_bytes() {
  for (bool over = false; !over;) {
    try {
      wait_for_bytes();
    } catch (const std::bad_alloc&) {  // what it writes cannot be kept
      kill();
      std::this_thread::sleep_for(kOverdueLook);
    }
    const std::lock_guard lock(mutex_);
    over = program_ended_;
  }
  end_all();
}

void KeptExec::wait_for_bytes() {
  std::array<pollfd, 4> fds{};
  const auto now = Clock::now();
  int patience = -1;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < 2; ++i) fds[i] = {room(i) > 0 ? pipes_[i].get() : -1, POLLIN, 0};
    fds[2] = {waiting_input_.empty() ? -1 : input_.get(), POLLOUT, 0};
    fds[3] = {wake_.get(), POLLIN, 0};
    if (killed_at_)
      patience = static_cast<int>(kOverdueLook.count());
    else if (view_ == nullptr)
      patience = milliseconds_until(alone_since_ + grace_, now);
  }
  if (::poll(fds.data(), fds.size(), patience) < 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (fds[3].revents != 0) clear_event(wake_.get());
    for (size_t i = 0; i < 2; ++i)
      if (fds[i].revents != 0 && pipes_[i]) read_some(i, room(i));
    if (fds[2].revents != 0 || (waiting_input_.empty() && input_ended_)) write_input();
  }
  look_after(Clock::now());
}

// As a session does for its calls: a tenant that stops a reaper delays nothing.
void KeptExec::look_after(Clock::time_point now) {
  Clock::duration overdue{};
  bool alone = false;
  {
    const std::lock_guard lock(mutex_);
    if (killed_at_ && !program_ended_) overdue = now - *killed_at_;
    alone = view_ == nullptr && !killed_at_ && now >= alone_since_ + grace_;
  }
  if (alone) kill();
  place_.orphans().continue_reapers(overdue);
}

// What is in the pipe now is all that it wrote.
void KeptExec::take_rest(size_t stream) {
  int left = 0;
  if (!pipes_[stream] || ::ioctl(pipes_[stream].get(), FIONREAD, &left) != 0) return;
  if (view_ != nullptr) output_[stream].widen(static_cast<size_t>(left));  // its view misses nothing
  while (left > 0 && pipes_[stream]) {
    const uint64_t before = output_[stream].next();
    read_some(stream, static_cast<size_t>(left));
    if (output_[stream].next() == before) return;
    left -= static_cast<int>(output_[stream].next() - before);
  }
}

void KeptExec::end_all() {
  const std::lock_guard lock(mutex_);
  input_.reset();
  waiting_input_.clear();
  for (size_t i = 0; i < 2; ++i) {
    try {
      take_rest(i);
    } catch (const std::bad_alloc&) {
      answer_ = Answer(Error{ISOGATE_RESOURCE_EXHAUSTED, ENOMEM, "there is no memory for its output"});
    }
    pipes_[i].reset();
  }
  ended_at_ = Clock::now();
  changed_.notify_all();
}

KeptExec::View::View(std::shared_ptr<KeptExec> of, uint32_t streams) : of_(std::move(of)), streams_(streams) {
  const std::lock_guard lock(of_->mutex_);
  of_->view_ = this;
  of_->foreign_input_ = of_->waiting_input_.size();
  for (size_t i = 0; i < 2; ++i) at_[i] = of_->output_[i].first();
  first_.stdout_offset = at_[0];
  first_.stderr_offset = at_[1];
  const bool takes_input = of_->input_ && !of_->input_ended_;
  if (takes_input && (streams & ISOGATE_RUNNER_EXEC_STDIN) != 0)
    first_.flags |= ISOGATE_RUNNER_REJOINED_STDIN;
  else
    of_->input_ended_ = true;
  signal_event(of_->wake_.get());
  of_->changed_.notify_all();
}

KeptExec::View::~View() {
  const std::lock_guard lock(of_->mutex_);
  if (of_->view_ != this) return;
  of_->view_ = nullptr;
  of_->alone_since_ = Clock::now();
  signal_event(of_->wake_.get());
}

bool KeptExec::View::put(std::string_view bytes) {
  const std::lock_guard lock(of_->mutex_);
  if ((streams_ & ISOGATE_RUNNER_EXEC_STDIN) == 0 || !window_.accept(bytes.size())) return false;
  if (of_->view_ != this) return true;
  if (of_->input_ended_) {  // by the program's end, or by the previous view
    window_.consume(bytes.size());
    return true;
  }
  of_->waiting_input_.append(bytes);
  of_->write_input();
  signal_event(of_->wake_.get());
  return true;
}

bool KeptExec::View::end_input() {
  const std::lock_guard lock(of_->mutex_);
  if ((streams_ & ISOGATE_RUNNER_EXEC_STDIN) == 0) return false;
  if (of_->view_ != this) return true;
  of_->input_ended_ = true;
  of_->write_input();
  return true;
}

bool KeptExec::View::add_credit(uint32_t channel, uint32_t bytes) {
  if (channel != ISOGATE_RUNNER_STDOUT && channel != ISOGATE_RUNNER_STDERR) return false;
  const std::lock_guard lock(of_->mutex_);
  of_->changed_.notify_all();
  return credit_[channel - ISOGATE_RUNNER_STDOUT].add(bytes);
}

void KeptExec::View::detach() {
  const std::lock_guard lock(of_->mutex_);
  detached_ = true;
  of_->changed_.notify_all();
}

void KeptExec::View::give_up(std::chrono::milliseconds patience) {
  const std::lock_guard lock(of_->mutex_);
  until_ = std::min(until_, Clock::now() + patience);
  of_->changed_.notify_all();
}

// False: there is nothing to send, or no credit for it.
bool KeptExec::View::take_bytes(Next& next) {
  for (size_t tries = 0; tries < 2; ++tries) {
    const size_t i = turn_++ % 2;
    Spool& spool = of_->output_[i];
    if ((streams_ & kStreamFlags[i + 1]) == 0 || at_[i] >= spool.next()) continue;
    const bool was_full = of_->room(i) == 0;
    const uint64_t allowed = credit_[i].take(kPiece);
    const std::string_view part = spool.from(at_[i]).substr(0, allowed);
    credit_[i].give_back(allowed - part.size());
    if (part.empty()) continue;
    next.frame = ISOGATE_RUNNER_DATA;
    next.channel.channel = ISOGATE_RUNNER_STDOUT + static_cast<uint32_t>(i);
    next.bytes.assign(part);
    at_[i] += part.size();
    if (was_full) signal_event(of_->wake_.get());
    return true;
  }
  return false;
}

KeptExec::View::Next KeptExec::View::next() {
  Next next;
  std::unique_lock lock(of_->mutex_);
  for (;;) {
    if (detached_ || of_->view_ != this) return next;
    if (const uint32_t granted = window_.grant(of_->waiting_input_.empty()); granted > 0) {
      next.frame = ISOGATE_RUNNER_CREDIT;
      next.channel = {ISOGATE_RUNNER_STDIN, granted};
      return next;
    }
    if (take_bytes(next)) return next;
    const auto all_sent = [&](size_t i) {
      return (streams_ & kStreamFlags[i + 1]) == 0 || at_[i] >= of_->output_[i].next();
    };
    if (of_->ended_at_ && ((all_sent(0) && all_sent(1)) || Clock::now() >= until_)) {
      next.ended = true;
      return next;
    }
    if (of_->ended_at_ && until_ != Clock::time_point::max())
      of_->changed_.wait_until(lock, until_);
    else
      of_->changed_.wait(lock);
  }
}

Result<void> KeptExecs::add(const std::shared_ptr<KeptExec>& exec) {
  forget_old();
  const std::lock_guard lock(mutex_);
  if (std::ranges::any_of(execs_, [&](const auto& each) { return each->id() == exec->id(); }))
    return Error{ISOGATE_ALREADY_EXISTS, EEXIST, "there is an exec of that id already"};
  execs_.push_back(exec);
  return {};
}

std::shared_ptr<KeptExec> KeptExecs::find(const KeptId& id) {
  forget_old();
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(execs_, [&](const auto& each) { return each->id() == id; });
  return found == execs_.end() ? nullptr : *found;
}

void KeptExecs::forget(const KeptId& id) {
  std::shared_ptr<KeptExec> gone;  // which may wait for its threads
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(execs_, [&](const auto& each) { return each->id() == id; });
  if (found == execs_.end()) return;
  gone = std::move(*found);
  execs_.erase(found);
}

void KeptExecs::forget_old() {
  std::vector<std::shared_ptr<KeptExec>> gone;
  const std::lock_guard lock(mutex_);
  size_t ended = 0, bytes = 0;
  for (auto at = execs_.rbegin(); at != execs_.rend(); ++at) {
    const auto when = (*at)->ended_at();
    if (!when) continue;
    bytes += (*at)->held();
    const Clock::duration keep = std::max<Clock::duration>(kKeepEnded, (*at)->grace());
    if (++ended > kMostEnded || bytes > kMostEndedBytes || Clock::now() - *when > keep)
      gone.push_back(std::move(*at));
  }
  std::erase(execs_, nullptr);
}

}  // namespace isogate::agent
