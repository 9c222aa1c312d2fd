// The C ABI of backend.h for authors who write C++20: derive a Backend and a Sandbox, throw Error, and
// name your classes in one macro. Header-only; needs the standard library and the C headers beside it. All
// its code is compiled into your own shared object. sdk/examples/echo is a complete plugin.
//
// Thread rules are those of backend.h: a Backend's functions are called from any thread at once, a
// Sandbox's too, also for one sandbox. Requests are borrowed for the call: copy what you keep. They are checked
// before your function gets them: unknown flags, scopes and modes, reserved fields that are not 0 and malformed
// limits are ISOGATE_INVALID_ARGUMENT.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "isogate/backend.h"
#include "isogate/disk.h"
#include "isogate/kept_exec.h"
#include "isogate/orphans.h"

namespace isogate::sdk {

inline std::string_view view(isogate_str text) { return {text.ptr, static_cast<size_t>(text.len)}; }
inline isogate_str str(std::string_view text) { return {text.data(), text.size()}; }

// Copies as much as fits and appends a NUL: for the text fields of answers.
template <size_t N>
void set_text(char (&to)[N], std::string_view from) {
  size_t size = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), size);
  to[size] = '\0';
}

// A status other than ISOGATE_OK. The message is for a person: the thing, what was attempted, why not.
class Error : public std::exception {
 public:
  Error(isogate_status status, std::string message, int os_errno = 0)
      : status_(status), os_errno_(os_errno), message_(std::move(message)) {}
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] isogate_status status() const { return status_; }
  [[nodiscard]] int os_errno() const { return os_errno_; }

 private:
  isogate_status status_;
  int os_errno_;
  std::string message_;
};

// Thrown by wait(), write_all(), read_some() and read_body() of Call. A program may run by then, so exec() ends
// with ISOGATE_LOST, whatever status this has. Catch it where you know better: end the program, return a result.
class StreamError : public Error {
 public:
  using Error::Error;
};

// The status that fits an errno of a file call, for the caller of that call. For the backend's own files throw
// Error(ISOGATE_IO, …): no caller can mend those.
constexpr isogate_status status_of(int os_errno) {
  switch (os_errno) {
    case ENOENT:
    case ENOTDIR:
      return ISOGATE_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
      return ISOGATE_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EXDEV:
    case ELOOP:
    case EROFS:
      return ISOGATE_PERMISSION_DENIED;
    case EISDIR:
      return ISOGATE_IS_DIRECTORY;
    case ENXIO:
      return ISOGATE_NOT_REGULAR;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
      return ISOGATE_INVALID_ARGUMENT;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      return ISOGATE_RESOURCE_EXHAUSTED;
    case ENOSYS:
    case EOPNOTSUPP:
      return ISOGATE_UNSUPPORTED;
    default:
      return ISOGATE_IO;
  }
}

// With status_of(): for the functions that are given a path, and connect(). Elsewhere, as in open(), an errno comes
// from what is the backend's own: throw Error(ISOGATE_IO, …) there. The wrapper knows the difference for a
// std::system_error of the kernel's that your function throws.
template <typename Failure = Error>
[[noreturn]] void fail_with_errno(const std::string& attempt, int os_errno) {
  throw Failure(status_of(os_errno), attempt + ": " + std::generic_category().message(os_errno), os_errno);
}

// The limits of a spec or a request.
template <typename Request>
std::span<const isogate_limit> limits_of(const Request& request) {
  return {request.limits, static_cast<size_t>(request.limit_count)};
}

// 0: not limited.
inline uint64_t limit_of(std::span<const isogate_limit> limits, uint32_t id) {
  for (const isogate_limit& limit : limits)
    if (limit.id == id) return limit.value;
  return 0;
}

// Throws ISOGATE_INVALID_ARGUMENT for an id twice, a value of 0 and reserved bits.
inline void check_well_formed(std::span<const isogate_limit> limits) {
  for (const isogate_limit& limit : limits) {
    const auto same = [&](const isogate_limit& other) { return other.id == limit.id; };
    if (limit.value == 0 || limit.reserved != 0 || std::count_if(limits.begin(), limits.end(), same) != 1)
      throw Error(ISOGATE_INVALID_ARGUMENT, "the limit with id " + std::to_string(limit.id) +
                                                " is malformed, or there twice");
  }
}

