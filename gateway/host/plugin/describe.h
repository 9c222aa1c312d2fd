// Reads the descriptor of a plugin without trusting the plugin: for `isogate plugin describe FILE`, and
// for a backend host before it decides which privileges to keep.
//
// The checks of plugin_file.h are made first. Then a child, quarantined (base/privileges.h: 5 s of a
// processor, 4 GiB), with an empty environment and 15 s, loads the copy, compiles its config schema, and
// prints its descriptor on a pipe. A plugin that crashes, hangs or prints invalid data is reported as such.
// Call it from a process with one thread. [main]
#pragma once

#include <string>

#include "gateway/host/plugin/description.h"
#include "gateway/host/plugin/plugin_file.h"
#include "lib/error.h"

namespace isogate {

// `pin`: SHA-256 in hex, or empty. `copy_dir`: as in plugin_file.h.
Result<Description> describe_plugin(const std::string& path, const std::string& pin,
                                    const std::string& copy_dir);

// The same for a file that has been checked and copied.
Result<Description> describe_copy(const PluginImage& image, const PluginCopy& copy);

// The role `isogate _describe`: the plugin is ./plugin.so, the pipe is descriptor 3.
int describe_child_main();

}  // namespace isogate
