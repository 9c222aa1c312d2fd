// What the frames of a client hold. Pure. False, or nullopt: the payload is not laid out as the protocol
// says.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/backend.h"
#include "isogate/runner_protocol.h"
#include "runner/environment.h"

namespace isogate::resident {

// More strings than the kernel takes as arguments and environment, whose pointers count too.
constexpr uint64_t kMaxStrings = 300'000;

struct ExecOrder {
  isogate_runner_exec head{};
  std::string cwd, user;
  std::vector<std::string> argv;
  Environment env;
  bool too_many = false;  // above kMaxStrings: argv and env were not read
};
bool parse_exec(std::string_view payload, ExecOrder& order);

struct FileOrder {
  isogate_runner_file head{};
  std::string path, path_to, user;
};
bool parse_file(std::string_view payload, FileOrder& order);

struct MeasureOrder {
  isogate_runner_measure head{};
  std::string gateway_address;
  std::string listeners;  // as in isogate_evidence_request; empty from a client of before 1.1
};
bool parse_measure(std::string_view payload, MeasureOrder& order);

// The struct at the front of a payload, which the decoder has found long enough for it.
template <typename T>
T head_of(std::string_view payload) {
  T head{};
  payload.copy(reinterpret_cast<char*>(&head), sizeof head);
  return head;
}

}  // namespace isogate::resident
