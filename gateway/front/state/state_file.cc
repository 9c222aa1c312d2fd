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
constexpr Int64 kSchemaVersion = 7;
constexpr const char* kRemedy =
    "; restore the state directory from a backup, or move it and its -wal and -shm away: sandboxes are found "
    "again, the journal of execs is lost";

constexpr const char* kSandboxesTable =
    "CREATE TABLE sandboxes (sandbox_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, agent_id TEXT NOT NULL, "
    "backend TEXT NOT NULL, handle TEXT NOT NULL, uid INTEGER NOT NULL, path TEXT NOT NULL, "
    "isolation INTEGER NOT NULL, created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL, "
    "state TEXT NOT NULL CHECK (state IN ('opening', 'active', 'lost', 'ending')), "
    "disk_limit_bytes INTEGER, image TEXT NOT NULL, expires_ms INTEGER NOT NULL, door TEXT NOT NULL) "
    "WITHOUT ROWID";

constexpr const char* kExecsTable =
    "CREATE TABLE execs (seq INTEGER PRIMARY KEY, exec_id TEXT NOT NULL, sandbox_id TEXT NOT NULL, "
    "tenant TEXT NOT NULL, backend TEXT NOT NULL, request_id TEXT NOT NULL, command TEXT NOT NULL, "
    "started_ms INTEGER NOT NULL, ended_ms INTEGER, outcome TEXT NOT NULL, exit_code INTEGER, "
    "signal INTEGER NOT NULL, reason TEXT NOT NULL, stdout_bytes INTEGER NOT NULL, "
    "stderr_bytes INTEGER NOT NULL, duration_ms INTEGER NOT NULL)";

// Of the open ones that their backends keep. flags: 1 stdin is open to clients, 2 a terminal.
constexpr const char* kKeptTable =
    "CREATE TABLE kept_execs (seq INTEGER PRIMARY KEY, deadline_ms INTEGER NOT NULL, flags INTEGER NOT NULL, "
    "kept_bytes INTEGER NOT NULL)";

constexpr const char* kWrittenTable =
    "CREATE TABLE written (one INTEGER PRIMARY KEY CHECK (one = 1), count INTEGER NOT NULL)";

constexpr const char* kSchema[] = {kSandboxesTable, kExecsTable, kKeptTable, kWrittenTable,
                                   "INSERT INTO written VALUES (1, 0)"};

// What SQLite takes for sound although nothing here writes it: a column's type binds nobody, and a text that
// is no number reads as 0, which would be root's uid.
constexpr const char* kNotOurs[] = {
    "SELECT count(*) FROM sandboxes WHERE typeof(sandbox_id) <> 'text' OR typeof(tenant) <> 'text' OR "
    "typeof(agent_id) <> 'text' OR typeof(backend) <> 'text' OR typeof(handle) <> 'text' OR "
    "typeof(path) <> 'text' OR typeof(uid) <> 'integer' OR uid NOT BETWEEN 0 AND 4294967295 OR "
    "typeof(isolation) <> 'integer' OR isolation NOT BETWEEN 0 AND 4294967295 OR "
    "typeof(created_ms) <> 'integer' OR created_ms NOT BETWEEN 0 AND 9007199254740991 OR "
    "typeof(last_used_ms) <> 'integer' OR last_used_ms NOT BETWEEN 0 AND 9007199254740991 OR "
    "typeof(disk_limit_bytes) NOT IN ('integer', 'null') OR disk_limit_bytes < 0 OR "
    "typeof(image) <> 'text' OR typeof(expires_ms) <> 'integer' OR "
    "expires_ms NOT BETWEEN 0 AND 9007199254740991 OR typeof(door) <> 'text'",
    "SELECT count(*) FROM execs WHERE seq NOT BETWEEN 0 AND 9007199254740991 OR typeof(exec_id) <> 'text' OR "
    "typeof(sandbox_id) <> 'text' OR "
    "typeof(tenant) <> 'text' OR typeof(backend) <> 'text' OR typeof(request_id) <> 'text' OR "
    "typeof(command) <> 'text' OR typeof(started_ms) <> 'integer' OR "
    "started_ms NOT BETWEEN 0 AND 9007199254740991 OR typeof(ended_ms) NOT IN ('integer', 'null') OR "
    "ended_ms NOT BETWEEN 0 AND 9007199254740991 OR typeof(outcome) <> 'text' OR "
    "typeof(exit_code) NOT IN ('integer', 'null') OR exit_code NOT BETWEEN -2147483648 AND 2147483647 OR "
    "typeof(signal) <> 'integer' OR signal NOT BETWEEN -2147483648 AND 2147483647 OR "
    "typeof(reason) <> 'text' OR typeof(stdout_bytes) <> 'integer' OR stdout_bytes < 0 OR "
    "typeof(stderr_bytes) <> 'integer' OR stderr_bytes < 0 OR typeof(duration_ms) <> 'integer' OR "
    "duration_ms < 0",
    "SELECT count(*) FROM kept_execs WHERE typeof(deadline_ms) <> 'integer' OR "
    "deadline_ms NOT BETWEEN 0 AND 9007199254740991 OR typeof(flags) <> 'integer' OR "
    "flags NOT BETWEEN 0 AND 3 OR typeof(kept_bytes) <> 'integer' OR kept_bytes < 0",
    "SELECT count(*) <> 1 FROM written WHERE typeof(count) = 'integer'",
};

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
    run(session, "PRAGMA user_version = " + std::to_string(kSchemaVersion));
    run(session, "COMMIT");
    return {};
  });
  if (!filled) {
    ::unlink(fresh.c_str());
    return filled;
  }
  return publish(fresh, path);
}

