// Tells the service manager how we are (sd_notify(3)): "READY=1", "STOPPING=1", "RELOADING=1".
#pragma once

#include <string>

namespace isogate::supervisor {

// Without NOTIFY_SOCKET in the environment, or when nobody listens there, nothing happens.
void notify_service_manager(const std::string& state);

}  // namespace isogate::supervisor
