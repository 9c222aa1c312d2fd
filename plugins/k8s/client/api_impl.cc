#include "plugins/k8s/client/api_impl.h"

#include <algorithm>

#include "lib/text.h"

namespace isogate::k8s {
namespace {

constexpr size_t kReasonMost = 65536;
constexpr int kMostRepeats = 5;

net::Target target_of(const ClusterAccess& access, const Identity& identity) {
  net::Target target{.name = "the API server",
                     .address = access.text(),
                     .unix_path = "",
                     .host = access.host,
                     .port = access.port,
                     .proxy = access.proxy};
  if (!access.tls) return target;
  target.tls = net::Tls{.certificate = identity.certificate,
                        .key = identity.key,
                        .server_name = access.server_name,
                        .verify = access.verify,
                        .trust_listed = true};  // as kubectl
  if (access.authority.empty()) return target;
  try {
    target.tls->authority = read_secret(access.authority, "certificate-authority");
  } catch (const sdk::Error& error) {
    throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot speak TLS with " + target.text() + ": " + error.what());
  }
  return target;
}

std::string attempt_of(const ApiRequest& request) {
  return request.attempt.empty() ? request.method + " " + request.path : request.attempt;
}

[[noreturn]] void too_late(Budget::Outcome outcome) {
  if (outcome == Budget::Outcome::kCancelled) throw NetError(ISOGATE_CANCELLED, "cancelled");
  throw NetError(ISOGATE_UNAVAILABLE, "its turn did not come in time: too many requests to this cluster");
}

// Seconds, as Kubernetes has it; a date is not.
std::optional<std::chrono::seconds> retry_after(const HttpHead& head) {
  constexpr int kLongest = 3600;
  const auto seconds = number_in<int>(head.header("retry-after"));
  if (!seconds || *seconds < 0) return std::nullopt;
  return std::chrono::seconds(std::min(*seconds, kLongest));
}

}  // namespace

using Seconds = std::chrono::duration<double>;

RateLimit::RateLimit(double qps, double burst)
    : qps_(qps), burst_(std::max(burst, 1.0)), tokens_(burst_), then_(Budget::Clock::now()) {}

// Whoever finds none takes one all the same, which the bucket owes, and waits as long as the debt lasts.
bool RateLimit::take(const Budget& budget) {
  if (qps_ <= 0) return true;
  Budget::Clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Budget::Clock::now();
    tokens_ = std::min(burst_, tokens_ + Seconds(now - then_).count() * qps_);
    then_ = now;
    tokens_ -= 1;
    turn = tokens_ >= 0 ? now
                        : now + std::chrono::duration_cast<Budget::Clock::duration>(Seconds(-tokens_ / qps_));
  }
  while (Budget::Clock::now() < turn) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(turn - Budget::Clock::now());
    if (budget.wait(-1, 0, left) != Budget::Outcome::kCancelled && !budget.over()) continue;
    const std::lock_guard lock(mutex_);
    tokens_ += 1;
    return false;
  }
  return true;
}

// An exec is a GET, too.
Api::Impl::Repeat Api::Impl::repeat_of(const ApiRequest& request, const Query& upgrade) {
  if (!upgrade.empty()) return Repeat::kNever;
  const bool twice = request.method == "GET" || request.method == "DELETE";
  return twice ? Repeat::kAlways : Repeat::kIfNothingWasDone;
}

net::HttpRequest Api::Impl::written(const ApiRequest& request, const Query& upgrade,
                                    const Identity& identity) const {
  net::HttpRequest out{request.method, access.path + request.path, request.body, {}};
  char separator = '?';
  for (const auto& [name, value] : request.query) {
    out.target += separator + percent_encode(name) + "=" + percent_encode(value);
    separator = '&';
  }
  if (!upgrade.empty()) {
    out.headers = upgrade;
  } else {
    out.headers.emplace_back("Accept", "application/json");
  }
  if (!request.body.empty()) out.headers.emplace_back("Content-Type", "application/json");
  out.headers.insert(out.headers.end(), access.headers.begin(), access.headers.end());
  if (!identity.authorization.empty()) out.headers.emplace_back("Authorization", identity.authorization);
  return out;
}

std::unique_ptr<HttpConnection> Api::Impl::take_kept(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  while (!kept_.empty()) {
    Kept one = std::move(kept_.back());
    kept_.pop_back();
    if (one.certificate == identity.certificate && one.connection->reusable())
      return std::move(one.connection);
  }
  return nullptr;
}

