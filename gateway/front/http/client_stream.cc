#include "gateway/front/http/client_stream.h"

#include <new>

#include "gateway/front/http/certificate_names.h"

namespace isogate::front {
namespace {

SSL* new_session(const TlsContext& context) {
  SSL* session = SSL_new(context.get());
  if (session == nullptr) throw std::bad_alloc();
  return session;
}

}  // namespace

ClientStream::ClientStream(Socket socket, const TlsContext& context) : socket_(std::move(socket)) {
  if (context) tls_.emplace(socket_, new_session(context));
}

std::vector<std::string> ClientStream::verified_names() {
  SSL* session = tls_ ? tls_->native_handle() : nullptr;
  if (session == nullptr || SSL_get_verify_mode(session) == SSL_VERIFY_NONE) return {};
  const X509* certificate = SSL_get0_peer_certificate(session);
  if (certificate == nullptr || SSL_get_verify_result(session) != X509_V_OK) return {};
  return certificate_names(*certificate);
}

void ClientStream::set_client_closed(bool closed) {
  SSL* session = tls_->native_handle();
  const int sent = SSL_get_shutdown(session) & SSL_SENT_SHUTDOWN;
  SSL_set_shutdown(session, sent | (closed ? SSL_RECEIVED_SHUTDOWN : 0));
}

}  // namespace isogate::front
