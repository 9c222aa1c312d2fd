// Loads a plugin's private copy into this process permanently: nothing is ever unloaded. The only user
// of Boost.DLL.
#pragma once

#include "gateway/host/plugin/descriptor.h"

namespace isogate {

// Enters `directory` (PluginCopy::directory()) to load ./plugin.so, and stays there only for the load.
// A process loads one plugin; a second call is an error. `name` is for messages. [main]
Result<ImportedPlugin> load_plugin(int directory, const std::string& name);

}  // namespace isogate
