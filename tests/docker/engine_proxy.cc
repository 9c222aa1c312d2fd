#include "tests/docker/engine_proxy.h"

#include <fnmatch.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace isogate::docker {
namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw std::runtime_error("too long: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

bool write_whole(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string value_of(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return {};
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

// "POST /containers/x/start", without version and query.
std::string kind_of(const std::string& head) {
  std::string line = head.substr(0, head.find(" HTTP/"));
  line = line.substr(0, line.find('?'));
  const size_t slash = line.find(" /v");
  if (slash != std::string::npos && slash + 3 < line.size() && std::isdigit(line[slash + 3]) != 0)
    line.erase(slash + 1, line.find('/', slash + 2) - slash - 1);
  return line;
}

bool counts(const std::string& kind) {
  const std::string path = kind.substr(kind.find(' ') + 1);
  if (path == "/containers/json") return false;
  for (const char* each : {"/containers/", "/volumes", "/networks", "/exec/"})
    if (path.starts_with(each)) return true;
  return false;
}

}  // namespace

EngineProxy::EngineProxy(std::string engine_socket)
    : engine_(std::move(engine_socket)),
      directory_("/var/tmp"),
      listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_un own = address_of(directory_.path() + "/s");
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
      ::listen(listener_.get(), 64) != 0)
    throw std::runtime_error("cannot listen");
  server_ = std::thread([this] { serve(); });
}

EngineProxy::~EngineProxy() {
  ending_ = true;
  server_.join();
  for (std::thread& each : talks_) each.join();
}

void EngineProxy::fail(size_t number, Fault fault) {
  heal();
  const std::lock_guard lock(mutex_);
  planned_ = {number, fault};
}

void EngineProxy::fail_all(const std::string& kind, Fault fault) {
  heal();
  const std::lock_guard lock(mutex_);
  planned_kind_ = {kind, fault};
}

void EngineProxy::edit_containers(Edit edit) {
  const std::lock_guard lock(mutex_);
  edit_ = std::move(edit);
}

void EngineProxy::heal() {
  const std::lock_guard lock(mutex_);
  planned_.reset();
  planned_kind_.reset();
  failed_.clear();
  count_ = 0;
}

std::string EngineProxy::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

std::optional<Fault> EngineProxy::fault_of(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  if (!counts(kind)) return std::nullopt;
  const size_t number = count_++;
  std::optional<Fault> fault;
  if (planned_ && planned_->first == number) fault = planned_->second;
  if (planned_kind_ && ::fnmatch(planned_kind_->first.c_str(), kind.c_str(), FNM_PATHNAME) == 0)
    fault = planned_kind_->second;
  if (fault) failed_ = kind;
  return fault;
}

EngineProxy::Edit EngineProxy::edit_of(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  return kind == "POST /containers/create" ? edit_ : nullptr;
}

void EngineProxy::serve() {
  while (!ending_) {
    pollfd watch{listener_.get(), POLLIN, 0};
    if (::poll(&watch, 1, 50) <= 0) continue;
    const int client = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) talks_.emplace_back([this, client] { talk(client); });
  }
}

