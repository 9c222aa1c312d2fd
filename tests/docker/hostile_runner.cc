// A runner that serves like the real one (/opt/runner) until a request names `evil-…`: it answers that one
// itself, in the way named.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "isogate/backend.h"
#include "isogate/runner_protocol.h"

namespace {

constexpr const char* kReal = "/opt/runner";

void write_all(int to, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(to, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR) ::_exit(0);
    if (n > 0) done += static_cast<size_t>(n);
  }
}

template <typename T>
std::string raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string frame(uint16_t type, uint32_t stream, const std::string& payload) {
  return raw(isogate_runner_frame{static_cast<uint32_t>(payload.size()), type, 0, stream}) + payload;
}

std::string entry(const std::string& name, uint32_t type = ISOGATE_ENTRY_REGULAR, uint64_t size = 1) {
  return raw(isogate_runner_entry{type, 0644, size, 0, static_cast<uint32_t>(name.size()), 0}) + name;
}

std::string result(uint32_t stream, uint64_t size = 0) {
  isogate_runner_result all{};
  all.entry_type = ISOGATE_ENTRY_REGULAR;
  all.entry_size = size;
  return frame(ISOGATE_RUNNER_RESULT, stream, raw(all) + raw(uint32_t{0}));
}

// Once in the life of the workspace.
bool is_first(const std::string& how) {
  return ::open(("/workspace/" + how).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
}

// Its beginning, and the end of the connection; afterwards the real runner answers.
bool breaks_off(const std::string& how, uint32_t stream) {
  if (!how.starts_with("half") || !is_first(how)) return false;
  if (how == "halflist") write_all(1, frame(ISOGATE_RUNNER_ENTRIES, stream, entry("a")));
  if (how == "halfread")
    write_all(
        1, frame(ISOGATE_RUNNER_DATA, stream, raw(isogate_runner_channel{ISOGATE_RUNNER_STDOUT, 0}) + "con"));
  ::_exit(0);
}

void answer(const std::string& how, uint32_t stream) {
  const auto lists = [&](const std::string& entries) {
    write_all(1, frame(ISOGATE_RUNNER_ENTRIES, stream, entries) + result(stream));
  };
  if (how == "garbage") write_all(1, std::string(1 << 16, '\xff'));
  if (how == "huge") write_all(1, raw(isogate_runner_frame{UINT32_MAX, ISOGATE_RUNNER_DATA, 0, stream}));
  if (how == "stranger") write_all(1, result(stream + 1000));
  if (how == "above") lists(entry("../../x"));
  if (how == "absolute") lists(entry("/etc/passwd"));
  if (how == "kind") lists(entry("x", 4711));
  if (how == "large") lists(entry("x", ISOGATE_ENTRY_REGULAR, uint64_t{1} << 63));
  if (how == "largestat") write_all(1, result(stream, uint64_t{1} << 63));
  if (how == "many") {
    std::string some;
    for (int i = 0; i < 1000; ++i) some += entry("name-" + std::to_string(i));
    for (int i = 0; i < 1000; ++i) write_all(1, frame(ISOGATE_RUNNER_ENTRIES, stream, some));
  }
  if (how == "flood") {
    const std::string piece =
        raw(isogate_runner_channel{ISOGATE_RUNNER_STDOUT, 0}) + std::string(60'000, 'x');
    for (int i = 0; i < 20'000; ++i) write_all(1, frame(ISOGATE_RUNNER_DATA, stream, piece));
  }
}

// The first whole frame of `pending`, removed from it; empty: none is complete yet.
std::string take_frame(std::string& pending, isogate_runner_frame& head) {
  if (pending.size() < sizeof head) return {};
  std::memcpy(&head, pending.data(), sizeof head);
  if (pending.size() < sizeof head + head.size) return {};
  const std::string whole = pending.substr(0, sizeof head + head.size);
  pending.erase(0, whole.size());
  return whole;
}

bool fill(int from, std::string& pending) {
  char buffer[65536];
  const ssize_t n = ::read(from, buffer, sizeof buffer);
  if (n > 0) pending.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

int stand_between(int to_real, int from_real) {
  std::string down, up, whole;
  std::set<uint32_t> mine;
  isogate_runner_frame head{};
  for (;;) {
    pollfd both[2] = {{0, POLLIN, 0}, {from_real, POLLIN, 0}};
    if (::poll(both, 2, -1) < 0) continue;
    if (both[0].revents != 0 && !fill(0, down)) return 0;
    if (both[1].revents != 0 && !fill(from_real, up)) return 0;
    while (!(whole = take_frame(down, head)).empty()) {
      const size_t evil = whole.find("evil-");
      const bool request = head.type == ISOGATE_RUNNER_EXEC || head.type == ISOGATE_RUNNER_FILE;
      if (request && evil != std::string::npos) {
        const size_t begin = evil + 5;
        size_t end = begin;
        while (end < whole.size() && whole[end] >= 'a' && whole[end] <= 'z') ++end;
        const std::string how = whole.substr(begin, end - begin);
        if (how.starts_with("half")) {
          if (!breaks_off(how, head.stream)) write_all(to_real, whole);
          continue;
        }
        mine.insert(head.stream);
        answer(how, head.stream);
      } else if (mine.count(head.stream) == 0) {
        write_all(to_real, whole);
      }
    }
    while (!(whole = take_frame(up, head)).empty()) write_all(1, whole);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "stdio") != 0) {
    ::execv(kReal, argv);
    return 127;
  }
  int down[2], up[2];
  if (::pipe(down) != 0 || ::pipe(up) != 0) return 1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(down[0], 0);
    ::dup2(up[1], 1);
    for (const int fd : {down[0], down[1], up[0], up[1]}) ::close(fd);
    ::execv(kReal, argv);
    ::_exit(127);
  }
  ::close(down[0]);
  ::close(up[1]);
  return stand_between(down[1], up[0]);
}
