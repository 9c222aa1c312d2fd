#include "gateway/host/calls.h"

#include <chrono>

#include "gateway/host/abi_call.h"
#include "gateway/host/item_sink.h"
#include "gateway/host/requests.h"
#include "gateway/host/text.h"
#include "isogate/disk.h"
#include "isogate/kept_exec.h"
#include "isogate/orphans.h"
#include "lib/capabilities.h"
#include "lib/fd.h"
#include "lib/text.h"

namespace isogate {
namespace {

using Value = decltype(ipc::Reply::value);

Error left_out(const Description& description, const char* verb) {
  return unsupported("the backend cannot " + std::string(verb) + ": plugin `" + description.id +
                     "` has no such function");
}

// What the plugin has under this id, with these functions; ISOGATE_UNSUPPORTED if it cannot `verb`. Any other
// member is null where an older plugin does not have it.
template <typename T, typename... Functions>
Result<T> extension(const Instance& instance, const char* id, const char* verb, Functions T::*... functions) {
  const auto get = instance.api().get_extension;
  const auto* found = static_cast<const T*>(get == nullptr ? nullptr : get(instance.get(), id));
  if (found == nullptr) return left_out(instance.description(), verb);
  const T own = import_struct(found);
  if (((own.*functions == nullptr) || ...))
    return plugin_defect("its " + std::string(id) + " lacks a function");
  return own;
}

// probe() may claim no more than the descriptor does, no extension that is not there, and nothing without the
// evidence for it.
Result<Value> take_probe(const isogate_probe& probe, const Instance& instance) {
  const Description& description = instance.description();
  if (probe.verdict < ISOGATE_PROBE_AVAILABLE || probe.verdict > ISOGATE_PROBE_UNAVAILABLE)
    return plugin_defect("probe() answered with the unknown verdict " + std::to_string(probe.verdict));
  if (!known_isolation(probe.isolation) || !known_locality(probe.locality))
    return plugin_defect("probe() answered with an unknown isolation or locality");
  if (probe.isolation > description.isolation)
    return plugin_defect("probe() claims more isolation than the plugin's descriptor");
  if (probe.locality > description.locality)  // require_remote admits by it
    return plugin_defect("probe() claims a remoter locality than the plugin's descriptor");
  const uint64_t claimed = known_capabilities(probe.capabilities);
  if (const uint64_t more = claimed & ~description.capabilities; more != 0)
    return plugin_defect("probe() claims what the plugin's descriptor does not: " +
                         join(capability_names(more), ", "));
  const auto kept = extension(instance, ISOGATE_EXEC_EXTENSION, "keep execs", &isogate_kept_execs::start,
                              &isogate_kept_execs::rejoin);
  if ((claimed & ISOGATE_CAP_KEPT_EXECS) != 0 && !kept)
    return plugin_defect("probe() claims kept_execs, but " + kept.error().message);
  const bool serves = probe.verdict != ISOGATE_PROBE_UNAVAILABLE;
  if (const std::string claim = unmeasured(probe.isolation, claimed); serves && !claim.empty())
    return plugin_defect("probe() claims " + claim + " without evidence");
  return Value(ipc::Probe{probe.verdict, probe.isolation, probe.locality, claimed, clean_text(probe.detail)});
}

// The program may have run: what is wrong with the answer cannot assert that it has not.
Error exec_defect(const char* what) {
  Error error = plugin_defect(std::string("exec() answered with ") + what);
  error.status = ISOGATE_LOST;
  return error;
}

// A plugin may notice the deadline before its caller does.
bool was_cancelled(const ipc::ExecCall& call) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return is_signalled(call.call.cancel.get()) || is_signalled(call.detach.get()) ||
         std::chrono::nanoseconds(now).count() >= call.call.deadline_ns;
}

Result<Value> take_result(isogate_exec_result result) {
  bool exited = result.term_signal == 0;
  if (exited ? result.exit_code < 0 || result.exit_code > 255
             : result.term_signal < 0 || result.term_signal > 64)
    return exec_defect("an end that no program can have");
  const bool not_started = (result.flags & ISOGATE_RESULT_NOT_STARTED) != 0;
  if (not_started && (!exited || (result.exit_code != 126 && result.exit_code != 127)))
    return exec_defect("the exit code of a program, and NOT_STARTED");
  constexpr uint32_t kKnown = ISOGATE_RESULT_OOM_KILLED | ISOGATE_RESULT_KILLED | ISOGATE_RESULT_NOT_STARTED |
                              ISOGATE_RESULT_PROVEN | ISOGATE_RESULT_LEFT_BEHIND |
                              ISOGATE_RESULT_PIDS_EXCEEDED;
  const bool proven = (result.flags & ISOGATE_RESULT_PROVEN) != 0;
  if (proven && !known_isolation(result.isolation)) return exec_defect("an unknown isolation");
  result.flags &= kKnown;
  if (!proven) result.isolation = 0;
  for (uint64_t* measured : {&result.wall_ns, &result.cpu_ns, &result.max_rss_bytes})
    if (*measured > INT64_MAX) *measured = 0;
  return Value(result);
}

isogate_file_request request_of(const ipc::FileCall& call) {
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.scope = call.scope;
  request.flags = call.flags;
  request.mode = call.mode;
  request.path = abi_str(call.path);
  request.path_to = abi_str(call.path_to);
  request.user = abi_str(call.user);
  request.offset = call.offset;
  request.limit = call.limit;
  request.fd = call.body ? call.body.get() : -1;
  request.complete_fd = call.complete ? call.complete.get() : -1;
  return request;
}

// The record keeps the strings; only their addresses are collected.
struct ExecArguments {
  explicit ExecArguments(const ipc::ExecCall& call) : limits(call.limits.list()) {
    argv.reserve(call.argv.size());
    for (const std::string& argument : call.argv) argv.push_back(abi_str(argument));
    env.reserve(call.env.size());
    for (const auto& [key, value] : call.env) env.push_back({abi_str(key), abi_str(value)});
  }
  std::vector<isogate_str> argv;
  std::vector<isogate_pair> env;
  LimitList limits;
};

// Ids that this gateway does not know are left out.
Result<Value> take_evidence(isogate_evidence found) {
  if (found.limit_count > ISOGATE_EVIDENCE_LIMITS_MAX)
    return plugin_defect("evidence() answered with more limits than there is room for");
  for (isogate_limit& each : found.limits) each.reserved = 0;
  const auto limits = Limits::take(found.limits, found.limit_count, UnknownLimit::kSkip);
  if (!limits) return plugin_defect("evidence() answered with a limit that is malformed or there twice");
  limits->put(found);
  found.struct_size = sizeof found;
  return Value(found);
}

isogate_exec_request request_of(const ipc::ExecCall& call, const ExecArguments& arguments) {
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.flags = call.flags;
  request.exec_id = abi_str(call.exec_id);
  request.argv = arguments.argv.data();
  request.argc = arguments.argv.size();
  request.env = arguments.env.data();
  request.envc = arguments.env.size();
  request.cwd = abi_str(call.cwd);
  request.user = abi_str(call.user);
  request.stdin_fd = call.std_in.get();
  request.stdout_fd = call.std_out.get();
  request.stderr_fd = call.std_err.get();
  request.control_fd = call.control.get();
  request.limits = arguments.limits.items.data();
  request.limit_count = arguments.limits.count;
  request.rows = call.rows;
  request.cols = call.cols;
  return request;
}

Result<void> taken(isogate_status status, const AbiCall& abi) {
  if (status == ISOGATE_OK) return {};
  return plugin_failure(status, abi.error);
}

// The reply to a call without a result.
Result<Value> done(const Result<void>& ended) {
  if (!ended) return ended.error();
  return Value();
}

}  // namespace

