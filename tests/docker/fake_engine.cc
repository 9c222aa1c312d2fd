#include "tests/docker/fake_engine.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace isogate::docker {
namespace {

// "GET /v1.41/info?x HTTP/1.1" → "/info"
std::string path_of(const std::string& line) {
  const size_t begin = line.find(' ') + 1;
  std::string path = line.substr(begin, line.find_first_of(" ?", begin) - begin);
  if (path.starts_with("/v1.")) path.erase(0, path.find('/', 1));
  return path;
}

size_t length_in(const std::string& head) {
  const size_t at = head.find("Content-Length: ");
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
}

}  // namespace

FakeEngine::FakeEngine(bool tcp)
    : listener_(::socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, (directory_.path() + "/s").c_str(), sizeof at.sun_path - 1);
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* place = tcp ? reinterpret_cast<sockaddr*>(&loopback) : reinterpret_cast<sockaddr*>(&at);
  socklen_t size = tcp ? sizeof loopback : sizeof at;
  if (::bind(listener_.get(), place, size) != 0 || ::listen(listener_.get(), 8) != 0 ||
      ::getsockname(listener_.get(), place, &size) != 0)
    throw std::runtime_error("cannot listen");
  if (tcp) address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(loopback.sin_port));
  be("1.41", "1.12");
  server_ = std::thread([this] { serve(); });
}

FakeEngine::~FakeEngine() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  server_.join();
  hang_up();
  for (auto& talk : talks_) talk.join();
}

std::string FakeEngine::json(const std::string& body, const std::string& headers, int status) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

void FakeEngine::say(const std::string& path, const std::string& bytes, bool cut) {
  const std::lock_guard lock(mutex_);
  answers_[path] = {bytes, cut};
}

void FakeEngine::be(const std::string& newest, const std::string& oldest) {
  say("/_ping", json("OK", newest.empty() ? "" : "Api-Version: " + newest + "\r\n"));
  say("/version", json(R"({"MinAPIVersion": ")" + oldest + R"("})"));
}

void FakeEngine::hang_up() {
  const std::lock_guard lock(mutex_);
  for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
}

std::vector<std::string> FakeEngine::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeEngine::serve() {
  for (;;) {
    const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    const std::lock_guard lock(mutex_);
    open_.push_back(socket);
    talks_.emplace_back([this, socket] { talk(socket); });
  }
}

void FakeEngine::talk(int socket) {
  std::string pending;
  while (answer(socket, pending)) {
  }
  const std::lock_guard lock(mutex_);
  open_.erase(std::find(open_.begin(), open_.end(), socket));
  ::close(socket);
}

bool FakeEngine::answer(int socket, std::string& pending) {
  std::array<char, 4096> buffer{};
  for (;;) {
    const size_t end = pending.find("\r\n\r\n");
    if (end != std::string::npos && pending.size() >= end + 4 + length_in(pending.substr(0, end))) {
      const std::string line = pending.substr(0, pending.find("\r\n"));
      pending.erase(0, end + 4 + length_in(pending.substr(0, end)));
      Answer answer{json("{}")};
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(line);
        if (const auto found = answers_.find(path_of(line)); found != answers_.end()) answer = found->second;
      }
      ::send(socket, answer.bytes.data(), answer.bytes.size(), MSG_NOSIGNAL);
      return !answer.cut;
    }
    const ssize_t n = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (n <= 0) return false;
    pending.append(buffer.data(), static_cast<size_t>(n));
  }
}

}  // namespace isogate::docker
