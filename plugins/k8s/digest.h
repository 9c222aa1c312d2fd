// Names and fingerprints. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace isogate::k8s {

std::string random_hex(size_t bytes);  // at most 32
std::string sha256_hex(std::string_view text);

// `text` where it is a label's value as it stands, else a name made of its digest.
std::string label_value(const std::string& text);

}  // namespace isogate::k8s
