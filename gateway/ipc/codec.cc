#include "gateway/ipc/codec.h"

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include "gateway/ipc/channel.h"
#include "lib/text.h"

namespace isogate::ipc {
namespace {

// Little-endian integers and length-prefixed strings. Writer and Reader remember the first failure, so that a
// message is one straight list of fields.
class Writer {
 public:
  template <typename Integer>
  void number(Integer value) {
    auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
    char raw[sizeof bits];
    for (size_t i = 0; i < sizeof bits; ++i)
      raw[i] = static_cast<char>(static_cast<uint64_t>(bits) >> (8 * i));
    out_.append(raw, sizeof raw);
  }

  void text(std::string_view value, size_t cap) {
    if (value.size() > cap) ok_ = false;
    if (!ok_) return;
    number(static_cast<uint32_t>(value.size()));
    out_.append(value);
  }

  void refuse() { ok_ = false; }
  void reserve(size_t bytes) { out_.reserve(bytes); }
  [[nodiscard]] size_t size() const { return out_.size(); }
  std::string take(size_t cap) { return ok_ && out_.size() <= cap ? std::move(out_) : std::string(); }

 private:
  std::string out_;
  bool ok_ = true;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  template <typename Integer>
  void number(Integer& value) {
    using Bits = std::make_unsigned_t<Integer>;
    std::string_view raw = take(sizeof(Bits));
    uint64_t bits = 0;
    for (size_t i = 0; i < raw.size(); ++i) bits |= uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    value = static_cast<Integer>(static_cast<Bits>(bits));
  }

  void text(std::string& value, size_t cap) {
    uint32_t size = 0;
    number(size);
    if (size > cap) refuse("a string over its cap");
    value.assign(take(size));
  }

  void refuse(const char* why) {
    if (why_ == nullptr) why_ = why;
    in_ = {};
  }

  // nullptr: everything was there and nothing is left over.
  [[nodiscard]] const char* failure() const {
    if (why_ != nullptr) return why_;
    return in_.empty() ? nullptr : "bytes after its end";
  }
  [[nodiscard]] bool ok() const { return why_ == nullptr; }
  [[nodiscard]] std::string_view rest() const { return in_; }

 private:
  std::string_view take(size_t bytes) {
    if (why_ != nullptr || bytes > in_.size()) {
      refuse("it ends too early");
      return {};
    }
    std::string_view taken = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return taken;
  }

