// RFC 4648's base64, as kubeconfigs and WebSocket keys have it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace isogate::k8s {

std::string to_base64(std::string_view bytes);
// White space is skipped; nothing when it is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace isogate::k8s
