// The claim to one sandbox in the cluster: a Lease of its name. Only one of several gateways can
// create it, and it owns everything of the sandbox. One thread at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

class Lease {
 public:
  Lease(Services& services, const Parts& parts) : services_(services), parts_(parts) {}  // both borrowed

  // Reads it. False: there is none. Throws ISOGATE_UNAVAILABLE for one that this gateway did not make.
  bool find(const Budget& budget);
  // Held by this gateway, with record() unchanged. False: another one was faster.
  bool create(const Budget& budget);
  // Writes record(). `hold`: this gateway works on it; else no gateway does. Throws ISOGATE_UNAVAILABLE
  // when another gateway has written since.
  void write(bool hold, const Budget& budget);
  // Writes record() of a Lease that no gateway works on. False: another gateway has written since.
  bool join(const Budget& budget) { return replace(false, budget); }
  // Extends the time in which this gateway works on it. False: another gateway has written since.
  bool hold(const Budget& budget) { return replace(true, budget); }
  // Gives a Lease created in advance to `taker`, without a holder. False: another gateway has
  // written since.
  bool give_to(const Parts& taker, const Budget& budget);
  // Deletes it, and later everything that belongs to it. Already deleted is OK.
  void remove(const Budget& budget);

  Record& record() { return record_; }
  [[nodiscard]] const Record& record() const { return record_; }
  [[nodiscard]] const std::string& uid() const { return uid_; }  // empty: there is none
  [[nodiscard]] bool is_ending() const { return ending_; }
  // Another gateway works on it, and still renews it.
  [[nodiscard]] bool is_others() const;
  // The same of any gateway, this one included.
  [[nodiscard]] bool is_held() const;
  [[nodiscard]] const std::string& holder() const { return hold_.holder; }

 private:
  void learn(nlohmann::json lease);
  void put(nlohmann::json lease, bool hold);
  void remove_ahead(const Budget& budget);
  bool replace(bool hold, const Budget& budget);  // false: another gateway has

  Services& services_;
  const Parts& parts_;
  nlohmann::json lease_;
  Record record_;
  Hold hold_;
  std::string uid_;
  bool ending_ = false;
};

// The Leases of this backend's sandboxes, whichever gateway made them. `ahead`: those of ready pods that no
// agent has, else those of agents. Throws what Api throws.
std::vector<nlohmann::json> sandbox_leases(Services& services, bool ahead, const Budget& budget);

// No gateway works on the Lease's sandbox: it has no holder, or one that no longer renews it.
bool is_free(Services& services, const nlohmann::json& lease);

}  // namespace isogate::k8s