// The same, and throws ISOGATE_UNSUPPORTED for every id that is not among `enforced`. A backend that enforces
// only those calls this first in open() and exec().
inline void check_limits(std::span<const isogate_limit> limits, std::initializer_list<uint32_t> enforced) {
  check_well_formed(limits);
  for (const isogate_limit& limit : limits)
    if (std::find(enforced.begin(), enforced.end(), limit.id) == enforced.end())
      throw Error(ISOGATE_UNSUPPORTED,
                  "this backend cannot enforce the limit with id " + std::to_string(limit.id));
}

// For evidence(); `value` 0: not limited, nothing is added. Throws ISOGATE_INTERNAL when there is no room.
inline void add_limit(isogate_evidence& evidence, uint32_t id, uint64_t value) {
  if (value == 0) return;
  if (evidence.limit_count >= ISOGATE_EVIDENCE_LIMITS_MAX)
    throw Error(ISOGATE_INTERNAL, "there are too many limits in the evidence");
  evidence.limits[evidence.limit_count++] = {id, 0, value};
}

// One call of the host. Long work watches it: poll cancel_fd() beside your own descriptors, or call check()
// regularly; in exec() cancelled(), once the program may have started.
class Call {
 public:
  explicit Call(const isogate_call& call) : call_(call) {}
  [[nodiscard]] int cancel_fd() const { return call_.cancel_fd; }
  [[nodiscard]] int64_t deadline_ns() const { return call_.deadline_ns; }
  [[nodiscard]] std::string_view request_id() const { return view(call_.request_id); }
  [[nodiscard]] const isogate_call& abi() const { return call_; }

  [[nodiscard]] bool cancelled() const {
    pollfd watch{call_.cancel_fd, POLLIN, 0};
    return call_.cancel_fd >= 0 && ::poll(&watch, 1, 0) > 0;
  }

  // Throws ISOGATE_CANCELLED once cancelled, which asserts that nothing was started. So in exec() only before the
  // program starts: afterwards a cancelled exec is a result with ISOGATE_RESULT_KILLED.
  void check() const {
    if (cancelled()) throw Error(ISOGATE_CANCELLED, "cancelled");
  }

  // Waits until `fd` has one of `events`; false when the call was cancelled first.
  [[nodiscard]] bool wait(int fd, short events) const {
    for (;;) {
      pollfd watch[2] = {{call_.cancel_fd, POLLIN, 0}, {fd, events, 0}};
      if (::poll(watch, 2, -1) < 0) {
        if (errno == EINTR) continue;
        fail_with_errno<StreamError>("cannot wait", errno);
      }
      if (call_.cancel_fd >= 0 && watch[0].revents != 0) return false;
      if (watch[1].revents != 0) return true;
    }
  }

  // Writes all of `bytes` to a pipe, in pieces that a writable pipe accepts without blocking. False when the
  // call was cancelled or the reader is gone. `fd` -1 discards them.
  [[nodiscard]] bool write_all(int fd, std::string_view bytes) const {
    constexpr size_t kPiece = 4096;
    while (fd >= 0 && !bytes.empty()) {
      if (!wait(fd, POLLOUT)) return false;
      ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kPiece));
      if (n < 0 && errno == EPIPE) return false;
      if (n < 0 && errno != EINTR && errno != EAGAIN) fail_with_errno<StreamError>("cannot write", errno);
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // Reads up to `size` bytes; 0 at the end, which of a terminal's master is the end of its programs. Throws a
  // StreamError with ISOGATE_CANCELLED when cancelled first: in exec() call wait() yourself, and end the program.
  // For a write's body use read_body.
  [[nodiscard]] size_t read_some(int fd, char* buffer, size_t size) const {
    for (;;) {
      if (!wait(fd, POLLIN)) throw StreamError(ISOGATE_CANCELLED, "cancelled while it waited for bytes");
      ssize_t n = ::read(fd, buffer, size);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno == EIO && ::isatty(fd) == 1) return 0;
      if (errno != EINTR && errno != EAGAIN) fail_with_errno<StreamError>("cannot read", errno);
    }
  }

  // Reads the body of a write, piece by piece: up to `size` bytes; 0 only at the end of a complete body. Throws
  // ISOGATE_CANCELLED when cancelled, or when the sender disappeared before the body was complete: then nothing
  // may be committed.
  [[nodiscard]] size_t read_body(const isogate_file_request& request, char* buffer, size_t size) const {
    const size_t n = read_some(request.fd, buffer, size);
    pollfd complete{request.complete_fd, POLLIN, 0};
    if (n == 0 && request.complete_fd >= 0 &&
        (::poll(&complete, 1, 0) <= 0 || (complete.revents & POLLIN) == 0))
      throw StreamError(ISOGATE_CANCELLED, "its sender went away before the body was complete");
    return n;
  }

 private:
  const isogate_call& call_;
};

