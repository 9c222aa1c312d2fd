#include "gateway/front/base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <utility>

namespace isogate::front {
namespace {
const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

template <typename Builder>
auto& add_family(prometheus::Registry& to, Builder builder, const char* name, const char* help) {
  return builder.Name(name).Help(help).Register(to);
}
}  // namespace

struct Metrics::Families {
  using Counters = prometheus::Family<prometheus::Counter>;
  using Histograms = prometheus::Family<prometheus::Histogram>;
  Counters& counter(const char* name, const char* help) {
    return add_family(registry, prometheus::BuildCounter(), name, help);
  }
  Histograms& histogram(const char* name, const char* help) {
    return add_family(registry, prometheus::BuildHistogram(), name, help);
  }

  prometheus::Registry registry;
  Counters& requests =
      counter("isogate_requests_total", "Requests; status 0: the client disconnected before the answer");
  Histograms& request_seconds =
      histogram("isogate_request_duration_seconds", "From the end of the header to the end of the answer");
  Counters& execs = counter("isogate_execs_total", "Ended execs");
  Histograms& exec_seconds =
      histogram("isogate_exec_duration_seconds", "From the program's start to its end");
  Counters& mcp_calls = counter("isogate_mcp_calls_total", "Answered tools/call of MCP");
  Counters& refused =
      counter("isogate_connections_refused_total", "Connections that were not admitted, by the limit");
  Counters& ports = counter("isogate_port_connections_total", "Ended connections to ports of sandboxes");
  Counters& port_bytes = counter("isogate_port_bytes_total", "Bytes to and from ports of sandboxes");
  prometheus::Family<prometheus::Gauge>& now =
      add_family(registry, prometheus::BuildGauge(), "isogate_current", "How many there are now");
  std::map<std::pair<std::string_view, unsigned>, prometheus::Counter*> request_counters;
  std::map<std::string_view, prometheus::Histogram*> request_histograms;
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::request_ended(std::string_view operation, unsigned status, double seconds) {
  auto& counter = families_->request_counters[{operation, status}];
  if (counter == nullptr) {
    counter =
        &families_->requests.Add({{"operation", std::string(operation)}, {"status", std::to_string(status)}});
  }
  counter->Increment();
  auto& histogram = families_->request_histograms[operation];
  if (histogram == nullptr)
    histogram = &families_->request_seconds.Add({{"operation", std::string(operation)}}, kSeconds);
  histogram->Observe(seconds);
}

void Metrics::exec_ended(const std::string& backend, std::string_view outcome,
                         std::optional<double> seconds) {
  families_->execs.Add({{"backend", backend}, {"outcome", std::string(outcome)}}).Increment();
  if (seconds) families_->exec_seconds.Add({{"backend", backend}}, kSeconds).Observe(*seconds);
}

void Metrics::mcp_call_ended(std::string_view tool, std::string_view outcome) {
  families_->mcp_calls.Add({{"tool", std::string(tool)}, {"outcome", std::string(outcome)}}).Increment();
}

void Metrics::port_ended(const std::string& backend, uint64_t bytes_in, uint64_t bytes_out) {
  families_->ports.Add({{"backend", backend}}).Increment();
  families_->port_bytes.Add({{"backend", backend}, {"direction", "in"}})
      .Increment(static_cast<double>(bytes_in));
  families_->port_bytes.Add({{"backend", backend}, {"direction", "out"}})
      .Increment(static_cast<double>(bytes_out));
}

void Metrics::connection_refused(std::string_view limit) {
  families_->refused.Add({{"limit", std::string(limit)}}).Increment();
}

std::string Metrics::text(const Gauges& gauges) {
  const auto set = [this](const char* what, size_t value) {
    families_->now.Add({{"what", what}}).Set(static_cast<double>(value));
  };
  set("connections", gauges.connections);
  set("sandboxes", gauges.sandboxes);
  set("execs_running", gauges.execs_running);
  set("execs_waiting", gauges.execs_waiting);
  set("held_bytes", gauges.held_bytes);
  set("spool_bytes", gauges.spool_bytes);
  set("port_connections", gauges.port_connections);
  if (gauges.state_free_bytes) set("state_free_bytes", *gauges.state_free_bytes);
  auto families = families_->registry.Collect();
  prometheus::Registry tenants;  // not kept: the next scrape may be another tenant's
  auto& disks = add_family(tenants, prometheus::BuildGauge(), "isogate_disk_bytes",
                           "Disk of a tenant's sandboxes, open or stopped, as last reported since the start");
  for (const TenantDisk& each : gauges.disks) {
    disks.Add({{"tenant", each.tenant}, {"what", "used"}}).Set(static_cast<double>(each.used_bytes));
    disks.Add({{"tenant", each.tenant}, {"what", "limit"}}).Set(static_cast<double>(each.limit_bytes));
  }
  for (auto& family : tenants.Collect()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace isogate::front
