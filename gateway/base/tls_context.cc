#include "gateway/base/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <vector>

namespace isogate {
namespace {

constexpr const char* kCiphers12 = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL";
constexpr unsigned char kAlpn[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
constexpr int kMaxChain = 8;
constexpr uint64_t kOptions = SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                              SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

std::string why() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "OpenSSL gives no reason" : reason;
}

Bio reader(const std::string& pem) { return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

Result<std::vector<Certificate>> certificates(const std::string& pem, const std::string& setting) {
  const Bio bio = reader(pem);
  std::vector<Certificate> all;
  ERR_clear_error();
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) all.emplace_back(one);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!at_end)
    return invalid(setting + ": certificate " + std::to_string(all.size() + 1) +
                   " in it is broken: " + why());
  ERR_clear_error();
  if (all.empty())
    return invalid(setting + ": there is no certificate in it; expected PEM, `-----BEGIN CERTIFICATE-----`");
  return all;
}

Result<Key> private_key(const std::string& pem) {
  bool asked = false;
  const auto refuse = [](char*, int, int, void* flag) {
    *static_cast<bool*>(flag) = true;
    return -1;
  };
  const Bio bio = reader(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, refuse, &asked));
  if (asked) {
    ERR_clear_error();
    return invalid(
        "tls.key: the key is encrypted; give one without a passphrase, as `openssl pkey` writes it");
  }
  if (!key) return invalid("tls.key: there is no private key in it that OpenSSL reads: " + why());
  return key;
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                    unsigned offered_size, void*) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kAlpn, sizeof kAlpn, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Result<void> set_protocol(SSL_CTX* context) {
  SSL_CTX_set_security_level(context, 2);
  SSL_CTX_set_options(context, kOptions);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(context, kCiphers12) != 1)
    return Error{ISOGATE_INTERNAL, 0, "cannot set up TLS: " + why()};
  return {};
}

Result<void> set_identity(SSL_CTX* context, const TlsMaterial& material) {
  auto chain = certificates(material.certificate, "tls.cert");
  if (!chain) return chain.error();
  auto key = private_key(material.key);
  if (!key) return key.error();
  if (SSL_CTX_use_certificate(context, chain->front().get()) != 1)
    return invalid("tls.cert: OpenSSL refuses the certificate: " + why());
  for (size_t i = 1; i < chain->size(); ++i)
    if (SSL_CTX_add1_chain_cert(context, (*chain)[i].get()) != 1)
      return invalid("tls.cert: OpenSSL refuses certificate " + std::to_string(i + 1) + ": " + why());
  if (X509_check_private_key(chain->front().get(), key->get()) != 1) {
    ERR_clear_error();
    return invalid("tls.key: it is not the key of the first certificate in tls.cert; renew both together");
  }
  if (SSL_CTX_use_PrivateKey(context, key->get()) != 1)
    return invalid("tls.key: OpenSSL refuses the key: " + why());
  return {};
}

Result<void> set_clients(SSL_CTX* context, const TlsMaterial& material) {
  if (material.client_ca.empty()) return {};
  auto authorities = certificates(material.client_ca, "tls.client_ca");
  if (!authorities) return authorities.error();
  for (const Certificate& authority : *authorities)
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1)
      return invalid("tls.client_ca: OpenSSL refuses a certificate: " + why());
  SSL_CTX_set_verify(
      context, SSL_VERIFY_PEER | (material.client_required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  SSL_CTX_set_verify_depth(context, kMaxChain);
  // A resumed session would bring its certificate back without another look at it.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  return {};
}

std::string text_of(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  char text[64] = {};
  if (ASN1_TIME_print(bio.get(), time) != 1) return "?";
  return {text, static_cast<size_t>(std::max(0, BIO_read(bio.get(), text, sizeof text)))};
}

}  // namespace

Result<TlsContext> make_tls_context(const TlsMaterial& material) {
  TlsContext context(SSL_CTX_new(TLS_server_method()), Freed<SSL_CTX_free>());
  if (!context) return Error{ISOGATE_INTERNAL, 0, "cannot make a TLS context: " + why()};
  if (auto set = set_protocol(context.get()); !set) return set.error();
  if (auto set = set_identity(context.get(), material); !set) return set.error();
  if (auto set = set_clients(context.get(), material); !set) return set.error();
  return context;
}

CertificateInfo describe_certificate(const TlsContext& context) {
  const X509* certificate = SSL_CTX_get0_certificate(context.get());
  char subject[256] = {};
  X509_NAME_oneline(X509_get_subject_name(certificate), subject, sizeof subject);
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* to = X509_get0_notAfter(certificate);
  return {subject, text_of(to), X509_cmp_current_time(to) < 0, X509_cmp_current_time(from) > 0};
}

}  // namespace isogate
