#include "gateway/front/state/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "gateway/front/state/state_sql.h"
#include "lib/fd.h"

namespace isogate::front {
namespace {

using namespace sql;

constexpr Int64 kApplicationId = 0x69736F67;  // "isog"
constexpr Int64 kSchemaVersion = 1;
constexpr const char* kRemedy =
    "; restore the state directory from a backup, or move it and its -wal and -shm away: sandboxes are found "
    "again, the journal of execs is lost";

// STRICT and CHECK bind what is written, and `quick_check` finds what was changed outside: a text that is no
// number would read as 0, which is root's uid.
constexpr const char* kSandboxesTable =
    "CREATE TABLE sandboxes (sandbox_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, agent_id TEXT NOT NULL, "
    "backend TEXT NOT NULL, handle TEXT NOT NULL, "
    "uid INTEGER NOT NULL CHECK (uid BETWEEN 0 AND 4294967295), "
    "isolation INTEGER NOT NULL CHECK (isolation BETWEEN 0 AND 4294967295), "
    "created_ms INTEGER NOT NULL CHECK (created_ms BETWEEN 0 AND 9007199254740991), "
    "last_used_ms INTEGER NOT NULL CHECK (last_used_ms BETWEEN 0 AND 9007199254740991), "
    "state TEXT NOT NULL CHECK (state IN ('opening', 'active', 'lost', 'ending')), "
    "disk_limit_bytes INTEGER CHECK (disk_limit_bytes >= 0), image TEXT NOT NULL, "
    "expires_ms INTEGER NOT NULL CHECK (expires_ms BETWEEN 0 AND 9007199254740991), "
    "e2b_record TEXT NOT NULL) STRICT, WITHOUT ROWID";

constexpr const char* kExecsTable =
    "CREATE TABLE execs (seq INTEGER PRIMARY KEY CHECK (seq BETWEEN 0 AND 9007199254740991), "
    "exec_id TEXT NOT NULL, sandbox_id TEXT NOT NULL, tenant TEXT NOT NULL, backend TEXT NOT NULL, "
    "request_id TEXT NOT NULL, command TEXT NOT NULL, "
    "started_ms INTEGER NOT NULL CHECK (started_ms BETWEEN 0 AND 9007199254740991), "
    "ended_ms INTEGER CHECK (ended_ms BETWEEN 0 AND 9007199254740991), outcome TEXT NOT NULL, "
    "exit_code INTEGER CHECK (exit_code BETWEEN -2147483648 AND 2147483647), "
    "signal INTEGER NOT NULL CHECK (signal BETWEEN -2147483648 AND 2147483647), reason TEXT NOT NULL, "
    "stdout_bytes INTEGER NOT NULL CHECK (stdout_bytes >= 0), "
    "stderr_bytes INTEGER NOT NULL CHECK (stderr_bytes >= 0), "
    "duration_ms INTEGER NOT NULL CHECK (duration_ms >= 0)) STRICT";

// Of the open ones that their backends keep. flags: 1 stdin is open to clients, 2 a terminal.
constexpr const char* kKeptTable =
    "CREATE TABLE kept_execs (seq INTEGER PRIMARY KEY, "
    "deadline_ms INTEGER NOT NULL CHECK (deadline_ms BETWEEN 0 AND 9007199254740991), "
    "flags INTEGER NOT NULL CHECK (flags BETWEEN 0 AND 3), "
    "kept_bytes INTEGER NOT NULL CHECK (kept_bytes >= 0)) STRICT";

constexpr const char* kSchema[] = {kSandboxesTable, kExecsTable, kKeptTable};

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

Result<void> check_private(const std::string& path, const struct stat& status, mode_t type, mode_t wider) {
  if ((status.st_mode & S_IFMT) != type)
    return Error{
        ISOGATE_PERMISSION_DENIED, 0,
        "`" + path + "` is not what it should be: a " + (type == S_IFDIR ? "directory" : "regular file")};
  if (status.st_uid != ::geteuid())
    return Error{ISOGATE_PERMISSION_DENIED, 0,
                 "`" + path + "` belongs to uid " + std::to_string(status.st_uid) + ", not to uid " +
                     std::to_string(::geteuid()) + " of this process; chown it"};
  if (status.st_mode & wider)
    return Error{ISOGATE_PERMISSION_DENIED, 0,
                 "`" + path + "` is open to others; chmod it to " + (type == S_IFDIR ? "0700" : "0600")};
  return {};
}

Result<void> check_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return os_error("cannot make `" + path + "`", errno);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return os_error("cannot look at `" + path + "`", errno);
  return check_private(path, status, S_IFDIR, 0077);
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || errno != ENOENT;
}

Result<void> create_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return os_error("cannot remove `" + path + "`", errno);
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return os_error("cannot make `" + path + "`", errno);
  if (::fchmod(file.get(), 0600) != 0) return os_error("cannot chmod `" + path + "`", errno);
  return {};
}

