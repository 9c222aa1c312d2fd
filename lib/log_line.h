// The text of one log line. Part of log.cc; others use log.h.
#pragma once

#include "lib/log.h"

namespace isogate::log {

constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error"};

// A line stays this much below PIPE_BUF: room for the newline and the count of dropped lines.
constexpr size_t kLineReserve = 64;

// A whole JSON object, no newline.
std::string line_of(std::string_view process, Level level, std::string_view event, Fields fields);

}  // namespace isogate::log
