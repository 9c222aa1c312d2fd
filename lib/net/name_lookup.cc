#include "lib/net/name_lookup.h"

#include <cstring>
#include <map>

#include "lib/thread.h"

namespace isogate::net {

NameAnswer NameLookup::answer() const {
  const std::lock_guard lock(mutex_);
  return answer_;
}

void NameLookup::end(NameAnswer answer) {
  {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  signal_event(done_.get());
}

namespace {

NameAnswer ask(const NameLookups::Resolver& resolver, const std::string& host, const std::string& port,
               int flags) {
  try {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    NameAnswer answer;
    answer.failure = resolver(host.c_str(), port.c_str(), &hints, &list);
    if (answer.failure != 0 || list == nullptr) return answer;
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, ::freeaddrinfo);
    for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
      if (one->ai_addrlen > sizeof(sockaddr_storage)) continue;
      NameAddress& address = answer.found.emplace_back();
      address.size = one->ai_addrlen;
      std::memcpy(&address.to, one->ai_addr, one->ai_addrlen);
    }
    return answer;
  } catch (...) {
    return {EAI_MEMORY, {}};
  }
}

}  // namespace

struct NameLookups::State {
  using Key = std::pair<std::string, std::string>;
  const Resolver resolver;
  const size_t most;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<NameLookup>> under_way;

  void run(const Key& key, NameLookup& lookup) noexcept {
    NameAnswer answer = ask(resolver, key.first, key.second, 0);
    {
      const std::lock_guard lock(mutex);
      under_way.erase(key);
    }
    lookup.end(std::move(answer));
  }
};

NameLookups::NameLookups(Resolver resolver, size_t most)
    : state_(new State{std::move(resolver), most, {}, {}}) {}

NameLookups& NameLookups::shared() {
  static auto& all = *new NameLookups;  // threads may still run at the process's end
  return all;
}

Result<std::shared_ptr<NameLookup>> NameLookups::begin(const std::string& host, uint16_t port) {
  const auto refused = [&](const std::string& why) {
    return Error{ISOGATE_UNAVAILABLE, 0, "cannot look up the name " + host + ": " + why};
  };
  auto done = make_event();
  if (!done) return refused(done.error().message);
  const auto lookup = std::make_shared<NameLookup>(std::move(*done));
  const State::Key key(host, std::to_string(port));
  NameAnswer numeric = ask(::getaddrinfo, key.first, key.second, AI_NUMERICHOST);
  if (numeric.failure != EAI_NONAME) {
    lookup->end(std::move(numeric));
    return lookup;
  }
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->under_way.find(key); found != state_->under_way.end()) return found->second;
  if (state_->under_way.size() >= state_->most)
    return refused(std::to_string(state_->most) + " names are waited for already: does the resolver answer?");
  state_->under_way.emplace(key, lookup);
  try {
    start_thread([state = state_, key, lookup] { state->run(key, *lookup); }).detach();
  } catch (const std::exception& error) {
    state_->under_way.erase(key);
    return refused(std::string("no thread can be started: ") + error.what());
  }
  return lookup;
}

}  // namespace isogate::net