// A CHECK cannot be changed in place.
void migrate_sandboxes(Session& session, Int64 from) {
  run(session, "ALTER TABLE sandboxes RENAME TO sandboxes_before");
  run(session, kSandboxesTable);
  run(session, std::string("INSERT INTO sandboxes SELECT *") + (from < 3 ? ", NULL" : "") +
                   (from < 4 ? ", ''" : "") + (from < 6 ? ", 0, ''" : "") + " FROM sandboxes_before");
  run(session, "DROP TABLE sandboxes_before");
}

// Before version 7 nothing said how much of its output an exec keeps.
void migrate_kept(Session& session) {
  run(session, "ALTER TABLE kept_execs RENAME TO kept_before");
  run(session, kKeptTable);
  run(session, "INSERT INTO kept_execs SELECT *, 262144 FROM kept_before");
  run(session, "DROP TABLE kept_before");
}

// Version 1 had no states `opening` and `ending`, neither it nor 2 the limit of a disk, none before 4 an
// image, none before 5 execs that are kept, and none before 6 the E2B listener's record.
void migrate(Session& session, Int64 from) {
  run(session, "BEGIN IMMEDIATE");
  migrate_sandboxes(session, from);
  if (from < 5)
    run(session, kKeptTable);
  else
    migrate_kept(session);
  run(session, "PRAGMA user_version = " + std::to_string(kSchemaVersion));
  run(session, "COMMIT");
}

// Its tables as they were made, and nothing that would run by itself.
bool has_our_schema(Session& session) {
  const auto same = [&](const char* table) {
    std::string sql = table;
    Int64 found = 0;
    session << "SELECT count(*) FROM sqlite_master WHERE sql = ?", use(sql), into(found), now;
    return found == 1;
  };
  return same(kSandboxesTable) && same(kExecsTable) && same(kKeptTable) && same(kWrittenTable) &&
         number(session, "SELECT count(*) FROM sqlite_master WHERE sql IS NOT NULL") == 4;
}

bool has_our_rows(Session& session) {
  return std::all_of(std::begin(kNotOurs), std::end(kNotOurs),
                     [&](const char* sql) { return number(session, sql) == 0; });
}

Result<void> check_database(Session& session, const std::string& path) {
  std::string attempt = "cannot use the state database `" + path + "`: ";
  std::string check = text(session, "PRAGMA quick_check(1)");
  if (check != "ok") return Error{ISOGATE_IO, 0, attempt + "it is damaged (" + check + ")" + kRemedy};
  Int64 application = number(session, "PRAGMA application_id"),
        version = number(session, "PRAGMA user_version");
  if (application != kApplicationId) return Error{ISOGATE_IO, 0, attempt + "it is not one of isogate's"};
  if (version < 1 || version > kSchemaVersion)
    return Error{ISOGATE_IO, 0,
                 attempt + "its schema is version " + std::to_string(version) + ", this isogate (" +
                     ISOGATE_VERSION + ") knows version " + std::to_string(kSchemaVersion) +
                     "; run the isogate that wrote it"};
  const auto damaged = [&](const char* how) {
    return Error{ISOGATE_IO, 0, attempt + "it is damaged (" + how + ")" + kRemedy};
  };
  if (number(session, "SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')") != 0)
    return damaged("it has views or triggers");
  if (version < kSchemaVersion) migrate(session, version);
  if (!has_our_schema(session)) return damaged("it has other tables than isogate makes");
  if (!has_our_rows(session)) return damaged("a row in it has values that isogate never writes");
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

Result<void> set_up_state(Session& session, const std::string& path) {
  run(session, "PRAGMA busy_timeout = 2000");
  run(session, "PRAGMA locking_mode = EXCLUSIVE");
  std::string mode = text(session, "PRAGMA journal_mode = WAL");
  if (mode != "wal") throw Poco::Data::DataException("write-ahead mode refused, it stays in mode " + mode);
  run(session, "PRAGMA synchronous = NORMAL");
  return check_database(session, path);
}

}  // namespace isogate::front
