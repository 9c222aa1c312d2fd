#include "runner/files/workspace_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/changes.h"
#include "lib/sigpipe.h"
#include "runner/files/workspace_identity.h"
#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_stage.h"
#include "runner/files/workspace_transfer.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

using WatchClock = std::chrono::steady_clock;

constexpr uint32_t kInDirectory = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY |
                                  IN_CLOSE_WRITE | IN_ATTRIB | IN_EXCL_UNLINK | IN_ONLYDIR;
constexpr uint32_t kOfTop = IN_MOVE_SELF | IN_DELETE_SELF;
constexpr size_t kEventBytes = 64 << 10;             // read at a time
constexpr size_t kKeptOpen = 16;                     // directories, while a tree is looked through
constexpr size_t kMostHalves = 64;                   // renames of which one half came
constexpr std::chrono::milliseconds kHalfWaits{50};  // for the other half
constexpr std::chrono::seconds kLongestRest{2};
constexpr std::chrono::seconds kLookAtTop{
    2};  // a program with the directory open keeps its removal from being reported

Error reader_gone() { return {ISOGATE_CANCELLED, EPIPE, "the reader has gone"}; }

// Records that wait for the reader. Changes that do not fit are dropped; the reader learns that as soon as it
// has read what came before.
class UnsentChanges {
 public:
  explicit UnsentChanges(int out) : out_(out) {}

  void add(const FileChange& change) {
    const bool written = change.type == ISOGATE_CHANGE_WRITTEN;
    if (lost_ || (written && change.path == last_written_)) return;
    if (bytes_.size() - sent_ > kMostUnsent) return lose();
    append_change(bytes_, change);
    last_written_ = written ? change.path : std::string_view();
  }
  void lose() { lost_ = true; }
  [[nodiscard]] bool empty() const { return bytes_.size() == sent_ && !lost_; }

