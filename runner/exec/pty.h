// The terminal of one run, and the pump between it and the run's two descriptors.
//
// The pump is part of the one poll loop (reaper.h) and raw code: two bounded buffers. It reads nothing
// until the bytes read before are written, so a slow reader slows the program. Writes are made only
// when poll says so and never exceed PIPE_BUF: they do not block on a pipe.
#pragma once

#include <poll.h>

#include <cstdint>

#include "runner/exec/command.h"

namespace isogate {

struct PtyBuffer {
  uint32_t begin, end;
  unsigned char bytes[4096];
};

struct PtyPump {
  int master = -1;        // -1 once the terminal has nothing more to give
  int slave = -1;         // kept open until the tree is dead, so that a program may close and reopen it
  int input_fd = -1;      // -1 once it has ended
  int output_fd = -1;     // -1: discard
  bool end_due = false;   // input has ended and the terminal has not been informed
  bool raw_mode = false;  // it could not be; tried again whenever the pump runs
  uint64_t taken = 0;     // bytes from the terminal
  unsigned char last = '\n';
  PtyBuffer input{}, output{};
};

// Three slots: master, input, output. raw_pump_wait fills them, raw_pump acts on the result of poll.
void raw_pump_wait(const PtyPump& pump, bool take_input, pollfd slots[3]);
void raw_pump(PtyPump& pump, const pollfd slots[3]);
bool raw_pump_empty(const PtyPump& pump);  // nothing is waiting to be written to output_fd
void raw_pump_resize(const PtyPump& pump, uint32_t rows, uint32_t columns);

struct Pty {
  Fd master;  // non-blocking
  Fd slave;   // belongs to the identity's uid, 0600
};
Result<Pty> open_pty(const Identity& identity, uint16_t rows, uint16_t columns);

}  // namespace isogate