ipc::Reply refusal(uint64_t id, Error error) {
  return {id, error.status, error.os_errno, std::move(error.message), {}};
}

ipc::Reply Calls::run(const ipc::Call& call) noexcept {
  return std::visit(
      [&](const auto& message) {
        auto checked = check(call, instance_.settings());
        Result<Value> served = checked ? serve(message) : Result<Value>(checked.error());
        if (!served) return refusal(message.call.id, std::move(served.error()));
        return ipc::Reply{message.call.id, ISOGATE_OK, 0, {}, std::move(*served)};
      },
      call);
}

Result<Value> Calls::serve(const ipc::ProbeCall& call) {
  AbiCall abi(call.call);
  isogate_probe probe{};
  probe.struct_size = sizeof probe;
  isogate_status status = instance_.api().probe(instance_.get(), &abi.call, &probe, &abi.error);
  if (auto probed = taken(status, abi); !probed) return probed.error();
  return take_probe(probe, instance_);
}

Result<Value> Calls::serve(const ipc::PingCall&) { return Value(); }

Result<Value> Calls::serve(const ipc::OpenCall& call) {
  auto egress = admitted_egress(call.egress, instance_.settings().egress);
  if (!egress) return egress.error();
  const Limits limits = Limits::stricter(call.limits, instance_.settings().sandbox_limits);
  auto opened = sandboxes_.open(call, limits, *egress);
  if (!opened) return opened.error();
  return Value(std::move(*opened));
}

