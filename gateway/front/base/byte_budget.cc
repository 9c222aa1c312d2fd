#include "gateway/front/base/byte_budget.h"

#include <algorithm>

#include "gateway/front/base/api_error.h"

namespace isogate::front {
namespace {

ApiError no_memory(const std::string& what, uint64_t most) {
  return {
      .code = Code::kRateLimited,
      .message = what + " hold " + std::to_string(most) +
                 " bytes of bodies and answers, or would with this one (limits.max_held_bytes); try again "
                 "when some have ended, or ask for less",
      .retry_after_sec = 1};
}

}  // namespace

ByteShare& ByteShare::operator=(ByteShare&& other) noexcept {
  if (this == &other) return *this;
  release();
  budget_ = std::exchange(other.budget_, nullptr);
  tenant_ = std::move(other.tenant_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void ByteShare::hold(uint64_t bytes) {
  if (budget_ == nullptr || bytes == bytes_) return;
  if (bytes > bytes_) make_room(bytes - bytes_);
  budget_->of_[tenant_] += bytes - bytes_;
  budget_->held_ += bytes - bytes_;
  bytes_ = bytes;
}

void ByteShare::make_room(uint64_t more) {
  const auto lack = [more](uint64_t held, uint64_t most) -> uint64_t {
    if (more > most) return UINT64_MAX;
    return held > most - more ? held - (most - more) : 0;
  };
  const auto reclaim = [this](const std::string& of, uint64_t bytes) {
    return budget_->reclaim_ && budget_->reclaim_(of, bytes);
  };
  while (const uint64_t lacking = lack(of_tenant(), budget_->most_per_tenant_))
    if (!reclaim(tenant_, lacking)) throw no_memory("this tenant's requests", budget_->most_per_tenant_);
  while (const uint64_t lacking = lack(budget_->held_, budget_->most_))
    if (!reclaim("", lacking)) throw no_memory("all requests", budget_->most_);
}

uint64_t ByteShare::of_tenant() const {
  const auto found = budget_->of_.find(tenant_);
  return found == budget_->of_.end() ? 0 : found->second;
}

uint64_t ByteShare::left() const {
  if (budget_ == nullptr) return UINT64_MAX;
  const auto left_of = [](uint64_t most, uint64_t held) { return most - std::min(most, held); };
  return std::min(left_of(budget_->most_, budget_->held_), left_of(budget_->most_per_tenant_, of_tenant()));
}

void ByteShare::release() noexcept {
  if (budget_ == nullptr || bytes_ == 0) return;
  const auto own = budget_->of_.find(tenant_);
  own->second -= bytes_;
  budget_->held_ -= bytes_;
  if (own->second == 0) budget_->of_.erase(own);
  bytes_ = 0;
}

}  // namespace isogate::front
