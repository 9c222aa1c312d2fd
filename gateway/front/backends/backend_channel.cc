#include "gateway/front/backends/backend_channel.h"

#include <fcntl.h>
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>
#include <map>

#include "gateway/base/budgets.h"
#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr size_t kRecordsPerTurn = 64;  // a host that sends without end does not hold up the front
// Abandoned calls of execs and files after which a host is stuck, and how many of them may be one tenant's.
constexpr size_t kMostAbandoned = 16, kMostOfOneTenant = 8;
constexpr std::chrono::seconds kSilence{30};  // without any record, beside a probe that does not end
static_assert(Cancel::kReleaseWithin == budget::kReturn);

template <typename Message, size_t I = 0>
constexpr size_t kind_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<I, ipc::Call>, Message>)
    return I;
  else
    return kind_of<Message, I + 1>();
}
constexpr size_t kProbe = kind_of<ipc::ProbeCall>(), kOpen = kind_of<ipc::OpenCall>(),
                 kClose = kind_of<ipc::CloseCall>(), kExec = kind_of<ipc::ExecCall>(),
                 kEvidence = kind_of<ipc::EvidenceCall>(), kPing = kind_of<ipc::PingCall>(),
                 kConnect = kind_of<ipc::ConnectCall>();

// Empty: it is of no sandbox.
std::string sandbox_of(const ipc::Call& call) {
  return std::visit(
      [](const auto& each) -> std::string {
        if constexpr (requires { each.sandbox_id; })
          return each.sandbox_id;
        else
          return {};
      },
      call);
}

std::chrono::seconds longest(const ipc::Call& call) {
  if (call.index() == kProbe || call.index() == kPing) return budget::kProbe;
  if (call.index() == kClose) return budget::kClose;
  if (const auto* orphans = std::get_if<ipc::OrphansCall>(&call))
    return orphans->sandbox_id.empty() ? budget::kMeasure : budget::kClose;
  if (call.index() == kEvidence || std::holds_alternative<ipc::EnumerateCall>(call)) return budget::kMeasure;
  if (const auto* file = std::get_if<ipc::FileCall>(&call))
    return file->verb == ipc::FileVerb::kDiskUse ? budget::kDiskUse : budget::kMeasure;
  const auto* open = std::get_if<ipc::OpenCall>(&call);
  if (open != nullptr && (open->flags & ISOGATE_OPEN_RUNNING_ONLY) != 0) return budget::kMeasure;
  return budget::kOpen;
}

// Whether a success carries what its call asked for.
bool fits(size_t kind, std::optional<ipc::FileVerb> verb, const ipc::Reply& reply) {
  if (reply.status != ISOGATE_OK) return true;
  const auto& value = reply.value;
  if (kind == kProbe) return std::holds_alternative<ipc::Probe>(value);
  if (kind == kOpen) return std::holds_alternative<ipc::Opened>(value);
  if (kind == kExec) return std::holds_alternative<isogate_exec_result>(value);
  if (kind == kEvidence) return std::holds_alternative<isogate_evidence>(value);
  if (verb == ipc::FileVerb::kRead || verb == ipc::FileVerb::kStat)
    return std::holds_alternative<ipc::Entry>(value);
  if (verb == ipc::FileVerb::kWrite) return std::holds_alternative<ipc::Written>(value);
  if (verb == ipc::FileVerb::kDiskUse) return std::holds_alternative<isogate_disk_use>(value);
  return std::holds_alternative<std::monostate>(value);
}

// Of a call that ends: it is empty if it was sent.
struct GiveBack {
  ipc::Call& call;
  ipc::Call* to;
  ~GiveBack() {
    if (to != nullptr && call.index() != 0) *to = std::move(call);
  }
};

// Whether a call of this kind is among them.
bool has_call(const auto& calls, size_t kind) {
  return std::any_of(calls.begin(), calls.end(),
                     [kind](const auto& each) { return each.second->kind == kind; });
}

ipc::Reply failure(uint64_t id, isogate_status status, std::string message, int os_errno = 0) {
  ipc::Reply reply;
  reply.id = id;
  reply.status = status;
  reply.os_errno = os_errno;
  reply.message = std::move(message);
  return reply;
}

ipc::Reply out_of_descriptors(uint64_t id) {
  return failure(id, ISOGATE_RESOURCE_EXHAUSTED, "the gateway lacks descriptors or memory: try again",
                 EMFILE);
}

// A shortage is this process's own, and passes: the backend is not at fault.
ipc::Reply not_sent(uint64_t id, const Error& why) {
  log::error("backend_send_failed", {{"reason", why.message}});
  if (ipc::is_shortage(why.os_errno)) return out_of_descriptors(id);
  return failure(id, ISOGATE_UNAVAILABLE, "the backend host could not be reached");
}

}  // namespace

