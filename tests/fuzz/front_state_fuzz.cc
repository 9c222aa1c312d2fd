// The state database, however damaged: any bytes, and a valid one (or its log) with some of them changed. It
// is refused with a reason, or opened: then it contains only what it may, and can be written.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "gateway/front/state/state_db.h"
#include "lib/fd.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;
using namespace isogate::front;

// In memory, if there is a file system for that: the disk is not under test.
struct Place {
  std::string directory =
      (::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/isogate-XXXXXX");
  Place() { require(::mkdtemp(directory.data()) != nullptr); }
  ~Place() { ::rmdir(directory.c_str()); }
};

const std::string& place() {
  static const Place one;
  return one.directory;
}

std::string path() { return place() + "/state.db"; }

void clear() {
  for (const char* ending : {"", "-wal", "-shm", "-journal", ".new", ".new-journal"})
    ::unlink((path() + ending).c_str());
}

std::string read(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& name, std::string_view bytes) {
  const Fd file(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  require(file && ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

ExecRow exec(const std::string& id) { return {id, "isg-1", "tenant", "docker", "request", "true", 1000, {}}; }

ExecOutcome outcome() {
  ExecOutcome ended;
  ended.ended_ms = 2000;
  ended.outcome = Outcome::kExited;
  ended.exit_code = 3;
  return ended;
}

struct Good {
  std::string database, log;  // of one that was not closed
};

const Good& good() {
  static const Good one = [] {
    clear();
    auto db = StateDb::open(path(), false);
    require(db.ok());
    StateBatch batch;
    SandboxRow row{"isg-1", "tenant", "agent", "docker", "handle", 7, 20, 1000, 2000};
    batch.sandboxes.push_back({row, false, {}});
    row.sandbox_id = "isg-2";
    row.state = SandboxRow::State::kEnding;
    row.expires_ms = 3000;
    row.e2b_record = "{}";
    batch.sandboxes.push_back({row, false, {}});
    for (int64_t i = 1; i <= 3; ++i) batch.opened.push_back({i, exec("e" + std::to_string(i))});
    batch.closed.push_back({1, outcome()});
    require((*db)->apply(batch).ok());
    const std::string log = read(path() + "-wal");
    db->reset();  // into the database
    const std::string database = read(path());
    require(!database.empty() && !log.empty());
    return Good{database, log};
  }();
  return one;
}

// Three bytes for the position, one for the new value.
std::string changed(std::string bytes, std::string_view changes) {
  const auto at = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(changes[i])); };
  for (; changes.size() >= 4; changes.remove_prefix(4))
    bytes[(at(0) << 16 | at(1) << 8 | at(2)) % bytes.size()] = changes[3];
  return bytes;
}

void look_at_exec(const ExecRow& row) {
  require(row.started_ms >= 0);
  if (row.ended) require(row.ended->ended_ms >= 0 && row.ended->stdout_bytes <= INT64_MAX);
}

void look_at(StateDb& db) {
  if (const auto sandboxes = db.load_sandboxes()) {
    for (const SandboxRow& row : *sandboxes) {
      require(row.created_ms >= 0 && row.last_used_ms >= 0);
      require(!state_name(row.state).empty());
    }
  }
  if (const auto open = db.load_open_execs()) {
    for (const ExecRow& row : *open) {
      require(!row.ended.has_value());
      look_at_exec(row);
    }
  }
  int64_t last = 0;
  if (const auto ids = db.load_exec_ids()) {
    for (const auto& [id, seq] : *ids) {
      require(seq >= 0 && seq < INT64_MAX / 2 && seq >= last);
      last = seq;
      const auto row = db.load_exec(id, seq);
      if (row.ok() && !row->empty()) look_at_exec(row->front());
      if (row.ok()) require(row->size() <= 1);
    }
  }
  StateBatch batch;
  batch.sandboxes.push_back({{"isg-9", "tenant", "agent", "docker", "handle", 9, 20, 1, 2}, false, {}});
  batch.opened.push_back({last + 1, exec("fresh")});
  if (!db.apply(batch)) return;
  const auto fresh = db.load_exec("fresh", last + 1);
  require(fresh.ok() && fresh->size() == 1 && fresh->front().tenant == "tenant");
  (void)db.prune(1, 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Good& whole = good();
  clear();
  switch (data[0] % 3) {
    case 0:
      write(path(), bytes);
      break;
    case 1:
      write(path(), changed(whole.database, bytes));
      break;
    default:
      write(path(), whole.database);
      write(path() + "-wal", changed(whole.log, bytes));
  }
  auto db = StateDb::open(path(), false);
  if (db.ok())
    look_at(**db);
  else
    require(!db.error().message.empty());
  if (bytes.empty()) require(db.ok() == (data[0] % 3 != 0));  // nothing was changed
  if (db.ok()) db->reset();
  clear();
  return 0;
}