namespace detail {

// Structs are copied in the size that both sides know.
template <typename T>
T import_struct(const T* from) {
  T own{};
  std::memcpy(static_cast<void*>(&own), from, std::min<size_t>(from->struct_size, sizeof own));
  own.struct_size = sizeof own;
  return own;
}

}  // namespace detail

// What the host offers; copy it, it is a pointer.
class Host {
 public:
  explicit Host(const isogate_host& host) : host_(&host) {}
  void log(uint32_t level, std::string_view message) const { host_->log(host_->ctx, level, str(message)); }
  [[nodiscard]] const isogate_host& abi() const { return *host_; }
  // A copy with zeros for what an older host does not have.
  [[nodiscard]] isogate_host known() const { return detail::import_struct(host_); }

 private:
  const isogate_host* host_;
};

class EntrySink {
 public:
  explicit EntrySink(const isogate_entry_sink& sink) : sink_(sink) {}
  // Throws when the host wants no more.
  void add(std::string_view name, uint32_t type, uint32_t mode, uint64_t size, int64_t mtime_ns) const {
    isogate_entry entry{sizeof entry, type, mode, 0, size, mtime_ns, str(name)};
    if (isogate_status status = sink_.add(sink_.ctx, &entry); status != ISOGATE_OK)
      throw Error(status, "the host took no more entries");
  }
  [[nodiscard]] const isogate_entry_sink& abi() const { return sink_; }

 private:
  const isogate_entry_sink& sink_;
};

class RecordSink {
 public:
  explicit RecordSink(const isogate_record_sink& sink) : sink_(sink) {}
  // `flags`: ISOGATE_SANDBOX_RUNS or 0.
  void add(std::string_view sandbox_id, std::string_view handle, uint32_t flags = 0) const {
    isogate_record record{sizeof record, flags, str(sandbox_id), str(handle)};
    if (isogate_status status = sink_.add(sink_.ctx, &record); status != ISOGATE_OK)
      throw Error(status, "the host took no more records");
  }

 private:
  const isogate_record_sink& sink_;
};

// One open sandbox. A function that a class does not override returns ISOGATE_UNSUPPORTED; one that backend.h calls
// optional is NULL in the plugin's table.
class Sandbox {
 public:
  Sandbox() = default;
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;
  virtual ~Sandbox() = default;

  // Called before the destructor. It may fail: then the object stays and close may be called again, unless the
  // status is ISOGATE_NO_SANDBOX.
  virtual void close(const Call&, uint32_t /*mode*/) {}
  // An Error asserts that nothing was started, unless it is ISOGATE_LOST or a StreamError. Any other exception is
  // ISOGATE_LOST.
  virtual void exec(const Call&, const isogate_exec_request&, isogate_exec_result&) { lacks("run programs"); }
  virtual void read(const Call&, const isogate_file_request&, isogate_entry&) { lacks("read files"); }
  virtual uint64_t write(const Call&, const isogate_file_request&) { lacks("write files"); }
  virtual void list(const Call&, const isogate_file_request&, const EntrySink&) { lacks("list directories"); }
  virtual void stat(const Call&, const isogate_file_request&, isogate_entry&) { lacks("look at files"); }
  virtual void mkdir(const Call&, const isogate_file_request&) { lacks("make directories"); }
  virtual void move(const Call&, const isogate_file_request&) { lacks("move files"); }
  virtual void remove(const Call&, const isogate_file_request&) { lacks("remove files"); }
  virtual void evidence(const Call&, const isogate_evidence_request&, isogate_evidence&) {
    lacks("measure its isolation");
  }
  virtual void disk_use(const Call&, isogate_disk_use&) { lacks("say how much disk it uses"); }  // disk.h
  // Returns when the directory no longer exists; throws ISOGATE_CANCELLED when cancelled.
  virtual void watch(const Call&, const isogate_file_request&) { lacks("watch directories"); }
  virtual void connect(const Call&, const isogate_connect_request&) { lacks("connect to ports"); }
  // kept_exec.h, for a backend with CAP_KEPT_EXECS.
  virtual void start_kept(const Call&, const isogate_exec_request&, const isogate_kept_exec&,
                          isogate_exec_result&) {
    lacks("keep execs");
  }
  virtual void rejoin(const Call&, const isogate_exec_request&, const isogate_kept_exec&,
                      isogate_exec_result&) {
    lacks("keep execs");
  }

