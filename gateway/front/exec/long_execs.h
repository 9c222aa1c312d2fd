// The long-lived execs of this gateway: running ones, and for a while ended ones. The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/front/base/alarm.h"
#include "gateway/front/exec/long_exec.h"

namespace isogate::front {

class LongExecs {
 public:
  static constexpr size_t kMostEnded = 256;  // of a tenant

  explicit LongExecs(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // One that is taken(); until it has ended and `keep` has passed since.
  void add(std::shared_ptr<LongExec> exec, std::chrono::nanoseconds keep);
  // Null: the tenant has none of that id.
  [[nodiscard]] std::shared_ptr<LongExec> find(const std::string& tenant, const std::string& exec_id) const;
  // In the order of their ids.
  [[nodiscard]] std::vector<std::shared_ptr<LongExec>> of(const std::string& tenant) const;
  // Forgets the exec that ended first of a tenant; for an empty name, of the tenant whose ended execs have
  // the most bytes, or files. False: the ended execs without a reader have less than `least` together.
  using Has = uint64_t (LongExec::*)() const;
  bool forget_oldest(const std::string& tenant, uint64_t least, Has has = &LongExec::held);
  // SIGTERM to all that run; with `leave`, execs that their backends keep are detached instead.
  void ask_all_to_end(bool leave) const;

 private:
  struct Kept {
    std::shared_ptr<LongExec> exec;
    std::unique_ptr<Alarm> forget;
  };
  struct Ended {
    std::string tenant, exec_id;
  };
  using Execs = std::map<std::string, Kept>;  // by exec_id
  static Task<void> keep_until(LongExecs& execs, std::shared_ptr<LongExec> exec,
                               std::chrono::nanoseconds keep);
  void has_ended(const LongExec& exec, std::chrono::nanoseconds keep);
  [[nodiscard]] bool is_of(const Ended& ended, const std::string& tenant) const {
    return tenant.empty() || ended.tenant == tenant;
  }
  void forget(const std::string& tenant, const std::string& exec_id);

  boost::asio::any_io_executor executor_;
  std::map<std::string, Execs> tenants_;
  std::deque<Ended> ended_;  // oldest first
};

}  // namespace isogate::front
