#include "gateway/front/http/access_log.h"

#include <cmath>

#include "lib/log.h"

namespace isogate::front {
namespace {

using Time = RequestEnd::Time;

// Whole microseconds: three digits are enough, and short in a line.
double ms_between(Time from, Time to) {
  if (from == Time{} || to < from) return 0;
  return std::round(std::chrono::duration<double, std::micro>(to - from).count()) / 1000;
}

bool is_counted(const Exchange& exchange, unsigned status) {
  return exchange.principal.key_name.empty() || status == 400 || status == 429;
}

}  // namespace

void log_request(PeerLines& peer_lines, const Exchange& exchange, std::string_view operation,
                 const std::string& peer, const RequestEnd& end) {
  const Time answered = end.answered == Time{} ? end.ended : end.answered;
  if (is_counted(exchange, end.status) && !peer_lines.admit(peer, std::to_string(end.status), end.ended))
    return;
  if (!end.refused.empty()) {
    log::record("request", {{"request_id", exchange.request_id},
                            {"peer", log::Own{peer}},
                            {"operation", log::Own{operation}},
                            {"status", end.status},
                            {"refused", end.refused},
                            {"code", log::Own{exchange.error_code}},
                            {"head_ms", ms_between(end.began, end.asked)}});
    return;
  }
  log::record("request", {{"request_id", log::Own{exchange.request_id}},
                          {"peer", log::Own{peer}},
                          {"key", log::Own{exchange.principal.key_name}},
                          {"tenant", log::Own{exchange.principal.tenant}},
                          {"agent_id", exchange.agent},
                          {"operation", log::Own{operation}},
                          {"status", end.status},
                          {"complete", end.complete},
                          {"code", log::Own{exchange.error_code}},
                          {"bytes_in", end.bytes_in},
                          {"bytes_out", end.bytes_out},
                          {"head_ms", ms_between(end.began, end.asked)},
                          {"work_ms", ms_between(end.asked, answered)},
                          {"send_ms", ms_between(answered, end.ended)}});
}

}  // namespace isogate::front