BackendChannel::BackendChannel(asio::any_io_executor executor, Fd socket, HostIdentity identity)
    : executor_(std::move(executor)), socket_(executor_, socket.release()), identity_(std::move(identity)) {
  socket_.native_non_blocking(true);
}

void BackendChannel::start(HelloCallback on_hello, EndCallback on_end) {
  on_hello_ = std::move(on_hello);
  on_end_ = std::move(on_end);
  asio::co_spawn(executor_, receive_loop(shared_from_this()), asio::detached);
}

// Each record answers a call, or ends the channel: there are no more of them than calls.
void BackendChannel::host_ended() {
  const auto self = shared_from_this();
  while (open_ && receive_one()) {
  }
  end();
}

asio::awaitable<void> BackendChannel::receive_loop(Self) {
  while (open_) {
    boost::system::error_code error;
    co_await socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
    for (size_t i = 0; i < kRecordsPerTurn && open_ && receive_one(); ++i) {
    }
  }
  end();
}

// True when there may be more.
bool BackendChannel::receive_one() {
  const auto received = ipc::receive_bytes(socket_.native_handle(), ipc::Wait::kDont);
  if (!received && received.error().os_errno == EAGAIN) return false;
  if (!received && received.error().os_errno != 0) {
    open_ = false;
    return false;
  }
  last_record_ = Clock::now();
  auto message = received ? ipc::decode_from_host(*received) : Result<ipc::FromHost>(received.error());
  const auto breach = message ? take(std::move(*message)) : message.error().message;
  if (!breach) return open_;
  log::error("backend_record_refused", {{"generation", identity_.generation}, {"reason", *breach}});
  give_up("it broke the protocol: " + *breach);
  return false;
}

// What is wrong with it, if anything is.
std::optional<std::string> BackendChannel::take(ipc::FromHost message) {
  const auto* hello = std::get_if<ipc::Hello>(&message);
  if (hello_came_ == (hello != nullptr)) return hello_came_ ? "a second hello" : "an answer before its hello";
  if (hello != nullptr) {
    hello_came_ = true;
    on_hello_(*hello);
    return std::nullopt;
  }
  auto& reply = std::get<ipc::Reply>(message);
  if (abandoned_.erase(reply.id) > 0) return std::nullopt;
  const auto found = pending_.find(reply.id);
  if (found == pending_.end() || !found->second->sent)
    return "an answer to no call (did the plugin fork, and did its child return?)";
  if (!fits(found->second->kind, found->second->verb, reply)) return "an answer to another kind of call";
  probed_ = probed_ || found->second->kind == kProbe;
  const uint64_t id = reply.id;
  answer(id, std::move(reply));
  close_if_idle();
  return std::nullopt;
}

void BackendChannel::answer(uint64_t id, ipc::Reply reply) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  const auto pending = found->second;
  pending_.erase(found);
  pending->reply = std::move(reply);
  pending->done.set();
}

// False: it cannot be sent, and has been answered.
bool BackendChannel::post(Outgoing outgoing) {
  const uint64_t id = outgoing.id;
  const auto sent = outbox_.empty() ? try_send(outgoing) : Result<void>(os_error("queued", EAGAIN));
  if (sent) return true;
  if (sent.error().os_errno != EAGAIN) {
    answer(id, not_sent(id, sent.error()));
    return false;
  }
  outbox_.push_back(std::move(outgoing));
  if (!sending_) asio::co_spawn(executor_, send_queued(shared_from_this()), asio::detached);
  return true;
}

Result<void> BackendChannel::try_send(Outgoing& outgoing) {
  const auto& record = outgoing.record;
  auto sent = ipc::send_record(socket_.native_handle(), record.bytes, record.fds, ipc::Wait::kDont);
  if (!sent) return sent;
  *outgoing.call = ipc::Call();
  if (const auto found = pending_.find(outgoing.id); found != pending_.end()) found->second->sent = true;
  return {};
}

