// Counters for Prometheus. Names and labels are stable; no tenant ever is a label. The front's one
// thread. prometheus-cpp stays in the source.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace isogate::front {

struct Gauges {  // read at the time of a scrape
  size_t connections = 0, sandboxes = 0, execs_running = 0, execs_waiting = 0, held_bytes = 0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void request_ended(std::string_view operation, unsigned status, double seconds);
  void exec_ended(const std::string& backend, std::string_view outcome, double seconds);
  std::string text(const Gauges& gauges);  // text exposition format 0.0.4

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace isogate::front
