// The functions of the ABI for a backend on this host whose files are a Workspace: checks and copies
// everything that crosses the ABI, once for all such plugins.
//
// Backend has: static Result<unique_ptr<Backend>> create(host, config_json), isogate_probe probe(),
//   Result<unique_ptr<Sandbox>> open(spec, info), Result<void> enumerate(sink).
// Sandbox has: Result<isogate_disk_use> disk_use(), Result<isogate_exec_result> exec(call, request),
// Result<isogate_evidence> evidence(request),
//   Result<void> close(mode, cancel_fd), where it has ports Result<void> connect(call, request), Workspace&
//   workspace(), Result<User> user_named(name); an empty name is the sandbox's own user.
#pragma once

#include <atomic>
#include <memory>

#include "isogate/disk.h"
#include "lib/abi.h"
#include "runner/files/workspace.h"
#include "runner/uid/users.h"

namespace isogate {

template <typename Backend, typename Sandbox>
struct PluginVerbs {
  // A sandbox whose close has begun accepts no call except close, even if the close failed.
  struct Handle {
    std::unique_ptr<Sandbox> sandbox;
    std::atomic<bool> ending = false;
  };
  static Backend* at(isogate_backend* backend) { return reinterpret_cast<Backend*>(backend); }
  static Handle* at(isogate_sandbox* sandbox) { return reinterpret_cast<Handle*>(sandbox); }
  static Result<Sandbox*> opened(isogate_sandbox* sandbox) {
    if (!at(sandbox)->ending) return at(sandbox)->sandbox.get();
    return Error{ISOGATE_NO_SANDBOX, 0, "the sandbox was closed, though not to the end: close it again"};
  }

