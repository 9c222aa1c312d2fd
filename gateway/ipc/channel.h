// Records with descriptors over a SOCK_SEQPACKET socketpair. A record over 60 KiB travels in a
// sealed memfd, so the kernel's socket buffer never refuses one.
// Functions are safe from any thread, on one socket too: the kernel keeps records whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lib/fd.h"

namespace isogate::ipc {

inline constexpr size_t kMaxPayloadBytes = 16u << 20;  // of one record, however it travels
inline constexpr size_t kMaxInlineBytes = 60u << 10;   // above: in a memfd
inline constexpr size_t kMaxChannelFds = 64;           // attached to one record
inline constexpr size_t kBeginBytes = 11;              // of a record, where its memfd is lost

Result<SocketPair> make_socket_pair();  // SOCK_SEQPACKET, close-on-exec, blocking

struct Received {
  std::string bytes;
  std::vector<Fd> fds;  // close-on-exec
  bool fds_lost =
      false;  // this process had no room for all of them; of the bytes it may have the first alone
};

enum class Wait { kBlock, kDont };

// os_errno EAGAIN with Wait::kDont when the peer is behind; EPIPE when it is gone.
// ISOGATE_INVALID_ARGUMENT, and nothing sent, for an empty record and for one over a cap.
Result<void> send_record(int socket, std::string_view bytes, const std::vector<int>& fds, Wait wait);
// Whether that failed by a shortage of descriptors or memory, of this process or of the system: it passes.
bool is_shortage(int os_errno);

// What send_record() would send for at most kMaxInlineBytes without descriptors: for a signal handler, which
// may only send(2).
std::string inline_record(std::string_view bytes);

// os_errno EAGAIN with Wait::kDont when nothing is there, and when SO_RCVTIMEO ran out; ECONNRESET at
// the end of the channel; ISOGATE_INVALID_ARGUMENT for a record that breaks the format or its caps: the
// peer is broken or hostile then. Descriptors that came with a refused record are closed.
Result<Received> receive_record(int socket, Wait wait);

// The same for a peer that sends no descriptor and nothing over kMaxInlineBytes: a record with more is
// refused, and its descriptors never become descriptors of this process.
Result<std::string> receive_bytes(int socket, Wait wait);

}  // namespace isogate::ipc
