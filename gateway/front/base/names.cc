#include "gateway/front/base/names.h"

#include <cstdint>
#include <cstring>

#include "lib/hash.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

void append_prefixed(std::string& out, std::string_view part) {
  uint64_t size = part.size();
  for (int i = 0; i < 8; ++i) out += static_cast<char>(size >> (8 * i));
  out += part;
}

// Random bytes drawn ahead, so that an id costs no system call of its own; wiped once handed out.
class RandomPool {
 public:
  std::string take(size_t count) {
    if (pool_.size() - used_ < count) {
      pool_ = random_bytes(kAhead);
      used_ = 0;
    }
    std::string bytes = pool_.substr(used_, count);
    std::memset(pool_.data() + used_, 0, count);
    used_ += count;
    return bytes;
  }

 private:
  static constexpr size_t kAhead = 1024;
  std::string pool_;
  size_t used_ = 0;
};

thread_local RandomPool pool;

}  // namespace

std::string sandbox_id(std::string_view instance, std::string_view tenant, std::string_view agent) {
  std::string joined;
  joined.reserve(24 + instance.size() + tenant.size() + agent.size());
  for (std::string_view part : {instance, tenant, agent}) append_prefixed(joined, part);
  return "isg-" + base32_lower(std::string_view(sha256(joined)).substr(0, 16));
}

bool valid_agent_id(std::string_view id) { return is_name(id, "_-"); }

std::string new_exec_id() { return hex(pool.take(16)); }

std::string new_request_id() { return hex(pool.take(8)); }

}  // namespace isogate::front
