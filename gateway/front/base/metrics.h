// Counters for Prometheus. Names and labels are stable; only gauges that are set for one scrape have the
// tenant as a label. The front's one thread. prometheus-cpp stays in the source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isogate::front {

struct TenantDisk {
  std::string tenant;
  uint64_t used_bytes = 0, limit_bytes = 0;
};

struct Gauges {  // read at the time of a scrape
  size_t connections = 0, sandboxes = 0, execs_running = 0, execs_waiting = 0, held_bytes = 0,
         spool_bytes = 0, port_connections = 0;
  std::optional<uint64_t> state_free_bytes;  // none: not known
  std::vector<TenantDisk> disks;             // of the tenants that the scraper may see
};

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void request_ended(std::string_view operation, unsigned status, double seconds);
  // `seconds`: none where it is not known, or nothing ran.
  void exec_ended(const std::string& backend, std::string_view outcome, std::optional<double> seconds);
  void mcp_call_ended(std::string_view tool, std::string_view outcome);
  void port_ended(const std::string& backend, uint64_t bytes_in, uint64_t bytes_out);
  void connection_refused(std::string_view limit);
  std::string text(const Gauges& gauges);  // text exposition format 0.0.4

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace isogate::front