  // As much as the pipe accepts now, in pieces that do not block if poll(2) reports room.
  Result<void> send() {
    const SigpipeGuard guard;
    while (!empty()) {
      if (bytes_.size() == sent_) begin_overflow();
      pollfd room{out_, POLLOUT, 0};
      if (::poll(&room, 1, 0) <= 0) return {};
      if ((room.revents & POLLERR) != 0) return reader_gone();
      const ssize_t done =
          ::write(out_, bytes_.data() + sent_, std::min<size_t>(bytes_.size() - sent_, PIPE_BUF));
      if (done < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (done < 0 && errno == EPIPE) return reader_gone();
      if (done < 0) return os_error("cannot pass the changes on", errno);
      took(static_cast<size_t>(done));
    }
    return {};
  }

 private:
  void begin_overflow() {
    bytes_.clear();
    sent_ = 0;
    lost_ = false;
    append_change(bytes_, {.type = ISOGATE_CHANGE_OVERFLOW});
  }
  void took(size_t bytes) {
    last_written_.clear();  // a reader may have seen it before the next write
    sent_ += bytes;
    if (sent_ < bytes_.size() && sent_ < kMostUnsent / 2) return;
    bytes_.erase(0, sent_);
    sent_ = 0;
  }

  const int out_;
  std::string bytes_;
  size_t sent_ = 0;
  bool lost_ = false;
  std::string last_written_;  // by the last record, none of which has been sent
};

// One watched directory. Its path is derived from its parents, so that a rename changes only one node.
struct WatchNode {
  int watch = -1;
  WatchNode* parent = nullptr;  // null: the top
  std::string name;
  std::map<std::string, std::unique_ptr<WatchNode>, std::less<>> children;
};
using OwnNode = std::unique_ptr<WatchNode>;

class Watcher {
 public:
  Watcher(const Watched& watched, int out, int cancel_fd)
      : watched_(watched), cancel_fd_(cancel_fd), out_(out), unsent_(out), events_(kEventBytes) {}
  ~Watcher() { drop(std::move(top_)); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  Result<void> run();

 private:
  struct Half {  // the first half of a rename: the old place
    uint32_t cookie;
    int parent;  // its watch
    std::string name;
    bool directory;
    WatchClock::time_point due;
  };
  enum class Report { kNo, kYes };
  struct Todo {
    int parent;  // its watch
    std::string name;
  };

  Result<void> begin();
  Result<void> wait();
  void rest_since(WatchClock::time_point begun);
  Result<void> look_at_top();
  Result<Fd> open_top();

  Result<void> take_events();
  Result<void> take(const inotify_event& event, std::string_view name);
  Result<void> take_of_itself(WatchNode& node, uint32_t mask);
  Result<void> take_named(WatchNode& node, const inotify_event& event, const std::string& name);
  Result<void> came(WatchNode& node, const std::string& name, bool directory);
  Result<void> moved_here(WatchNode& node, const inotify_event& event, const std::string& name);
  void went(WatchNode& node, const std::string& name, bool directory);
  void expire_half(const Half& half);
  void expire_halves(WatchClock::time_point now);

  Result<void> add_tree(WatchNode& parent, const std::string& name, Report report);
  Result<void> add_below(int top, std::vector<Todo> todo, Report report);
  Result<WatchNode*> add_one(WatchNode* parent, const std::string& name, int directory);
  Result<void> look_into(const WatchNode& node, int directory, Report report, std::vector<Todo>& todo);
  bool place(OwnNode node, WatchNode& parent, const std::string& name);
  void remove_child(WatchNode& parent, const std::string& name);
  static OwnNode detach(WatchNode& node);
  void drop(OwnNode node);

  [[nodiscard]] WatchNode* node_of(int watch) const;
  [[nodiscard]] static std::string path_in(const WatchNode& node, std::string_view name);
  void report(uint32_t type, const std::string& path, bool directory, const std::string& from = {});

  const Watched& watched_;
  const int cancel_fd_;
  const int out_;
  Fd inotify_;
  UnsentChanges unsent_;
  std::vector<char> events_;
  OwnNode top_;
  struct stat top_info_ {};
  std::unordered_map<int, WatchNode*> nodes_;  // by watch
  std::vector<Half> halves_;
  WatchClock::time_point read_at_, look_at_;
  bool over_ = false, again_ = false;
};

Error watch_error(const std::string& attempt, int code) {
  if (code == ENOSPC)
    return {ISOGATE_RESOURCE_EXHAUSTED, code,
            attempt + ": the kernel's limit of watched directories is reached (fs.inotify.max_user_watches)"};
  if (code == EMFILE)
    return {ISOGATE_RESOURCE_EXHAUSTED, code,
            attempt +
                ": the kernel's limit of watches (fs.inotify.max_user_instances), or of open files, is "
                "reached"};
  return os_error(attempt, code);
}

Error too_many() {
  return {ISOGATE_RESOURCE_EXHAUSTED, 0,
          "there are more than " + std::to_string(kMostWatched) +
              " directories: watch a part of the tree, or without what is below the directory"};
}

// The machine, not the tree, is the reason that something cannot be watched.
bool lacks_means(int code) { return code == ENOSPC || code == EMFILE || code == ENFILE || code == ENOMEM; }

bool is_directory_in(int parent, const DirReader::Name& name) {
  if (name.type != DT_UNKNOWN) return name.type == DT_DIR;
  struct stat info {};
  return ::fstatat(parent, name.text.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

Result<Fd> Watcher::open_top() {
  Fd top = [this] {
    const FsIdentity as_tenant(watched_.identity);
    return Fd(as_tenant.error() ? -EPERM : resolve(watched_.tree, watched_.path, O_RDONLY | O_DIRECTORY));
  }();
  if (!top) return Error{os_error("", -top.get()).status, -top.get(), ""};
  struct stat info {};
  if (::fstat(top.get(), &info) != 0) return os_error("cannot look at the directory", errno);
  if (top_info_.st_ino == 0) top_info_ = info;
  if (info.st_dev == top_info_.st_dev && info.st_ino == top_info_.st_ino) return top;
  return os_error("another one is there", ENOENT);
}

// Also repeated when the kernel had no room for events: the known tree may then be wrong.
Result<void> Watcher::begin() {
  again_ = false;
  halves_.clear();
  drop(std::move(top_));
  inotify_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_) return watch_error("cannot begin a watch", errno);
  auto directory = open_top();
  if (!directory) return directory.error();
  auto top = add_one(nullptr, "", directory->get());
  if (!top) return top.error();
  if (!watched_.recursive) return {};
  std::vector<Todo> todo;
  if (auto looked = look_into(**top, directory->get(), Report::kNo, todo); !looked) return looked;
  return add_below(directory->get(), std::move(todo), Report::kNo);
}

bool is_gone(const Error& error) { return error.os_errno == ENOENT || error.os_errno == ENOTDIR; }

Result<void> Watcher::run() {
  if (auto begun = begin(); !begun) return begun;
  unsent_.add({.type = ISOGATE_CHANGE_READY});
  look_at_ = WatchClock::now() + kLookAtTop;
  while (!over_) {
    if (auto sent = unsent_.send(); !sent) return sent;
    if (auto waited = wait(); !waited) return waited;
    const auto now = WatchClock::now();
    const bool works = again_ || now >= read_at_;
    if (now >= read_at_)
      if (auto taken = take_events(); !taken) return taken;
    if (works) expire_halves(now);  // while it rests, the other half may be unread
    if (again_) {
      const auto begun = begin();
      if (!begun && !is_gone(begun.error())) return begun.error();
      again_ = again_ || !begun;  // until look_at_top() finds that it is over
      unsent_.lose();
      look_at_ = now;
    }
    if (works) rest_since(now);
    if (now >= look_at_)
      if (auto looked = look_at_top(); !looked) return looked;
  }
  return unsent_.send();
}

// Each batch is followed by a pause, so that no flood of changes keeps a processor busy.
void Watcher::rest_since(WatchClock::time_point begun) {
  const auto now = WatchClock::now();
  read_at_ = now + std::clamp<WatchClock::duration>(3 * (now - begun), kBatchPause, kLongestRest);
}

// Until there is something to read or to send, or something is due.
Result<void> Watcher::wait() {
  const auto now = WatchClock::now();
  const bool reads = now >= read_at_;
  auto until = look_at_;
  if (!reads) until = std::min(until, read_at_);
  for (const Half& half : halves_) until = std::min(until, std::max(half.due, read_at_));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  std::array<pollfd, 3> fds{{{cancel_fd_, POLLIN, 0},
                             {out_, static_cast<int16_t>(unsent_.empty() ? 0 : POLLOUT), 0},
                             {reads ? inotify_.get() : -1, POLLIN, 0}}};
  const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  if (ready < 0 && errno != EINTR) return os_error("cannot wait for changes", errno);
  if (ready <= 0) return {};
  if (fds[0].revents != 0) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
  if ((fds[1].revents & POLLERR) != 0) return reader_gone();
  return {};
}

Result<void> Watcher::look_at_top() {
  look_at_ = WatchClock::now() + kLookAtTop;
  const auto top = open_top();
  if (top || lacks_means(top.error().os_errno)) return {};
  over_ = is_gone(top.error());
  return over_ ? Result<void>() : top.error();
}

Result<void> Watcher::take_events() {
  const ssize_t got = ::read(inotify_.get(), events_.data(), events_.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (got <= 0) return os_error("cannot read the changes", got < 0 ? errno : EIO);
  for (size_t at = 0; at + sizeof(inotify_event) <= static_cast<size_t>(got) && !over_ && !again_;) {
    if (is_signalled(cancel_fd_)) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
    inotify_event event{};
    std::memcpy(&event, events_.data() + at, sizeof event);
    const char* text = events_.data() + at + sizeof event;
    at += sizeof event + event.len;
    if (auto taken = take(event, {text, ::strnlen(text, event.len)}); !taken) return taken;
  }
  return {};
}

Result<void> Watcher::take(const inotify_event& event, std::string_view name) {
  again_ = again_ || (event.mask & IN_Q_OVERFLOW) != 0;
  WatchNode* const node = node_of(event.wd);
  if (again_ || node == nullptr) return {};
  if (!name.empty()) return take_named(*node, event, std::string(name));
  return take_of_itself(*node, event.mask);
}

Result<void> Watcher::take_of_itself(WatchNode& node, uint32_t mask) {
  const bool gone = (mask & (IN_IGNORED | IN_UNMOUNT)) != 0;
  if (&node == top_.get()) {
    over_ = over_ || gone;
    return over_ ? Result<void>() : look_at_top();
  }
  if (gone) {
    drop(detach(node));
    return {};
  }
  if ((mask & IN_ATTRIB) == 0) return {};
  // Its mode may have changed: a directory that may no longer be listed is not watched.
  const auto top = open_top();
  if (!top) return {};
  Tree tree;
  tree.fd = top->get();
  const FsIdentity as_tenant(watched_.identity);
  if (as_tenant.error()) return *as_tenant.error();
  const Fd again(resolve(tree, path_in(*node.parent, node.name) + "/.", O_RDONLY | O_DIRECTORY, false));
  if (again.get() == -EACCES || again.get() == -EPERM) drop(detach(node));
  return {};
}

Result<void> Watcher::take_named(WatchNode& node, const inotify_event& event, const std::string& name) {
  const bool directory = (event.mask & IN_ISDIR) != 0;
  const auto same = std::find_if(halves_.begin(), halves_.end(), [&](const Half& half) {
    return half.parent == node.watch && half.name == name;
  });
  const bool other_half = (event.mask & IN_MOVED_TO) != 0;
  if (same != halves_.end() && !(other_half && same->cookie == event.cookie)) {
    const Half half = *same;
    halves_.erase(same);
    expire_half(half);
  }
  if ((event.mask & IN_MOVED_FROM) != 0) {
    const int watch = node.watch;
    if (halves_.size() >= kMostHalves) expire_halves(WatchClock::time_point::max());
    if (node_of(watch) == nullptr) return {};  // one of these has removed it
    halves_.push_back({event.cookie, watch, name, directory, WatchClock::now() + kHalfWaits});
    return {};
  }
  if (other_half) return moved_here(node, event, name);
  if ((event.mask & IN_CREATE) != 0) return came(node, name, directory);
  if (is_staged_name(name)) return {};
  if ((event.mask & IN_DELETE) != 0) {
    went(node, name, directory);
  } else if ((event.mask & (IN_MODIFY | IN_CLOSE_WRITE)) != 0) {
    report(ISOGATE_CHANGE_WRITTEN, path_in(node, name), directory);
  } else if ((event.mask & IN_ATTRIB) != 0) {
    report(ISOGATE_CHANGE_ATTRIBUTES, path_in(node, name), directory);
    // It may be readable now.
    if (directory && !node.children.contains(name)) return add_tree(node, name, Report::kYes);
  }
  return {};
}

Result<void> Watcher::came(WatchNode& node, const std::string& name, bool directory) {
  if (is_staged_name(name)) return {};
  report(ISOGATE_CHANGE_CREATED, path_in(node, name), directory);
  if (!directory || node.children.contains(name)) return {};
  return add_tree(node, name, Report::kYes);
}

Result<void> Watcher::moved_here(WatchNode& node, const inotify_event& event, const std::string& name) {
  const bool directory = (event.mask & IN_ISDIR) != 0;
  const auto found = std::find_if(halves_.begin(), halves_.end(),
                                  [&](const Half& half) { return half.cookie == event.cookie; });
  if (found == halves_.end()) {
    if (directory) remove_child(node, name);
    return came(node, name, directory);
  }
  const Half half = *found;
  halves_.erase(found);
  WatchNode* const before = node_of(half.parent);
  if (before == nullptr || is_staged_name(half.name)) {
    if (directory) remove_child(node, name);
    return came(node, name, directory);
  }
  if (is_staged_name(name)) {
    expire_half(half);
    return {};
  }
  report(ISOGATE_CHANGE_RENAMED, path_in(node, name), directory, path_in(*before, half.name));
  const auto child = before->children.find(half.name);
  if (child == before->children.end()) {
    if (!directory) return {};
    remove_child(node, name);
    return add_tree(node, name, Report::kYes);
  }
  if (!place(detach(*child->second), node, name)) again_ = true;
  return {};
}

void Watcher::went(WatchNode& node, const std::string& name, bool directory) {
  report(ISOGATE_CHANGE_REMOVED, path_in(node, name), directory);
  remove_child(node, name);
}

// It has left the watched tree. If its directory has left, too, that event reports it.
void Watcher::expire_half(const Half& half) {
  WatchNode* const parent = node_of(half.parent);
  if (parent != nullptr && !is_staged_name(half.name)) went(*parent, half.name, half.directory);
}

void Watcher::expire_halves(WatchClock::time_point now) {
  const auto late = std::stable_partition(halves_.begin(), halves_.end(),
                                          [now](const Half& half) { return half.due > now; });
  const std::vector<Half> expired(late, halves_.end());
  halves_.erase(late, halves_.end());
  for (const Half& half : expired) expire_half(half);
}

Result<void> Watcher::add_tree(WatchNode& parent, const std::string& name, Report report) {
  if (!watched_.recursive) return {};
  const auto top = open_top();
  if (top) return add_below(top->get(), {{parent.watch, name}}, report);
  if (lacks_means(top.error().os_errno)) return top.error();
  look_at_ = {};
  again_ = true;
  return {};
}

// Depth first, with a few of the directories above kept open: deep directories are not resolved from the top.
Result<void> Watcher::add_below(int top, std::vector<Todo> todo, Report report) {
  std::deque<std::pair<int, Fd>> open;  // by watch
  while (!todo.empty()) {
    if (is_signalled(cancel_fd_)) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
    const Todo next = std::move(todo.back());
    todo.pop_back();
    WatchNode* const parent = node_of(next.parent);
    if (parent == nullptr) continue;
    const std::string path = path_in(*parent, next.name);
    if (path.size() >= ISOGATE_CHANGE_MAX_PATH) continue;  // no path in it can be reported
    const auto above =
        std::find_if(open.begin(), open.end(), [&](const auto& each) { return each.first == next.parent; });
    Fd directory = [&] {
      const FsIdentity as_tenant(watched_.identity);
      if (as_tenant.error()) return Fd(-EPERM);
      if (above != open.end())
        return Fd(resolve_child(above->second.get(), next.name, O_RDONLY | O_DIRECTORY));
      Tree tree;
      tree.fd = top;
      return Fd(resolve(tree, path, O_RDONLY | O_DIRECTORY, false));
    }();
    if (lacks_means(-directory.get())) return os_error("cannot watch all of it", -directory.get());
    if (!directory) continue;  // removed, swapped, not readable, or another mount
    if (is_of_a_process(directory.get())) continue;
    auto node = add_one(parent, next.name, directory.get());
    if (!node) return node.error();
    if (*node == nullptr) continue;
    if (auto looked = look_into(**node, directory.get(), report, todo); !looked) return looked;
    open.emplace_front((*node)->watch, std::move(directory));
    if (open.size() > kKeptOpen) open.pop_back();
    if (report == Report::kYes)
      if (auto sent = unsent_.send(); !sent) return sent;
  }
  return {};
}

// Null: it must not be watched.
Result<WatchNode*> Watcher::add_one(WatchNode* parent, const std::string& name, int directory) {
  if (nodes_.size() >= kMostWatched) return too_many();
  const int watch = [&] {
    const FsIdentity as_tenant(watched_.identity);
    return as_tenant.error()
               ? -EPERM
               : watch_by_fd(inotify_.get(), directory, kInDirectory | (parent == nullptr ? kOfTop : 0));
  }();
  if (lacks_means(-watch)) return watch_error("cannot watch all of it", -watch);
  if (watch < 0 && parent == nullptr) return watch_error("cannot begin a watch", -watch);
  if (watch < 0) return static_cast<WatchNode*>(nullptr);
  if (WatchNode* const known = node_of(watch)) {  // it was moved here, and its event comes later
    if (parent == nullptr || known->parent == nullptr) return static_cast<WatchNode*>(nullptr);
    if (known->parent == parent && known->name == name) return known;
    if (!place(detach(*known), *parent, name)) again_ = true;
    return again_ ? nullptr : known;
  }
  auto made = std::make_unique<WatchNode>();
  WatchNode* const node = made.get();
  node->watch = watch;
  nodes_.emplace(watch, node);
  if (parent == nullptr) {
    top_ = std::move(made);
  } else {
    place(std::move(made), *parent, name);
  }
  return node;
}

Result<void> Watcher::look_into(const WatchNode& node, int directory, Report report,
                                std::vector<Todo>& todo) {
  const FsIdentity as_tenant(watched_.identity);
  if (as_tenant.error()) return *as_tenant.error();
  DirReader reader;
  while (!reader.end()) {
    if (is_signalled(cancel_fd_)) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
    std::vector<DirReader::Name> names;
    if (const int code = reader.next(directory, names); code < 0)
      return os_error("cannot list a directory that is to be watched", -code);
    for (const auto& name : names) {
      const bool is_directory = is_directory_in(directory, name);
      if (report == Report::kYes && !is_staged_name(name.text))
        this->report(ISOGATE_CHANGE_CREATED, path_in(node, name.text), is_directory);
      if (is_directory) todo.push_back({node.watch, name.text});
    }
    // Most of them are watched next.
    if (todo.size() > kMostWatched + 1) return too_many();
  }
  return {};
}

// Replaces the node that was known there. False: it would be below itself, so the known tree is wrong.
bool Watcher::place(OwnNode node, WatchNode& parent, const std::string& name) {
  for (const WatchNode* above = &parent; above != nullptr; above = above->parent) {
    if (above != node.get()) continue;
    drop(std::move(node));
    return false;
  }
  remove_child(parent, name);
  node->parent = &parent;
  node->name = name;
  parent.children.emplace(name, std::move(node));
  return true;
}

void Watcher::remove_child(WatchNode& parent, const std::string& name) {
  const auto child = parent.children.find(name);
  if (child != parent.children.end()) drop(detach(*child->second));
}

OwnNode Watcher::detach(WatchNode& node) {
  auto& siblings = node.parent->children;
  const auto found = siblings.find(node.name);
  OwnNode own = std::move(found->second);
  siblings.erase(found);
  node.parent = nullptr;
  return own;
}

// With everything below it. Not by its destructor, which would need a stack as deep as the tree.
void Watcher::drop(OwnNode node) {
  std::vector<OwnNode> todo;
  if (node) todo.push_back(std::move(node));
  while (!todo.empty()) {
    const OwnNode next = std::move(todo.back());
    todo.pop_back();
    ::inotify_rm_watch(inotify_.get(), next->watch);
    nodes_.erase(next->watch);
    for (auto& [name, child] : next->children) todo.push_back(std::move(child));
  }
}

WatchNode* Watcher::node_of(int watch) const {
  const auto found = nodes_.find(watch);
  return found == nodes_.end() ? nullptr : found->second;
}

// A path longer than any that can be reported is cut there.
std::string Watcher::path_in(const WatchNode& node, std::string_view name) {
  std::vector<std::string_view> parts{name};
  size_t size = name.size();
  for (const WatchNode* above = &node; above->parent != nullptr; above = above->parent) {
    size += above->name.size() + 1;
    if (size > ISOGATE_CHANGE_MAX_PATH) return std::string(size, '?');
    parts.push_back(above->name);
  }
  std::string path;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    path.append(path.empty() ? "" : "/").append(*part);
  return path;
}

// A longer path cannot be requested.
void Watcher::report(uint32_t type, const std::string& path, bool directory, const std::string& from) {
  if (path.size() > ISOGATE_CHANGE_MAX_PATH || from.size() > ISOGATE_CHANGE_MAX_PATH) return;
  unsent_.add({.type = type, .directory = directory, .path = path, .from = from});
}

}  // namespace

Result<void> watch_directory(const Watched& watched, int out, int cancel_fd) {
  return Watcher(watched, out, cancel_fd).run();
}

}  // namespace isogate
