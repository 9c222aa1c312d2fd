// An open sandbox on this host whose files are a Workspace. A backend adds how programs run in it, and how it
// ends. Its errors are Results; the verbs throw them. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "plugins/common/disk_workspace.h"
#include "plugins/common/or_throw.h"
#include "runner/uid/users.h"

namespace isogate {

class HostSandbox : public sdk::Sandbox {
  // Runs one verb as the request's user.
  template <typename Verb>
  auto on_files(const isogate_file_request& request, Verb verb) {
    check_usable();
    if (request.user.len == 0) return or_throw(verb(*workspace_));
    return or_throw(verb(*workspace_->as(or_throw(user_named(request.user)).identity)));
  }

 public:
  // Once it has begun, every other call is ISOGATE_NO_SANDBOX, even if it failed.
  void close(const sdk::Call& call, uint32_t mode) final {
    ending_ = true;
    own_or_throw(end(mode, call.cancel_fd()));
  }
  void read(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) final {
    entry = on_files(request, [&](Workspace& files) { return files.read(request, call.cancel_fd()); });
  }
  uint64_t write(const sdk::Call& call, const isogate_file_request& request) final {
    return on_files(request, [&](Workspace& files) { return files.write(request, call.cancel_fd()); });
  }
  void list(const sdk::Call& call, const isogate_file_request& request, const sdk::EntrySink& sink) final {
    on_files(request, [&](Workspace& files) { return files.list(request, sink.abi(), call.cancel_fd()); });
  }
  void stat(const sdk::Call&, const isogate_file_request& request, isogate_entry& entry) final {
    entry = on_files(request, [&](Workspace& files) { return files.stat(request); });
  }
  void mkdir(const sdk::Call&, const isogate_file_request& request) final {
    on_files(request, [&](Workspace& files) { return files.mkdir(request); });
  }
  void move(const sdk::Call& call, const isogate_file_request& request) final {
    on_files(request, [&](Workspace& files) { return files.move(request, call.cancel_fd()); });
  }
  void remove(const sdk::Call& call, const isogate_file_request& request) final {
    on_files(request, [&](Workspace& files) { return files.remove(request, call.cancel_fd()); });
  }
  void watch(const sdk::Call& call, const isogate_file_request& request) final {
    on_files(request, [&](Workspace& files) { return files.watch(request, call.cancel_fd()); });
  }
  void disk_use(const sdk::Call&, isogate_disk_use& out) final {
    check_usable();
    out = or_throw(disk_->use());
  }

 protected:
  // `refusal`: what every call but close() is answered, if anything.
  HostSandbox(std::string id, DiskWorkspace files, std::optional<Error> refusal)
      : id_(std::move(id)),
        disk_(std::move(files.disk)),
        workspace_(std::move(files.workspace)),
        refusal_(std::move(refusal)) {}

  // `mode` as for close().
  virtual Result<void> end(uint32_t mode, int cancel_fd) = 0;
  // An empty name is the sandbox's own user.
  [[nodiscard]] virtual Result<User> user_named(const isogate_str& name) const = 0;
  // For the verbs of a backend.
  void check_usable() const {
    if (ending_)
      throw sdk::Error(ISOGATE_NO_SANDBOX, "the sandbox was closed, though not to the end: close it again");
    if (refusal_) fail_with(*refusal_);
  }

  const std::string id_;
  const std::unique_ptr<SandboxDisk> disk_;
  const std::unique_ptr<Workspace> workspace_;

 private:
  const std::optional<Error> refusal_;
  std::atomic<bool> ending_ = false;
};

}  // namespace isogate
