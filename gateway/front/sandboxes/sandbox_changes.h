// Opens a sandbox in its backend's host, measures it, and closes it there. Callers hold a Change of it
// meanwhile, and what they pass by reference. The front's one thread.
#pragma once

#include <memory>
#include <string>

#include "gateway/front/sandboxes/evidence_check.h"
#include "gateway/front/sandboxes/sandbox_register.h"
#include "gateway/front/sandboxes/tenant_disks.h"

namespace isogate::front {

class SandboxChanges {
 public:
  SandboxChanges(Backends& backends, SandboxRegister& records, const TenantDisks& disks, bool started_by_root)
      : backends_(backends), records_(records), disks_(disks), started_by_root_(started_by_root) {}

  Result<void> load();  // this process's namespaces, with which a sandbox's are compared
  // The addresses that a sandbox tries to reach when it is measured: every TCP listener of this
  // gateway.
  void add_listener(const std::string& address, uint32_t port);

  // Records the intent, opens it, compares its evidence with the claim, and records that it is accepted.
  // `how`: ISOGATE_OPEN_RUNNING_ONLY or 0. Throws ApiError: what was opened is closed again.
  boost::asio::awaitable<void> open(Sandbox& sandbox, Backend& backend, const Wanted& wanted, uint32_t how);

  // ISOGATE_OK; ISOGATE_NO_SANDBOX: its backend has nothing of it; ISOGATE_SANDBOX_LOST: not its workspace.
  // Throws ApiError.
  boost::asio::awaitable<isogate_status> attach_to_close(Sandbox& sandbox, Backend& backend,
                                                         const std::string& request_id);
  // Kills what runs, and waits for its calls, but not for slow clients.
  boost::asio::awaitable<void> wait_for_calls(Sandbox& sandbox);
  // From here on only another close may follow, until one succeeds. `mode` is ISOGATE_CLOSE_STOP or _PURGE. A
  // purge whose backend denies that there is a sandbox, and finds it again, throws: what is there is only
  // stopped.
  boost::asio::awaitable<void> close(Sandbox& sandbox, Backend& backend, uint32_t mode,
                                     const std::string& request_id);
  // Of a backend that is no longer configured: ends what runs in it, and closes it where the backend host
  // that was replaced still has it open.
  boost::asio::awaitable<void> end_in_replaced_host(Sandbox& sandbox, const std::string& request_id);
  // What a close that failed has left: a call waits for it, but not for long, and never runs beside it. No
  // Change is held.
  boost::asio::awaitable<void> finish_closing(SandboxPtr sandbox, const std::string& request_id);

 private:
  struct Opening;
  static boost::asio::awaitable<ipc::Reply> close_in(Sandbox& sandbox,
                                                     std::shared_ptr<BackendChannel> channel,
                                                     const std::string& request_id);
  boost::asio::awaitable<void> expect_purged(Sandbox& sandbox, Backend& backend,
                                             const std::string& request_id);

  Backends& backends_;
  SandboxRegister& records_;
  const TenantDisks& disks_;
  const bool started_by_root_;
  Namespaces host_namespaces_;
  std::string gateway_address_;  // the first of the listeners
  uint32_t gateway_port_ = 0;
  std::string gateway_listeners_;
};

}  // namespace isogate::front