// Only the heads of requests are read; bodies and all responses pass through unchanged.
void EngineProxy::talk(int client_fd) {
  const Fd client(client_fd), engine(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un other = address_of(engine_);
  if (::connect(engine.get(), reinterpret_cast<const sockaddr*>(&other), sizeof other) != 0) return;
  std::string pending;  // bytes of the client that are not parsed yet
  size_t body = 0;      // bytes of the request that have not arrived yet
  bool chunked = false, raw = false, swallow = false, hang = false, mute = false, client_ended = false,
       events = false;
  std::array<char, 65536> buffer{};
  const auto pass_on = [&] {  // false: this connection is over
    for (;;) {
      if (hang) return true;
      if (raw) {
        const std::string all = std::move(pending);
        pending.clear();
        return write_whole(engine.get(), all);
      }
      if (chunked) {
        const size_t end = pending.find("0\r\n\r\n");
        const bool last = end != std::string::npos && (end == 0 || pending[end - 1] == '\n');
        const size_t size = last ? end + 5 : (pending.size() > 4 ? pending.size() - 4 : 0);
        if (!swallow && !write_whole(engine.get(), pending.substr(0, size))) return false;
        pending.erase(0, size);
        if (!last) return true;
        chunked = false;
        if (swallow) return false;
        continue;
      }
      if (body > 0) {
        const size_t size = std::min(body, pending.size());
        if (!swallow && !write_whole(engine.get(), pending.substr(0, size))) return false;
        pending.erase(0, size);
        body -= size;
        if (body > 0) return true;
        if (swallow) return false;
        continue;
      }
      const size_t end = pending.find("\r\n\r\n");
      if (end == std::string::npos) return true;
      const std::string head = pending.substr(0, end + 4);
      const std::string length = value_of(head, "Content-Length");
      body = length.empty() ? 0 : std::stoul(length);
      chunked = value_of(head, "Transfer-Encoding") == "chunked";
      raw = !value_of(head, "Upgrade").empty();
      events = kind_of(head) == "GET /events";
      if (const auto fault = fault_of(kind_of(head))) {
        if (*fault == Fault::kReset) return false;
        if (*fault == Fault::kHang) hang = true;
        if (*fault == Fault::kNoAnswer || *fault == Fault::kLate) mute = true;
        if (*fault == Fault::kLate) {
          ::shutdown(client.get(), SHUT_WR);
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
        }
        if (*fault == Fault::kError || *fault == Fault::kInUse) {
          const bool in_use = *fault == Fault::kInUse;
          const std::string text =
              in_use ? R"({"message":"the name is already in use"})" : R"({"message":"injected"})";
          write_whole(client.get(), std::string("HTTP/1.1 ") +
                                        (in_use ? "409 Conflict" : "500 Internal Server Error") +
                                        "\r\nContent-Type: application/json\r\n"
                                        "Content-Length: " +
                                        std::to_string(text.size()) + "\r\nConnection: close\r\n\r\n" + text);
          swallow = true;
        }
      }
      if (hang) return true;
      if (const Edit edit = edit_of(kind_of(head)); edit && !swallow) {
        if (pending.size() < head.size() + body) {
          body = 0;  // the head is parsed again
          return true;
        }
        const std::string edited = edit(pending.substr(head.size(), body));
        std::string its = head;
        its.replace(its.find("Content-Length: "), 16 + length.size(),
                    "Content-Length: " + std::to_string(edited.size()));
        pending.erase(0, head.size() + body);
        body = 0;
        if (!write_whole(engine.get(), its + edited)) return false;
        continue;
      }
      pending.erase(0, head.size());
      if (!swallow && !write_whole(engine.get(), head)) return false;
      if (swallow && body == 0 && !chunked) return false;
    }
  };
  while (!ending_ && !(events && no_events_)) {
    pollfd both[2] = {{client_ended ? -1 : client.get(), POLLIN, 0}, {engine.get(), POLLIN, 0}};
    if (::poll(both, 2, 50) <= 0) continue;
    if (both[0].revents != 0) {
      const ssize_t n = ::recv(client.get(), buffer.data(), buffer.size(), 0);
      if (n <= 0) {
        if (!mute && (!raw || n < 0)) return;
        if (!mute) ::shutdown(engine.get(), SHUT_WR);
        client_ended = true;
        continue;
      }
      pending.append(buffer.data(), static_cast<size_t>(n));
      if (!pass_on()) return;
    }
    if (both[1].revents != 0) {
      const ssize_t n = ::recv(engine.get(), buffer.data(), buffer.size(), 0);
      if (n <= 0 || mute) return;  // the request has been executed
      if (!write_whole(client.get(), {buffer.data(), static_cast<size_t>(n)})) return;
    }
  }
}

}  // namespace isogate::docker
