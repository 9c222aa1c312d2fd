// What controls a running program: records of its control pipe and bytes for its terminal, however they are
// split; the order to an init, and what an init reports.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lib/fd.h"
#include "runner/enclosure/init_channel.h"
#include "runner/enclosure/init_proof.h"
#include "runner/enclosure/init_run.h"
#include "runner/exec/pty.h"
#include "runner/exec/tree/control_records.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;

size_t piece_of(std::string_view pieces, size_t turn) {
  return pieces.empty() ? SIZE_MAX : 1 + static_cast<unsigned char>(pieces[turn % pieces.size()]);
}

// --- control records

std::string records(std::string_view bytes, std::string_view pieces) {
  ControlRecords reader;
  std::string all;
  for (size_t turn = 0; !bytes.empty(); ++turn) {
    size_t room = 0;
    char* const at = raw_control_room(reader, room);
    require(room > 0 && at >= reader.bytes && at + room == reader.bytes + sizeof reader.bytes);
    const size_t size = std::min({room, bytes.size(), piece_of(pieces, turn)});
    bytes.copy(at, size);
    bytes.remove_prefix(size);
    raw_control_read(reader, size, [&all](const isogate_control& record) {
      all.append(reinterpret_cast<const char*>(&record), sizeof record);
    });
    require(reader.length < sizeof(isogate_control));
  }
  return all;
}

// A terminal has the size that a record names, or the one it had.
void resize(const isogate_control& record) {
  static const Fd master(::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!master) return;
  winsize before{}, after{};
  require(::ioctl(master.get(), TIOCGWINSZ, &before) == 0);
  PtyPump pump;
  pump.master = master.get();
  raw_pump_resize(pump, record.a, record.b);
  require(::ioctl(master.get(), TIOCGWINSZ, &after) == 0);
  const bool fits = record.a != 0 && record.b != 0 && record.a <= 0xffff && record.b <= 0xffff;
  if (!fits) return require(after.ws_row == before.ws_row && after.ws_col == before.ws_col);
  require(after.ws_row == record.a && after.ws_col == record.b);
}

void look_at_records(std::string_view bytes, std::string_view pieces) {
  const std::string all = records(bytes, pieces);
  require(all == bytes.substr(0, bytes.size() / sizeof(isogate_control) * sizeof(isogate_control)));
  isogate_control last;
  if (all.size() < sizeof last) return;
  std::memcpy(&last, all.data() + all.size() - sizeof last, sizeof last);
  resize(last);
}

// --- the pump of a terminal

