// What a configuration must fulfil beyond each value by itself. Inside gateway/config only.
#pragma once

#include "gateway/config/config.h"
#include "gateway/config/problems.h"

namespace isogate {

void check_together(const Config& config, Problems& problems);

// `follow_links`: looks at the file system, too, for symlinks in their paths.
void check_directories(const Config& config, bool follow_links, Problems& problems);

std::vector<std::string> warnings_of(const Config& config);

}  // namespace isogate
