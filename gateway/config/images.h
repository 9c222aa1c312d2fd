// Names of container images: what a request may name, and what an operator admits. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isogate {

// At most 255 of [A-Za-z0-9._:/@-], the first a letter or digit: repository:tag,
// registry:port/repository:tag, repository@sha256:…
bool is_image_name(std::string_view text);

// A name, a prefix that ends in `*`, or `*` for any name. A `*` before the first slash matches no slash:
// `python:*` is not a registry of that name.
bool is_image_pattern(std::string_view text);

bool image_admitted(const std::vector<std::string>& patterns, std::string_view image);

}  // namespace isogate
