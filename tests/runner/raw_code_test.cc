// Raw code is self-contained: no libc, no sanitizer, no stack protector, no writable data.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <set>
#include <sstream>

#include "tests/runner/box.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

const std::set<std::string> kRawObjects = {"enclosure_child.cc.o", "measure_child.cc.o", "pty_pump.cc.o",
                                           "spawn_child.cc.o",     "spawn_clone.cc.o",   "reaper.cc.o",
                                           "reaper_watch.cc.o",    "tree.cc.o"};

TEST(RawCodeTest, calls_nothing_but_itself) {
  FILE* const pipe = ::popen("nm " ISOGATE_BUILD_DIR
                             "/runner/libisogate_runner.a"
                             " 2>/dev/null",
                             "r");
  ASSERT_NE(pipe, nullptr);
  std::string object;
  std::set<std::string> seen, defined, needed, writable;
  char line[4096];
  while (::fgets(line, sizeof line, pipe) != nullptr) {
    std::istringstream words(line);
    std::vector<std::string> w{std::istream_iterator<std::string>(words), {}};
    if (w.size() == 1 && w[0].ends_with(".o:")) object = w[0].substr(0, w[0].size() - 1);
    if (w.size() < 2 || kRawObjects.count(object) == 0) continue;
    seen.insert(object);
    const std::string kind = w[w.size() - 2], name = w.back();
    if (kind == "U") {
      needed.insert(name);
    } else {
      defined.insert(name);
      if (kind == "B" || kind == "b" || kind == "D" || kind == "C") writable.insert(name);
    }
  }
  ASSERT_EQ(::pclose(pipe), 0) << "nm (binutils) is needed";
  EXPECT_EQ(seen, kRawObjects);
  EXPECT_TRUE(writable.empty()) << *writable.begin();
  for (const auto& name : needed) {
    EXPECT_TRUE(defined.count(name) == 1 || name == "_GLOBAL_OFFSET_TABLE_") << name;
  }
}

// Like the default filters of container engines, so that libc falls back to clone.
bool forbid_clone3() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {4, code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(RawCodeTest, works_where_clone3_is_filtered) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!forbid_clone3()) ::_exit(1);
    const auto runner = Runner::make({});
    if (runner->abilities().tree_kill != "reaper") ::_exit(2);
    if (runner->abilities().missing.find("leaf") == std::string::npos) ::_exit(3);
    const std::string mark = new_mark();
    const auto output = run_captured(*runner, shell("sleep 100 & setsid sleep 100 & exit 11", mark));
    if (!output.ending || output.ending->exit_code != 11) ::_exit(4);
    if (!marked(mark).empty()) ::_exit(5);
    if (!runner->measure(Site::host(), {}, {})) ::_exit(6);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

}  // namespace
}  // namespace isogate::test
