#include "gateway/front/sandboxes/sandbox_register.h"

#include <boost/asio/post.hpp>

#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;

Result<void> SandboxRegister::load() {
  auto rows = state_.load_sandboxes();
  if (!rows) return rows.error();
  for (SandboxRow& row : *rows) {
    auto sandbox = std::make_shared<Sandbox>(executor_);
    sandbox->row = std::move(row);
    sandbox->known = true;
    if (sandbox->row.state == SandboxRow::State::kEnding) sandbox->closing = ISOGATE_CLOSE_PURGE;
    sandbox->left_over = !sandbox->row.was_accepted();
    sandbox->emptied = sandbox->row.state == SandboxRow::State::kLost;
    ++per_tenant_[sandbox->row.tenant];
    note_e2b(sandbox->row);
    sandboxes_.emplace(sandbox->row.sandbox_id, std::move(sandbox));
  }
  return {};
}

SandboxPtr SandboxRegister::find(const std::string& id) const {
  const auto found = sandboxes_.find(id);
  return found == sandboxes_.end() ? nullptr : found->second;
}

SandboxPtr SandboxRegister::known(const std::string& id) const {
  auto sandbox = find(id);
  return sandbox && sandbox->known ? sandbox : nullptr;
}

SandboxPtr SandboxRegister::known_e2b(const std::string& agent) const {
  const auto found = e2b_agents_.find(agent);
  return found == e2b_agents_.end() ? nullptr : known(found->second);
}

std::vector<SandboxPtr> SandboxRegister::all_e2b() const {
  std::vector<SandboxPtr> all;
  for (const auto& [agent, id] : e2b_agents_)
    if (auto sandbox = known(id)) all.push_back(std::move(sandbox));
  return all;
}

std::vector<SandboxPtr> SandboxRegister::of(const std::string& tenant) const {
  std::vector<SandboxPtr> all;
  for (const auto& [id, sandbox] : sandboxes_)
    if (sandbox->known && sandbox->row.tenant == tenant) all.push_back(sandbox);
  return all;
}

SandboxPtr SandboxRegister::find_or_make(const std::string& id, const Wanted& wanted) {
  if (auto found = find(id)) return found;
  const auto own = per_tenant_.find(wanted.tenant);
  const bool all_taken = sandboxes_.size() >= most_;
  if (all_taken || (own != per_tenant_.end() && own->second >= most_per_tenant_)) {
    throw ApiError{
        .code = Code::kQuotaExceeded,
        .message = (all_taken ? "there are " + std::to_string(most_) + " sandboxes (limits.max_sandboxes)"
                              : "there are " + std::to_string(most_per_tenant_) +
                                    " sandboxes of this tenant (limits.max_sandboxes_per_tenant)") +
                   "; end some with DELETE /sandboxes/{agent_id}?purge=true, or let the operator "
                   "raise the limit"};
  }
  return make(id, wanted);
}

SandboxPtr SandboxRegister::make(const std::string& id, const Wanted& wanted) {
  const auto sandbox = std::make_shared<Sandbox>(executor_);
  sandbox->row.sandbox_id = id;
  sandbox->row.tenant = wanted.tenant;
  sandbox->row.agent_id = wanted.agent;
  ++per_tenant_[wanted.tenant];
  sandboxes_.emplace(id, sandbox);
  return sandbox;
}

void SandboxRegister::forget(const Sandbox& sandbox) {
  const auto found = sandboxes_.find(sandbox.row.sandbox_id);
  if (found == sandboxes_.end() || found->second.get() != &sandbox) return;
  const auto own = per_tenant_.find(sandbox.row.tenant);
  if (own != per_tenant_.end() && --own->second == 0) per_tenant_.erase(own);
  if (!sandbox.row.e2b_record.empty()) e2b_agents_.erase(sandbox.row.agent_id);
  sandboxes_.erase(found);
}

void SandboxRegister::forget_if_unknown(const std::string& id) {
  const auto sandbox = find(id);
  if (sandbox && !sandbox->known && sandbox->calls == 0 && !sandbox->changing) forget(*sandbox);
}

asio::awaitable<void> SandboxRegister::remove(Sandbox& sandbox) {
  if (const auto recorded = co_await store(sandbox, false); !recorded) {
    sandbox.closing = ISOGATE_CLOSE_PURGE;
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "the end of the sandbox cannot be recorded: " + recorded.error().message,
                   .retry_after_sec = 5};
  }
  sandbox.known = false;
  forget(sandbox);
}

void SandboxRegister::remove_record(Sandbox& sandbox) {
  sandbox.known = false;
  state_.remove_sandbox(sandbox.row.sandbox_id, {});
}

asio::awaitable<Result<void>> SandboxRegister::store(const Sandbox& sandbox, bool there) {
  const auto done = std::make_shared<Event>(executor_);
  const auto outcome = std::make_shared<Result<void>>();
  State::Done act = [executor = executor_, done, outcome](Result<void> result) {
    *outcome = std::move(result);
    asio::post(executor, [done] { done->set(); });
  };
  if (there)
    state_.put_sandbox(sandbox.row, std::move(act));
  else
    state_.remove_sandbox(sandbox.row.sandbox_id, std::move(act));
  co_await done->wait();
  co_return *outcome;
}

ApiError not_recorded(const Error& error) {
  return {.code = Code::kQuotaExceeded, .message = "the sandbox cannot be recorded: " + error.message};
}

ApiError no_sandbox(const std::string& agent) {
  return {.code = Code::kSandboxNotFound, .message = "agent `" + printable(agent, 70) + "` has no sandbox"};
}

}  // namespace isogate::front
