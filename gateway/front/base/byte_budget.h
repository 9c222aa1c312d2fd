// A bound on bytes: of all tenants, and of one. For memory, the front claims bytes before it keeps request
// bodies and responses while it waits for a peer: a claim that does not fit is refused with 429, before the
// call has any effect. Bytes that are made and dropped between two waits are not counted (one thread: they
// exist once), nor are the parts of at most 128 KiB in which a connection reads and writes. The front's one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

namespace isogate::front {

class ByteBudget {
 public:
  void set_limits(uint64_t all, uint64_t per_tenant) {
    most_ = all;
    most_per_tenant_ = per_tenant;
  }
  [[nodiscard]] uint64_t held() const { return held_; }
  // Called before a claim is refused because `bytes` are missing: drops data that is kept only for later
  // calls, of that tenant, or of any tenant for an empty name. False: that would not suffice.
  using Reclaim = std::function<bool(const std::string& tenant, uint64_t bytes)>;
  void set_reclaim(Reclaim reclaim) { reclaim_ = std::move(reclaim); }

 private:
  friend class ByteShare;

  uint64_t most_ = UINT64_MAX, most_per_tenant_ = UINT64_MAX;
  uint64_t held_ = 0;
  std::unordered_map<std::string, uint64_t> of_;
  Reclaim reclaim_;
};

// The bytes that one request holds; returned by the destructor. Must not outlive its budget; without a
// budget nothing is counted.
class ByteShare {
 public:
  ByteShare() = default;
  ByteShare(ByteBudget& budget, std::string tenant) : budget_(&budget), tenant_(std::move(tenant)) {}
  ByteShare(ByteShare&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)),
        tenant_(std::move(other.tenant_)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  ByteShare& operator=(ByteShare&& other) noexcept;
  ~ByteShare() { release(); }

  // Sets the number of bytes, more or fewer. Throws ApiError rate_limited and keeps the old
  // number.
  void hold(uint64_t bytes);
  void add(uint64_t bytes) { hold(bytes_ + bytes); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // How many bytes add() could claim without a Reclaim.
  [[nodiscard]] uint64_t left() const;

 private:
  void release() noexcept;
  void make_room(uint64_t more);
  [[nodiscard]] uint64_t of_tenant() const;

  ByteBudget* budget_ = nullptr;
  std::string tenant_;
  uint64_t bytes_ = 0;
};

}  // namespace isogate::front
