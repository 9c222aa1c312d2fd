#include "lib/net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

#include "lib/loopback.h"

namespace isogate::net {
namespace {

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using ContextPtr = std::unique_ptr<SSL_CTX, Free>;
using SslPtr = std::unique_ptr<SSL, Free>;
using BioPtr = std::unique_ptr<BIO, Free>;
using X509Ptr = std::unique_ptr<X509, Free>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free>;

std::string openssl_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  std::array<char, 256> text{};
  if (code == 0) return "it was cut off";
  ERR_error_string_n(code, text.data(), text.size());
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : text.data();
}

[[noreturn]] void fail_tls(const Target& target, const std::string& why,
                           isogate_status status = ISOGATE_UNAVAILABLE) {
  throw NetError::of_tls(status, "cannot speak TLS with " + target.text(), why);
}

// OpenSSL's own sockets raise SIGPIPE; these never do.
int bio_write(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t n = ::send(fd, from, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (n < 0 && would_block(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int bio_read(BIO* bio, char* to, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t n = ::recv(fd, to, static_cast<size_t>(size), 0);
  if (n < 0 && would_block(errno)) BIO_set_retry_read(bio);
  if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(n);
}

long bio_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO* socket_bio(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "isogate socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  BIO* bio = BIO_new(method);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

[[noreturn]] void unusable(const Target& target, const std::string& what) {
  fail_tls(target, what + ": " + openssl_reason(), ISOGATE_INVALID_ARGUMENT);
}

BioPtr bio_of(const std::string& pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Whether the last read found no more of a PEM text, rather than something broken.
bool at_end_of_pem() {
  const unsigned long code = ERR_peek_last_error();
  return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

// There is nobody to ask for a passphrase.
int no_passphrase(char*, int, int, void*) { return 0; }

void trust(SSL_CTX* context, const Target& target) {
  if (!target.tls->authority) {
    if (SSL_CTX_set_default_verify_paths(context) != 1)
      unusable(target, "cannot use the system's authorities");
    return;
  }
  const BioPtr bio = bio_of(*target.tls->authority);
  int count = 0;
  while (const X509Ptr one{PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr)}) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get()) != 1)
      unusable(target, "cannot use its certificate authority");
    ++count;
  }
  if (count == 0 || !at_end_of_pem()) unusable(target, "its certificate authority is no certificate");
  if (target.tls->trust_listed)
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
  ERR_clear_error();
}

void show(SSL_CTX* context, const Target& target) {
  const Tls& tls = *target.tls;
  if (tls.certificate.empty() != tls.key.empty())
    fail_tls(target, "a certificate needs its key, and a key its certificate", ISOGATE_INVALID_ARGUMENT);
  if (tls.certificate.empty()) return;
  const BioPtr chain = bio_of(tls.certificate);
  const X509Ptr own{PEM_read_bio_X509(chain.get(), nullptr, no_passphrase, nullptr)};
  if (!own || SSL_CTX_use_certificate(context, own.get()) != 1)
    unusable(target, "the client certificate is invalid");
  while (X509* more = PEM_read_bio_X509(chain.get(), nullptr, no_passphrase, nullptr)) {
    if (SSL_CTX_add0_chain_cert(context, more) == 1) continue;
    X509_free(more);
    unusable(target, "cannot use the client certificate's chain");
  }
  if (!at_end_of_pem()) unusable(target, "cannot use the client certificate's chain");
  ERR_clear_error();
  const BioPtr secret = bio_of(tls.key);
  const KeyPtr key{PEM_read_bio_PrivateKey(secret.get(), nullptr, no_passphrase, nullptr)};
  if (!key) unusable(target, "the client key is invalid, or has a passphrase");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    unusable(target, "the client key does not belong to the client certificate");
}

ContextPtr make_context(const Target& target) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (!context) fail_tls(target, openssl_reason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context.get(), target.tls->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  trust(context.get(), target);
  show(context.get(), target);
  return context;
}

void expect_name(SSL* ssl, const Target& target) {
  const std::string& host = target.tls->server_name.empty() ? target.host : target.tls->server_name;
  const bool numeric = !address_bytes(host).empty();
  X509_VERIFY_PARAM* expected = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const int set = numeric ? X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str())
                          : X509_VERIFY_PARAM_set1_host(expected, host.c_str(), 0);
  if (set != 1 || (!numeric && SSL_set_tlsext_host_name(ssl, host.c_str()) != 1))
    throw NetError(ISOGATE_INTERNAL, "cannot check the name of the certificate of " + target.text());
}

class TlsTransport : public Transport {
 public:
  TlsTransport(Fd socket, SslPtr ssl) : socket_(std::move(socket)), ssl_(std::move(ssl)) {}

  void shake_hands(const Target& target, const Budget& budget) {
    for (;;) {
      ERR_clear_error();
      const int done = SSL_connect(ssl_.get());
      if (done == 1) return;
      const int error = SSL_get_error(ssl_.get(), done);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) refuse(target);
      const short news = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      const auto outcome = budget.wait(fd(), news);
      if (outcome == Budget::Outcome::kCancelled) throw NetError(ISOGATE_CANCELLED, "cancelled");
      if (outcome == Budget::Outcome::kLate) fail_tls(target, "the handshake was not done in time");
    }
  }

  [[nodiscard]] int fd() const override { return socket_.get(); }

  ssize_t read_some(char* to, size_t size) override {
    const std::lock_guard lock(mutex_);
    ERR_clear_error();
    const int most = static_cast<int>(std::min<size_t>(size, 1 << 20));
    return answer(SSL_read(ssl_.get(), to, most));
  }

  ssize_t write_some(const char* from, size_t size) override {
    const std::lock_guard lock(mutex_);
    ERR_clear_error();
    // A failed write must be repeated with the same bytes, and no fewer: at most one record.
    const int most = static_cast<int>(std::min<size_t>(size, 16 << 10));
    return answer(SSL_write(ssl_.get(), from, most));
  }

  [[nodiscard]] bool must_repeat() const override { return true; }

  [[nodiscard]] bool has_buffered() const override {
    const std::lock_guard lock(mutex_);
    return SSL_pending(ssl_.get()) > 0;
  }

  [[nodiscard]] std::string tls_failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void shutdown() override { ::shutdown(socket_.get(), SHUT_RDWR); }

  // The other side may send session tickets whenever it likes: only what comes with them matters.
  [[nodiscard]] bool stale() override {
    char byte = 0;
    const std::lock_guard lock(mutex_);
    ERR_clear_error();
    const int got = SSL_peek(ssl_.get(), &byte, 1);
    return got > 0 || SSL_get_error(ssl_.get(), got) != SSL_ERROR_WANT_READ;
  }

 private:
  ssize_t answer(int result) {
    if (result > 0) return result;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
      case SSL_ERROR_SYSCALL:
        if (errno == 0) errno = ECONNRESET;
        return -1;
      default:
        if (failure_.empty()) failure_ = openssl_reason();
        errno = ECONNRESET;
        return -1;  // also an end without close_notify: it may be truncated
    }
  }

  [[noreturn]] void refuse(const Target& target) {
    const long verified = SSL_get_verify_result(ssl_.get());
    if (target.tls->verify && verified != X509_V_OK) {
      ERR_clear_error();
      fail_tls(target, std::string("its certificate is not to be trusted: ") +
                           X509_verify_cert_error_string(verified));
    }
    fail_tls(target, openssl_reason());
  }

  Fd socket_;
  SslPtr ssl_;
  std::string failure_;
  mutable std::mutex mutex_;  // of ssl_, which one thread at a time may use, and failure_
};

}  // namespace

std::unique_ptr<Transport> start_tls(Fd socket, const Target& target, const Budget& budget) {
  const ContextPtr context = make_context(target);
  SslPtr ssl(SSL_new(context.get()));
  if (!ssl) fail_tls(target, openssl_reason());
  BIO* bio = socket_bio(socket.get());
  SSL_set_bio(ssl.get(), bio, bio);
  expect_name(ssl.get(), target);
  auto transport = std::make_unique<TlsTransport>(std::move(socket), std::move(ssl));
  transport->shake_hands(target, budget);
  return transport;
}

}  // namespace isogate::net
