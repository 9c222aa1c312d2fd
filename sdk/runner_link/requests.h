// The requests of the protocol: from backend.h into frames, and from frames into what the runner does.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "isogate/backend.hpp"
#include "wire.h"

namespace isogate::sdk::link {

// check() throws ISOGATE_INVALID_ARGUMENT or ISOGATE_UNSUPPORTED for what cannot be sent; what it accepts
// fits into a frame.
void check(const isogate_exec_request& request, bool has_pty);
void check(const isogate_file_request& request);
void check(const isogate_evidence_request& request);
void check(const isogate_connect_request& request);
void check(const isogate_exec_request& request, const isogate_kept_exec& kept, bool starts);

// stdin, stdout, stderr as its program gets them; -1: none. A terminal has no stderr of its own.
std::array<int, 3> streams_of(const isogate_exec_request& request);

// `kept`: with EXEC_KEEP; may be null.
void append(std::string& out, uint32_t stream, uint16_t frame_flags, const isogate_exec_request& request,
            const isogate_kept_exec* kept);
void append_rejoin(std::string& out, uint32_t stream, const isogate_exec_request& request);
void append(std::string& out, uint32_t stream, uint16_t frame_flags, uint32_t verb,
            const isogate_file_request& request);
void append(std::string& out, uint32_t stream, const isogate_evidence_request& request);

// What isogate_evidence and isogate_runner_result have in common.
template <typename Measured>
auto measured(Measured& of) {
  return std::tie(of.uid, of.gid, of.no_new_privs, of.seccomp_mode, of.cap_inheritable, of.cap_permitted,
                  of.cap_effective, of.cap_bounding, of.cap_ambient, of.ns_mnt, of.ns_pid, of.ns_net,
                  of.ns_ipc, of.ns_uts, of.ns_user, of.ns_cgroup, of.visible_processes);
}

// The contents of a client's frames. parse() is pure; false: the payload breaks the protocol's layout.

// More strings than the kernel accepts as arguments and environment, whose pointers count too.
constexpr uint64_t kMaxStrings = 300'000;

struct ExecOrder {
  isogate_runner_exec head{};
  isogate_runner_keep keep{};         // with EXEC_KEEP
  std::vector<isogate_limit> limits;  // as sent
  bool limits_sampled = false;
  std::string cwd, user;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;
  bool too_many = false;  // above kMaxStrings: argv and env were not read
};
bool parse(std::string_view payload, ExecOrder& order);

struct FileOrder {
  isogate_runner_file head{};
  std::string path, path_to, user;
};
bool parse(std::string_view payload, FileOrder& order);

struct MeasureOrder {
  isogate_runner_measure head{};
  std::string gateway_address;
  std::string listeners;  // as in isogate_evidence_request
};
bool parse(std::string_view payload, MeasureOrder& order);

std::optional<isogate_runner_rejoin> parse_rejoin(std::string_view payload);

// The port of a CONNECT.
std::optional<uint16_t> parse_connect(std::string_view payload);

}  // namespace isogate::sdk::link