Result<Value> Calls::serve(const ipc::CloseCall& call) { return done(sandboxes_.close(call)); }

Result<Value> Calls::serve(const ipc::EnumerateCall& call) {
  AbiCall abi(call.call);
  ItemSink items(call.out.get(), call.call.cancel.get());
  isogate_record_sink sink = items.records();
  isogate_status status = instance_.api().enumerate(instance_.get(), &abi.call, &sink, &abi.error);
  return done(items.finish(taken(status, abi)));
}

Result<Value> Calls::serve(const ipc::OrphansCall& call) {
  const bool lists = call.sandbox_id.empty();
  const char* verb = "remove what lost sandboxes have left";
  const auto orphans = lists
                           ? extension(instance_, ISOGATE_ORPHANS_EXTENSION, verb, &isogate_orphans::list)
                           : extension(instance_, ISOGATE_ORPHANS_EXTENSION, verb, &isogate_orphans::remove);
  if (!orphans && orphans.error().status == ISOGATE_UNSUPPORTED && lists)
    return Value();  // it leaves nothing behind
  if (!orphans) return orphans.error();
  AbiCall abi(call.call);
  if (!lists)
    return done(taken(
        orphans->remove(instance_.get(), &abi.call, abi_str(call.sandbox_id), call.flags, &abi.error), abi));
  ItemSink items(call.out.get(), call.call.cancel.get());
  isogate_record_sink sink = items.records();
  return done(items.finish(taken(orphans->list(instance_.get(), &abi.call, &sink, &abi.error), abi)));
}

// When the plugin reports that the sandbox is gone, the next open creates it again.
template <typename Message>
Result<Value> Calls::serve(const Message& call) {
  auto lease = sandboxes_.lease(call.sandbox_id);
  if (!lease) return lease.error();
  auto served = serve(call, lease->sandbox());
  if (!served && served.error().status == ISOGATE_NO_SANDBOX) lease->mark_ended();
  return served;
}

Result<Value> Calls::serve(const ipc::ExecCall& call, isogate_sandbox* sandbox) {
  AbiCall abi(call.call);
  ExecArguments arguments(call);
  isogate_exec_request request = request_of(call, arguments);
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  const auto status = run(call, sandbox, abi, request, result);
  if (!status) return status.error();
  if (*status == ISOGATE_CANCELLED && !was_cancelled(call))
    return exec_defect("CANCELLED, though nobody cancelled it");
  if (auto ended = taken(*status, abi); !ended) {
    Error error = ended.error();
    if (!is_known(*status)) error.status = ISOGATE_LOST;
    return error;
  }
  return take_result(result);
}

Result<isogate_status> Calls::run(const ipc::ExecCall& call, isogate_sandbox* sandbox, AbiCall& abi,
                                  const isogate_exec_request& request, isogate_exec_result& result) {
  if (call.keep == ipc::Keep::kNot)
    return instance_.api().exec(sandbox, &abi.call, &request, &result, &abi.error);
  const auto verb = call.keep == ipc::Keep::kStart ? &isogate_kept_execs::start : &isogate_kept_execs::rejoin;
  const auto kept = extension(instance_, ISOGATE_EXEC_EXTENSION, "keep execs", verb);
  if (!kept) return kept.error();
  isogate_kept_exec how{};
  how.struct_size = sizeof how;
  how.grace_sec = call.grace_sec;
  how.detach_fd = call.detach.get();
  how.input_end_fd = call.input_end.get();
  how.state_fd = call.state.get();
  return ((*kept).*verb)(sandbox, &abi.call, &request, &how, &result, &abi.error);
}