 private:
  [[noreturn]] static void lacks(const char* what) {
    throw Error(ISOGATE_UNSUPPORTED, std::string("this backend cannot ") + what);
  }
};

// Extension isogate.orphans/1 (orphans.h): objects that no sandbox here claims any more.
class Orphans {
 public:
  virtual void list(const Call&, const RecordSink&) = 0;
  virtual void remove(const Call&, std::string_view sandbox_id, uint32_t flags) = 0;

 protected:
  ~Orphans() = default;
};

// A configured backend. Its constructor takes (Host, std::string_view config_json); the configuration has
// been validated against config_schema_json.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual void probe(const Call&, isogate_probe&) = 0;
  virtual std::unique_ptr<Sandbox> open(const Call&, const isogate_sandbox_spec&, isogate_sandbox_info&) = 0;
  // open() with ISOGATE_OPEN_ATTACH_ONLY or ISOGATE_OPEN_RUNNING_ONLY, which never creates a sandbox. By default
  // there is none: right if nothing outlives the host, no file either. Else override it together with enumerate().
  virtual std::unique_ptr<Sandbox> attach(const Call&, const isogate_sandbox_spec&, isogate_sandbox_info&) {
    throw Error(ISOGATE_NO_SANDBOX, "there is no such sandbox");
  }
  virtual void enumerate(const Call&, const RecordSink&) {}  // nothing outlives the host
  virtual Orphans* orphans() { return nullptr; }             // null: it leaves nothing behind, or cannot tell
};

// The descriptor, without the fields that have a sensible default.
struct Plugin {
  const char* id;
  const char* version;
  const char* summary = "";
  const char* vendor = "";
  const char* license = "";
  uint32_t isolation = ISOGATE_ISOLATION_NONE;
  uint32_t locality = ISOGATE_LOCALITY_PROCESS;
  uint64_t capabilities = 0;
  uint32_t flags = 0;
  uint64_t linux_capabilities = 0;
  const char* config_schema_json = nullptr;
};

namespace detail {

inline void refuse_unknown(const char* what, uint32_t bits) {
  if (bits == 0) return;
  char number[16];
  std::snprintf(number, sizeof number, " 0x%x", bits);
  throw Error(ISOGATE_INVALID_ARGUMENT,
              std::string(what) + number + ": the gateway is probably newer than this backend's plugin");
}

inline void check_request(const isogate_sandbox_spec& spec) {
  constexpr uint32_t kFlags = ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_LIMITS_BEST_EFFORT | ISOGATE_OPEN_KNOWN |
                              ISOGATE_OPEN_RUNNING_ONLY;
  refuse_unknown("the sandbox's specification has unknown flags", spec.flags & ~kFlags);
  refuse_unknown("the sandbox's specification has unknown fields", spec.reserved);
  if (spec.egress > ISOGATE_EGRESS_ALLOW)
    throw Error(ISOGATE_INVALID_ARGUMENT, "the sandbox's specification has an unknown egress");
  check_well_formed(limits_of(spec));
}

inline void check_request(const isogate_exec_request& request) {
  constexpr uint32_t kFlags = ISOGATE_EXEC_PTY | ISOGATE_EXEC_LIMITS_SAMPLED | ISOGATE_EXEC_MERGE_STDERR;
  refuse_unknown("the request has unknown flags", request.flags & ~kFlags);
  refuse_unknown("the request has unknown fields", request.reserved);
  check_well_formed(limits_of(request));
}

inline void check_request(const isogate_file_request& request) {
  constexpr uint32_t kFlags = ISOGATE_FILE_APPEND | ISOGATE_FILE_DURABLE | ISOGATE_FILE_EXCLUSIVE |
                              ISOGATE_FILE_PARENTS | ISOGATE_FILE_RECURSIVE | ISOGATE_FILE_MODE_GIVEN |
                              ISOGATE_FILE_REPLACE;
  refuse_unknown("the request has unknown flags", request.flags & ~kFlags);
  refuse_unknown("the mode has more than permission bits", request.mode & ~0777u);
  if (request.scope > ISOGATE_SCOPE_SANDBOX)
    throw Error(ISOGATE_INVALID_ARGUMENT, "the request has an unknown scope");
}

inline void check_request(const isogate_connect_request& request) {
  refuse_unknown("the request has unknown flags", request.flags);
  refuse_unknown("the request has unknown fields", request.reserved);
}

template <typename T>
T import_request(const T* from) {
  const T own = import_struct(from);
  check_request(own);
  return own;
}

template <typename T>
void export_struct(const T& own, T* to) {
  uint32_t size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &own, std::min<size_t>(size, sizeof own));
  to->struct_size = size;
}

