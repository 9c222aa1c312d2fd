// Addresses of names in the network, for clients whose calls have a deadline.
//
// getaddrinfo(3) cannot be interrupted: it runs on a separate thread, for which no caller must wait. A second
// caller for the same name shares the running look-up, so a resolver that does not answer costs one thread
// for each name, and never more than `most`. Any thread.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/fd.h"

namespace isogate::net {

struct NameAddress {
  sockaddr_storage to{};
  socklen_t size = 0;
};

struct NameAnswer {
  int failure = 0;  // EAI_…, see gai_strerror(3)
  std::vector<NameAddress> found;
};

class NameLookup {
 public:
  explicit NameLookup(Fd done) : done_(std::move(done)) {}
  // Readable once it has ended, and from then on. Valid while this object lives.
  [[nodiscard]] int done() const { return done_.get(); }
  [[nodiscard]] bool over() const { return is_signalled(done()); }
  [[nodiscard]] NameAnswer answer() const;  // once it is over
  void end(NameAnswer answer);              // once

 private:
  const Fd done_;  // an eventfd
  mutable std::mutex mutex_;
  NameAnswer answer_;
};

class NameLookups {
 public:
  using Resolver = std::function<int(const char*, const char*, const addrinfo*, addrinfo**)>;
  static constexpr size_t kMost = 8;

  explicit NameLookups(Resolver resolver = ::getaddrinfo, size_t most = kMost);
  static NameLookups& shared();  // this process's

  // A numeric address is answered at once. ISOGATE_UNAVAILABLE: too many look-ups are running, or there
  // is no thread or descriptor for it.
  Result<std::shared_ptr<NameLookup>> begin(const std::string& host, uint16_t port);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the threads' too
};

}  // namespace isogate::net