struct Pair {
  Fd ours, theirs;
  explicit Pair(int type) {
    int ends[2];
    require(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    ours.reset(ends[0]);
    theirs.reset(ends[1]);
  }
};

void drain(int from, std::string& to) {
  char part[4096];
  for (ssize_t n = 0; (n = ::recv(from, part, sizeof part, 0)) > 0;) to.append(part, static_cast<size_t>(n));
}

// Sends `bytes` to a program over its terminal, which sends them back; `pieces` at a time.
void pump(std::string_view bytes, std::string_view pieces) {
  Pair input(SOCK_STREAM), output(SOCK_STREAM), terminal(SOCK_STREAM);
  PtyPump pump;
  pump.master = terminal.ours.get();
  pump.input_fd = input.ours.get();
  pump.output_fd = output.ours.get();
  std::string heard, given, echoed;
  std::string_view to_say = bytes;
  size_t echo_at = 0, idle = 0;
  for (size_t turn = 0; idle < 4; ++turn) {
    const size_t before = heard.size() + given.size() + echo_at + to_say.size();
    const size_t size = std::min(to_say.size(), piece_of(pieces, turn));
    if (const ssize_t n = ::send(input.theirs.get(), to_say.data(), size, MSG_NOSIGNAL); n > 0)
      to_say.remove_prefix(static_cast<size_t>(n));
    if (to_say.empty()) ::shutdown(input.theirs.get(), SHUT_WR);
    pollfd slots[3];
    raw_pump_wait(pump, true, slots);
    require(::poll(slots, 3, 0) >= 0);
    raw_pump(pump, slots);
    require(pump.input.begin <= pump.input.end && pump.input.end <= sizeof pump.input.bytes);
    require(pump.output.begin <= pump.output.end && pump.output.end <= sizeof pump.output.bytes);
    drain(terminal.theirs.get(), heard);
    const size_t more = std::min(heard.size() - echo_at, piece_of(pieces, turn + 1));
    if (const ssize_t n = ::send(terminal.theirs.get(), heard.data() + echo_at, more, MSG_NOSIGNAL); n > 0)
      echo_at += static_cast<size_t>(n);
    drain(output.theirs.get(), given);
    const size_t after = heard.size() + given.size() + echo_at + to_say.size();
    idle = before == after ? idle + 1 : 0;
  }
  require(heard == bytes && given == bytes && raw_pump_empty(pump));
}

// --- orders to an init

void look_at_run(std::string body) {
  InitStrings strings;
  if (!raw_begin_run(body.data(), body.size(), strings)) return;
  if (strings.pointers > 100'000) return;
  std::vector<char*> pointers(strings.pointers);
  const char* const end = body.data() + body.size();
  if (!raw_lay_out_run(body.data(), body.size(), pointers.data(), strings)) return;
  const auto look = [&](const char* text) {
    require(text >= body.data() + sizeof(InitRun) && text < end);
    require(std::memchr(text, 0, static_cast<size_t>(end - text)) != nullptr);
    return sizeof(char) + std::strlen(text);
  };
  size_t bytes = sizeof(InitRun) + look(strings.cwd);
  require((strings.search != nullptr) == (strings.head.searched != 0));
  if (strings.search != nullptr) bytes += look(strings.search);
  for (uint32_t i = 0; i < strings.head.arguments; ++i) bytes += look(strings.argv[i]);
  for (uint32_t i = 0; i < strings.head.variables; ++i) bytes += look(strings.envp[i]);
  require(strings.argv[strings.head.arguments] == nullptr && strings.envp[strings.head.variables] == nullptr);
  require(bytes <= body.size());
}

// The words of the input as a command, which is decoded as it was encoded.
void look_at_command(std::string_view text) {
  std::vector<std::string> words = {"directory", "/bin:/usr/bin"};
  while (!text.empty() && words.size() < 64) {
    const std::string_view word = text.substr(0, text.find('\0'));
    words.emplace_back(word);
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  InitRun head{};
  head.searched = 1;
  head.arguments = static_cast<uint32_t>((words.size() - 2) / 2);
  head.variables = static_cast<uint32_t>(words.size() - 2) - head.arguments;
  std::string body(reinterpret_cast<const char*>(&head), sizeof head);
  for (const std::string& word : words) body.append(word.c_str(), word.size() + 1);
  InitStrings strings;
  require(raw_begin_run(body.data(), body.size(), strings));
  std::vector<char*> pointers(strings.pointers);
  require(raw_lay_out_run(body.data(), body.size(), pointers.data(), strings));
  require(words[0] == strings.cwd && words[1] == strings.search);
  for (uint32_t i = 0; i < head.arguments; ++i) require(words[2 + i] == strings.argv[i]);
  for (uint32_t i = 0; i < head.variables; ++i) require(words[2 + head.arguments + i] == strings.envp[i]);
  body.pop_back();  // the last word does not end
  require(!raw_lay_out_run(body.data(), body.size(), pointers.data(), strings));
}

// --- what an init reports about itself

const EnclosureMarks kMarks = {{11, 12, 13, 14, 15, 16, 17}, 21, 22, 23, {31, 32}, {41, 42}};

// In the order of kNamespaces: the third is the network's, the sixth the users'.
InitProof sound_proof() {
  InitProof proof{};
  const uint64_t own[7] = {101, 102, kMarks.network, 104, 105, kMarks.user, 107};
  std::copy(std::begin(own), std::end(own), proof.namespaces);
  proof.root = kMarks.root;
  proof.workspace = kMarks.workspace;
  proof.uid = proof.gid = 1000;
  proof.no_new_privs = 1;
  proof.seccomp_mode = 2;
  return proof;
}

void look_at_proof(std::string_view bytes) {
  static const InitProof kSound = sound_proof();
  require(check_proof(kSound, kMarks, 1000, 1000).ok());
  require(!check_proof(kSound, kMarks, 1001, 1000).ok() && !check_proof(kSound, kMarks, 1000, 0).ok());
  InitProof proof = kSound;  // each byte of the input is added to one of the proof
  auto* const raw = reinterpret_cast<unsigned char*>(&proof);
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    raw[static_cast<unsigned char>(bytes[i]) % sizeof proof] += static_cast<unsigned char>(bytes[i + 1]);
  if (!check_proof(proof, kMarks, 1000, 1000).ok()) return;
  require(proof.root == kMarks.root && proof.workspace == kMarks.workspace && proof.capabilities == 0);
  require(proof.uid == 1000 && proof.gid == 1000 && proof.no_new_privs == 1 && proof.seccomp_mode == 2);
  require(proof.namespaces[2] == kMarks.network && proof.namespaces[5] == kMarks.user);
  for (size_t i = 0; i < 7; ++i) require(proof.namespaces[i] != 0 && proof.namespaces[i] != kMarks.host[i]);
  require(proof.namespaces[0] != kMarks.mounts);
}

// From a stream, in pieces: a complete record, or the end of the init.
void receive(std::string_view bytes, std::string_view pieces) {
  Pair socket(SOCK_STREAM);
  size_t turn = 0;
  for (std::string_view rest = bytes.substr(0, 8192); !rest.empty();) {
    const size_t size = turn < 100 ? std::min(rest.size(), piece_of(pieces, turn++)) : rest.size();
    require(::send(socket.theirs.get(), rest.data(), size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
    rest.remove_prefix(size);
  }
  socket.theirs.reset();
  std::string_view rest = bytes.substr(0, 8192);
  for (;;) {
    InitReport report{};
    const auto got = receive_from_init(socket.ours.get(), &report, sizeof report, 1000, -1);
    require(got.ok() == (rest.size() >= sizeof report));
    if (!got.ok()) return require(got.error().os_errno == EPIPE);
    require(std::memcmp(&report, rest.data(), sizeof report) == 0);
    rest.remove_prefix(sizeof report);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view pieces = all.substr(0, std::min<size_t>(size, 4));
  const std::string_view bytes = all.substr(pieces.size());
  look_at_records(bytes, pieces);
  pump(bytes, pieces);
  look_at_run(std::string(bytes));
  look_at_command(bytes);
  look_at_proof(bytes);
  receive(bytes, pieces);
  return 0;
}