inline isogate_status fill(isogate_error* error, isogate_status status, int os_errno, const char* message) {
  error->os_errno = os_errno;
  set_text(error->message, message);
  return status;
}

// The status for an errno of something that is the backend's own. Only a shortage is worth another try.
constexpr isogate_status own_status_of(int os_errno) {
  const bool short_of = os_errno == EMFILE || os_errno == ENFILE || os_errno == ENOMEM || os_errno == EAGAIN;
  return short_of ? ISOGATE_RESOURCE_EXHAUSTED : ISOGATE_IO;
}

// Null until create() has returned a backend, and after destroy().
inline std::atomic<const isogate_host*> log_host = nullptr;

// A std::system_error for the caller of a call: its errno and the path of the request. Its own text may have paths of
// the host, and goes to the log, at debug where the caller can mend it. What create() throws is for the operator, and
// keeps its text.
template <isogate_status (*StatusOf)(int)>
Error for_caller(const std::system_error& e, isogate_str path) {
  const auto& category = e.code().category();
  const bool is_errno = category == std::generic_category() || category == std::system_category();
  const int os_errno = is_errno ? e.code().value() : 0;
  const isogate_status status = is_errno ? StatusOf(os_errno) : ISOGATE_IO;
  const isogate_host* host = log_host;
  if (host == nullptr) return Error(status, e.what(), os_errno);
  const bool callers = StatusOf != own_status_of && status != ISOGATE_IO &&
                       own_status_of(os_errno) != ISOGATE_RESOURCE_EXHAUSTED;  // such as EMFILE: the host's
  Host(*host).log(callers ? ISOGATE_LOG_DEBUG : ISOGATE_LOG_WARN, e.what());
  std::string message = e.code().message();
  if (path.len > 0) message.append(": `").append(view(path)).append("`");
  return Error(status, std::move(message), os_errno);
}

// The only place that catches: nothing throws across the ABI. `StatusOf`: of a std::system_error's errno; `path`: the
// request's.
template <isogate_status (*StatusOf)(int) = own_status_of, typename Body>
isogate_status guard(isogate_error* error, Body body, isogate_str path = {}) noexcept {
  try {
    try {
      body();
      return ISOGATE_OK;
    } catch (const std::system_error& e) {
      throw for_caller<StatusOf>(e, path);
    }
  } catch (const Error& e) {
    return fill(error, e.status() == ISOGATE_OK ? ISOGATE_INTERNAL : e.status(), e.os_errno(), e.what());
  } catch (const std::bad_alloc&) {
    return fill(error, ISOGATE_RESOURCE_EXHAUSTED, ENOMEM, "out of memory");
  } catch (const std::exception& e) {
    return fill(error, ISOGATE_INTERNAL, 0, e.what());
  } catch (...) {
    return fill(error, ISOGATE_INTERNAL, 0, "an exception that is no std::exception");
  }
}

// As guard(), for what runs a program. A StreamError, and any exception but Error, cannot assert that nothing was
// started: ISOGATE_LOST.
template <typename Body>
isogate_status guard_exec(isogate_error* error, Body body) noexcept {
  bool meant = false;
  const isogate_status status = guard(error, [&] {
    try {
      body();
    } catch (const StreamError&) {
      throw;
    } catch (const Error& e) {
      meant = e.status() != ISOGATE_OK;
      throw;
    }
  });
  return status == ISOGATE_OK || meant ? status : ISOGATE_LOST;
}

inline Backend* of(isogate_backend* backend) { return reinterpret_cast<Backend*>(backend); }
inline Sandbox* of(isogate_sandbox* sandbox) { return reinterpret_cast<Sandbox*>(sandbox); }

template <typename B>
isogate_status create(const isogate_host* host, isogate_str config, isogate_backend** out,
                      isogate_error* error) noexcept {
  return guard(error, [&] {
    Backend* made = new B(Host(*host), view(config));
    *out = reinterpret_cast<isogate_backend*>(made);
    log_host = host;
  });
}

