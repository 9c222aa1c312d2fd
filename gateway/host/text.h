// Cleans text from a plugin for a log line, a record and a person: valid UTF-8 in one line, at most
// `limit` bytes. Everything else becomes U+FFFD or a space. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace isogate {

std::string clean_text(std::string_view text, size_t limit);

}  // namespace isogate