  std::string_view in_;
  const char* why_ = nullptr;
};

constexpr uint8_t kVersion = 1;

// The type of a record: that of a call is its place in Call, from 1 on.
constexpr uint8_t kHello = 64, kReply = 65;

// One list of fields per struct serves both directions: `Wire` is Writer or Reader.
template <typename Wire, typename... Integers>
void numbers(Wire& wire, Integers&... values) {
  (wire.number(values), ...);
}

template <typename Wire, typename... Strings>
void names(Wire& wire, Strings&... values) {
  (wire.text(values, kMaxNameBytes), ...);
}

void fields_of_limits(Writer& wire, const Limits& limits) {
  const LimitList list = limits.list();
  wire.number(list.count);
  for (uint32_t i = 0; i < list.count; ++i) numbers(wire, list.items[i].id, list.items[i].value);
}

void fields_of_limits(Reader& wire, Limits& limits) {
  LimitList list;
  wire.number(list.count);
  if (list.count > list.items.size()) return wire.refuse("a count over its cap");
  for (uint32_t i = 0; i < list.count; ++i) numbers(wire, list.items[i].id, list.items[i].value);
  if (!wire.ok()) return;
  const auto taken = Limits::take(list.items.data(), list.count);
  const auto same = [](const isogate_limit& a, const isogate_limit& b) {
    return a.id == b.id && a.value == b.value;
  };
  // One encoding for one set: in the order of the table.
  if (!taken ||
      !std::equal(list.items.begin(), list.items.begin() + list.count, taken->list().items.begin(), same))
    return wire.refuse("limits that are unknown, 0 or out of order");
  limits = *taken;
}

template <typename Wire, typename Message>
void header(Wire& wire, Message& message) {
  numbers(wire, message.call.id, message.call.deadline_ns);
  names(wire, message.call.request_id);
}

// `each` has the fields of one item.
template <typename T, typename Each>
void list(Writer& wire, const std::vector<T>& items, Each each) {
  if (items.size() > kMaxItems) return wire.refuse();
  wire.number(static_cast<uint32_t>(items.size()));
  for (const T& item : items) each(item);
}

// Grows with the bytes present: a count alone allocates nothing.
template <typename T, typename Each>
void list(Reader& wire, std::vector<T>& items, Each each) {
  uint32_t count = 0;
  wire.number(count);
  if (count > kMaxItems) wire.refuse("a count over its cap");
  for (uint32_t i = 0; i < count && wire.ok(); ++i) each(items.emplace_back());
}

template <typename M, typename T>
concept Is = std::is_same_v<std::remove_const_t<M>, T>;

template <typename M>
concept HeaderOnly = Is<M, ProbeCall> || Is<M, PingCall> || Is<M, EnumerateCall>;

template <typename Wire, HeaderOnly M>
void fields(Wire& wire, M& message) {
  header(wire, message);
}

template <typename Wire, Is<OrphansCall> M>
void fields(Wire& wire, M& orphans) {
  header(wire, orphans);
  names(wire, orphans.sandbox_id);
  numbers(wire, orphans.flags);
}

template <typename Wire, Is<OpenCall> M>
void fields(Wire& wire, M& open) {
  header(wire, open);
  numbers(wire, open.flags, open.egress);
  names(wire, open.sandbox_id, open.tenant, open.agent_id, open.handle, open.image);
  fields_of_limits(wire, open.limits);
}

template <typename Wire, Is<CloseCall> M>
void fields(Wire& wire, M& close) {
  header(wire, close);
  names(wire, close.sandbox_id);
  numbers(wire, close.mode);
}

template <typename Wire, Is<ExecCall> M>
void fields(Wire& wire, M& exec) {
  header(wire, exec);
  names(wire, exec.sandbox_id, exec.exec_id, exec.user);
  wire.text(exec.cwd, kMaxPathBytes);
  numbers(wire, exec.flags, exec.rows, exec.cols);
  const auto text = [&wire](auto& each) { wire.text(each, kMaxRecordBytes); };
  list(wire, exec.argv, text);
  list(wire, exec.env, [&text](auto& each) {
    text(each.first);
    text(each.second);
  });
  fields_of_limits(wire, exec.limits);
  auto keep = static_cast<uint32_t>(exec.keep);
  numbers(wire, keep, exec.grace_sec);
  if (keep > static_cast<uint32_t>(Keep::kRejoin)) {
    if constexpr (std::is_same_v<Wire, Reader>) wire.refuse("an unknown way to keep it");
  }
  if constexpr (std::is_same_v<Wire, Reader>) exec.keep = static_cast<Keep>(keep);
}

template <typename Wire, Is<FileCall> M>
void fields(Wire& wire, M& file) {
  header(wire, file);
  auto verb = static_cast<uint32_t>(file.verb);
  wire.number(verb);
  if (verb > static_cast<uint32_t>(FileVerb::kWatch)) {
    if constexpr (std::is_same_v<Wire, Reader>) wire.refuse("an unknown verb");
  }
  if constexpr (std::is_same_v<Wire, Reader>) file.verb = static_cast<FileVerb>(verb);
  names(wire, file.sandbox_id, file.user);
  wire.text(file.path, kMaxPathBytes);
  wire.text(file.path_to, kMaxPathBytes);
  numbers(wire, file.scope, file.flags, file.mode, file.offset, file.limit);
}

template <typename Wire, Is<EvidenceCall> M>
void fields(Wire& wire, M& evidence) {
  header(wire, evidence);
  names(wire, evidence.sandbox_id, evidence.gateway_address);
  numbers(wire, evidence.gateway_port);
  wire.text(evidence.gateway_listeners, kMaxTextBytes);
}

template <typename Wire, Is<ConnectCall> M>
void fields(Wire& wire, M& connect) {
  header(wire, connect);
  names(wire, connect.sandbox_id);
  numbers(wire, connect.port);
}

template <typename Wire, Is<Hello> M>
void fields(Wire& wire, M& hello) {
  names(wire, hello.plugin_id, hello.plugin_version, hello.summary);
  numbers(wire, hello.isolation, hello.locality, hello.capabilities, hello.max_execs, hello.max_file_calls,
          hello.max_watches, hello.max_sandboxes, hello.max_connections);
}

template <typename Wire, Is<std::monostate> M>
void fields(Wire&, M&) {}

template <typename Wire, Is<Probe> M>
void fields(Wire& wire, M& probe) {
  numbers(wire, probe.verdict, probe.isolation, probe.locality, probe.capabilities);
  wire.text(probe.detail, kMaxTextBytes);
}

template <typename Wire, Is<Opened> M>
void fields(Wire& wire, M& opened) {
  numbers(wire, opened.flags, opened.isolation, opened.uid);
  names(wire, opened.handle);
}

template <typename Wire, Is<isogate_exec_result> M>
void fields(Wire& wire, M& end) {
  numbers(wire, end.flags, end.isolation, end.exit_code, end.term_signal, end.os_errno, end.wall_ns,
          end.cpu_ns, end.max_rss_bytes);
}

template <typename Wire, Is<Entry> M>
void fields(Wire& wire, M& entry) {
  numbers(wire, entry.type, entry.mode, entry.size, entry.mtime_ns);
  wire.text(entry.name, kMaxPathBytes);
}

template <typename Wire, Is<Written> M>
void fields(Wire& wire, M& written) {
  numbers(wire, written.bytes);
}

template <typename Wire, Is<isogate_disk_use> M>
void fields(Wire& wire, M& use) {
  numbers(wire, use.flags, use.used_bytes, use.limit_bytes, use.used_files, use.limit_files);
}

template <typename Wire, Is<Found> M>
void fields(Wire& wire, M& found) {
  names(wire, found.sandbox_id, found.handle);
  numbers(wire, found.flags);
}

template <typename Wire, Is<isogate_evidence> M>
void fields(Wire& wire, M& e) {
  numbers(wire, e.flags, e.uid, e.gid, e.no_new_privs, e.seccomp_mode, e.cap_inheritable, e.cap_permitted,
          e.cap_effective, e.cap_bounding, e.cap_ambient, e.ns_mnt, e.ns_pid, e.ns_net, e.ns_ipc, e.ns_uts,
          e.ns_user, e.ns_cgroup, e.visible_processes);
  Limits limits = Limits::of(e);
  fields_of_limits(wire, limits);
  if constexpr (std::is_same_v<Wire, Reader>) limits.put(e);
  for (auto& character : e.boot_id) wire.number(character);
}

using Slots = std::array<Fd*, kMaxRecordFds>;  // in the order of messages.h; nullptr: not in this struct

Slots slots(ProbeCall& m) { return {&m.call.cancel}; }
Slots slots(PingCall& m) { return {&m.call.cancel}; }
Slots slots(OpenCall& m) { return {&m.call.cancel}; }
Slots slots(CloseCall& m) { return {&m.call.cancel}; }
Slots slots(EnumerateCall& m) { return {&m.call.cancel, &m.out}; }
Slots slots(OrphansCall& m) { return {&m.call.cancel, &m.out}; }
Slots slots(ExecCall& m) {
  return {&m.call.cancel, &m.std_in, &m.std_out, &m.std_err, &m.control, &m.detach, &m.input_end, &m.state};
}
Slots slots(FileCall& m) { return {&m.call.cancel, &m.body, &m.complete}; }
Slots slots(EvidenceCall& m) { return {&m.call.cancel}; }
Slots slots(ConnectCall& m) { return {&m.call.cancel, &m.stream, &m.ready}; }

void begin(Writer& wire, uint8_t type) {
  wire.reserve(512);
  numbers(wire, kVersion, type);
}

Error malformed(const char* why) { return invalid(std::string("a record is malformed: ") + why); }

template <typename T>
Result<Call> read_message(Reader& wire, std::span<Fd> fds) {
  T message;
  uint8_t present = 0;
  wire.number(present);
  size_t next = 0;
  Slots all = slots(message);
  for (size_t i = 0; i < 8; ++i) {
    if ((present >> i & 1) == 0) continue;
    if (i >= all.size() || all[i] == nullptr) return malformed("a descriptor that its type has not");
    if (next == fds.size()) return malformed("fewer descriptors than announced");
    *all[i] = std::move(fds[next++]);
  }
  if (next != fds.size()) return malformed("more descriptors than announced");
  fields(wire, message);
  if (const char* why = wire.failure()) return malformed(why);
  return Call(std::move(message));
}

template <size_t I = 0>
Result<Call> read_call(Reader& wire, std::span<Fd> fds, size_t index) {
  if constexpr (I == std::variant_size_v<Call>)
    return malformed("an unknown type");
  else if (index == I)
    return read_message<std::variant_alternative_t<I, Call>>(wire, fds);
  else
    return read_call<I + 1>(wire, fds, index);
}

template <size_t I = 0>
void read_value(Reader& wire, uint8_t index, decltype(Reply::value)& value) {
  if constexpr (I == std::variant_size_v<decltype(Reply::value)>) {
    wire.refuse("an unknown kind of value");
  } else if (index == I) {
    fields(wire, value.template emplace<I>());
  } else {
    read_value<I + 1>(wire, index, value);
  }
}

// Numbers of the ABI that select a case: an unknown one is nobody's to guess.
const char* implausible(const Reply& reply) {
  if (reply.status < ISOGATE_OK || reply.status > ISOGATE_NO_SANDBOX) return "an unknown status";
  bool has_value = !std::holds_alternative<std::monostate>(reply.value);
  if (reply.status != ISOGATE_OK && has_value) return "a failure with a value";
  if (reply.status == ISOGATE_OK && !reply.message.empty()) return "a success with a message";
  if (const auto* probe = std::get_if<Probe>(&reply.value))
    if (probe->verdict < ISOGATE_PROBE_AVAILABLE || probe->verdict > ISOGATE_PROBE_UNAVAILABLE)
      return "an unknown verdict";
  if (const auto* entry = std::get_if<Entry>(&reply.value))
    if (entry->type < ISOGATE_ENTRY_REGULAR || entry->type > ISOGATE_ENTRY_OTHER)
      return "an unknown type of file";
  if (const auto* end = std::get_if<isogate_exec_result>(&reply.value)) {
    const bool exited = end->term_signal == 0;
    if (exited ? end->exit_code < 0 || end->exit_code > 255 : end->term_signal < 0 || end->term_signal > 64)
      return "an end that no program can have";
    if (std::max({end->wall_ns, end->cpu_ns, end->max_rss_bytes}) > INT64_MAX)
      return "a number that no program can have";
  }
  return nullptr;
}

Result<FromHost> read_reply(Reader& wire) {
  Reply reply;
  uint8_t kind = 0;
  numbers(wire, reply.id, reply.status, reply.os_errno);
  wire.text(reply.message, kMaxTextBytes);
  wire.number(kind);
  read_value(wire, kind, reply.value);
  if (const char* why = wire.failure()) return malformed(why);
  if (const char* why = implausible(reply)) return malformed(why);
  return FromHost(std::move(reply));
}

// An item is its length and its fields.
template <typename T>
std::string item(const T& value) {
  Writer body;
  fields(body, value);
  Writer whole;
  whole.text(body.take(kMaxItemBytes), kMaxItemBytes);
  return whole.size() > sizeof(uint32_t) ? whole.take(kMaxItemBytes + sizeof(uint32_t)) : std::string();
}

template <typename T>
Result<std::optional<T>> take_item(std::string_view& bytes) {
  Reader outer(bytes);
  uint32_t size = 0;
  outer.number(size);
  if (!outer.ok()) return std::optional<T>();
  if (size == 0 || size > kMaxItemBytes) return malformed("an item over its cap");
  if (outer.rest().size() < size) return std::optional<T>();
  Reader wire(outer.rest().substr(0, size));
  T value;
  fields(wire, value);
  if (const char* why = wire.failure()) return malformed(why);
  bytes.remove_prefix(sizeof size + size);
  return std::optional<T>(std::move(value));
}

}  // namespace

Encoded encode(const Call& call) {
  return std::visit(
      [&call](const auto& message) {
        using T = std::decay_t<decltype(message)>;
        Encoded encoded;
        Writer wire;
        begin(wire, static_cast<uint8_t>(call.index() + 1));
        uint8_t present = 0;
        Slots all = slots(const_cast<T&>(message));  // looked at, not changed
        for (size_t i = 0; i < all.size(); ++i) {
          if (all[i] == nullptr || !*all[i]) continue;
          present = static_cast<uint8_t>(present | 1u << i);
          encoded.fds.push_back(all[i]->get());
        }
        wire.number(present);
        fields(wire, message);
        encoded.bytes = wire.take(kMaxRecordBytes);
        return encoded;
      },
      call);
}

Encoded encode(const Hello& hello) {
  Writer wire;
  begin(wire, kHello);
  fields(wire, hello);
  return {wire.take(kMaxRecordBytes), {}};
}

Encoded encode(const Reply& reply) {
  Writer wire;
  begin(wire, kReply);
  numbers(wire, reply.id, reply.status, reply.os_errno);
  wire.text(reply.message, kMaxTextBytes);
  wire.number(static_cast<uint8_t>(reply.value.index()));
  std::visit([&wire](const auto& value) { fields(wire, value); }, reply.value);
  return {wire.take(kMaxRecordBytes), {}};
}

uint64_t call_id(std::string_view bytes) {
  Reader wire(bytes);
  uint8_t version = 0, type = 0, descriptors = 0;
  uint64_t id = 0;
  static_assert(sizeof version + sizeof type + sizeof descriptors + sizeof id == kBeginBytes);
  numbers(wire, version, type, descriptors, id);
  return wire.ok() && version == kVersion ? id : 0;
}

Result<Call> decode_call(std::string_view bytes, std::vector<Fd> fds) {
  if (bytes.size() > kMaxRecordBytes) return malformed("over its cap");
  if (fds.size() > kMaxRecordFds) return malformed("too many descriptors");
  Reader wire(bytes);
  uint8_t version = 0;
  uint8_t type = 0;
  numbers(wire, version, type);
  if (wire.ok() && version != kVersion) return malformed("an unknown version");
  return read_call(wire, fds, size_t{type} - 1);
}

Result<FromHost> decode_from_host(std::string_view bytes) {
  if (bytes.size() > kMaxRecordBytes) return malformed("over its cap");
  Reader wire(bytes);
  uint8_t version = 0;
  uint8_t type = 0;
  numbers(wire, version, type);
  if (wire.ok() && version != kVersion) return malformed("an unknown version");
  if (type == kReply) return read_reply(wire);
  if (type != kHello) return malformed("an unknown type");
  Hello hello;
  fields(wire, hello);
  if (const char* why = wire.failure()) return malformed(why);
  return FromHost(std::move(hello));
}

std::string encode_item(const Entry& entry) { return item(entry); }
std::string encode_item(const Found& found) { return item(found); }

Result<std::optional<Entry>> take_entry(std::string_view& bytes) {
  std::string_view after = bytes;
  auto entry = take_item<Entry>(after);
  if (entry.ok() && entry->has_value() &&
      ((*entry)->type < ISOGATE_ENTRY_REGULAR || (*entry)->type > ISOGATE_ENTRY_OTHER))
    return malformed("an unknown type of file");
  if (entry.ok() && entry->has_value() && !is_path_below((*entry)->name))
    return malformed("a name that is not inside the directory");
  if (entry.ok()) bytes = after;
  return entry;
}

Result<std::optional<Found>> take_found(std::string_view& bytes) { return take_item<Found>(bytes); }

}  // namespace isogate::ipc
