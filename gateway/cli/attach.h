// A session with a long-lived exec over its WebSocket: output, stdin, signals, the terminal's size.
#pragma once

#include <string>

#include "gateway/cli/http_client.h"

namespace isogate::cli {

struct Attachment {
  std::string exec_id;
  bool pty = false;         // if stdin is also a terminal, it is in raw mode meanwhile
  bool sends_stdin = true;  // to its end, which closes the program's
  bool read_only = false;   // neither stdin nor signals nor the size
  bool is_ours = false;     // started for this client: without a reader of its stdout it gets SIGPIPE
};

struct AttachEnd {
  int exit_code = 0;     // the program's; kDone or kInterrupted after a detachment; kGateway
  bool ended = false;    // the program has
  bool runs_on = false;  // it may; the user was told how to attach again
};

// Runs from the oldest kept byte until the program ends, the client detaches, or contact is lost, which is
// reported. `~.` at the beginning of a line detaches a raw terminal, Ctrl-\ and SIGHUP detach always.
// Without a raw terminal Ctrl-C and SIGTERM go to the program; a second one kills it, a third one
// detaches. Blocks. These signals are blocked in the calling thread, which is the only one that receives
// signals.
AttachEnd attach(HttpClient& client, const Attachment& to);

}  // namespace isogate::cli