Result<void> publish(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return os_error("cannot rename `" + from + "`", errno);
  Fd directory(::open(directory_of(to).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0)
    return os_error("cannot sync `" + directory_of(to) + "`", errno);
  return {};
}

// Made complete under another name: a state.db that exists and is empty has been damaged.
Result<void> create_database(const std::string& path) {
  std::string fresh = path + ".new";
  ::unlink((fresh + "-journal").c_str());
  if (Result<void> made = create_file(fresh); !made) return made;
  Result<void> filled = guarded<void>("cannot make the state database `" + path + "`", [&]() -> Result<void> {
    Session session("SQLite", fresh);
    run(session, "BEGIN IMMEDIATE");
    for (const char* sql : kSchema) run(session, sql);
    run(session, "PRAGMA application_id = " + std::to_string(kApplicationId));
    write_schema_version(session);
    run(session, "COMMIT");
    return {};
  });
  if (!filled) {
    ::unlink(fresh.c_str());
    return filled;
  }
  return publish(fresh, path);
}

// Its tables as they were made, and nothing that would run by itself.
bool has_our_schema(Session& session) {
  const auto is_there = [&](std::string sql) {
    Int64 found = 0;
    session << "SELECT count(*) FROM sqlite_master WHERE sql = ?", use(sql), into(found), now;
    return found == 1;
  };
  return std::all_of(std::begin(kSchema), std::end(kSchema), is_there) &&
         number(session, "SELECT count(*) FROM sqlite_master WHERE sql IS NOT NULL") == std::ssize(kSchema);
}

Result<void> check_database(Session& session, const std::string& path) {
  std::string attempt = "cannot use the state database `" + path + "`: ";
  const auto damaged = [&](const std::string& how) {
    return Error{ISOGATE_IO, 0, attempt + "it is damaged (" + how + ")" + kRemedy};
  };
  std::string check = text(session, "PRAGMA quick_check(1)");
  if (check != "ok") return damaged(check);
  Int64 application = number(session, "PRAGMA application_id"),
        version = number(session, "PRAGMA user_version");
  if (application != kApplicationId) return Error{ISOGATE_IO, 0, attempt + "it is not one of isogate's"};
  if (version != kSchemaVersion)
    return Error{ISOGATE_IO, 0,
                 attempt + "its schema is version " + std::to_string(version) + ", this isogate (" +
                     ISOGATE_VERSION + ") knows version " + std::to_string(kSchemaVersion) +
                     "; run the isogate that wrote it"};
  if (!has_our_schema(session)) return damaged("it has other tables, views or triggers than isogate makes");
  return {};
}

}  // namespace

Result<void> prepare_state_file(const std::string& path) {
  if (path.empty() || path[0] != '/') return invalid("the path of the state database must be absolute");
  if (Result<void> directory = check_directory(directory_of(path)); !directory) return directory;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return os_error("cannot look at `" + path + "`", errno);
    if (exists(path + "-wal"))
      return Error{ISOGATE_IO, 0,
                   "`" + path + "` is missing, but its log `" + path +
                       "-wal` exists; restore both, or remove the log"};
    return create_database(path);
  }
  if (Result<void> file = check_private(path, status, S_IFREG, 0077); !file) return file;
  if (status.st_size == 0)
    return Error{ISOGATE_IO, 0,
                 "the state database `" + path + "` is empty, so it has been damaged" + kRemedy};
  return {};
}

void write_schema_version(Session& session) {
  run(session, "PRAGMA user_version = " + std::to_string(kSchemaVersion));
}

Result<void> set_up_state(Session& session, const std::string& path) {
  run(session, "PRAGMA busy_timeout = 2000");
  run(session, "PRAGMA locking_mode = EXCLUSIVE");
  std::string mode = text(session, "PRAGMA journal_mode = WAL");
  if (mode != "wal") throw Poco::Data::DataException("write-ahead mode refused, it stays in mode " + mode);
  run(session, "PRAGMA synchronous = NORMAL");
  return check_database(session, path);
}

}  // namespace isogate::front
