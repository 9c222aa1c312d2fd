// Raw code: see raw_syscall.h.
#include <asm/termbits.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "runner/exec/pty.h"
#include "runner/exec/raw_syscall.h"

namespace isogate {
namespace {

bool empty(const PtyBuffer& buffer) { return buffer.begin == buffer.end; }

bool try_again(long result) { return result == -EAGAIN || result == -EINTR; }

void watch(pollfd& slot, int fd, short events) {
  slot.fd = events == 0 ? -1 : fd;
  slot.events = events;
  slot.revents = 0;
}

// Fills an empty buffer. False: the end.
bool fill(PtyBuffer& buffer, int fd) {
  const long size = raw::call(SYS_read, fd, buffer.bytes, sizeof buffer.bytes);
  if (try_again(size)) return true;
  if (size <= 0) return false;
  buffer.begin = 0;
  buffer.end = static_cast<uint32_t>(size);
  return true;
}

// False: nothing reads any more.
bool flush(PtyBuffer& buffer, int fd) {
  const long size = raw::call(SYS_write, fd, buffer.bytes + buffer.begin, buffer.end - buffer.begin);
  if (try_again(size)) return true;
  if (size < 0) return false;
  buffer.begin += static_cast<uint32_t>(size);
  return true;
}

// As a typist would: the end-of-file character, twice within a line. Not in raw mode, where a program reads
// it like any other.
void type_end_of_input(PtyPump& pump) {
  termios modes = {};
  pump.raw_mode = raw::call(SYS_ioctl, pump.slave, TCGETS, &modes) != 0 || (modes.c_lflag & ICANON) == 0;
  if (pump.raw_mode) return;
  pump.end_due = false;
  pump.input.begin = 0;
  pump.input.end = pump.last == '\n' ? 1 : 2;
  pump.input.bytes[0] = pump.input.bytes[1] = modes.c_cc[VEOF];
}

void pump_input(PtyPump& pump, const pollfd slots[3]) {
  if (slots[1].revents != 0 && !fill(pump.input, pump.input_fd)) {
    pump.input_fd = -1;
    pump.end_due = true;
  }
  if (empty(pump.input) && pump.end_due) type_end_of_input(pump);
  if (empty(pump.input) || pump.master < 0) return;
  const unsigned char last = pump.input.bytes[pump.input.end - 1];
  if (!flush(pump.input, pump.master)) pump.input.begin = pump.input.end;
  if (empty(pump.input)) pump.last = last;
}

void pump_output(PtyPump& pump, const pollfd slots[3]) {
  if (empty(pump.output) && (slots[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
    if (!fill(pump.output, pump.master)) pump.master = -1;  // EIO: no slave is open
    pump.taken += pump.output.end - pump.output.begin;
  }
  if ((slots[2].revents & POLLOUT) != 0 && !empty(pump.output)) {
    if (!flush(pump.output, pump.output_fd)) pump.output_fd = -1;
  } else if ((slots[2].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
    pump.output_fd = -1;
  }
  if (pump.output_fd < 0) pump.output.begin = pump.output.end;
}

}  // namespace

void raw_pump_wait(const PtyPump& pump, bool take_input, pollfd slots[3]) {
  const bool more = take_input && empty(pump.input) && !pump.end_due && pump.input_fd >= 0;
  short master = 0;
  if (empty(pump.output)) master = POLLIN;
  if (take_input && (!empty(pump.input) || (pump.end_due && !pump.raw_mode)))
    master = static_cast<short>(master | POLLOUT);
  watch(slots[0], pump.master, pump.master < 0 ? short{0} : master);
  watch(slots[1], pump.input_fd, more ? short{POLLIN} : short{0});
  watch(slots[2], pump.output_fd, !empty(pump.output) && pump.output_fd >= 0 ? short{POLLOUT} : short{0});
}

void raw_pump(PtyPump& pump, const pollfd slots[3]) {
  pump_input(pump, slots);
  pump_output(pump, slots);
}

bool raw_pump_empty(const PtyPump& pump) { return empty(pump.output); }

void raw_pump_resize(const PtyPump& pump, uint32_t rows, uint32_t columns) {
  if (pump.master < 0 || rows == 0 || columns == 0 || rows > 0xffff || columns > 0xffff) return;
  const winsize size = {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
  raw::call(SYS_ioctl, pump.master, TIOCSWINSZ, &size);
}

}  // namespace isogate
