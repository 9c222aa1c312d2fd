// The file of the state database: its directory, its modes, its making, its checks.
#pragma once

#include <string>

#include "lib/error.h"

namespace Poco::Data {
class Session;
}

namespace isogate::front {

// Creates directory and database if both are absent. Refuses files that are not private to this
// uid, and damaged ones: it never creates a new database in place of a lost one.
Result<void> prepare_state_file(const std::string& path);

// Throws Poco::Exception.
void write_schema_version(Poco::Data::Session& session);

// Write-ahead mode, locked against other processes, sound, of our schema. Throws Poco::Exception.
Result<void> set_up_state(Poco::Data::Session& session, const std::string& path);

}  // namespace isogate::front
