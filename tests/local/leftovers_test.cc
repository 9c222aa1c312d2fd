// What programs leave outside their sandbox's directory that would belong to the next sandbox with their uid.
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "lib/text.h"
#include "tests/local/plugin.h"

namespace isogate::test {
namespace {

class LocalLeftovers : public Local {
 protected:
  void SetUp() override {
    if (!is_root_user()) GTEST_SKIP() << "an ordinary user's sandboxes have no uid of their own";
  }

  // What a program of the sandbox prints, word by word. call() is syscall(2), with -errno.
  static std::vector<std::string> python(Box& box, const std::string& code) {
    Exec exec;
    exec.argv = {"/usr/bin/python3", "-c",
                 "import ctypes,os\n"
                 "syscall=ctypes.CDLL(None,use_errno=True).syscall\n"
                 "syscall.restype=ctypes.c_long\n"
                 "def call(*given):\n"
                 "  result=syscall(*[ctypes.c_long(a) if isinstance(a,int) else a for a in given])\n"
                 "  return result if result>=0 else -ctypes.get_errno()\n" +
                     code};
    const Ran ran = box.run(exec);
    EXPECT_EQ(ran.result.exit_code, 0) << ran.error << ran.err;
    std::istringstream words(ran.out);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    return all;
  }
  static std::string call(long number, const std::string& arguments) {
    return "call(" + std::to_string(number) + "," + arguments + ")";
  }
  static bool has_keys(uint32_t uid) {
    std::ifstream users("/proc/key-users");
    std::ostringstream text;
    text << users.rdbuf();
    return line_field(text.str(), std::to_string(uid)).has_value();
  }

