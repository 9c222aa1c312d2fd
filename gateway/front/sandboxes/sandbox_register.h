// The sandboxes of this instance, by id and by (tenant, agent), and their records in the state store. The
// front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gateway/front/base/api_error.h"
#include "gateway/front/base/names.h"
#include "gateway/front/sandboxes/sandbox.h"

namespace isogate::front {

class SandboxRegister {
 public:
  SandboxRegister(boost::asio::any_io_executor executor, State& state, std::string instance)
      : executor_(std::move(executor)), state_(state), instance_(std::move(instance)) {}

  Result<void> load();
  void set_limits(size_t all, size_t per_tenant) {
    most_ = all;
    most_per_tenant_ = per_tenant;
  }
  [[nodiscard]] size_t most() const { return most_; }

  // Null: there is none. `known`: in the state store.
  [[nodiscard]] SandboxPtr find(const std::string& id) const;
  [[nodiscard]] SandboxPtr known(const std::string& id) const;
  [[nodiscard]] SandboxPtr known(const std::string& tenant, const std::string& agent) const {
    return known(id_of(tenant, agent));
  }
  // Of any tenant, among those that the E2B listener created. Their agents' names are made by it, and
  // unique.
  [[nodiscard]] SandboxPtr known_e2b(const std::string& agent) const;
  [[nodiscard]] std::vector<SandboxPtr> all_e2b() const;
  // That are known.
  [[nodiscard]] std::vector<SandboxPtr> of(const std::string& tenant) const;
  [[nodiscard]] const std::unordered_map<std::string, SandboxPtr>& all() const { return sandboxes_; }
  [[nodiscard]] std::string id_of(const std::string& tenant, const std::string& agent) const {
    return sandbox_id(instance_, tenant, agent);
  }

  // Throws ApiError when there are too many.
  SandboxPtr find_or_make(const std::string& id, const Wanted& wanted);
  // There is none of that id. However many there are: for what a backend may have already.
  SandboxPtr make(const std::string& id, const Wanted& wanted);
  void forget(const Sandbox& sandbox);
  void forget_if_unknown(const std::string& id);  // unless somebody uses it

  // Waits until the row is on disk: an exec answers only after that.
  boost::asio::awaitable<Result<void>> put(const Sandbox& sandbox) { return store(sandbox, true); }
  // Of one that the E2B listener created, before its first put().
  void note_e2b(const SandboxRow& row) {
    if (!row.e2b_record.empty()) e2b_agents_[row.agent_id] = row.sandbox_id;
  }
  // Forgets it once it is recorded that it is gone: an answer before that could be undone by a crash. Throws
  // ApiError.
  boost::asio::awaitable<void> remove(Sandbox& sandbox);
  // Nothing of it is left, or nobody to ask. Its record may go later: a sandbox that is not there is found
  // not to be.
  void remove_record(Sandbox& sandbox);
  // Keeps the expiries on disk right: call it every second.
  void follow_clock() { state_.follow_clock(); }
  // Why no record can be written at the moment.
  [[nodiscard]] std::optional<Error> last_error() const { return state_.last_error(); }

 private:
  boost::asio::awaitable<Result<void>> store(const Sandbox& sandbox, bool there);

  boost::asio::any_io_executor executor_;
  State& state_;
  std::string instance_;
  size_t most_ = SIZE_MAX, most_per_tenant_ = SIZE_MAX;
  std::unordered_map<std::string, SandboxPtr> sandboxes_;  // by sandbox_id
  std::unordered_map<std::string, size_t> per_tenant_;
  std::unordered_map<std::string, std::string> e2b_agents_;  // by agent: sandbox_id
};

// What a put() that failed is to the caller.
ApiError not_recorded(const Error& error);
ApiError no_sandbox(const std::string& agent);

}  // namespace isogate::front
