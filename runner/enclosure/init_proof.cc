#include "runner/enclosure/init_proof.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "runner/enclosure/measure_portrait.h"

namespace isogate {
namespace {

enum { kMounts, kPids, kNetwork, kIpc, kHostName, kUsers, kGroups };  // in kNamespaces

constexpr const char* kNames[7] = {"mount", "pid", "network", "ipc", "uts", "user", "cgroup"};

}  // namespace

Result<FileMark> mark_of(int directory, const char* path) {
  struct statx info {};
  if (::statx(directory, path, AT_EMPTY_PATH, STATX_INO, &info) != 0)
    return os_error("cannot look at a part of the sandbox", errno);
  return FileMark{uint64_t{info.stx_dev_major} << 32 | info.stx_dev_minor, info.stx_ino};
}

Result<EnclosureMarks> marks_of(int mounts, int network, int user) {
  EnclosureMarks marks;
  for (int i = 0; i < 7; ++i) {
    auto own = mark_of(AT_FDCWD, kNamespaces[i]);
    if (!own) return own.error();
    marks.host[i] = own->inode;
  }
  marks.user = marks.host[kUsers];
  const std::pair<int, uint64_t*> entered[] = {
      {mounts, &marks.mounts}, {network, &marks.network}, {user, &marks.user}};
  for (const auto& [descriptor, inode] : entered) {
    if (descriptor < 0 && inode == &marks.user) continue;
    auto mark = mark_of(descriptor, "");
    if (!mark) return mark.error();
    *inode = mark->inode;
  }
  return marks;
}

Result<void> check_proof(const InitProof& proof, const EnclosureMarks& marks, uint32_t uid, uint32_t gid) {
  std::string wrong;
  const auto say = [&](bool is_wrong, const std::string& what) {
    if (is_wrong) wrong += (wrong.empty() ? "" : ", ") + what;
  };
  for (int i = 0; i < 7; ++i) {
    say(proof.namespaces[i] == 0, std::string("an unknown ") + kNames[i] + " namespace");
    if (i != kUsers)
      say(proof.namespaces[i] == marks.host[i], std::string("this host's ") + kNames[i] + " namespace");
  }
  say(proof.namespaces[kMounts] == marks.mounts, "the mount namespace that others are copied from");
  say(proof.namespaces[kNetwork] != marks.network, "a network namespace that is not the sandbox's");
  say(proof.namespaces[kUsers] != marks.user, "a user namespace that is not the sandbox's");
  say(proof.root != marks.root, "a root directory that is not the sandbox's");
  say(proof.workspace != marks.workspace, "a workspace that is not the sandbox's");
  say(proof.capabilities != 0, "capabilities");
  say(proof.no_new_privs != 1, "no no_new_privs");
  say(proof.seccomp_mode != 2, "no system call filter");
  say(proof.uid != uid, "uid " + std::to_string(proof.uid));
  say(proof.gid != gid, "gid " + std::to_string(proof.gid));
  if (wrong.empty()) return {};
  return Error{ISOGATE_INTERNAL, 0, "nothing was started: the init made for the program has " + wrong};
}

}  // namespace isogate