inline void destroy(isogate_backend* backend) noexcept {
  delete of(backend);
  log_host = nullptr;
}

inline isogate_status probe(isogate_backend* backend, const isogate_call* call, isogate_probe* out,
                            isogate_error* error) noexcept {
  return guard(error, [&] {
    isogate_probe own = import_struct(out);
    of(backend)->probe(Call(*call), own);
    export_struct(own, out);
  });
}

inline isogate_status open(isogate_backend* backend, const isogate_call* call,
                           const isogate_sandbox_spec* spec, isogate_sandbox** out,
                           isogate_sandbox_info* info, isogate_error* error) noexcept {
  return guard(error, [&] {
    isogate_sandbox_info own = import_struct(info);
    const isogate_sandbox_spec asked = import_request(spec);
    const bool attaches = (asked.flags & (ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_RUNNING_ONLY)) != 0;
    std::unique_ptr<Sandbox> made = attaches ? of(backend)->attach(Call(*call), asked, own)
                                             : of(backend)->open(Call(*call), asked, own);
    export_struct(own, info);
    *out = reinterpret_cast<isogate_sandbox*>(made.release());
  });
}

inline isogate_status close(isogate_sandbox* sandbox, const isogate_call* call, uint32_t mode,
                            isogate_error* error) noexcept {
  const isogate_status status = guard(error, [&] {
    if (mode > ISOGATE_CLOSE_PURGE) throw Error(ISOGATE_INVALID_ARGUMENT, "the close mode is unknown");
    of(sandbox)->close(Call(*call), mode);
  });
  if (status == ISOGATE_OK || status == ISOGATE_NO_SANDBOX) delete of(sandbox);
  return status;
}

inline isogate_status enumerate(isogate_backend* backend, const isogate_call* call,
                                const isogate_record_sink* sink, isogate_error* error) noexcept {
  return guard(error, [&] { of(backend)->enumerate(Call(*call), RecordSink(*sink)); });
}

inline isogate_status exec(isogate_sandbox* sandbox, const isogate_call* call,
                           const isogate_exec_request* request, isogate_exec_result* result,
                           isogate_error* error) noexcept {
  return guard_exec(error, [&] {
    isogate_exec_result own = import_struct(result);
    of(sandbox)->exec(Call(*call), import_request(request), own);
    export_struct(own, result);
  });
}

template <void (Sandbox::*Verb)(const Call&, const isogate_file_request&, isogate_entry&)>
isogate_status look(isogate_sandbox* sandbox, const isogate_call* call, const isogate_file_request* request,
                    isogate_entry* entry, isogate_error* error) noexcept {
  return guard<status_of>(
      error,
      [&] {
        isogate_entry own = import_struct(entry);
        (of(sandbox)->*Verb)(Call(*call), import_request(request), own);
        export_struct(own, entry);
      },
      request->path);
}

template <void (Sandbox::*Verb)(const Call&, const isogate_file_request&)>
isogate_status change(isogate_sandbox* sandbox, const isogate_call* call, const isogate_file_request* request,
                      isogate_error* error) noexcept {
  return guard<status_of>(
      error, [&] { (of(sandbox)->*Verb)(Call(*call), import_request(request)); }, request->path);
}

inline isogate_status write(isogate_sandbox* sandbox, const isogate_call* call,
                            const isogate_file_request* request, uint64_t* written,
                            isogate_error* error) noexcept {
  return guard<status_of>(
      error, [&] { *written = of(sandbox)->write(Call(*call), import_request(request)); }, request->path);
}

inline isogate_status list(isogate_sandbox* sandbox, const isogate_call* call,
                           const isogate_file_request* request, const isogate_entry_sink* sink,
                           isogate_error* error) noexcept {
  return guard<status_of>(
      error, [&] { of(sandbox)->list(Call(*call), import_request(request), EntrySink(*sink)); }, request->path);
}

inline isogate_status evidence(isogate_sandbox* sandbox, const isogate_call* call,
                               const isogate_evidence_request* request, isogate_evidence* out,
                               isogate_error* error) noexcept {
  return guard(error, [&] {
    isogate_evidence own = import_struct(out);
    of(sandbox)->evidence(Call(*call), import_struct(request), own);
    export_struct(own, out);
  });
}

