// A client's WebSocket on one long-lived exec: output from an offset, and its input, signals and size. The
// front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "gateway/front/exec/long_exec.h"
#include "gateway/front/http/websocket.h"

namespace isogate::front {

class Attachment {
 public:
  // Throws ApiError: output_dropped, already_attached, invalid_request.
  Attachment(std::shared_ptr<LongExec> exec, const Offsets& from, bool read_only);

  // The largest message of a client, in bytes.
  [[nodiscard]] size_t most_message() const { return writer_ ? 128 * 1024 : 4096; }
  // What it keeps in memory at most: pieces of output, input, and a message of each.
  [[nodiscard]] uint64_t most_bytes() const;
  // Until the exec has ended, or the client leaves. `socket` is borrowed.
  Task<void> run(const boost::asio::any_io_executor& executor, WebSocket& socket);
  // The client is no longer admitted: nothing more of it reaches the exec, and it is closed with 1008.
  void end_unadmitted();

 private:
  Task<void> release_writer();
  Task<void> take_input();
  Task<void> pass_input();
  void obey(const std::string& text);
  Task<void> send_output();
  Task<bool> send_part(bool error);
  void end_input(uint16_t code, std::string reason);

  std::shared_ptr<LongExec> exec_;
  std::optional<LongExec::Reader> reader_;
  std::optional<LongExec::Writer> writer_;
  WebSocket* socket_ = nullptr;
  std::string pending_;                                    // for stdin
  bool close_after_ = false;                               // close stdin behind it
  bool input_ended_ = false;                               // nothing more is read from the client
  bool input_read_ = false, input_passed_ = false;         // by the two coroutines of it, which have ended
  std::optional<std::pair<uint16_t, std::string>> fault_;  // why it ends early
};

// Of a JSON body or message. "TERM", "SIGTERM" or "15". Throws ApiError invalid_request.
int signal_in(const nlohmann::json& body);
// Rows and columns.
std::pair<uint16_t, uint16_t> size_in(const nlohmann::json& body);
// Whether only a part of its output is kept.
bool is_truncated(const LongExec& exec);

}  // namespace isogate::front