  Backend backend_{state_, "local"};
};

// Their modes permit nothing to anybody.
TEST_F(LocalLeftovers, APurgeRemovesItsSystemVObjectsAndNoOthers) {
  struct Objects {
    int memory = -1, given = -1, queue = -1, semaphores = -1;
    [[nodiscard]] std::string left() const {
      shmid_ds segment{};
      msqid_ds messages{};
      std::string all;
      if (::shmctl(memory, IPC_STAT, &segment) == 0) all += "memory ";
      if (::shmctl(given, IPC_STAT, &segment) == 0) all += "given ";
      if (::msgctl(queue, IPC_STAT, &messages) == 0) all += "queue ";
      if (::semctl(semaphores, 0, GETVAL) >= 0) all += "semaphores ";
      return all;
    }
  };
  const auto made_in = [](Box& box) {
    const std::string memory = call(SYS_shmget, "0,4096,0o1000"), queue = call(SYS_msgget, "0,0o1000"),
                      semaphores = call(SYS_semget, "0,1,0o1000");
    const auto ids = python(box, "print(" + memory + "," + memory + "," + queue + "," + semaphores + ")");
    Objects made;
    if (ids.size() == 4) made = {std::stoi(ids[0]), std::stoi(ids[1]), std::stoi(ids[2]), std::stoi(ids[3])};
    return made;
  };
  Box mine(backend_, 1, "mine"), other(backend_, 2, "other");
  const Objects purged = made_in(mine), kept = made_in(other);
  ASSERT_EQ(purged.left(), "memory given queue semaphores ");
  ASSERT_EQ(kept.left(), "memory given queue semaphores ");
  // Its creator may still use it.
  shmid_ds segment{};
  ASSERT_EQ(::shmctl(purged.given, IPC_STAT, &segment), 0);
  segment.shm_perm.uid = other.info.uid;
  ASSERT_EQ(::shmctl(purged.given, IPC_SET, &segment), 0);
  ASSERT_EQ(mine.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << mine.error;
  EXPECT_EQ(purged.left(), "memory given queue semaphores ") << "a stopped sandbox keeps its uid";
  ASSERT_TRUE(mine.open(mine.spec(ISOGATE_OPEN_KNOWN))) << mine.error;
  ASSERT_EQ(mine.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << mine.error;
  EXPECT_EQ(purged.left(), "");
  EXPECT_EQ(kept.left(), "memory given queue semaphores ");
  ASSERT_EQ(other.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << other.error;
  EXPECT_EQ(kept.left(), "");
}

TEST_F(LocalLeftovers, APurgeRemovesItsPosixMessageQueuesAndNoOthers) {
  const auto name_of = [](const Box& box) { return "isogate-" + box.id; };
  const auto is_there = [&](const std::string& name) {
    const Fd queue(static_cast<int>(::syscall(SYS_mq_open, name.c_str(), O_RDONLY | O_CLOEXEC, 0, nullptr)));
    EXPECT_TRUE(queue || errno == ENOENT) << errno;
    return static_cast<bool>(queue);
  };
  Box mine(backend_, 1, "mine"), other(backend_, 2, "other");
  for (Box* box : {&mine, &other}) {
    const auto made = python(
        *box, "print(" + call(SYS_mq_open, "b'" + name_of(*box) + "',os.O_CREAT|os.O_RDWR,0o600,None") + ")");
    ASSERT_EQ(made.size(), 1U);
    if (std::stoi(made[0]) == -ENOSYS) GTEST_SKIP() << "this kernel has no message queues";
    ASSERT_GE(std::stoi(made[0]), 0);
  }
  ASSERT_TRUE(is_there(name_of(mine)) && is_there(name_of(other)));
  ASSERT_EQ(mine.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << mine.error;
  EXPECT_FALSE(is_there(name_of(mine)));
  EXPECT_TRUE(is_there(name_of(other)));
  ASSERT_EQ(other.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << other.error;
  EXPECT_FALSE(is_there(name_of(other)));
}

TEST_F(LocalLeftovers, APurgeRemovesWhatItHasInSharedMemoryAndNothingOfOthers) {
  const auto place = [](const Box& box) { return "/dev/shm/isogate-" + box.id; };
  const auto is_there = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  Box mine(backend_, 1, "mine"), other(backend_, 2, "other");
  for (Box* box : {&mine, &other})
    ASSERT_EQ(box->sh("p=" + place(*box) +
                      "; echo secret > $p && mkdir -p $p.d/closed && echo secret > $p.d/closed/f && "
                      "chmod 0 $p.d/closed && ln -s / $p.link")
                  .result.exit_code,
              0);
  ASSERT_EQ(mine.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << mine.error;
  for (const char* suffix : {"", ".d", ".link"}) {
    EXPECT_FALSE(is_there(place(mine) + suffix)) << suffix;
    EXPECT_TRUE(is_there(place(other) + suffix)) << suffix;
  }
  ASSERT_EQ(other.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << other.error;
  EXPECT_FALSE(is_there(place(other)));
}

TEST_F(LocalLeftovers, ACancelledPurgeIsOverUnlessItsOwnSharedMemoryIsLeft) {
  const auto cancel = make_event();
  ASSERT_TRUE(cancel.ok());
  signal_event(cancel->get());
  Box mine(backend_, 1, "mine"), other(backend_, 2, "other");
  for (Box* box : {&mine, &other})
    ASSERT_EQ(box->sh("echo secret > /dev/shm/isogate-" + box->id).result.exit_code, 0);
  EXPECT_EQ(mine.close(ISOGATE_CLOSE_PURGE, cancel->get()), ISOGATE_CANCELLED);
  EXPECT_NE(registered_uids(state_).find(mine.id), std::string::npos);
  ASSERT_EQ(::unlink(("/dev/shm/isogate-" + mine.id).c_str()), 0);
  EXPECT_EQ(mine.close(ISOGATE_CLOSE_PURGE, cancel->get()), ISOGATE_OK) << mine.error;
  EXPECT_EQ(registered_uids(state_).find(mine.id), std::string::npos);
}

// In the user, user-session and persistent keyrings; the first lets its owner do nothing unless it possesses
// it.
TEST_F(LocalLeftovers, APurgeRemovesItsKeysAndNoOthers) {
  const std::string add = "print(*[" + call(SYS_add_key, "b'user',b'isogate-left',b'secret',6,ring") +
                          ">0 for ring in (-4,-5) + ((kept,) if kept>0 else ())]," +
                          call(SYS_keyctl, std::to_string(KEYCTL_SETPERM) + ",-4,0x3f000000") + ")\n";
  const std::string persistent =
      "kept=" + call(SYS_keyctl, std::to_string(KEYCTL_GET_PERSISTENT) + ",os.getuid(),-1") + "\n";
  const std::string find =
      "print(" + call(SYS_keyctl, std::to_string(KEYCTL_SEARCH) + ",-4,b'user',b'isogate-left',0") + ">0)";
  Box mine(backend_, 1, "mine"), other(backend_, 2, "other");
  for (Box* box : {&mine, &other}) {
    const auto made = python(*box, persistent + add);
    ASSERT_GE(made.size(), 3U);
    if (made[0] != "True") GTEST_SKIP() << "no keys can be made here";
    EXPECT_EQ(made.back(), "0");
    EXPECT_EQ(std::count(made.begin(), made.end(), "False"), 0);
    EXPECT_EQ(python(*box, find), std::vector<std::string>{"True"});
    ASSERT_TRUE(has_keys(box->info.uid));
  }
  ASSERT_EQ(mine.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << mine.error;
  EXPECT_FALSE(has_keys(mine.info.uid));
  EXPECT_EQ(python(other, find), std::vector<std::string>{"True"});
  ASSERT_EQ(other.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << other.error;
  EXPECT_FALSE(has_keys(other.info.uid));
}

// This process holds it in a keyring of its own.
TEST_F(LocalLeftovers, WhileAKeyStaysItsUidIsNotReleased) {
  Box box(backend_);
  const auto keyctl = [](long operation, const std::string& arguments) {
    return call(SYS_keyctl, std::to_string(operation) + "," + arguments);
  };
  const auto made =
      python(box, "key=" + call(SYS_add_key, "b'user',b'isogate-left',b'secret',6,-3") + "\nprint(key," +
                      keyctl(KEYCTL_SETPERM, "key,0x3f3f3f3f") + "," + keyctl(KEYCTL_LINK, "key,-4") + ")");
  ASSERT_EQ(made.size(), 3U);
  const int key = std::stoi(made[0]);
  if (key < 0) GTEST_SKIP() << "no keys can be made here";
  ASSERT_EQ(made[1] + made[2], "00");
  ASSERT_EQ(::syscall(SYS_keyctl, KEYCTL_LINK, key, KEY_SPEC_PROCESS_KEYRING), 0) << errno;
  const std::string registered = registered_uids(state_);
  EXPECT_EQ(box.close(ISOGATE_CLOSE_PURGE), ISOGATE_UNAVAILABLE);
  EXPECT_NE(box.error.find("keys"), std::string::npos) << box.error;
  EXPECT_EQ(registered_uids(state_), registered);
  EXPECT_EQ(box.sh("true").status, ISOGATE_NO_SANDBOX);
  ASSERT_EQ(::syscall(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_PROCESS_KEYRING), 0) << errno;
  EXPECT_EQ(box.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << box.error;
  EXPECT_EQ(registered_uids(state_), "");
}

}  // namespace
}  // namespace isogate::test
