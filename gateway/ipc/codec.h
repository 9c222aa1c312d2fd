// Messages to bytes and back. Little-endian, length-prefixed, strict: a record that is short, long,
// of an unknown type or over a cap is an error, and the receiver closes the channel.
// Pure functions, any thread. Fuzzed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/ipc/messages.h"

namespace isogate::ipc {

inline constexpr size_t kMaxRecordBytes = 8u << 20;  // of one encoded record
inline constexpr size_t kMaxRecordFds = 8;
inline constexpr size_t kMaxItems = 1u << 17;  // arguments, and variables, of one exec
inline constexpr size_t kMaxNameBytes = 4096;  // ids, users, tenants, handles, addresses
inline constexpr size_t kMaxPathBytes = 64u << 10;
inline constexpr size_t kMaxTextBytes = 4096;                // messages, details
inline constexpr size_t kMaxItemBytes = kMaxPathBytes + 64;  // of one encode_item()

// `bytes` is empty when the message is over one of the caps above; send_record() then refuses it, so
// that an oversized call does not end the channel.
struct Encoded {
  std::string bytes;
  std::vector<int> fds;  // borrowed from the message
};

Encoded encode(const Call& call);
Encoded encode(const Hello& hello);
Encoded encode(const Reply& reply);

// Takes the descriptors; those of a refused record are closed. It does not check what strings and
// numbers mean: the receiver that acts on them does.
Result<Call> decode_call(std::string_view bytes, std::vector<Fd> fds);
// The id of a call whose descriptors were lost, for a refusal; 0: the id cannot be read.
uint64_t call_id(std::string_view bytes);

// What a host may send. A reply with a status other than OK carries no value, one with OK no message.
using FromHost = std::variant<Hello, Reply>;
Result<FromHost> decode_from_host(std::string_view bytes);

// Items written one after the other to the body descriptor of list, enumerate and orphans.
std::string encode_item(const Entry& entry);
std::string encode_item(const Found& found);

// Takes one item off the front of `bytes` and advances it; nullopt: more bytes are needed. An entry whose
// name is_path_below() (lib/text.h) does not allow is an error.
Result<std::optional<Entry>> take_entry(std::string_view& bytes);
Result<std::optional<Found>> take_found(std::string_view& bytes);

}  // namespace isogate::ipc