inline isogate_status connect(isogate_sandbox* sandbox, const isogate_call* call,
                              const isogate_connect_request* request, isogate_error* error) noexcept {
  return guard<status_of>(error, [&] { of(sandbox)->connect(Call(*call), import_request(request)); });
}

inline isogate_status list_orphans(isogate_backend* backend, const isogate_call* call,
                                   const isogate_record_sink* sink, isogate_error* error) noexcept {
  return guard(error, [&] { of(backend)->orphans()->list(Call(*call), RecordSink(*sink)); });
}

inline isogate_status remove_orphan(isogate_backend* backend, const isogate_call* call,
                                    isogate_str sandbox_id, uint32_t flags, isogate_error* error) noexcept {
  return guard(error, [&] {
    refuse_unknown("the request has unknown flags", flags & ~ISOGATE_ORPHANS_RUNNING);
    of(backend)->orphans()->remove(Call(*call), view(sandbox_id), flags);
  });
}

inline constexpr isogate_orphans kOrphans = {
    .struct_size = sizeof(isogate_orphans),
    .reserved = 0,
    .list = &list_orphans,
    .remove = &remove_orphan,
};

inline isogate_status disk_use(isogate_sandbox* sandbox, const isogate_call* call, isogate_disk_use* out,
                               isogate_error* error) noexcept {
  return guard(error, [&] {
    isogate_disk_use own = import_struct(out);
    of(sandbox)->disk_use(Call(*call), own);
    export_struct(own, out);
  });
}

inline constexpr isogate_disk kDisk = {.struct_size = sizeof(isogate_disk), .reserved = 0, .use = &disk_use};

template <void (Sandbox::*Verb)(const Call&, const isogate_exec_request&, const isogate_kept_exec&,
                                isogate_exec_result&)>
isogate_status kept_exec(isogate_sandbox* sandbox, const isogate_call* call,
                         const isogate_exec_request* request, const isogate_kept_exec* kept,
                         isogate_exec_result* result, isogate_error* error) noexcept {
  return guard_exec(error, [&] {
    isogate_exec_result own = import_struct(result);
    (of(sandbox)->*Verb)(Call(*call), import_request(request), import_struct(kept), own);
    export_struct(own, result);
  });
}

inline constexpr isogate_kept_execs kKeptExecs = {
    .struct_size = sizeof(isogate_kept_execs),
    .reserved = 0,
    .start = &kept_exec<&Sandbox::start_kept>,
    .rejoin = &kept_exec<&Sandbox::rejoin>,
};

// Whether Class, which is dependent, overrides function `f` of Base: then &Class::f has another type, or is not
// accessible.
#define ISOGATE_DETAIL_OVERRIDES(Class, Base, f) \
  (!requires { requires std::is_same_v<decltype(&Class::f), decltype(&Base::f)>; })

template <typename S>
const void* get_extension(isogate_backend* backend, const char* id) noexcept {
  const std::string_view wanted(id);
  constexpr bool kHasDisk = ISOGATE_DETAIL_OVERRIDES(S, Sandbox, disk_use);
  constexpr bool kKeeps =
      ISOGATE_DETAIL_OVERRIDES(S, Sandbox, start_kept) && ISOGATE_DETAIL_OVERRIDES(S, Sandbox, rejoin);
  if (wanted == ISOGATE_DISK_EXTENSION) return kHasDisk ? &kDisk : nullptr;
  if (wanted == ISOGATE_EXEC_EXTENSION) return kKeeps ? &kKeptExecs : nullptr;
  return wanted == ISOGATE_ORPHANS_EXTENSION && of(backend)->orphans() != nullptr ? &kOrphans : nullptr;
}

template <typename B, typename S>
inline constexpr isogate_backend_api kApi = {
    .struct_size = sizeof(isogate_backend_api),
    .reserved = 0,
    .create = &create<B>,
    .destroy = &destroy,
    .probe = &probe,
    .open = &open,
    .close = &close,
    .enumerate = &enumerate,
    .exec = &exec,
    .read = &look<&Sandbox::read>,
    .write = &write,
    .list = &list,
    .stat = &look<&Sandbox::stat>,
    .mkdir = ISOGATE_DETAIL_OVERRIDES(S, Sandbox, mkdir) ? &change<&Sandbox::mkdir> : nullptr,
    .move = ISOGATE_DETAIL_OVERRIDES(S, Sandbox, move) ? &change<&Sandbox::move> : nullptr,
    .remove = ISOGATE_DETAIL_OVERRIDES(S, Sandbox, remove) ? &change<&Sandbox::remove> : nullptr,
    .evidence = ISOGATE_DETAIL_OVERRIDES(S, Sandbox, evidence) ? &evidence : nullptr,
    .get_extension = &get_extension<S>,
    .watch = ISOGATE_DETAIL_OVERRIDES(S, Sandbox, watch) ? &change<&Sandbox::watch> : nullptr,
    .connect = ISOGATE_DETAIL_OVERRIDES(S, Sandbox, connect) ? &connect : nullptr,
};

