// An exec that runs without its client. The last bytes of its output are kept. Any number of readers read
// them from an offset, and the program waits for slow readers. The front's one thread.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "gateway/front/base/alarm.h"
#include "gateway/front/base/changes.h"
#include "gateway/front/base/event.h"
#include "gateway/front/exec/exec.h"
#include "gateway/front/exec/kept_stream.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front {

inline constexpr std::chrono::seconds kPingAfter{15};  // of silence, to a client that follows it

using Offsets = std::array<std::optional<uint64_t>, 2>;  // of stdout and stderr

class LongExec final : public Output, public std::enable_shared_from_this<LongExec> {
 public:
  // It owns `memory`. With `spec.rejoin` it is taken() already and has its descriptors; throws ApiError when
  // there are none.
  LongExec(App& app, ExecSpec spec, ByteShare memory);
  ~LongExec() override;

  // From the admission to its end; once. A refusal is kept as refusal(), nothing is thrown.
  Task<void> run();

  // The exec_id is known, and only the backend can still refuse it.
  [[nodiscard]] bool taken() const { return !answer_.exec_id.empty(); }
  [[nodiscard]] bool ended() const { return at_end_.is_set(); }
  // An earlier gateway started it, and its backend has not found it yet: nothing is known of its output.
  [[nodiscard]] bool looked_for() const { return looked_for_; }
  // False: output up to these offsets, which an earlier gateway has received, may still be on its way.
  [[nodiscard]] bool has_up_to(const Offsets& offsets) const;
  // Why it never ran, once it has ended.
  [[nodiscard]] const std::optional<ApiError>& refusal() const { return refusal_; }
  // Once taken(); complete once it has ended.
  [[nodiscard]] const ExecAnswer& answer() const { return answer_; }
  [[nodiscard]] const KeptStream& output(bool error) const { return error ? error_ : out_; }
  [[nodiscard]] const std::string& tenant() const { return tenant_; }
  [[nodiscard]] const std::string& agent() const { return agent_; }
  [[nodiscard]] const std::string& command() const { return command_; }  // for the journal
  [[nodiscard]] uint64_t held() const { return memory_.bytes(); }
  [[nodiscard]] uint64_t on_disk() const { return out_.on_disk() + error_.on_disk(); }
  [[nodiscard]] uint64_t files() const { return out_.files() + error_.files(); }
  [[nodiscard]] bool is_read() const { return !readers_.empty(); }
  [[nodiscard]] bool pty() const { return terms_.pty; }
  [[nodiscard]] bool input_open() const { return input_ && input_->is_open(); }

  // Changes when it is taken or found, has output, ends, or loses its stdin.
  Changes& changes() { return changes_; }
  // Set when it ends: its output wakes nobody who waits for that.
  Event& at_end() { return at_end_; }

  // Leaves it to its backend, if that keeps it, for the next gateway: it counts as ended here, but still
  // runs. False: it cannot be left.
  bool detach();
  [[nodiscard]] bool detached() const { return ends_->detached; }
  [[nodiscard]] bool has_result() const { return ended() && !detached(); }

  // SIGKILL to everything that it started.
  void kill() { killer_.kill(); }
  // Throw ApiError: exec_ended, and backend_unavailable while contact with it is lost. The signal goes to its
  // process group.
  void send_signal(int signal);
  void resize(uint16_t rows, uint16_t cols);

  // Who may write to its stdin: one at a time.
  class Writer {
   public:
    // Throws ApiError: exec_ended, already_attached.
    explicit Writer(std::shared_ptr<LongExec> to);
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;
    ~Writer();
    // Returns once the program has room for all of it. While its backend host is away, it waits for the
    // next; bytes that the ended host had received may be lost. Throws ApiError exec_ended.
    Task<void> write(std::string_view bytes);
    // Writes the body's bytes. Throws the same, backend_unavailable if the host ended meanwhile, and what
    // the exchange throws.
    Task<void> write_body(Exchange& exchange);
    void close();   // closes stdin after the bytes written
    void cancel();  // write() throws, now and from now on

   private:
    Task<void> wait_for_next(std::shared_ptr<PipeEnd> broken);
    void drop();
    bool cancelled_ = false;
    std::shared_ptr<LongExec> to_;
  };

  // Reads both streams. Bytes that it has not taken yet are not dropped, unless the exec is killed.
  class Reader {
   public:
    // Without an offset from the oldest byte on. Throws ApiError: output_dropped, and invalid_request for an
    // offset beyond the output.
    Reader(std::shared_ptr<LongExec> of, const Offsets& from);
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader();
    // next(): the next bytes of a stream, `most` at most, valid until the coroutine waits; empty: none yet.
    // Then report that they were taken. Throws ApiError output_dropped.
    Task<std::string_view> next(bool error, size_t most);
    void took(bool error, size_t bytes);
    [[nodiscard]] uint64_t at(bool error) const { return at_[error ? 1 : 0]; }
    // There are bytes, or no more will come.
    [[nodiscard]] bool ready() const;

   private:
    std::shared_ptr<LongExec> of_;
    std::array<uint64_t, 2> at_{};
    std::array<KeptStream::Piece, 2> pieces_;
  };

  void admitted() override;
  Task<void> started(const ExecAnswer& so_far) override;
  Task<void> bytes(bool error, std::string_view data) override;
  [[nodiscard]] size_t at_a_time() const override { return kAtATime; }
  [[nodiscard]] bool full(bool) const override { return false; }
  void killed() override;
  void call_ended() override;
  void rejoined(const isogate_kept_state& state) override;

 private:
  static constexpr size_t kAtATime = 32768;

  [[nodiscard]] size_t room(bool error) const;
  [[nodiscard]] ApiError dropped() const;
  Task<ExecAnswer> run_and_rejoin();
  Task<ExecAnswer> rejoin(ExecAnswer before);
  void make_ends();
  void open_ends();
  void end();
  void narrow();
  void control(uint32_t type, uint32_t a, uint32_t b);
  [[nodiscard]] bool is_broken() const;
  Task<void> feed_first(std::shared_ptr<Writer> writer, std::shared_ptr<const std::string> bytes);

  App& app_;
  ExecSpec spec_;
  const KeptTerms terms_;
  ByteShare memory_;
  const std::string tenant_, agent_, command_;
  Changes changes_;
  Event at_end_;
  Killer killer_;
  KeptStream out_, error_;
  std::shared_ptr<PipeEnd> input_;  // null: it has no stdin, or waits in the queue
  Fd control_;
  const std::shared_ptr<KeptEnds> ends_ = std::make_shared<KeptEnds>();
  Alarm patience_;                   // with the disk, once it is killed
  std::array<uint64_t, 2> known_{};  // bytes of a rejoined exec that were received before
  bool input_closed_ = false;        // by a client, for good
  bool claimed_ = false;             // what its output takes
  bool writing_ = false;             // a Writer is there
  bool rejoined_ = false;            // an earlier gateway started it
  bool looked_for_ = false;
  bool killed_ = false, call_ended_ = false;
  std::optional<ApiError> refusal_;
  ExecAnswer answer_;
  std::set<const Reader*> readers_;
};

// An exec that an earlier gateway started. Throws ApiError when there are no descriptors.
std::shared_ptr<LongExec> rejoined_exec(App& app, const ExecRow& row, const SandboxRow& sandbox);

}  // namespace isogate::front
