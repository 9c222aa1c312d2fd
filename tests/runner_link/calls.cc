#include "calls.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace isogate::testing {

Ask::Ask()
    : cancel_fd(::eventfd(0, EFD_CLOEXEC)), abi{sizeof abi, cancel_fd, INT64_MAX, {nullptr, 0}}, call(abi) {}
Ask::~Ask() { ::close(cancel_fd); }
void Ask::cancel() const { ::eventfd_write(cancel_fd, 1); }

Pipe::Pipe(int flags) {
  int ends[2];
  if (::pipe2(ends, flags) != 0) throw std::runtime_error("pipe");
  reader = ends[0];
  writer = ends[1];
}
Pipe::~Pipe() { close_reader(), close_writer(); }
void Pipe::close_reader() {
  if (reader >= 0) ::close(std::exchange(reader, -1));
}
void Pipe::close_writer() {
  if (writer >= 0) ::close(std::exchange(writer, -1));
}

void Pipe::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t done = ::write(writer, bytes.data(), bytes.size());
    if (done <= 0) throw std::runtime_error("write");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

std::string Pipe::read_all() {
  close_writer();
  return read(SIZE_MAX);
}

std::string Pipe::read(size_t size) const {
  std::string all;
  char piece[4096];
  while (all.size() < size) {
    const ssize_t got = ::read(reader, piece, std::min(sizeof piece, size - all.size()));
    if (got <= 0) break;
    all.append(piece, static_cast<size_t>(got));
  }
  return all;
}

Outcome outcome_of(const std::function<void(Outcome&)>& call) {
  Outcome outcome;
  try {
    call(outcome);
  } catch (const sdk::Error& error) {
    outcome.status = error.status();
    outcome.message = error.what();
    outcome.broke_off = dynamic_cast<const sdk::BrokenOff*>(&error) != nullptr;
  }
  return outcome;
}

std::future<Outcome> later(std::function<void(Outcome&)> call) {
  return std::async(std::launch::async, [call = std::move(call)] { return outcome_of(call); });
}

Exec::Exec(std::vector<std::string> words) : arguments(std::move(words)) {
  for (const std::string& word : arguments) argv.push_back(sdk::str(word));
}

isogate_exec_request Exec::request() const {
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.flags = flags;
  request.argv = argv.data();
  request.argc = argv.size();
  request.env = env.data();
  request.envc = env.size();
  request.cwd = sdk::str(cwd);
  request.user = sdk::str(user);
  request.stdin_fd = in;
  request.stdout_fd = out;
  request.stderr_fd = err;
  request.control_fd = control;
  request.limits = limits.data();
  request.limit_count = limits.size();
  request.rows = rows;
  request.cols = cols;
  return request;
}

Outcome Exec::run(sdk::RunnerLink& link) const {
  return outcome_of([&](Outcome& outcome) { link.exec(ask.call, request(), outcome.exec); });
}

std::future<Outcome> Exec::start(sdk::RunnerLink& link) const {
  return std::async(std::launch::async, [&] { return run(link); });
}

isogate_file_request file_request(std::string_view path, int fd) {
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.path = sdk::str(path);
  request.limit = UINT64_MAX;
  request.fd = fd;
  request.complete_fd = -1;
  return request;
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace isogate::testing