Result<Value> Calls::serve(const ipc::ConnectCall& call, isogate_sandbox* sandbox) {
  if (instance_.api().connect == nullptr)
    return left_out(instance_.description(), "connect to ports of a sandbox");
  AbiCall abi(call.call);
  isogate_connect_request request{};
  request.struct_size = sizeof request;
  request.port = call.port;
  request.stream_fd = call.stream.get();
  request.ready_fd = call.ready.get();
  return done(taken(instance_.api().connect(sandbox, &abi.call, &request, &abi.error), abi));
}

Result<Value> Calls::serve(const ipc::FileCall& call, isogate_sandbox* sandbox) {
  using ipc::FileVerb;
  const isogate_backend_api& api = instance_.api();
  AbiCall abi(call.call);
  isogate_file_request request = request_of(call);
  isogate_entry entry{};
  entry.struct_size = sizeof entry;
  uint64_t written = 0;
  switch (call.verb) {
    case FileVerb::kRead:
    case FileVerb::kStat: {
      const bool reads = call.verb == FileVerb::kRead;
      const auto verb = reads ? api.read : api.stat;
      auto looked = taken(verb(sandbox, &abi.call, &request, &entry, &abi.error), abi);
      if (!looked) return looked.error();
      if (reads && entry.type != ISOGATE_ENTRY_REGULAR)
        return plugin_defect("read() answered with an entry that is no regular file");
      auto found = entry_of(entry, reads ? "read" : "stat");
      return found ? Result<Value>(std::move(*found)) : found.error();
    }
    case FileVerb::kWrite: {
      auto wrote = taken(api.write(sandbox, &abi.call, &request, &written, &abi.error), abi);
      return wrote ? Result<Value>(ipc::Written{written}) : wrote.error();
    }
    case FileVerb::kList:
      return list(call, abi, request, sandbox);
    case FileVerb::kMkdir:
      return change(api.mkdir, "make directories", abi, request, sandbox);
    case FileVerb::kMove:
      return change(api.move, "move files", abi, request, sandbox);
    case FileVerb::kRemove:
      return change(api.remove, "remove files", abi, request, sandbox);
    case FileVerb::kDiskUse:
      return disk_use(abi, sandbox);
    case FileVerb::kWatch:
      return change(api.watch, "watch directories", abi, request, sandbox);
  }
  return invalid("a record has an unknown verb");
}

Result<Value> Calls::list(const ipc::FileCall& call, AbiCall& abi, const isogate_file_request& request,
                          isogate_sandbox* sandbox) {
  ItemSink items(call.body.get(), call.call.cancel.get());
  isogate_entry_sink sink = items.entries((request.flags & ISOGATE_FILE_RECURSIVE) != 0);
  return done(
      items.finish(taken(instance_.api().list(sandbox, &abi.call, &request, &sink, &abi.error), abi)));
}

Result<Value> Calls::disk_use(AbiCall& abi, isogate_sandbox* sandbox) {
  const auto disk =
      extension(instance_, ISOGATE_DISK_EXTENSION, "say how much disk a sandbox uses", &isogate_disk::use);
  if (!disk) return disk.error();
  isogate_disk_use use{};
  use.struct_size = sizeof use;
  if (auto asked = taken(disk->use(sandbox, &abi.call, &use, &abi.error), abi); !asked) return asked.error();
  use.flags &= ISOGATE_DISK_ENFORCED | ISOGATE_DISK_EXACT;
  return Value(use);
}

Result<Value> Calls::change(Change function, const char* verb, AbiCall& abi,
                            const isogate_file_request& request, isogate_sandbox* sandbox) {
  if (function == nullptr) return left_out(instance_.description(), verb);
  return done(taken(function(sandbox, &abi.call, &request, &abi.error), abi));
}

Result<Value> Calls::serve(const ipc::EvidenceCall& call, isogate_sandbox* sandbox) {
  if (instance_.api().evidence == nullptr) return left_out(instance_.description(), "measure its isolation");
  AbiCall abi(call.call);
  isogate_evidence_request request{};
  request.struct_size = sizeof request;
  request.gateway_port = call.gateway_port;
  request.gateway_address = abi_str(call.gateway_address);
  request.gateway_listeners = abi_str(call.gateway_listeners);
  isogate_evidence found{};
  found.struct_size = sizeof found;
  isogate_status status = instance_.api().evidence(sandbox, &abi.call, &request, &found, &abi.error);
  if (auto measured = taken(status, abi); !measured) return measured.error();
  return take_evidence(found);
}

}  // namespace isogate
