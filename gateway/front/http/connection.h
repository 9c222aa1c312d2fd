// One client connection: reads requests one after the other, answers each before it reads the next.
//
// Any doubt about the framing (request_head.h, chunk_decoder.h) gets 4xx and a close. A response that is
// sent before the body was read also closes, so that no part of a body is ever taken for a request. Beast
// only sees a head that was checked. Included by server.cc and connection.cc alone (Beast, Asio's SSL).
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "gateway/front/base/api_error.h"
#include "gateway/front/http/chunk_decoder.h"
#include "gateway/front/http/client_stream.h"
#include "gateway/front/http/exchange.h"
#include "gateway/front/http/http_text.h"
#include "gateway/front/http/pace.h"
#include "gateway/front/http/request_head.h"
#include "gateway/front/http/server.h"

namespace isogate::front {

class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  using Socket = ClientStream::Socket;
  using Clock = std::chrono::steady_clock;

  Connection(Server& server, Socket socket, const ListenerInfo& listener, std::string peer);
  ~Connection() override;

  Task<void> run();

  void sweep(Clock::time_point now);  // closes it past its deadline
  void limits_changed();              // the server's
  void check_admission();             // of its request under way, after a reload
  [[nodiscard]] bool idle() const { return idle_; }
  void close();

  [[nodiscard]] std::string_view header(std::string_view name) const override;
  [[nodiscard]] bool has_header(std::string_view name) const override;
  [[nodiscard]] std::string_view method() const override;
  [[nodiscard]] std::string_view target() const override;
  void each_header(
      const std::function<void(std::string_view name, std::string_view value)>& take) const override;
  [[nodiscard]] BodyFraming body() const override { return framing_; }
  Task<std::string> read_body(uint64_t cap) override;
  Task<size_t> read_body_some(char* data, size_t size) override;
  void stop_reading() override;
  [[nodiscard]] bool closed() const override { return closed_; }
  Task<size_t> read_body_to_pipe(PipeEnd& pipe) override;
  Task<void> send(unsigned status, std::string_view content_type, std::string_view body,
                  const Headers& headers) override;
  Task<void> begin(unsigned status, std::string_view content_type, std::optional<uint64_t> length,
                   const Headers& headers) override;
  Task<void> write(std::string_view bytes) override;
  Task<size_t> write_from_pipe(PipeEnd& pipe, size_t size) override;
  Task<void> finish() override;
  [[nodiscard]] bool begun() const override { return begun_; }
  Task<std::unique_ptr<WebSocket>> upgrade(size_t most_message) override;
  Task<void> begin_proxied(unsigned status, std::string_view reason, std::optional<uint64_t> length,
                           bool bodiless, const Headers& headers) override;
  Task<void> switch_protocols(const Headers& headers) override;
  Task<size_t> read_switched(char* data, size_t size) override;
  Task<void> end_writing() override;
  void abort() override;
  void count_bytes(uint64_t from_client, uint64_t to_client) override {
    end_.bytes_in += from_client;
    end_.bytes_out += to_client;
  }
  Task<void> hold_back() override;
  Killer& watch_client() override;

 private:
  static constexpr size_t kReadSize = 16384;
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

  Task<bool> handshake();
  Task<void> close_tls();
  Task<void> leave();
  void start_request();
  void take_limits();
  void wait_idle();
  Task<bool> read_head();
  Task<std::optional<ApiError>> await_head();
  std::optional<ApiError> parse_head(size_t size, const HeadLimits& most);
  bool still_admitted();  // for the same tenant
  Task<void> one_request();
  Task<void> dispatch();
  size_t take_body(char* data, size_t size);
  Task<size_t> receive_body(boost::asio::mutable_buffer to);
  Task<size_t> splice_body(PipeEnd& pipe);
  [[noreturn]] void body_was_cut();
  [[nodiscard]] bool body_is_read() const { return chunks_ ? chunks_->done() : body_left_ == 0; }
  Task<void> answer_error(const ApiError& error);
  Task<void> continue_if_expected();
  Task<bool> receive();
  Task<size_t> copy_from_pipe(PipeEnd& pipe, size_t size);
  template <typename Buffers>
  Task<void> write_raw(Buffers buffers);
  AnswerHead start_answer(unsigned status, std::optional<uint64_t> length);
  std::string head_of(unsigned status, std::string_view content_type, std::optional<uint64_t> length,
                      const Headers& headers);
  void watch_peer();
  void peer_is_gone();
  void lose_peer();
  [[nodiscard]] bool keep_alive() const;

  Server& server_;
  ClientStream socket_;
  ListenerInfo listener_;
  uint64_t authorities_ = 0;  // Server's, when this connection came
  int peer_uid_ = -1;
  std::string peer_, peer_key_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();  // of write_raw(), beside a read
  Clock::time_point next_silence_check_{};
  bool peer_owes_ = false;  // at the last such check it owed an answer: this one may be on its way
  bool idle_ = true;
  bool awaits_head_ = false;  // idle_, and neither in its handshake nor leaving
  bool closed_ = false;
  bool timed_out_ = false;
  bool begun_ = false;
  bool chunked_ = false;
  bool finished_ = false;
  bool must_close_ = false;
  bool broken_ = false;            // a write has failed: nothing more is written
  bool left_ = false;              // the client closed its side before its answer began
  bool continue_settled_ = false;  // 100 was sent, or is not needed any more
  bool head_only_ = false;
  std::optional<uint64_t> left_to_write_;
  BodyFraming framing_;
  uint64_t body_left_ = 0;              // of a body with a length
  std::optional<ChunkDecoder> chunks_;  // of one without
  Pace reading_, writing_;
  bool head_done_ = false;
  uint32_t served_ = 0;  // requests on this connection
  RequestEnd end_;
  Killer gone_;
  bool watching_ = false;
  bool pipelined_ = false;
  uint64_t serial_ = 0;  // of the request, so that a late watch does not touch the next one
};

}  // namespace isogate::front
