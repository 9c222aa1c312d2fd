// Calls as a gateway makes them: with pipes, a cancel eventfd, and an outcome.
#pragma once

#include <fcntl.h>

#include <functional>
#include <future>
#include <string>
#include <vector>

#include "isogate/runner_link.hpp"

namespace isogate::testing {

struct Ask {  // a call that can be cancelled
  Ask();
  ~Ask();
  Ask(const Ask&) = delete;
  Ask& operator=(const Ask&) = delete;
  void cancel() const;

  const int cancel_fd;
  const isogate_call abi;
  const sdk::Call call;
};

struct Pipe {
  explicit Pipe(int flags = O_CLOEXEC);
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_reader();
  void close_writer();
  void write(std::string_view bytes) const;
  [[nodiscard]] std::string read_all();  // closes the writer first
  [[nodiscard]] std::string read(size_t size) const;

  int reader = -1, writer = -1;
};

struct Outcome {
  isogate_status status = ISOGATE_OK;
  std::string message;
  bool broke_off = false;  // it was a BrokenOff
  isogate_exec_result exec{};
  isogate_entry entry{};
  uint64_t written = 0;
};

Outcome outcome_of(const std::function<void(Outcome&)>& call);
std::future<Outcome> later(std::function<void(Outcome&)> call);

struct Exec {  // a request that owns what it points to
  explicit Exec(std::vector<std::string> arguments);
  [[nodiscard]] isogate_exec_request request() const;
  Outcome run(sdk::RunnerLink& link) const;
  std::future<Outcome> start(sdk::RunnerLink& link) const;

  std::vector<std::string> arguments;
  std::vector<isogate_str> argv;
  std::vector<isogate_pair> env;
  std::string cwd, user;
  int in = -1, out = -1, err = -1, control = -1;
  uint32_t flags = 0;
  uint16_t rows = 0, cols = 0;
  std::vector<isogate_limit> limits;
  Ask ask;
};

isogate_file_request file_request(std::string_view path, int fd = -1);
// Resident memory of this process.
size_t resident_bytes();

}  // namespace isogate::testing
