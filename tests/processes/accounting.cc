#include "tests/processes/accounting.h"

#include <sys/acct.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace isogate::test {

Accounting::Accounting() : path_(directory_.file("acct", "", 0600)) {
  if (::acct(path_.c_str()) != 0)
    obstacle_ = std::string("process accounting cannot be switched on: ") + std::strerror(errno);
  else
    running_ = true;
}

Accounting::~Accounting() {
  if (running_) ::acct(nullptr);
}

std::vector<EndedProcess> Accounting::stop() {
  if (running_) ::acct(nullptr);
  running_ = false;
  const std::string bytes = read_whole(path_);
  std::vector<EndedProcess> ended;
  for (size_t at = 0; at + sizeof(acct_v3) <= bytes.size(); at += sizeof(acct_v3)) {
    acct_v3 record;
    std::memcpy(&record, bytes.data() + at, sizeof record);
    ended.push_back({static_cast<pid_t>(record.ac_pid), static_cast<pid_t>(record.ac_ppid),
                     std::string(record.ac_comm, ::strnlen(record.ac_comm, sizeof record.ac_comm))});
  }
  return ended;
}

}  // namespace isogate::test
