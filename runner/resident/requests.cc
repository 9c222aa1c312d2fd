#include "runner/resident/requests.h"

namespace isogate::resident {
namespace {

class Strings {
 public:
  explicit Strings(std::string_view bytes) : bytes_(bytes) {}
  std::string next() {
    uint32_t length = 0;
    if (bytes_.size() < sizeof length) return fail();
    bytes_.copy(reinterpret_cast<char*>(&length), sizeof length);
    bytes_.remove_prefix(sizeof length);
    if (length > bytes_.size()) return fail();
    std::string text(bytes_.substr(0, length));
    bytes_.remove_prefix(length);
    return text;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool complete() const { return good_ && bytes_.empty(); }

 private:
  std::string fail() {
    good_ = false;
    bytes_ = {};
    return {};
  }
  std::string_view bytes_;
  bool good_ = true;
};

constexpr uint32_t kExecFlags = ISOGATE_RUNNER_EXEC_PTY | ISOGATE_RUNNER_EXEC_STDIN |
                                ISOGATE_RUNNER_EXEC_STDOUT | ISOGATE_RUNNER_EXEC_STDERR;

}  // namespace

bool parse_exec(std::string_view payload, ExecOrder& order) {
  if (payload.size() < sizeof order.head) return false;
  order.head = head_of<isogate_runner_exec>(payload);
  if ((order.head.flags & ~kExecFlags) != 0) return false;
  Strings strings(payload.substr(sizeof order.head));
  order.cwd = strings.next();
  order.user = strings.next();
  order.too_many = uint64_t{order.head.argc} + 2 * uint64_t{order.head.envc} > kMaxStrings;
  if (order.too_many) return strings.good();
  for (uint32_t i = 0; i < order.head.argc && strings.good(); ++i) order.argv.push_back(strings.next());
  for (uint32_t i = 0; i < order.head.envc && strings.good(); ++i) {
    std::string key = strings.next();
    order.env.emplace_back(std::move(key), strings.next());
  }
  return strings.complete();
}

bool parse_file(std::string_view payload, FileOrder& order) {
  if (payload.size() < sizeof order.head) return false;
  order.head = head_of<isogate_runner_file>(payload);
  Strings strings(payload.substr(sizeof order.head));
  order.path = strings.next();
  order.path_to = strings.next();
  order.user = strings.next();
  return strings.complete() && order.head.verb >= ISOGATE_RUNNER_READ &&
         order.head.verb <= ISOGATE_RUNNER_REMOVE;
}

bool parse_measure(std::string_view payload, MeasureOrder& order) {
  if (payload.size() < sizeof order.head) return false;
  order.head = head_of<isogate_runner_measure>(payload);
  Strings strings(payload.substr(sizeof order.head));
  order.gateway_address = strings.next();
  if (!strings.complete()) order.listeners = strings.next();
  return strings.complete() && order.head.gateway_port <= 0xffff;
}

}  // namespace isogate::resident