std::unique_ptr<HttpConnection> Api::Impl::connect(const Identity& identity, const Budget& budget) const {
  const std::string text = access.text();
  const size_t host = text.find("://") + 3;
  return std::make_unique<HttpConnection>(net::Transport::connect(target_of(access, identity), budget),
                                          text.substr(host, text.size() - host - access.path.size()),
                                          "the API server");
}

// A certificate and a key that do not go together may have been read in the middle of their replacement.
std::unique_ptr<HttpConnection> Api::Impl::connect_renewed(Identity& identity, const Budget& budget) const {
  try {
    return connect(identity, budget);
  } catch (const NetError& error) {
    const bool shown = !identity.certificate.empty() || !identity.key.empty();
    if (error.status() != ISOGATE_INVALID_ARGUMENT || !shown) throw;
  }
  access.credentials->refused(identity);
  identity = access.credentials->current(budget);
  return connect(identity, budget);
}

void Api::Impl::give(std::unique_ptr<HttpConnection> connection, const std::string& certificate) {
  if (!connection->reusable()) return;
  const std::lock_guard lock(mutex_);
  if (kept_.size() < limits.kept_most) kept_.push_back({std::move(connection), certificate});
}

Api::Impl::Asked Api::Impl::ask(const ApiRequest& request, const Query& upgrade, const Budget& budget) {
  for (bool first = true;; first = false) {
    Identity identity = access.credentials->current(budget);
    auto connection = first && upgrade.empty() ? take_kept(identity) : nullptr;
    const bool reused = connection != nullptr;
    if (!reused) connection = connect_renewed(identity, budget);
    try {
      HttpHead head = connection->exchange(written(request, upgrade, identity), budget);
      return {std::move(connection), std::move(head), std::move(identity)};
    } catch (const NetError&) {
      const bool stale = reused && !connection->answered() && connection->broken_off();
      if (!stale || repeat_of(request, upgrade) != Repeat::kAlways) throw;
    }
  }
}

bool Api::Impl::may_try_again(Asked& asked, Repeat repeat, const std::string& said, bool& renewed,
                              const Budget& budget) {
  const int status = asked.head.status;
  if (status == 401 && !renewed) {
    renewed = true;
    access.credentials->refused(asked.identity);
    return access.credentials->current(budget) != asked.identity;
  }
  if (repeat == Repeat::kNever) return false;
  const auto pause = retry_after(asked.head);
  // An eviction that a disruption budget forbids is also a 429, but does not mean load.
  const bool busy = status == 429 && (pause || said.find("DisruptionBudget") == std::string::npos);
  if (!busy && !(status == 503 && pause && repeat == Repeat::kAlways)) return false;
  const auto wait = std::chrono::milliseconds(pause.value_or(std::chrono::seconds(1)));
  if (budget.left() <= wait) return false;
  if (budget.wait(-1, 0, wait) == Budget::Outcome::kCancelled) throw NetError(ISOGATE_CANCELLED, "cancelled");
  return true;
}

ApiStream Api::Impl::open(const ApiRequest& request, const Query& upgrade, bool counted,
                          const Budget& budget) try {
  bool renewed = false;
  for (int repeats = 0;; ++repeats) {
    if (counted && !rate.take(budget))
      too_late(budget.over() ? Budget::Outcome::kLate : Budget::Outcome::kCancelled);
    Asked asked = ask(request, upgrade, budget);
    const int status = asked.head.status;
    if (upgrade.empty() ? status >= 200 && status < 300 : status == 101) {
      return {std::move(asked.connection), std::move(asked.head), std::move(asked.identity.certificate)};
    }
    if (status < 400)
      throw NetError(ISOGATE_UNAVAILABLE,
                     "the API server answered " + std::to_string(status) + ", which was not expected", 0,
                     true);
    const std::string said = asked.connection->read_reason(kReasonMost, budget);
    give(std::move(asked.connection), asked.identity.certificate);
    if (repeats == kMostRepeats || !may_try_again(asked, repeat_of(request, upgrade), said, renewed, budget))
      throw refusal(attempt_of(request), status, said, request.name);
  }
} catch (const NetError& error) {
  if (error.http_status() != 0 || error.status() == ISOGATE_CANCELLED) throw;
  throw error.during(attempt_of(request));
}

std::string Api::Impl::text(const ApiRequest& request, const Budget& budget) {
  ApiStream stream = open(request, {}, true, budget);
  try {
    std::string all = stream.connection->read_body(limits.answer_most, budget);
    give(std::move(stream.connection), stream.certificate);
    return all;
  } catch (const NetError& error) {
    throw error.during(attempt_of(request));
  }
}

}  // namespace isogate::k8s
