#include "tests/agent/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace isogate::test {
namespace {

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string text(const std::string& value) { return bytes_of(static_cast<uint32_t>(value.size())) + value; }

template <typename T>
T head_in(const std::string& payload) {
  T head{};
  if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
  return head;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string of_channel(uint32_t channel, uint32_t bytes = 0) {
  return bytes_of(isogate_runner_channel{channel, bytes});
}

void add_entries(const std::string& payload, Outcome& outcome) {
  for (size_t at = 0; at + sizeof(isogate_runner_entry) <= payload.size();) {
    const auto entry = head_in<isogate_runner_entry>(payload.substr(at));
    at += sizeof entry;
    outcome.entries.emplace_back(payload.substr(at, entry.name_length), entry);
    at += entry.name_length;
  }
}

}  // namespace

ExecSpec shell(const std::string& script) {
  ExecSpec spec;
  spec.argv = {"/bin/sh", "-c", script};
  return spec;
}

bool Peer::send_bytes(const std::string& bytes, const std::vector<int>& fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = {};
  size_t done = 0;
  while (done < bytes.size()) {
    if (out_) {
      const ssize_t size = ::write(out(), bytes.data() + done, bytes.size() - done);
      if (size <= 0) return false;
      done += static_cast<size_t>(size);
      continue;
    }
    iovec part{const_cast<char*>(bytes.data()) + done, bytes.size() - done};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (done == 0 && !fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* const head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * fds.size());
    }
    const ssize_t size = ::sendmsg(out(), &message, MSG_NOSIGNAL);
    if (size <= 0) return false;
    done += static_cast<size_t>(size);
  }
  return true;
}

bool Peer::send(uint16_t type, uint32_t stream, const std::string& payload, uint16_t flags,
                const std::vector<int>& fds) {
  const isogate_runner_frame head = {static_cast<uint32_t>(payload.size()), type, flags, stream};
  return send_bytes(bytes_of(head) + payload, fds);
}

std::optional<PeerFrame> Peer::receive(double seconds) {
  const double until = now() + seconds;
  for (;;) {
    PeerFrame frame;
    if (received_.size() >= sizeof frame.head) {
      frame.head = head_in<isogate_runner_frame>(received_);
      const size_t whole = sizeof frame.head + frame.head.size;
      if (received_.size() >= whole) {
        frame.payload = received_.substr(sizeof frame.head, frame.head.size);
        received_.erase(0, whole);
        return frame;
      }
    }
    pollfd slot = {in_.get(), POLLIN, 0};
    const double left = until - now();
    if (left <= 0 || ::poll(&slot, 1, static_cast<int>(left * 1000) + 1) <= 0) return std::nullopt;
    char buffer[65536];
    const ssize_t size = ::read(in_.get(), buffer, sizeof buffer);
    if (size <= 0) return std::nullopt;
    received_.append(buffer, static_cast<size_t>(size));
  }
}

