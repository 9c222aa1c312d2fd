// The file of the state database: its directory, its modes, its making, its checks.
#pragma once

#include <string>

#include "lib/error.h"

namespace Poco::Data {
class Session;
}

namespace isogate::front {

// Makes directory and database where both are absent. Refuses what is not private to this uid, and
// what looks damaged: nothing new is ever made over something lost.
Result<void> prepare_state_file(const std::string& path);

// Write-ahead mode, locked against other processes, sound, of our schema. Throws Poco::Exception.
Result<void> set_up_state(Poco::Data::Session& session, const std::string& path);

}  // namespace isogate::front
