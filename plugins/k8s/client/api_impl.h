// The common part of the calls of api.h: connections, credentials, repetitions.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/k8s/client/api.h"

namespace isogate::k8s {

// A token bucket for requests: `qps` of them a second, `burst` at once. Any thread.
class RateLimit {
 public:
  RateLimit(double qps, double burst);  // qps 0: any number
  // Waits for its turn, in the order of the calls. False: the turn would come after the budget's end, or
  // the budget was cancelled; the turn is returned.
  [[nodiscard]] bool take(const Budget& budget);

 private:
  const double qps_, burst_;
  std::mutex mutex_;
  double tokens_;
  Budget::Clock::time_point then_;
};

struct Api::Impl {
  Impl(ClusterAccess where, ApiLimits most)
      : access(std::move(where)), limits(most), rate(limits.qps, limits.burst) {}

  // An answer with a good status, its body not yet read.
  ApiStream open(const ApiRequest& request, const Query& upgrade, bool counted, const Budget& budget);
  std::string text(const ApiRequest& request, const Budget& budget);  // the whole body

  const ClusterAccess access;
  const ApiLimits limits;

 private:
  struct Kept {
    std::unique_ptr<HttpConnection> connection;
    std::string certificate;  // which it was made with
  };
  struct Asked {
    std::unique_ptr<HttpConnection> connection;
    HttpHead head;
    Identity identity;
  };

  std::unique_ptr<HttpConnection> take_kept(const Identity& identity);
  std::unique_ptr<HttpConnection> connect(const Identity& identity, const Budget& budget) const;
  std::unique_ptr<HttpConnection> connect_renewed(Identity& identity, const Budget& budget) const;
  void give(std::unique_ptr<HttpConnection> connection, const std::string& certificate);
  Asked ask(const ApiRequest& request, const Query& upgrade, const Budget& budget);
  net::HttpRequest written(const ApiRequest& request, const Query& upgrade, const Identity& identity) const;
  enum class Repeat { kNever, kIfNothingWasDone, kAlways };
  static Repeat repeat_of(const ApiRequest& request, const Query& upgrade);
  bool may_try_again(Asked& asked, Repeat repeat, const std::string& said, bool& renewed,
                     const Budget& budget);

  RateLimit rate;
  std::mutex mutex_;  // of kept_
  std::vector<Kept> kept_;
};

}  // namespace isogate::k8s
