// MIME types of files. Any thread.
#pragma once

#include <string_view>

namespace isogate::front {

// By the extension, in any case; application/octet-stream when it is not known.
std::string_view mime_type(std::string_view path);

}  // namespace isogate::front
