#include "gateway/front/http/certificate_names.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "gateway/front/http/auth.h"
#include "gateway/front/http/http_text.h"

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

std::string general_name(const GENERAL_NAME& name) {
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

// DNS names have no case, addresses several spellings; URIs and mail addresses are compared as they are.
bool same_name(std::string_view configured, std::string_view shown) {
  if (configured.starts_with("DNS:")) return equal_no_case(configured, shown);
  if (!configured.starts_with("IP:")) return configured == shown;
  return shown.starts_with("IP:") && same_address(configured.substr(3), shown.substr(3));
}

}  // namespace

std::vector<std::string> certificate_names(const X509& certificate) {
  std::vector<std::string> names;
  const std::unique_ptr<GENERAL_NAMES, NamesDeleter> all(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; all && i < sk_GENERAL_NAME_num(all.get()); ++i)
    if (std::string name = general_name(*sk_GENERAL_NAME_value(all.get(), i)); !name.empty())
      names.push_back(std::move(name));
  return names;
}

const TlsClientConfig* client_of(const std::vector<TlsClientConfig>& clients,
                                 const std::vector<std::string>& names) {
  for (const TlsClientConfig& client : clients)
    for (const std::string& name : names)
      if (same_name(client.san, name)) return &client;
  return nullptr;
}

}  // namespace isogate::front
