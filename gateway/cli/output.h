// Bytes to stdout and messages to stderr.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/error.h"

namespace isogate::cli {

// Writes all bytes or returns an error. Without a reader this process ends silently with
// kPipeClosed.
Result<void> write_all(int fd, std::string_view bytes);
void print(std::string_view text);                       // to stdout; ends the process when that fails
void complain(std::string_view message);                 // "isogate: <message>\n" to stderr
void advise(std::string_view what_to_do);                // "  <line>\n", indented below it
Result<std::string> from_base64(std::string_view text);  // from a gateway; strict, ISOGATE_LOST
// A name that is not UTF-8 has the encoding "base64". What is no base64 stays.
std::string decoded_name(std::string text, std::string_view encoding);
// Columns of equal width; control characters as '?'. The first row has the headings.
void print_table(const std::vector<std::vector<std::string>>& rows);
// Control characters as '?', because a terminal would interpret them.
std::string for_terminal(std::string_view text);
std::string date_text(int64_t ms);                        // since 1970: "2026-01-02T03:04:05Z"
std::string listed(const nlohmann::ordered_json& texts);  // "a, b", or "none"

// A command that can be interrupted: Ctrl-C and SIGTERM end it with kInterrupted at once, which closes
// its connection, and the gateway then kills what it ran. `unfinished`, if any, is unlinked first. What is
// ignored stays so.
void end_on_signals();
// As nohup(1) leaves SIGHUP, and a shell SIGINT for what it runs in the background.
bool is_ignored(int signal);
void remove_when_interrupted(const std::string& unfinished);  // empty: nothing any more

}  // namespace isogate::cli
