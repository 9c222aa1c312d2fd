// Poco::Data as the state database uses it. Only state_file.cc and state_db.cc include it.
#pragma once

#include <Poco/Data/SQLite/SQLiteException.h>
#include <Poco/Data/Session.h>

#include <functional>
#include <string>

#include "lib/error.h"

namespace isogate::front::sql {

using Poco::Int64;
using Poco::Data::Session;
using Poco::Data::Statement;
using Poco::Data::Keywords::bind;  // a copy; sql::bind(), or std::bind() is found
using Poco::Data::Keywords::into;
using Poco::Data::Keywords::now;
using Poco::Data::Keywords::use;

inline void run(Session& session, const std::string& sql) { session << sql, now; }

inline Int64 number(Session& session, const std::string& sql) {
  Int64 value = 0;
  session << sql, into(value), now;
  return value;
}

inline std::string text(Session& session, const std::string& sql) {
  std::string value;
  session << sql, into(value), now;
  return value;
}

inline Error database_error(const std::string& attempt, const Poco::Exception& cause) {
  bool full = dynamic_cast<const Poco::Data::SQLite::DatabaseFullException*>(&cause) != nullptr;
  bool locked = dynamic_cast<const Poco::Data::SQLite::DBLockedException*>(&cause) != nullptr;
  return {full ? ISOGATE_RESOURCE_EXHAUSTED : ISOGATE_IO, 0,
          attempt + ": " +
              (full     ? std::string("no space is left on its file system")
               : locked ? std::string("another process has it open")
                        : cause.displayText())};
}

// Runs the work and turns its exception into an Error: Poco's exceptions stop here.
template <typename T>
Result<T> guarded(const std::string& attempt, const std::function<Result<T>()>& work) {
  try {
    return work();
  } catch (const Poco::Exception& e) {
    return database_error(attempt, e);
  } catch (const std::exception& e) {
    return Error{ISOGATE_INTERNAL, 0, attempt + ": " + e.what()};
  }
}

}  // namespace isogate::front::sql