asio::awaitable<void> BackendChannel::send_queued(Self) {
  sending_ = true;
  while (open_ && !outbox_.empty()) {
    boost::system::error_code error;
    co_await socket_.async_wait(asio::posix::stream_descriptor::wait_write,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
    while (open_ && !outbox_.empty()) {
      Outgoing next = std::move(outbox_.front());
      outbox_.pop_front();
      const auto sent = try_send(next);
      if (sent) continue;
      if (sent.error().os_errno == EAGAIN) {
        outbox_.push_front(std::move(next));
        break;
      }
      answer(next.id, not_sent(next.id, sent.error()));
    }
  }
  sending_ = false;
}

asio::awaitable<ipc::Reply> BackendChannel::call(ipc::Call call, std::shared_ptr<Cancel> cancel,
                                                 OnBehalf whose, ipc::Call* unsent) {
  const auto self = shared_from_this();
  const GiveBack give_back{call, unsent};
  const uint64_t id = next_id_++;
  if (!cancel) {
    auto made = Cancel::make(executor_);
    if (!made) co_return failure(id, ISOGATE_RESOURCE_EXHAUSTED, made.error().message, EMFILE);
    cancel = std::move(*made);
    cancel->fire_after(longest(call));
  }
  auto& header = header_of(call);
  header.id = id;
  header.cancel = Fd(::fcntl(cancel->event(), F_DUPFD_CLOEXEC, 0));
  if (!header.cancel) co_return out_of_descriptors(id);
  if (!open_) co_return failure(id, ISOGATE_UNAVAILABLE, "the backend host is not running");
  if (call.index() == kProbe && has_call(abandoned_, kProbe)) {
    judge_hanging_probe();
    co_return failure(id, ISOGATE_LOST, "the probe before has not ended yet");
  }
  ipc::Encoded record = ipc::encode(call);
  if (record.bytes.empty())
    co_return failure(id, ISOGATE_INVALID_ARGUMENT,
                      "a path, a name or a list is longer than a backend takes");
  bool is_new = false;
  bool is_needed = call.index() == kClose;  // not only the background's
  if (const auto* open = std::get_if<ipc::OpenCall>(&call)) {
    if (auto full = no_room_for(*open)) co_return failure(id, ISOGATE_RESOURCE_EXHAUSTED, std::move(*full));
    is_new = !open_sandboxes_.tenant_of.contains(open->sandbox_id);
    is_needed = (open->flags & ISOGATE_OPEN_RUNNING_ONLY) == 0;
    note_open(open->sandbox_id, open->tenant);
  }
  const size_t kind = call.index();
  const auto pending = std::make_shared<Pending>(executor_);
  pending->kind = kind;
  pending->function = ipc::function_of(call);
  pending->sandbox_id = sandbox_of(call);
  pending->is_sign = kind == kExec || kind == kConnect;
  if (const auto* file = std::get_if<ipc::FileCall>(&call)) {
    pending->verb = file->verb;
    pending->may_be_slow = (file->flags & ISOGATE_FILE_DURABLE) != 0;
    pending->is_sign = !pending->may_be_slow;
  }
  pending->whose = std::move(whose);
  pending_.emplace(id, pending);
  cancel->begin([self, id] { self->abandon(id); });
  if (post({id, &call, std::move(record)})) co_await pending->done.wait();
  cancel->end();
  if (is_needed) judge_waiting(pending->sandbox_id, *pending->reply);
  const isogate_status status = pending->reply->status;
  const bool is_gone = status == ISOGATE_NO_SANDBOX || status == ISOGATE_SANDBOX_LOST;
  const bool not_made = kind == kOpen && is_new && status != ISOGATE_OK && status != ISOGATE_LOST;
  const bool closed = kind == kClose && status == ISOGATE_OK;
  if (not_made || closed || (is_gone && (kind == kOpen || kind == kClose))) note_closed(pending->sandbox_id);
  co_return std::move(*pending->reply);
}

void BackendChannel::abandon(uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  const auto pending = found->second;
  const size_t kind = pending->kind;
  log::error("backend_call_abandoned", {{"backend", log::Own{identity_.backend}},
                                        {"function", log::Own{pending->function}},
                                        {"call", id},
                                        {"sent", pending->sent},
                                        {"tenant", pending->whose.tenant}});
  if (pending->sent) {
    abandoned_.emplace(id, pending);
    answer(id, failure(id, ISOGATE_LOST, "the backend did not end the call after its cancellation"));
  } else {
    std::erase_if(outbox_, [id](const Outgoing& each) { return each.id == id; });
    answer(id, failure(id, ISOGATE_CANCELLED, "the backend host did not take the call in time"));
  }
  if (kind == kPing) return give_up("it does not answer a ping");
  if (kind == kProbe)
    judge_hanging_probe();
  else
    judge_abandoned();
  close_if_idle();
}

// One tenant's calls may hang for what that tenant does; those of several are a sign that the host is stuck.
void BackendChannel::judge_abandoned() {
  std::map<std::string, size_t> of;
  for (const auto& [id, each] : abandoned_)
    if (each->is_sign) ++of[each->whose.tenant];
  size_t counted = 0;
  for (const auto& [tenant, calls] : of) counted += std::min(calls, kMostOfOneTenant);
  if (counted >= kMostAbandoned) give_up("it does not end cancelled calls of several tenants");
}

bool BackendChannel::hangs(const std::string& sandbox_id, bool at_fault) const {
  return std::any_of(abandoned_.begin(), abandoned_.end(), [&](const auto& each) {
    return (!each.second->may_be_slow || !at_fault) && each.second->sandbox_id == sandbox_id;
  });
}

void BackendChannel::judge_hanging_probe() {
  if (Clock::now() - last_record_ < kSilence) return;
  if (!has_call(pending_, kOpen)) return give_up("it answers neither its probe nor anything else");
  if (!has_call(pending_, kPing)) asio::co_spawn(executor_, ping(shared_from_this()), asio::detached);
}

// An open or a close that was cancelled while it waited for a call that does not end would wait for ever.
void BackendChannel::judge_waiting(const std::string& sandbox_id, ipc::Reply& reply) {
  if (reply.status != ISOGATE_CANCELLED || !hangs(sandbox_id, true)) return;
  reply.status = ISOGATE_UNAVAILABLE;
  reply.message = "a cancelled call of this sandbox does not end; its backend host is being replaced";
  give_up("it does not end a cancelled call of a sandbox that is to be opened or closed");
}

asio::awaitable<void> BackendChannel::ping(Self) {
  ipc::PingCall call;
  call.call.request_id = "ping";
  co_await this->call(std::move(call));
}

void BackendChannel::give_up(std::string why) {
  if (given_up_.empty()) given_up_ = std::move(why);
  end();
}

void BackendChannel::retire() {
  retired_ = true;
  end_lasting();
  close_if_idle();
}

std::shared_ptr<BackendChannel> BackendChannel::hold() {
  ++holds_;
  return {this, [self = shared_from_this()](BackendChannel*) {
            if (--self->holds_ == 0 && self->retired_) self->end_lasting();
            self->close_if_idle();
          }};
}

void BackendChannel::end_lasting() {
  if (!open_) return;
  for (auto* act : std::exchange(on_retire, {})) (*act)();
}

void BackendChannel::close_if_idle() {
  if (!retired_ || !pending_.empty() || holds_ > 0) return;
  open_ = false;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void BackendChannel::end() {
  open_ = false;
  boost::system::error_code ignored;
  socket_.close(ignored);
  outbox_.clear();
  abandoned_.clear();
  for (const auto& [id, pending] : std::exchange(pending_, {})) {
    pending->reply = pending->sent
                         ? failure(id, ISOGATE_LOST, "the backend host ended while the call was running")
                         : failure(id, ISOGATE_UNAVAILABLE, "the backend host ended before it took the call");
    pending->done.set();
  }
  on_hello_ = nullptr;
  if (on_end_) std::exchange(on_end_, nullptr)();
}

std::optional<std::string> BackendChannel::no_room_for(const ipc::OpenCall& call) const {
  const auto& [tenant_of, count_of] = open_sandboxes_;
  if (tenant_of.contains(call.sandbox_id)) return std::nullopt;
  if ((call.flags & (ISOGATE_OPEN_RUNNING_ONLY | ISOGATE_OPEN_ATTACH_ONLY)) != 0) return std::nullopt;
  const std::string remedy =
      "; end some, or let them end when idle (sandbox_idle_timeout_sec), or raise the "
      "gateway's hard limit of open files (LimitNOFILE=)";
  const auto own = count_of.find(call.tenant);
  if (own != count_of.end() && own->second >= most_of_tenant_)
    return std::to_string(own->second) +
           " sandboxes of this tenant are open in this backend's host, which is its share "
           "(tenant_share_percent) of " +
           std::to_string(most_sandboxes_) + remedy;
  if (tenant_of.size() < most_sandboxes_) return std::nullopt;
  return std::to_string(tenant_of.size()) +
         " sandboxes are open in this backend's host, which is what it takes" + remedy;
}

void BackendChannel::note_open(const std::string& sandbox_id, const std::string& tenant) {
  if (open_sandboxes_.tenant_of.emplace(sandbox_id, tenant).second) ++open_sandboxes_.count_of[tenant];
}

void BackendChannel::note_closed(const std::string& sandbox_id) {
  const auto found = open_sandboxes_.tenant_of.find(sandbox_id);
  if (found == open_sandboxes_.tenant_of.end()) return;
  const auto own = open_sandboxes_.count_of.find(found->second);
  if (--own->second == 0) open_sandboxes_.count_of.erase(own);
  open_sandboxes_.tenant_of.erase(found);
}

}  // namespace isogate::front
