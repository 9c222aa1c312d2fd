#include "runner/exec/apart.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <string>

#include "runner/exec/raw_syscall.h"
#include "runner/exec/spawn/spawn.h"

namespace isogate {
namespace {

constexpr size_t kApartGuard = 64 * 1024, kStack = 1024 * 1024;

struct Errand {
  const std::function<Result<void>()>* work;
  Result<void> result = Error{ISOGATE_INTERNAL, 0, "the child that should do it was killed"};
};

void go(void* argument) {
  Errand& errand = *static_cast<Errand*>(argument);
  try {
    errand.result = (*errand.work)();
  } catch (const std::exception& error) {
    errand.result = Error{ISOGATE_INTERNAL, 0, error.what()};
  } catch (...) {
    errand.result = Error{ISOGATE_INTERNAL, 0, "unknown exception"};
  }
  for (;;) raw::call(SYS_exit_group, 0);
}

// A copy of this process does it: a process that is not dumpable cannot write its own maps.
struct Founding {
  std::string uid_map, gid_map;
  struct Report {  // in a page that stays shared
    int fd, error;
    const char* what;
  } * report;
};

void write_map(Founding& founding, const char* path, const char* text, size_t size) {
  if (founding.report->error != 0) return;
  const long file = raw::call(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
  const long done = file < 0 ? file : raw::call(SYS_write, file, text, size);
  if (file >= 0) raw::call(SYS_close, file);
  if (done >= 0) return;
  founding.report->error = static_cast<int>(-done);
  founding.report->what = path;
}

void found(void* argument) {
  Founding& founding = *static_cast<Founding*>(argument);
  raw::call(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
  write_map(founding, "/proc/self/setgroups", "deny", 4);
  write_map(founding, "/proc/self/uid_map", founding.uid_map.data(), founding.uid_map.size());
  write_map(founding, "/proc/self/gid_map", founding.gid_map.data(), founding.gid_map.size());
  const long fd = raw::call(SYS_openat, AT_FDCWD, "/proc/self/ns/user", O_RDONLY | O_CLOEXEC, 0);
  founding.report->fd = static_cast<int>(fd);
  if (fd < 0 && founding.report->error == 0) founding.report->error = static_cast<int>(-fd);
  for (;;) raw::call(SYS_exit_group, 0);
}

class Stack {
 public:
  Stack()
      : memory_(::mmap(nullptr, kApartGuard + kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0)) {
    if (memory_ == MAP_FAILED || ::mprotect(start(), kStack, PROT_READ | PROT_WRITE) != 0) error_ = errno;
  }
  // Its last frames never return: a sanitizer would attribute them to the next code at this address.
  ~Stack() {
    if (memory_ == MAP_FAILED) return;
    ASAN_UNPOISON_MEMORY_REGION(start(), kStack);
    ::munmap(memory_, kApartGuard + kStack);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  [[nodiscard]] char* start() const { return static_cast<char*>(memory_) + kApartGuard; }
  [[nodiscard]] int error() const { return error_; }

 private:
  void* memory_;
  int error_ = 0;
};

// Starts the child and waits for its end; its pid, or -errno.
long run_child(uint64_t flags, const Stack& stack, void (*entry)(void*), void* argument) {
  CloneRequest request = {};
  request.flags = flags | CLONE_VFORK | CLONE_FILES;
  request.stack = stack.start();
  request.stack_size = kStack;
  request.entry = entry;
  request.argument = argument;
  return raw_run_child(request);
}

}  // namespace

Result<void> run_apart(const std::function<Result<void>()>& work) {
  const Stack stack;
  if (stack.error() != 0) return os_error("cannot map a stack", stack.error());
  Errand errand{&work};
  const long child = run_child(CLONE_VM, stack, go, &errand);
  if (child < 0) return os_error("cannot start a process", static_cast<int>(-child));
  return errand.result;
}

Result<Fd> make_user_namespace() {
  const Stack stack;
  if (stack.error() != 0) return os_error("cannot map a stack", stack.error());
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return os_error("cannot map a page", errno);
  const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
  Founding founding{uid + " " + uid + " 1\n", gid + " " + gid + " 1\n", static_cast<Founding::Report*>(page)};
  *founding.report = {-1, 0, nullptr};
  const long child = run_child(CLONE_NEWUSER, stack, found, &founding);
  const Founding::Report report = *founding.report;
  ::munmap(page, 4096);
  Fd made(report.fd);
  if (child < 0) return os_error("cannot make a user namespace", static_cast<int>(-child));
  if (report.error != 0 && report.what != nullptr)
    return os_error(std::string("cannot write `") + report.what + "`", report.error);
  if (!made) return os_error("cannot make a user namespace", report.error != 0 ? report.error : ECHILD);
  return made;
}

}  // namespace isogate