bool Peer::ended(double seconds) {
  const double until = now() + seconds;
  while (now() < until) {
    if (receive(0.02)) continue;
    pollfd slot = {in_.get(), POLLIN, 0};
    char byte = 0;
    if (::poll(&slot, 1, 0) == 1 && ::recv(in_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return true;
  }
  return false;
}

std::optional<isogate_runner_hello> Peer::hello(uint16_t major) {
  isogate_runner_hello own{};
  own.magic = ISOGATE_RUNNER_MAGIC;
  own.major = major;
  send(ISOGATE_RUNNER_HELLO, 0, bytes_of(own));
  const auto frame = receive();
  if (!frame || frame->head.type != ISOGATE_RUNNER_HELLO) return std::nullopt;
  return head_in<isogate_runner_hello>(frame->payload);
}

uint32_t Peer::exec(const ExecSpec& spec) {
  isogate_runner_exec head{};
  head.flags = spec.flags;
  head.argc = static_cast<uint32_t>(spec.argv.size());
  head.envc = static_cast<uint32_t>(spec.env.size());
  head.rows = spec.rows;
  head.cols = spec.cols;
  if (!spec.limits.empty()) head.flags |= ISOGATE_RUNNER_EXEC_LIMITS;
  std::string payload = bytes_of(head);
  if (!spec.limits.empty())
    payload += bytes_of(isogate_runner_limits{static_cast<uint32_t>(spec.limits.size()), spec.sampled});
  for (const isogate_runner_limit& limit : spec.limits) payload += bytes_of(limit);
  payload += text(spec.cwd) + text(spec.user);
  for (const auto& argument : spec.argv) payload += text(argument);
  for (const auto& [key, value] : spec.env) payload += text(key) + text(value);
  send(ISOGATE_RUNNER_EXEC, next_stream, payload, spec.fds.empty() ? 0 : ISOGATE_RUNNER_WITH_DESCRIPTORS,
       spec.fds);
  return next_stream++;
}

uint32_t Peer::file(const FileSpec& spec) {
  isogate_runner_file head{};
  head.verb = spec.verb;
  head.scope = spec.scope;
  head.flags = spec.flags;
  head.mode = spec.mode;
  head.offset = spec.offset;
  head.limit = spec.limit;
  const std::vector<int> fds = spec.fd >= 0 ? std::vector<int>{spec.fd} : std::vector<int>{};
  send(ISOGATE_RUNNER_FILE, next_stream,
       bytes_of(head) + text(spec.path) + text(spec.path_to) + text(spec.user),
       fds.empty() ? 0 : ISOGATE_RUNNER_WITH_DESCRIPTORS, fds);
  return next_stream++;
}

uint32_t Peer::evidence(const std::string& address, uint32_t port, const std::string& listeners) {
  send(ISOGATE_RUNNER_EVIDENCE, next_stream,
       bytes_of(isogate_runner_measure{port, 0}) + text(address) + text(listeners));
  return next_stream++;
}

uint32_t Peer::prove() {
  send(ISOGATE_RUNNER_PROVE, next_stream);
  return next_stream++;
}

void Peer::data(uint32_t stream, const std::string& bytes) {
  send(ISOGATE_RUNNER_DATA, stream, of_channel(ISOGATE_RUNNER_STDIN) + bytes);
}

void Peer::end(uint32_t stream) { send(ISOGATE_RUNNER_END, stream, of_channel(ISOGATE_RUNNER_STDIN)); }

void Peer::signal(uint32_t stream, uint32_t number) {
  send(ISOGATE_RUNNER_CONTROL, stream, bytes_of(isogate_control{ISOGATE_CONTROL_SIGNAL, number, 0, 0}));
}

void Peer::resize(uint32_t stream, uint32_t rows, uint32_t columns) {
  send(ISOGATE_RUNNER_CONTROL, stream, bytes_of(isogate_control{ISOGATE_CONTROL_RESIZE, rows, columns, 0}));
}

void Peer::credit(uint32_t stream, uint32_t channel, uint32_t bytes) {
  send(ISOGATE_RUNNER_CREDIT, stream, of_channel(channel, bytes));
}

Outcome Peer::finish(uint32_t stream, double seconds, bool give_credit) {
  Outcome outcome;
  const double until = now() + seconds;
  while (auto frame = receive(until - now())) {
    if (frame->head.stream != stream) continue;
    const auto channel = head_in<isogate_runner_channel>(frame->payload);
    const auto size = static_cast<uint32_t>(frame->payload.size() -
                                            std::min<size_t>(frame->payload.size(), sizeof channel));
    switch (frame->head.type) {
      case ISOGATE_RUNNER_DATA:
        (channel.channel == ISOGATE_RUNNER_STDERR ? outcome.err : outcome.out) +=
            frame->payload.substr(sizeof channel);
        if (give_credit) credit(stream, channel.channel, size);
        break;
      case ISOGATE_RUNNER_CREDIT:
        stdin_credit += channel.bytes;
        break;
      case ISOGATE_RUNNER_ENTRIES:
        add_entries(frame->payload, outcome);
        if (give_credit) credit(stream, ISOGATE_RUNNER_STDOUT, frame->head.size);
        break;
      case ISOGATE_RUNNER_RESULT:
        outcome.arrived = true;
        outcome.result = head_in<isogate_runner_result>(frame->payload);
        outcome.message = frame->payload.substr(sizeof outcome.result + sizeof(uint32_t));
        return outcome;
      default:
        ADD_FAILURE() << "frame of type " << frame->head.type;
    }
  }
  return outcome;
}

std::string Peer::output(uint32_t stream, const std::string& until, double seconds) {
  std::string all;
  const double end = now() + seconds;
  while (all.find(until) == std::string::npos) {
    auto frame = receive(end - now());
    if (!frame || frame->head.type == ISOGATE_RUNNER_RESULT) break;
    if (frame->head.stream == stream && frame->head.type == ISOGATE_RUNNER_DATA)
      all += frame->payload.substr(sizeof(isogate_runner_channel));
  }
  return all;
}

bool Peer::upload(uint32_t stream, size_t bytes) {
  uint64_t sent = 0;
  stdin_credit = ISOGATE_RUNNER_WINDOW;
  while (sent < bytes) {
    const size_t piece = std::min<size_t>({size_t{60000}, bytes - sent, stdin_credit - sent});
    if (piece > 0) {
      data(stream, std::string(piece, 'u'));
      sent += piece;
      continue;
    }
    const auto frame = receive();
    if (frame && frame->head.stream < stream) continue;  // late credit of a stream that has ended
    if (!frame || frame->head.type != ISOGATE_RUNNER_CREDIT) return false;
    stdin_credit += head_in<isogate_runner_channel>(frame->payload).bytes;
  }
  return true;
}

Outcome Peer::write(FileSpec spec, const std::string& bytes) {
  spec.verb = ISOGATE_RUNNER_WRITE;
  const uint32_t stream = file(spec);
  for (size_t at = 0; at < bytes.size(); at += 60000) data(stream, bytes.substr(at, 60000));
  end(stream);
  return finish(stream);
}

}  // namespace isogate::test
