#include "tests/k8s/fake_cluster.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace isogate::k8s {

std::string Peer::read_some() {
  if (!pending_.empty()) return std::exchange(pending_, {});
  std::array<char, 65536> buffer{};
  const ssize_t n = ssl_ != nullptr ? SSL_read(ssl_, buffer.data(), buffer.size())
                                    : ::recv(socket_, buffer.data(), buffer.size(), 0);
  return n > 0 ? std::string(buffer.data(), static_cast<size_t>(n)) : std::string();
}

std::string Peer::read(size_t size) {
  std::string all;
  while (all.size() < size) {
    const std::string more = read_some();
    if (more.empty()) return all;
    all += more;
  }
  pending_ = all.substr(size) + pending_;
  all.resize(size);
  return all;
}

std::string Peer::read_head() {
  std::string all;
  for (;;) {
    const std::string more = read_some();
    if (more.empty()) return {};
    all += more;
    const size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) continue;
    pending_ = all.substr(end + 4);
    return all.substr(0, end + 4);
  }
}

void Peer::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ssl_ != nullptr ? SSL_write(ssl_, bytes.data(),
                                                  static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)))
                                      : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void Peer::hang_up() { ::shutdown(socket_, SHUT_RDWR); }

std::string Heard::header(const std::string& name) const {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return {};
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find('\r', begin) - begin);
}

FakeCluster::FakeCluster(Handler handler, const test::Authority* authority, const std::string& name, bool ask)
    : handler_(std::move(handler)),
      authority_(authority),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (authority != nullptr) {
    context_ = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(context_, authority->file(name + ".pem").c_str()) != 1 ||
        SSL_CTX_use_PrivateKey_file(context_, authority->file(name + ".key").c_str(), SSL_FILETYPE_PEM) != 1)
      throw std::runtime_error("cannot use the server's certificate");
    if (ask) {
      SSL_CTX_load_verify_locations(context_, authority->certificate().c_str(), nullptr);
      SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    }
  }
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(listener_.get(), 16) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw std::runtime_error("cannot listen");
  port_ = ntohs(at.sin_port);
  server_ = std::thread([this] { serve(); });
}

FakeCluster::~FakeCluster() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  server_.join();
  for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
  for (auto& talk : talks_) talk.join();
  for (const int socket : open_) ::close(socket);
  SSL_CTX_free(context_);
}

ClusterAccess FakeCluster::access() const {
  ClusterAccess access;
  access.host = "127.0.0.1";
  access.port = port_;
  access.tls = authority_ != nullptr;
  if (authority_ != nullptr) access.authority.file = authority_->certificate();
  access.credentials = file_credentials({});
  access.name_space = "default";
  return access;
}

void FakeCluster::serve() {
  for (;;) {
    const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    const timeval most{20, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    const std::lock_guard lock(mutex_);
    open_.push_back(socket);
    talks_.emplace_back([this, socket] { talk(socket); });
  }
}

void FakeCluster::talk(int socket) {
  if (mute_) return;
  if (context_ == nullptr) {
    Peer peer(socket, nullptr);
    converse(peer);
  } else {
    SSL* ssl = SSL_new(context_);
    SSL_set_fd(ssl, socket);
    if (SSL_accept(ssl) == 1) {
      Peer peer(socket, ssl);
      converse(peer);
      SSL_shutdown(ssl);
    }
    SSL_free(ssl);
  }
  ::shutdown(socket, SHUT_RDWR);
}

void FakeCluster::converse(Peer& peer) {
  for (;;) {
    Heard one;
    one.head = peer.read_head();
    if (one.head.empty()) return;
    const size_t space = one.head.find(' ');
    one.method = one.head.substr(0, space);
    one.target = one.head.substr(space + 1, one.head.find(' ', space + 1) - space - 1);
    const std::string length = one.header("Content-Length");
    if (!length.empty()) one.body = peer.read(std::stoul(length));
    {
      const std::lock_guard lock(mutex_);
      heard_.push_back(one);
    }
    if (!handler_(peer, one)) return;
  }
}

std::vector<Heard> FakeCluster::heard() const {
  const std::lock_guard lock(mutex_);
  return heard_;
}

size_t FakeCluster::connections() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

std::string FakeCluster::json(const std::string& body, int status, const std::string& headers) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string FakeCluster::status(int code, const std::string& reason, const std::string& headers,
                                const std::string& name) {
  return json(R"({"kind":"Status","status":"Failure","reason":")" + reason + R"(","message":"it says )" +
                  reason + R"(","details":{"name":")" + name + R"("},"code":)" + std::to_string(code) + "}",
              code, headers);
}

std::string frame(const std::string& payload, int opcode, bool final) {
  std::string out(1, static_cast<char>((final ? 0x80 : 0) | opcode));
  if (payload.size() < 126) {
    out += static_cast<char>(payload.size());
  } else if (payload.size() < 65536) {
    out += {'\x7e', static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size() & 255)};
  } else {
    out += '\x7f';
    for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(payload.size() >> shift & 255);
  }
  return out + payload;
}

bool read_frame(Peer& peer, int& opcode, std::string& payload) {
  const std::string head = peer.read(2);
  if (head.size() < 2 || (head[1] & 0x80) == 0) return false;
  opcode = head[0] & 15;
  uint64_t size = head[1] & 0x7f;
  const int extra = size == 126 ? 2 : size == 127 ? 8 : 0;
  if (extra > 0) size = 0;
  for (const unsigned char c : peer.read(static_cast<size_t>(extra))) size = size << 8 | c;
  const std::string mask = peer.read(4);
  payload = peer.read(size);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(payload[i] ^ mask[i % 4]);
  return payload.size() == size;
}

Failure failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const NetError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return {error.status(), error.http_status(), error.maybe_done(), error.what(), error.reason()};
  } catch (const sdk::Error& error) {
    return {error.status(), 0, false, error.what(), ""};
  }
  return {};
}

}  // namespace isogate::k8s
