#include "gateway/base/process_status.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "lib/fd.h"
#include "lib/text.h"

namespace isogate {
namespace {

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  std::vector<uint64_t> numbers(std::string_view key, int base) {
    std::vector<uint64_t> found;
    const auto value = line_field(text_, key);
    if (!value) missing_ = key;
    for (std::string_view rest = value.value_or(""); !rest.empty(); rest = trimmed(rest)) {
      const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
      const auto number = number_in<uint64_t>(word, base);
      if (!number) missing_ = key;
      found.push_back(number.value_or(0));
      rest.remove_prefix(word.size());
    }
    return found;
  }

  uint64_t number(std::string_view key, int base) {
    const std::vector<uint64_t> all = numbers(key, base);
    if (all.size() != 1) missing_ = key;
    return all.empty() ? 0 : all[0];
  }

  [[nodiscard]] std::string_view missing() const { return missing_; }

 private:
  std::string_view text_, missing_;
};

void ids_into(const std::vector<uint64_t>& from, std::array<uint32_t, 4>* to) {
  for (size_t i = 0; i < to->size(); ++i) (*to)[i] = i < from.size() ? static_cast<uint32_t>(from[i]) : 0;
}

}  // namespace

Result<ProcessStatus> read_process_status() {
  const Fd file(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  if (!file) return os_error("cannot open /proc/self/status", errno);
  auto text = read_to_end(file.get(), 1 << 20, "cannot read /proc/self/status");
  if (!text) return text.error();
  Lines lines(*text);
  ProcessStatus status;
  ids_into(lines.numbers("Uid", 10), &status.uids);
  ids_into(lines.numbers("Gid", 10), &status.gids);
  for (uint64_t group : lines.numbers("Groups", 10)) status.groups.push_back(static_cast<uint32_t>(group));
  std::sort(status.groups.begin(), status.groups.end());
  status.inheritable = lines.number("CapInh", 16);
  status.permitted = lines.number("CapPrm", 16);
  status.effective = lines.number("CapEff", 16);
  status.bounding = lines.number("CapBnd", 16);
  status.ambient = lines.number("CapAmb", 16);
  status.no_new_privs = lines.number("NoNewPrivs", 10) == 1;
  status.seccomp = static_cast<uint32_t>(lines.number("Seccomp", 10));
  status.threads = static_cast<uint32_t>(lines.number("Threads", 10));
  if (!lines.missing().empty())
    return Error{ISOGATE_INTERNAL, 0,
                 "cannot determine the privileges of this process: /proc/self/status has no readable line `" +
                     std::string(lines.missing()) + "`"};
  return status;
}

}  // namespace isogate