  static isogate_status create(const isogate_host* host, isogate_str config_json, isogate_backend** out,
                               isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      auto backend = Backend::create(taken(host), view(config_json));
      if (!backend) return backend.error();
      *out = reinterpret_cast<isogate_backend*>(backend->release());
      return {};
    });
  }

  static void destroy(isogate_backend* backend) { delete at(backend); }

  static isogate_status probe(isogate_backend* backend, const isogate_call*, isogate_probe* out,
                              isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      hand_out(out, at(backend)->probe());
      return {};
    });
  }

  static isogate_status open(isogate_backend* backend, const isogate_call*, const isogate_sandbox_spec* spec,
                             isogate_sandbox** out, isogate_sandbox_info* info, isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      isogate_sandbox_info answer{};
      auto sandbox = at(backend)->open(taken(spec), answer);
      if (!sandbox) return sandbox.error();
      *out = reinterpret_cast<isogate_sandbox*>(new Handle{std::move(*sandbox)});
      hand_out(info, answer);
      return {};
    });
  }

  static isogate_status close(isogate_sandbox* sandbox, const isogate_call* call, uint32_t mode,
                              isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      if (mode > ISOGATE_CLOSE_PURGE) return invalid("the close mode is unknown");
      at(sandbox)->ending = true;
      auto closed = at(sandbox)->sandbox->close(mode, taken(call).cancel_fd);
      if (closed) delete at(sandbox);
      return closed;
    });
  }

  static isogate_status enumerate(isogate_backend* backend, const isogate_call*,
                                  const isogate_record_sink* sink, isogate_error* error) {
    return guarded(error, [&] { return at(backend)->enumerate(*sink); });
  }

  static isogate_status exec(isogate_sandbox* sandbox, const isogate_call* call,
                             const isogate_exec_request* request, isogate_exec_result* result,
                             isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      auto box = opened(sandbox);
      if (!box) return box.error();
      auto done = (*box)->exec(taken(call), taken(request));
      if (!done) return done.error();
      hand_out(result, *done);
      return {};
    });
  }

  // Runs one file verb on the workspace as the request's user.
  template <typename Verb>
  static isogate_status with_files(isogate_sandbox* sandbox, const isogate_file_request* request,
                                   isogate_error* error, Verb verb) {
    return guarded(error, [&]() -> Result<void> {
      const isogate_file_request known = taken(request);
      auto box = opened(sandbox);
      if (!box) return box.error();
      Workspace& own = (*box)->workspace();
      if (known.user.len == 0) return verb(own, known);
      auto user = (*box)->user_named(known.user);
      if (!user) return user.error();
      return verb(*own.as(user->identity), known);
    });
  }

  static isogate_status read(isogate_sandbox* sandbox, const isogate_call* call,
                             const isogate_file_request* request, isogate_entry* entry,
                             isogate_error* error) {
    return with_files(sandbox, request, error,
                      [&](Workspace& files, const isogate_file_request& known) -> Result<void> {
                        auto done = files.read(known, taken(call).cancel_fd);
                        if (!done) return done.error();
                        hand_out(entry, *done);
                        return {};
                      });
  }

  static isogate_status write(isogate_sandbox* sandbox, const isogate_call* call,
                              const isogate_file_request* request, uint64_t* written, isogate_error* error) {
    return with_files(sandbox, request, error,
                      [&](Workspace& files, const isogate_file_request& known) -> Result<void> {
                        auto done = files.write(known, taken(call).cancel_fd);
                        if (!done) return done.error();
                        *written = *done;
                        return {};
                      });
  }

  static isogate_status list(isogate_sandbox* sandbox, const isogate_call* call,
                             const isogate_file_request* request, const isogate_entry_sink* sink,
                             isogate_error* error) {
    return with_files(sandbox, request, error, [&](Workspace& files, const isogate_file_request& known) {
      return files.list(known, *sink, taken(call).cancel_fd);
    });
  }

  static isogate_status stat(isogate_sandbox* sandbox, const isogate_call*,
                             const isogate_file_request* request, isogate_entry* entry,
                             isogate_error* error) {
    return with_files(sandbox, request, error,
                      [&](Workspace& files, const isogate_file_request& known) -> Result<void> {
                        auto done = files.stat(known);
                        if (!done) return done.error();
                        hand_out(entry, *done);
                        return {};
                      });
  }

  static isogate_status mkdir(isogate_sandbox* sandbox, const isogate_call*,
                              const isogate_file_request* request, isogate_error* error) {
    return with_files(sandbox, request, error,
                      [](Workspace& files, const isogate_file_request& known) { return files.mkdir(known); });
  }

  static isogate_status move(isogate_sandbox* sandbox, const isogate_call*,
                             const isogate_file_request* request, isogate_error* error) {
    return with_files(sandbox, request, error,
                      [](Workspace& files, const isogate_file_request& known) { return files.move(known); });
  }

  static isogate_status remove(isogate_sandbox* sandbox, const isogate_call* call,
                               const isogate_file_request* request, isogate_error* error) {
    return with_files(sandbox, request, error, [&](Workspace& files, const isogate_file_request& known) {
      return files.remove(known, taken(call).cancel_fd);
    });
  }

  static isogate_status watch(isogate_sandbox* sandbox, const isogate_call* call,
                              const isogate_file_request* request, isogate_error* error) {
    return with_files(sandbox, request, error, [&](Workspace& files, const isogate_file_request& known) {
      return files.watch(known, taken(call).cancel_fd);
    });
  }

  static isogate_status evidence(isogate_sandbox* sandbox, const isogate_call*,
                                 const isogate_evidence_request* request, isogate_evidence* out,
                                 isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      auto box = opened(sandbox);
      if (!box) return box.error();
      auto measured = (*box)->evidence(taken(request));
      if (!measured) return measured.error();
      hand_out(out, *measured);
      return {};
    });
  }

  static isogate_status connect(isogate_sandbox* sandbox, const isogate_call* call,
                                const isogate_connect_request* request, isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      const isogate_connect_request known = taken(request);
      if (known.flags != 0 || known.reserved != 0 || known.port == 0 || known.port > 65535)
        return invalid("the request for a connection is malformed");
      auto box = opened(sandbox);
      if (!box) return box.error();
      return (*box)->connect(taken(call), known);
    });
  }

  static isogate_status disk_use(isogate_sandbox* sandbox, const isogate_call*, isogate_disk_use* out,
                                 isogate_error* error) {
    return guarded(error, [&]() -> Result<void> {
      auto box = opened(sandbox);
      if (!box) return box.error();
      auto use = (*box)->disk_use();
      if (!use) return use.error();
      hand_out(out, *use);
      return {};
    });
  }
};

template <typename Backend, typename Sandbox>
inline constexpr isogate_disk kDiskExtension = {sizeof(isogate_disk), 0,
                                                PluginVerbs<Backend, Sandbox>::disk_use};

template <typename Backend, typename Sandbox>
const void* extension_named(isogate_backend*, const char* id) {
  return std::string_view(id) == ISOGATE_DISK_EXTENSION ? &kDiskExtension<Backend, Sandbox> : nullptr;
}

template <typename Backend, typename Sandbox>
constexpr isogate_backend_api backend_api() {
  using Verbs = PluginVerbs<Backend, Sandbox>;
  decltype(isogate_backend_api::connect) connect = nullptr;
  if constexpr (requires { &Sandbox::connect; }) connect = Verbs::connect;
  return {sizeof(isogate_backend_api),
          0,
          Verbs::create,
          Verbs::destroy,
          Verbs::probe,
          Verbs::open,
          Verbs::close,
          Verbs::enumerate,
          Verbs::exec,
          Verbs::read,
          Verbs::write,
          Verbs::list,
          Verbs::stat,
          Verbs::mkdir,
          Verbs::move,
          Verbs::remove,
          Verbs::evidence,
          extension_named<Backend, Sandbox>,
          Verbs::watch,
          connect};
}

}  // namespace isogate
