#include "gateway/front/client_stream.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>
#include <new>

namespace isogate::front {
namespace {

struct NamesDeleter {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

std::string text_of(const char* kind, const ASN1_IA5STRING* string) {
  const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                         static_cast<size_t>(ASN1_STRING_length(string)));
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  return printable && !text.empty() ? kind + text : std::string();
}

std::string address_of(const ASN1_OCTET_STRING* string) {
  char text[INET6_ADDRSTRLEN] = {};
  const int size = ASN1_STRING_length(string);
  if (size != 4 && size != 16) return {};
  if (::inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(string), text, sizeof text) ==
      nullptr)
    return {};
  return std::string("IP:") + text;
}

std::string name_of(const GENERAL_NAME& name) {
  switch (name.type) {
    case GEN_DNS:
      return text_of("DNS:", name.d.dNSName);
    case GEN_URI:
      return text_of("URI:", name.d.uniformResourceIdentifier);
    case GEN_EMAIL:
      return text_of("email:", name.d.rfc822Name);
    case GEN_IPADD:
      return address_of(name.d.iPAddress);
    default:
      return {};
  }
}

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
  std::vector<std::string> names;
  SSL* session = tls_ ? tls_->native_handle() : nullptr;
  if (session == nullptr || SSL_get_verify_mode(session) == SSL_VERIFY_NONE) return names;
  const X509* certificate = SSL_get0_peer_certificate(session);
  if (certificate == nullptr || SSL_get_verify_result(session) != X509_V_OK) return names;
  const std::unique_ptr<GENERAL_NAMES, NamesDeleter> all(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; all && i < sk_GENERAL_NAME_num(all.get()); ++i)
    if (std::string name = name_of(*sk_GENERAL_NAME_value(all.get(), i)); !name.empty())
      names.push_back(std::move(name));
  return names;
}

void ClientStream::expect_no_goodbye() { SSL_set_shutdown(tls_->native_handle(), SSL_RECEIVED_SHUTDOWN); }

}  // namespace isogate::front
