// Names that leave the gateway, and ids that must not be guessed. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace isogate::front {

// The only name of a sandbox outside: "isg-" and 26 characters of base32 (a-z2-7, no padding), the
// first 128 bits of SHA-256 over the three, each preceded by its length in 8 bytes, little-endian.
// So `Bob`/`bob` and (a, b-c)/(a-b, c) never collide.
std::string sandbox_id(std::string_view instance, std::string_view tenant, std::string_view agent);

// [A-Za-z0-9][A-Za-z0-9_-]{0,62}, case-sensitive.
bool valid_agent_id(std::string_view id);

// 32 lower-case hex digits of 128 random bits from the kernel. Without randomness the process ends,
// because a guessable id is worse.
std::string new_exec_id();

// 16 lower-case hex digits, random; for log lines and answers, protects nothing.
std::string new_request_id();

}  // namespace isogate::front
