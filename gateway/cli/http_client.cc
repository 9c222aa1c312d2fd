#include "gateway/cli/http_client.h"

#include <Poco/Net/Context.h>
#include <Poco/Net/HTTPClientSession.h>
#include <Poco/Net/HTTPRequest.h>
#include <Poco/Net/HTTPResponse.h>
#include <Poco/Net/NetException.h>
#include <Poco/Net/SSLException.h>
#include <Poco/Net/SSLManager.h>
#include <Poco/Net/SecureStreamSocket.h>
#include <Poco/Net/SocketAddress.h>
#include <Poco/Net/StreamSocket.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <istream>
#include <ostream>
#include <sstream>

#include "lib/fd.h"
#include "lib/loopback.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

constexpr size_t kMaxBodyBytes = 1u << 30;
constexpr size_t kPiece = 65536;
constexpr int64_t kConnectTimeoutUs = 10'000'000;

using Poco::Net::HTTPClientSession;
using Poco::Net::SocketAddress;

Error lost(const std::string& what) { return {ISOGATE_LOST, 0, what}; }

Error silent(const Endpoint& endpoint, double wait_sec) {
  return lost("the gateway at " + endpoint.text() + " sent nothing for " +
              std::to_string(static_cast<int64_t>(wait_sec)) + " s");
}

Poco::Timespan time_span(double sec) { return Poco::Timespan(static_cast<int64_t>(sec * 1e6)); }

// A TLS handshake over a connected socket. The other side's certificate must be valid for `host`, a name or
// an address, and lead to an authority of ca_file (PEM), or of the system where that is empty. Presents the
// client certificate, if there is one. Throws Poco::Exception, also for a file that cannot be read.
Poco::Net::StreamSocket secured(const Poco::Net::StreamSocket& plain, const Endpoint& endpoint) {
  using Poco::Net::Context;
  Context::Params params;
  params.verificationMode = Context::VERIFY_STRICT;
  params.caLocation = endpoint.ca_file;
  params.loadDefaultCAs = endpoint.ca_file.empty();
  params.certificateFile = endpoint.cert_file;
  params.privateKeyFile = endpoint.cert_key_file;
  Context::Ptr context = new Context(Context::TLS_CLIENT_USE, params);
  context->requireMinimumProtocol(Context::PROTO_TLSV1_2);
  auto socket = Poco::Net::SecureStreamSocket::attach(plain, endpoint.host, context);
  socket.completeHandshake();
  socket.verifyPeerCertificate(endpoint.host);
  return socket;
}

Poco::Net::StreamSocket connect(const Endpoint& endpoint, double wait_sec) {
  Poco::Net::StreamSocket socket;
  SocketAddress address = endpoint.unix_path.empty()
                              ? SocketAddress(endpoint.host, endpoint.port)
                              : SocketAddress(SocketAddress::UNIX_LOCAL, endpoint.unix_path);
  socket.connect(address, Poco::Timespan(kConnectTimeoutUs));
  socket.setReceiveTimeout(time_span(wait_sec));
  socket.setSendTimeout(Poco::Timespan(60, 0));
  if (endpoint.unix_path.empty()) {
    socket.setNoDelay(true);
    socket.setKeepAlive(true);
  }
  if (endpoint.tls) return secured(socket, endpoint);
  return socket;
}

