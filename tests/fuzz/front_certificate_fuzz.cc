// Names in a client's certificate: the result is exactly what it says, printable and complete, and only
// listed names are admitted.
#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/front/http/certificate_names.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;
using namespace isogate::front;

struct Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(ASN1_OCTET_STRING* bytes) const { ASN1_OCTET_STRING_free(bytes); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

const std::vector<TlsClientConfig>& clients() {
  static const std::vector<TlsClientConfig> all = [] {
    std::vector<TlsClientConfig> made(4);
    const char* const names[] = {"DNS:agent.example.org", "IP:192.0.2.1", "URI:spiffe://example.org/a",
                                 "email:a@example.org"};
    for (size_t i = 0; i < made.size(); ++i) {
      made[i].name = made[i].tenant = std::to_string(i);
      made[i].san = names[i];
    }
    return made;
  }();
  return all;
}

std::string lowered(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// `der`: the source of the names. A text in it has its length before it.
void look_at_name(const std::string& name, std::string_view der) {
  const size_t colon = name.find(':');
  require(colon != std::string::npos && colon + 1 < name.size());
  const std::string kind = name.substr(0, colon), text = name.substr(colon + 1);
  for (const char c : name) require(c > 0x20 && c < 0x7F);
  if (kind == "IP") {
    unsigned char bytes[16];
    const int size = ::inet_pton(AF_INET, text.c_str(), bytes) == 1    ? 4
                     : ::inet_pton(AF_INET6, text.c_str(), bytes) == 1 ? 16
                                                                       : 0;
    require(size != 0);
    require(der.find(std::string_view(reinterpret_cast<char*>(bytes), static_cast<size_t>(size))) !=
            der.npos);
    return;
  }
  require(kind == "DNS" || kind == "URI" || kind == "email");
  if (text.size() >= 128) return;
  // Complete: nothing was cut at a NUL, so that no name is the beginning of another.
  require(der.find(static_cast<char>(text.size()) + text) != der.npos);
}

// The alternative names as DER has them: what is read may be BER, where a text can be made of parts.
std::string names_in_der(const X509& certificate) {
  auto* names =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
  unsigned char* bytes = nullptr;
  const int size = names == nullptr ? 0 : i2d_GENERAL_NAMES(names, &bytes);
  std::string der(reinterpret_cast<char*>(bytes), size > 0 ? static_cast<size_t>(size) : 0);
  OPENSSL_free(bytes);
  GENERAL_NAMES_free(names);
  return der;
}

void look_at(const X509& certificate, std::string_view der) {
  const auto names = certificate_names(certificate);
  require(names.size() <= der.size());
  const std::string all = std::string(der) + names_in_der(certificate);
  for (const std::string& name : names) look_at_name(name, all);
  const TlsClientConfig* const client = client_of(clients(), names);
  if (client == nullptr) return;
  const bool listed = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    if (client->san.starts_with("DNS:")) return lowered(name) == lowered(client->san);
    if (client->san.starts_with("IP:")) return name == client->san || name == "IP:::ffff:192.0.2.1";
    return name == client->san;
  });
  require(listed);
}

// The input as a whole certificate.
void read_certificate(std::string_view der) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  const Owned<X509> certificate(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  if (certificate) look_at(*certificate, der);
}

// … and as the names of one.
void read_names(std::string_view der) {
  const Owned<X509> certificate(X509_new());
  const Owned<ASN1_OCTET_STRING> bytes(ASN1_OCTET_STRING_new());
  require(certificate && bytes);
  require(ASN1_OCTET_STRING_set(bytes.get(), reinterpret_cast<const unsigned char*>(der.data()),
                                static_cast<int>(der.size())) == 1);
  const Owned<X509_EXTENSION> extension(
      X509_EXTENSION_create_by_NID(nullptr, NID_subject_alt_name, 0, bytes.get()));
  require(extension && X509_add_ext(certificate.get(), extension.get(), -1) == 1);
  look_at(*certificate, der);
  // A certificate with two lists of names has none.
  require(X509_add_ext(certificate.get(), extension.get(), -1) == 1);
  require(certificate_names(*certificate).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view der(reinterpret_cast<const char*>(data), size);
  read_certificate(der);
  read_names(der);
  return 0;
}
