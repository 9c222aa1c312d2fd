#include "gateway/cli/tls_client.h"

#include <Poco/Net/Context.h>
#include <Poco/Net/SSLManager.h>
#include <Poco/Net/SecureStreamSocket.h>

namespace isogate::cli {

Poco::Net::StreamSocket secured(const Poco::Net::StreamSocket& plain, const std::string& host,
                                const std::string& ca_file) {
  using Poco::Net::Context;
  Context::Params params;
  params.verificationMode = Context::VERIFY_STRICT;
  params.caLocation = ca_file;
  params.loadDefaultCAs = ca_file.empty();
  Context::Ptr context = new Context(Context::TLS_CLIENT_USE, params);
  context->requireMinimumProtocol(Context::PROTO_TLSV1_2);
  auto socket = Poco::Net::SecureStreamSocket::attach(plain, host, context);
  socket.completeHandshake();
  socket.verifyPeerCertificate(host);
  return socket;
}

}  // namespace isogate::cli