template <typename B, typename S, uint32_t kIsolation, uint64_t kCapabilities>
constexpr isogate_plugin describe(const Plugin& p) {
  static_assert(std::is_base_of_v<Backend, B> && std::is_base_of_v<Sandbox, S>,
                "ISOGATE_EXPORT_BACKEND names the backend's class, then that of its sandboxes");
  static_assert(ISOGATE_DETAIL_OVERRIDES(B, Backend, attach) ||
                    !ISOGATE_DETAIL_OVERRIDES(B, Backend, enumerate),
                "what enumerate() lists must be found by attach(): override both");
  constexpr bool kMeasures = (kCapabilities & ISOGATE_CAP_EVIDENCE) != 0;
  static_assert(kMeasures || kIsolation == ISOGATE_ISOLATION_NONE,
                "isolation above NONE is believed only as far as it is measured: claim ISOGATE_CAP_EVIDENCE");
  static_assert(kMeasures || (kCapabilities & (ISOGATE_CAP_EGRESS_DENY | ISOGATE_CAP_PORTS)) == 0,
                "ISOGATE_CAP_EGRESS_DENY and ISOGATE_CAP_PORTS need ISOGATE_CAP_EVIDENCE");
  static_assert(!kMeasures || ISOGATE_DETAIL_OVERRIDES(S, Sandbox, evidence),
                "a backend with ISOGATE_CAP_EVIDENCE overrides evidence()");
  static_assert((kCapabilities & ISOGATE_CAP_WATCH) == 0 || ISOGATE_DETAIL_OVERRIDES(S, Sandbox, watch),
                "a backend with ISOGATE_CAP_WATCH overrides watch()");
  static_assert((kCapabilities & ISOGATE_CAP_PORTS) == 0 || ISOGATE_DETAIL_OVERRIDES(S, Sandbox, connect),
                "a backend with ISOGATE_CAP_PORTS overrides connect()");
  static_assert((kCapabilities & ISOGATE_CAP_KEPT_EXECS) == 0 ||
                    (ISOGATE_DETAIL_OVERRIDES(S, Sandbox, start_kept) &&
                     ISOGATE_DETAIL_OVERRIDES(S, Sandbox, rejoin)),
                "a backend with ISOGATE_CAP_KEPT_EXECS overrides start_kept() and rejoin()");
  return {ISOGATE_ABI_MAGIC,
          ISOGATE_ABI_MAJOR,
          0,
          sizeof(isogate_plugin),
          p.flags,
          p.isolation,
          p.locality,
          p.capabilities,
          p.linux_capabilities,
          p.id,
          p.version,
          p.summary,
          p.vendor,
          p.license,
          p.config_schema_json,
          &kApi<B, S>};
}

#undef ISOGATE_DETAIL_OVERRIDES

}  // namespace detail
}  // namespace isogate::sdk

// At the end of one source file: ISOGATE_EXPORT_BACKEND(MyBackend, MySandbox, .id = "com.example.mine", .version =
// "1.0.0", …fields of sdk::Plugin, in their order). MySandbox is the class of all its sandboxes: what it does not
// override is left out of the plugin. A capability that needs a function which MySandbox does not override, or
// isolation without ISOGATE_CAP_EVIDENCE, does not compile.
#define ISOGATE_EXPORT_BACKEND(BackendClass, SandboxClass, ...)                                                \
  ISOGATE_EXPORT const isogate_plugin* isogate_plugin_entry(uint32_t, uint32_t) {                              \
    static constexpr ::isogate::sdk::Plugin kStated{__VA_ARGS__};                                              \
    static constexpr isogate_plugin kPlugin =                                                                  \
        ::isogate::sdk::detail::describe<BackendClass, SandboxClass, kStated.isolation, kStated.capabilities>( \
            kStated);                                                                                          \
    return &kPlugin;                                                                                           \
  }
