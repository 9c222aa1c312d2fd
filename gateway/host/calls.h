// One call of the front, run to its reply: checks it, converts it to the ABI's structs, calls the plugin
// and converts the result. [any]
#pragma once

#include "gateway/host/abi_call.h"
#include "gateway/host/instance.h"
#include "gateway/host/sandboxes.h"
#include "gateway/ipc/messages.h"

namespace isogate {

// The reply to a call that failed.
ipc::Reply refusal(uint64_t id, Error error);

class Calls {
 public:
  Calls(Instance& instance, Sandboxes& sandboxes) : instance_(instance), sandboxes_(sandboxes) {}

  // Never throws: an exception of the plugin ends the process, as it must.
  ipc::Reply run(const ipc::Call& call) noexcept;

 private:
  using Value = decltype(ipc::Reply::value);
  using Change = decltype(isogate_backend_api::mkdir);

  Result<Value> serve(const ipc::ProbeCall& call);
  static Result<Value> serve(const ipc::PingCall& call);
  Result<Value> serve(const ipc::OpenCall& call);
  Result<Value> serve(const ipc::CloseCall& call);
  Result<Value> serve(const ipc::EnumerateCall& call);
  Result<Value> serve(const ipc::OrphansCall& call);

  // All others, in their sandbox.
  template <typename Message>
  Result<Value> serve(const Message& call);
  Result<Value> serve(const ipc::ExecCall& call, isogate_sandbox* sandbox);
  Result<isogate_status> run(const ipc::ExecCall& call, isogate_sandbox* sandbox, AbiCall& abi,
                             const isogate_exec_request& request, isogate_exec_result& result);
  Result<Value> serve(const ipc::EvidenceCall& call, isogate_sandbox* sandbox);
  Result<Value> serve(const ipc::ConnectCall& call, isogate_sandbox* sandbox);
  Result<Value> serve(const ipc::FileCall& call, isogate_sandbox* sandbox);
  Result<Value> list(const ipc::FileCall& call, AbiCall& abi, const isogate_file_request& request,
                     isogate_sandbox* sandbox);
  Result<decltype(ipc::Reply::value)> disk_use(AbiCall& abi, isogate_sandbox* sandbox);
  Result<Value> change(Change function, const char* verb, AbiCall& abi, const isogate_file_request& request,
                       isogate_sandbox* sandbox);

  Instance& instance_;
  Sandboxes& sandboxes_;
};

}  // namespace isogate
