// The text of a response's head, and small helpers of the connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

struct AnswerHead {
  unsigned status = 200;
  std::string_view content_type;
  std::optional<uint64_t> length;
  bool chunked = false, close = false, keep_alive_10 = false;
  std::string_view request_id;
  std::string_view cors_origin;  // empty: no page of another origin may read the answer
  bool proxied = false;          // a program's answer: its headers alone, and `reason`
  bool switches = false;         // to another protocol
  std::string_view reason;

  [[nodiscard]] std::string text(const Headers& headers) const;
};

bool equal_no_case(std::string_view a, std::string_view b);
void set_no_delay(int socket);
// The kernel probes a silent peer after 15 s and then every 5 s, and ends an idle connection after 45 s
// without a reply.
void probe_when_silent(int socket);
// The time since the peer's kernel last acknowledged or sent anything, where it owes an answer to a
// keepalive, a probe of its full window or data: it has vanished, or the network has failed. 0: it owes none.
// A peer that reads nothing still answers, but the probes of its window come up to two minutes apart, so
// their silence alone says nothing. (TCP_USER_TIMEOUT treats a full window as silence.) Nothing: not known.
std::optional<std::chrono::milliseconds> silent_for(int socket);
int uid_of_peer(int socket);           // of a Unix socket; -1: not known
std::string peer_address(int socket);  // numeric, without the port
bool ready_for(int fd, short events);  // poll()'s, now

template <typename View>
std::string_view to_view(const View& view) {
  return {view.data(), view.size()};
}

}  // namespace isogate::front
