// What the file calls have in common, as JSON and as raw bytes: their parameters checked, and what came of
// them. Throws ApiError.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "gateway/front/app.h"
#include "gateway/front/file_calls.h"

namespace isogate::front {

inline constexpr size_t kMaxPath = 4095;  // PATH_MAX less its NUL
inline constexpr size_t kMaxUser = 255;

ApiError invalid_file(std::string message);

uint32_t parse_scope(std::string_view scope);
uint32_t parse_mode(std::string_view text);  // octal
// Names that a terminal or a log would act on are refused; an exec may still make them.
void check_path(std::string_view name, std::string_view path);

// How long a backend may go on without a byte of a file: FileTarget::idle.
std::chrono::seconds idle_limit(const App& app);

uint64_t needed_capabilities(const FileTarget& target);

// Judges the backend by the reply. A client that has gone is ClientGone, whatever the reply.
void throw_unless_ok(App& app, Lease& lease, const ipc::Reply& reply, bool client_gone = false);

}  // namespace isogate::front
