// One of each message with a different value in every field, and a way to compare two.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gateway/ipc/codec.h"

namespace isogate::ipc {

inline int open_descriptors() {
  std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir("/proc/self/fd"), &::closedir);
  int count = 0;
  while (::readdir(listing.get()) != nullptr) ++count;
  return count;
}

inline Fd event() { return std::move(*make_event()); }

inline CallHeader sample_header() {
  CallHeader header;
  header.id = 0x1122334455667788;
  header.deadline_ns = -5;
  header.request_id = "req-1";
  header.cancel = event();
  return header;
}

inline std::vector<Call> sample_calls() {
  std::vector<Call> calls;
  calls.emplace_back(ProbeCall{sample_header()});
  calls.emplace_back(PingCall{sample_header()});
  calls.emplace_back(OpenCall{sample_header(),
                              1,
                              2,
                              "isg-id",
                              "tenant",
                              "agent",
                              "handle",
                              "team/tools:1",
                              {{ISOGATE_LIMIT_MEMORY_BYTES, 1}, {ISOGATE_LIMIT_PIDS, 3}}});
  calls.emplace_back(CloseCall{sample_header(), "isg-id", ISOGATE_CLOSE_PURGE});
  calls.emplace_back(EnumerateCall{sample_header(), event()});
  calls.emplace_back(OrphansCall{sample_header(), "", 0, event()});
  calls.emplace_back(OrphansCall{sample_header(), "isg-id", 0, Fd()});
  ExecCall exec;
  exec.call = sample_header();
  exec.sandbox_id = "isg-id";
  exec.exec_id = std::string(32, 'a');
  exec.cwd = std::string("a\0b\xff", 4);
  exec.user = "root";
  exec.flags = ISOGATE_EXEC_PTY;
  exec.rows = 25;
  exec.cols = 65535;
  exec.argv = {"sh", "", std::string("\0\n", 2)};
  exec.env = {{"A", "1"}, {"B", ""}};
  exec.limits = {{ISOGATE_LIMIT_MEMORY_BYTES, 1ull << 63},
                 {ISOGATE_LIMIT_CPU_MILLIS, 5},
                 {ISOGATE_LIMIT_PIDS, 6},
                 {ISOGATE_LIMIT_DISK_BYTES, 7}};
  exec.std_in = event();
  exec.std_err = event();  // stdout and control are absent
  calls.emplace_back(std::move(exec));
  for (uint32_t verb = 0; verb <= static_cast<uint32_t>(FileVerb::kWatch); ++verb)
    calls.emplace_back(FileCall{{"a/b", "c", "user", 1, 63, 0777, UINT64_MAX, 9},
                                sample_header(),
                                static_cast<FileVerb>(verb),
                                "isg-id",
                                verb % 2 == 0 ? event() : Fd()});
  calls.emplace_back(EvidenceCall{sample_header(), "isg-id", "192.0.2.1", 9090});
  calls.emplace_back(ConnectCall{sample_header(), "isg-id", 8080, event(), event()});
  return calls;
}

inline std::vector<Reply> sample_replies() {
  isogate_evidence evidence{};
  evidence.flags = 3;
  evidence.uid = 10001;
  evidence.gid = 10002;
  evidence.no_new_privs = 1;
  evidence.seccomp_mode = 2;
  evidence.cap_bounding = 1ull << 40;
  evidence.ns_cgroup = 4026531835;
  evidence.visible_processes = 2;
  std::strcpy(evidence.boot_id, "4e2b6a52-9a51-4f39-8c8b-0d6a5d2c7f10");
  Limits({{ISOGATE_LIMIT_MEMORY_BYTES, 9},
          {ISOGATE_LIMIT_CPU_MILLIS, 8},
          {ISOGATE_LIMIT_PIDS, 7},
          {ISOGATE_LIMIT_DISK_BYTES, 6}})
      .put(evidence);
  std::vector<Reply> replies;
  replies.push_back({1, ISOGATE_OK, 0, "", {}});
  replies.push_back({2, ISOGATE_NOT_FOUND, 2, "no such file", {}});
  replies.push_back({3, ISOGATE_OK, 0, "", Probe{2, 10, 2, 1ull << 63, "without cgroups"}});
  replies.push_back({4, ISOGATE_OK, 0, "", Opened{1, 10, 10001, "handle"}});
  replies.push_back({5, ISOGATE_OK, 0, "", isogate_exec_result{0, 7, 9, 13, 1, 124, 2, 3}});
  replies.push_back({6, ISOGATE_OK, 0, "", Entry{1, 0644, 5, -1, "name"}});
  replies.push_back({7, ISOGATE_OK, 0, "", Written{1ull << 40}});
  replies.push_back({8, ISOGATE_OK, 0, "", evidence});
  return replies;
}

// Duplicates, as the kernel would deliver them.
inline std::vector<Fd> duplicates(const std::vector<int>& fds) {
  std::vector<Fd> copies;
  for (int fd : fds) copies.emplace_back(::dup(fd));
  return copies;
}

}  // namespace isogate::ipc
