// The requests of backend.h as frames. check() throws ISOGATE_INVALID_ARGUMENT or ISOGATE_UNSUPPORTED for
// what cannot be sent; what it lets pass fits into a frame.
#pragma once

#include <array>
#include <string>

#include "isogate/backend.hpp"
#include "wire.h"

namespace isogate::sdk::link {

void check(const isogate_exec_request& request, bool has_pty);
void check(const isogate_file_request& request);
void check(const isogate_evidence_request& request);

// stdin, stdout, stderr as its program gets them; -1: none. A terminal has no stderr of its own.
std::array<int, 3> streams_of(const isogate_exec_request& request);

void append(std::string& out, uint32_t stream, uint16_t frame_flags, const isogate_exec_request& request);
void append(std::string& out, uint32_t stream, uint16_t frame_flags, uint32_t verb,
            const isogate_file_request& request);
// `listeners`: whether the runner takes them (1.1).
void append(std::string& out, uint32_t stream, const isogate_evidence_request& request, bool listeners);

}  // namespace isogate::sdk::link