// OpenSSL's words come with line ends of their own.
std::string one_line(const Poco::Exception& error) {
  std::string text = error.displayText();
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

Poco::Net::HTTPRequest head_of(const HttpRequest& request, const Endpoint& endpoint, const std::string& key) {
  Poco::Net::HTTPRequest head(request.method, request.target, Poco::Net::HTTPMessage::HTTP_1_1);
  head.set("Host", endpoint.host_field());
  head.set("User-Agent", "isogate/" ISOGATE_VERSION);
  if (!key.empty()) head.set("Authorization", "Bearer " + key);
  for (const auto& [name, value] : request.headers) head.set(name, value);
  bool has_body = !request.content_type.empty();
  if (has_body) head.setContentType(request.content_type);
  if (has_body && (request.body_writer || (request.body_fd >= 0 && !request.body_bytes)))
    head.setChunkedTransferEncoding(true);
  else if (has_body)
    head.setContentLength64(static_cast<Poco::Int64>(request.body_bytes.value_or(request.body.size())));
  return head;
}

// Sends what body_fd brings; false: the gateway has stopped reading, its answer may give the reason.
Result<bool> send_from(const HttpRequest& request, std::ostream& out) {
  const int fd = request.body_fd;
  const std::optional<uint64_t> expected = request.body_bytes;
  std::string piece(kPiece, '\0');
  uint64_t sent = 0;
  while (!expected || sent < *expected) {
    size_t wanted = expected ? std::min<uint64_t>(kPiece, *expected - sent) : kPiece;
    ssize_t n = ::read(fd, piece.data(), wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("cannot read what is to be sent", errno);
    if (n == 0 && expected) return invalid("the file became shorter while it was sent");
    if (n == 0) break;
    if (!out.write(piece.data(), n)) return false;
    sent += static_cast<uint64_t>(n);
    if (request.sent) request.sent(static_cast<uint64_t>(n));
  }
  return static_cast<bool>(out.flush());
}

// The same of body_writer.
Result<bool> send_written(const HttpRequest& request, std::ostream& out) {
  bool stopped = false;
  auto written = request.body_writer([&](std::string_view bytes) -> Result<void> {
    stopped = stopped || !out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (stopped) return lost("the gateway has stopped reading");
    if (request.sent) request.sent(bytes.size());
    return {};
  });
  if (stopped) return false;
  if (!written.ok()) return written.error();
  return static_cast<bool>(out.flush());
}

// False as in send_from().
Result<bool> send(HTTPClientSession& session, Poco::Net::HTTPRequest& head, const HttpRequest& request) {
  std::ostream& out = session.sendRequest(head);
  if (request.body_fd < 0 && !request.body_writer) {
    out.write(request.body.data(), static_cast<std::streamsize>(request.body.size())).flush();
    return out.good();
  }
  auto sent = request.body_writer ? send_written(request, out) : send_from(request, out);
  if (!sent.ok()) session.abort();  // so that the gateway sees a cut, not an end
  return sent;
}

// By TLS 1.3 a server asks for a certificate, and refuses one, after the client's handshake.
std::optional<Error> refused_certificate(const Endpoint& endpoint, const Poco::Exception& error) {
  const std::string why = one_line(error), hint = endpoint.tls_hint(why);
  const bool alert = dynamic_cast<const Poco::Net::SSLException*>(&error) != nullptr &&
                     why.find("alert") != std::string::npos;
  if (!alert || hint.empty()) return std::nullopt;
  return Error{ISOGATE_UNAVAILABLE, EPROTO,
               "cannot reach the gateway at " + endpoint.text() + ": " + why + hint};
}

// The answer of a gateway that closed its side in the middle of a request: mostly the reason.
Result<HttpAnswer> early_answer(Poco::Net::StreamSocket& socket, const Endpoint& endpoint) {
  const std::string broken =
      "the gateway at " + endpoint.text() + " closed the connection during the request";
  std::string bytes, piece(kPiece, '\0');
  socket.setReceiveTimeout(Poco::Timespan(2, 0));
  try {
    for (int n; (n = socket.receiveBytes(piece.data(), kPiece)) > 0;)
      bytes.append(piece, 0, static_cast<size_t>(n));
  } catch (const Poco::Exception& error) {  // what came before is what there is
    if (auto refused = refused_certificate(endpoint, error)) return *refused;
  }
  size_t end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return lost(broken);
  Poco::Net::HTTPResponse head;
  std::istringstream text(bytes.substr(0, end + 4));
  head.read(text);
  HttpAnswer answer{head.getStatus(), bytes.substr(end + 4), head.get("Retry-After", "")};
  if (answer.ok()) return lost(broken);
  return answer;
}

Result<void> receive(std::istream& in, std::optional<uint64_t> length, const BodySink& sink) {
  std::string piece(kPiece, '\0');
  uint64_t received = 0;
  while (in.good()) {
    in.read(piece.data(), 1);  // blocks for the first byte only, so that events pass at once
    if (in.gcount() == 0) break;
    std::streamsize more = in.readsome(piece.data() + 1, kPiece - 1);
    size_t count = 1 + static_cast<size_t>(std::max<std::streamsize>(more, 0));
    received += count;
    if (auto taken = sink(std::string_view(piece.data(), count)); !taken.ok()) return taken;
  }
  if (length && received != *length)
    return lost("the gateway's answer was cut short: " + std::to_string(received) + " of " +
                std::to_string(*length) + " bytes came");
  return {};
}

Result<HttpAnswer> read_answer(HTTPClientSession& session, const HttpRequest& request, const BodySink& sink,
                               const Endpoint& endpoint) {
  Poco::Net::HTTPResponse head;
  std::istream& in = session.receiveResponse(head);
  const double body_wait_sec = request.body_wait_sec.value_or(request.wait_sec);
  session.socket().setReceiveTimeout(time_span(body_wait_sec));
  HttpAnswer answer;
  answer.status = head.getStatus();
  answer.retry_after = head.get("Retry-After", "");
  if (request.method == Poco::Net::HTTPRequest::HTTP_HEAD) return answer;
  const std::string& type = head.getContentType();
  bool to_sink = sink && answer.ok() && type.starts_with(request.sink_type);
  const bool marks_its_end = type.starts_with("application/x-ndjson") ||
                             type.starts_with("application/x-tar") || type.starts_with("text/event-stream");
  std::optional<uint64_t> length;
  if (head.hasContentLength()) length = static_cast<uint64_t>(head.getContentLength64());
  if (to_sink && !marks_its_end && !length)
    return lost("the gateway's answer has no length, so that a cut could not be noticed");
  auto collect = [&](std::string_view bytes) -> Result<void> {
    if (answer.body.size() + bytes.size() > kMaxBodyBytes) return lost("the gateway's answer is over 1 GiB");
    answer.body += bytes;
    return {};
  };
  auto received = receive(in, length, to_sink ? sink : BodySink(collect));
  if (!received.ok()) return received.error();
  const Poco::Exception* broken = session.networkException();
  if (dynamic_cast<const Poco::TimeoutException*>(broken) != nullptr) return silent(endpoint, body_wait_sec);
  if (broken != nullptr) return lost("the connection to the gateway broke: " + broken->displayText());
  return answer;
}

}  // namespace

std::string Endpoint::text() const {
  return unix_path.empty() ? (tls ? "https://" : "http://") + host_field() : "unix:" + unix_path;
}

std::string Endpoint::host_field() const {
  if (!unix_path.empty()) return "localhost";
  return join_address(host, std::to_string(port));
}

std::string Endpoint::tls_hint(std::string why) const {
  if (!tls) return "";
  why = to_lower(std::move(why));
  const auto has = [&why](const char* words) { return why.find(words) != std::string::npos; };
  if (has("wrong version") || has("packet length") || has("http request"))
    return "; it seems to speak no TLS: write http://";
  if (cert_file.empty() && (has("certificate required") || has("handshake failure")))
    return "; it asks for a client certificate: give --cert and --cert-key, or use its Unix socket";
  if (!cert_file.empty() && has("alert") &&
      (has("certificate") || has("unknown ca") || has("access denied") || has("handshake failure")))
    return "; it does not accept the client certificate `" + cert_file + "`";
  if (has("verif") || has("certificate"))
    return ca_file.empty()
               ? "; name its certificate authority with --ca-file or ISOGATE_CA_FILE"
               : "; its certificate is not of `" + ca_file + "`, or for another name than " + host;
  return "";
}

bool Endpoint::on_this_machine() const {
  return !unix_path.empty() || host == "localhost" || is_loopback(host);
}

Result<Endpoint> parse_url(const std::string& url) {
  auto refused = [&](const std::string& why) {
    return invalid("cannot use the url `" + url + "`: " + why +
                   "; give http://HOST:PORT, https://HOST:PORT or unix:/PATH");
  };
  Endpoint endpoint;
  if (url.rfind("unix:", 0) == 0) {
    endpoint.unix_path = url.substr(5);
    if (endpoint.unix_path.rfind("//", 0) == 0) endpoint.unix_path.erase(0, 2);
    if (endpoint.unix_path.empty() || endpoint.unix_path[0] != '/')
      return refused("the path is not absolute");
    if (endpoint.unix_path.size() >= sizeof(sockaddr_un::sun_path)) return refused("the path is too long");
    return endpoint;
  }
  endpoint.tls = url.rfind("https://", 0) == 0;
  if (!endpoint.tls && url.rfind("http://", 0) != 0)
    return refused("it begins with none of http://, https:// and unix:");
  std::string rest = url.substr(url.find("//") + 2);
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  if (rest.find_first_of("/?#@ ") != std::string::npos) return refused("only a host and a port may be there");
  size_t bracket = rest.find(']'), colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  endpoint.host = rest.substr(0, colon);
  if (bracket != std::string::npos) endpoint.host = rest.substr(1, bracket - 1);
  std::string port = colon == std::string::npos ? "9090" : rest.substr(colon + 1);
  endpoint.port = number_in<uint16_t>(port).value_or(0);
  if (endpoint.host.empty()) return refused("there is no host");
  if (endpoint.port == 0) return refused("`" + port + "` is not a port");
  return endpoint;
}

int socket_error(const std::string& unix_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (unix_path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  unix_path.copy(address.sun_path, unix_path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

void CancelHandle::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

Result<void> CancelHandle::watch(int socket) {
  std::lock_guard lock(mutex_);
  if (cancelled_) return lost("the call was cancelled");
  socket_.reset(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!socket_) return os_error("cannot keep a descriptor of the connection", errno);
  return {};
}

void CancelHandle::release() {
  std::lock_guard lock(mutex_);
  socket_.reset();
}

HttpClient::HttpClient(Endpoint endpoint, std::string key)
    : endpoint_(std::move(endpoint)), key_(std::move(key)) {}

Result<HttpAnswer> HttpClient::call(const HttpRequest& request, const BodySink& sink) {
  auto answer = exchange(request, sink);
  if (request.cancel != nullptr) request.cancel->release();
  if (answer.ok()) answer->key_over_socket = !key_.empty() && !endpoint_.unix_path.empty();
  return answer;
}

Result<HttpAnswer> HttpClient::exchange(const HttpRequest& request, const BodySink& sink) {
  Poco::Net::StreamSocket socket;
  try {
    socket = connect(endpoint_, request.wait_sec);
  } catch (const Poco::Exception& error) {
    const bool of_tls = dynamic_cast<const Poco::Net::SSLException*>(&error) != nullptr ||
                        dynamic_cast<const Poco::FileException*>(&error) != nullptr;
    return Error{ISOGATE_UNAVAILABLE, of_tls ? EPROTO : 0,
                 "cannot reach the gateway at " + endpoint_.text() + ": " + one_line(error) +
                     endpoint_.tls_hint(error.displayText())};
  }
  if (request.cancel != nullptr)
    if (auto watched = request.cancel->watch(socket.impl()->sockfd()); !watched.ok()) return watched.error();
  try {
    HTTPClientSession session(socket);
    auto head = head_of(request, endpoint_, key_);
    auto sent = send(session, head, request);
    if (!sent.ok()) return sent.error();
    if (!*sent) return early_answer(socket, endpoint_);
    return read_answer(session, request, sink, endpoint_);
  } catch (const Poco::TimeoutException&) {
    return silent(endpoint_, request.wait_sec);
  } catch (const Poco::Exception& error) {
    if (auto refused = refused_certificate(endpoint_, error)) return *refused;
    return lost("the connection to the gateway at " + endpoint_.text() + " broke: " + one_line(error) +
                (endpoint_.tls || !endpoint_.unix_path.empty()
                     ? ""
                     : "; if it speaks TLS, write https:// and --ca-file"));
  }
}

std::string escape_path(std::string_view path) {
  std::string text;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    text += percent_encode(path.substr(begin, end - begin));
    if (end < path.size()) text += begin == end ? "%2F" : "/";
    begin = end + 1;
  }
  return text;
}

}  // namespace isogate::cli
