// A program that outlives the session that started it. Its last output and its result are kept for the
// session that rejoins it.
//
// It has two threads: one runs it, the other moves its bytes. One call at a time views it. While none
// does, the program runs on for its grace, and new output replaces the oldest.
#pragma once

#include <array>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lib/spool.h"
#include "runner/agent/calls/exec_job.h"

namespace isogate::agent {

using KeptId = std::array<uint8_t, 16>;

class KeptExec {  // any thread
 public:
  KeptExec(Place& place, link::ExecOrder order);
  ~KeptExec();  // kills it, and waits for its end
  KeptExec(const KeptExec&) = delete;
  KeptExec& operator=(const KeptExec&) = delete;

  Result<void> open();
  // Once, after open().
  Result<void> start();
  [[nodiscard]] const KeptId& id() const { return id_; }
  void control(const isogate_control& record) { job_.control(record); }
  void kill();
  [[nodiscard]] std::chrono::seconds grace() const { return grace_; }
  size_t held();  // bytes of its output
  // When it ended; nullopt: it has not.
  std::optional<Clock::time_point> ended_at();
  // Its result for the call that views it. Once it has ended.
  Answer answer();

  // The reader of its output and sender of its input. Begins with the oldest kept output. A new view
  // replaces the previous one.
  class View {
   public:
    // `streams`: ISOGATE_RUNNER_EXEC_STDIN, STDOUT and STDERR; without STDIN its input ends.
    View(std::shared_ptr<KeptExec> of, uint32_t streams);
    ~View();
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    [[nodiscard]] isogate_runner_rejoined state() const { return first_; }
    // False: against the protocol.
    bool put(std::string_view bytes);
    bool end_input();
    bool add_credit(uint32_t channel, uint32_t bytes);
    // Ends waits in next(): the session has ended, or the client drops output that it does not read.
    void detach();
    void give_up(std::chrono::milliseconds patience);

    struct Next {
      uint16_t frame = 0;  // DATA or CREDIT; 0: there is nothing more to send
      isogate_runner_channel channel{};
      std::string bytes;
      bool ended = false;  // the program has; false without a frame: detached, or another view has it
    };
    // Waits for something to send.
    Next next();

   private:
    friend class KeptExec;
    bool take_bytes(Next& next);

    const std::shared_ptr<KeptExec> of_;  // its mutex guards the rest
    const uint32_t streams_;
    isogate_runner_rejoined first_{};
    std::array<uint64_t, 2> at_{};  // of the next byte to send
    std::array<link::SendCredit, 2> credit_;
    link::ReceiveWindow window_;
    size_t turn_ = 0;
    bool detached_ = false;
    Clock::time_point until_ = Clock::time_point::max();
  };

 private:
  static constexpr size_t kKeptBytes = 256 << 10;  // of each stream

  void run_program();
  void move_bytes();
  void wait_for_bytes();
  void look_after(Clock::time_point now);
  void end_all();
  // With mutex_ held.
  [[nodiscard]] size_t room(size_t stream) const;
  void read_some(size_t stream, size_t most);
  void take_rest(size_t stream);
  void write_input();
  void consume(size_t bytes);

  Place& place_;
  ExecJob job_;
  const KeptId id_;
  const std::chrono::seconds grace_;
  Fd cancel_, wake_;  // eventfds
  std::thread program_, mover_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::array<Spool, 2> output_;
  std::array<Fd, 2> pipes_;
  Fd input_;
  std::string waiting_input_;
  size_t foreign_input_ = 0;  // of it, from a view before this one
  bool input_ended_ = false;
  View* view_ = nullptr;
  Clock::time_point alone_since_ = Clock::now();
  std::optional<Clock::time_point> killed_at_, ended_at_;
  bool program_ended_ = false;
  Answer answer_;
};

// All kept programs of one runner. Ended ones are kept for a while. Any thread.
class KeptExecs {
 public:
  // ISOGATE_ALREADY_EXISTS: there is one of that id.
  Result<void> add(const std::shared_ptr<KeptExec>& exec);
  std::shared_ptr<KeptExec> find(const KeptId& id);  // null: none
  void forget(const KeptId& id);

 private:
  void forget_old();

  std::mutex mutex_;
  std::list<std::shared_ptr<KeptExec>> execs_;  // oldest first
};

}  // namespace isogate::agent
