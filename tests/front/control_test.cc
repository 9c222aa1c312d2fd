#include "gateway/front/control.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/config/load.h"
#include "gateway/ipc/channel.h"
#include "tests/eventually.h"

namespace isogate::front {
namespace {
namespace asio = boost::asio;
using nlohmann::json;

// Travels in a memfd.
std::string large_reload() {
  Config config;
  for (int i = 0; i < 700; ++i) {
    std::string hash = std::to_string(i);
    config.keys.push_back({"key" + hash, "acme", std::string(64 - hash.size(), '0') + hash});
  }
  const json none = {{"certificate", ""}, {"key", ""}, {"client_ca", ""}, {"client_required", false}};
  const std::string record = json{
      {"type", "reload"},
      {"number", 3},
      {"config", json::parse(config_to_json(config))},
      {"local_key_sha256", ""},
      {"tls", none}}.dump();
  EXPECT_GT(record.size(), ipc::kMaxInlineBytes);
  return record;
}

std::string host_up(int generation) {
  return json{
      {"type", "backend"}, {"name", "one"}, {"generation", generation}, {"settings", 1}, {"state", "up"}}
      .dump();
}

// This process can open nothing more: the limit is the lowest number that is free.
class NoDescriptorIsFree {
 public:
  NoDescriptorIsFree() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    auto next = make_event();
    EXPECT_TRUE(next.ok());
    const rlimit full{static_cast<rlim_t>(next->get()), before_.rlim_max};
    next->reset();
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &full), 0);
    EXPECT_FALSE(make_event().ok());
  }
  NoDescriptorIsFree(const NoDescriptorIsFree&) = delete;
  NoDescriptorIsFree& operator=(const NoDescriptorIsFree&) = delete;
  ~NoDescriptorIsFree() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

class FrontControl : public testing::Test {
 protected:
  FrontControl() {
    auto pair = ipc::make_socket_pair();
    supervisor_ = std::move(pair->own);
    ControlHooks hooks;
    hooks.host_up = [this](const std::string&, HostIdentity, Fd socket) {
      hosts_.push_back(std::move(socket));
    };
    hooks.adopt = [this](const Config& config, const std::string&, const TlsMaterial&) {
      keys_ = config.keys.size();
      return refuse_ ? Result<void>(invalid("no such tenant")) : Result<void>();
    };
    hooks.adopted = [this] {
      answer_ = next_answer();
      ++followed_;
    };
    hooks.ended = [this] { ended_ = true; };
    control_.emplace(io_.get_executor(), pair->theirs.release(), hooks);
    asio::co_spawn(io_, control_->run(), asio::detached);
  }

  void send(const std::string& record, const std::vector<int>& fds = {}) {
    EXPECT_TRUE(ipc::send_record(supervisor_.get(), record, fds, ipc::Wait::kDont).ok());
  }
  // Lets the front run until this holds.
  bool run_until(const std::function<bool()>& holds) {
    return test::eventually(10, [&] {
      io_.poll();
      return holds();
    });
  }
  json next_answer() {
    const auto received = ipc::receive_bytes(supervisor_.get(), ipc::Wait::kDont);
    return received ? json::parse(*received) : json();
  }

  asio::io_context io_;
  Fd supervisor_;
  std::optional<Control> control_;
  std::vector<Fd> hosts_;
  size_t keys_ = 0, followed_ = 0;
  json answer_;  // that was there when the parts followed
  bool refuse_ = false, ended_ = false;
};

TEST_F(FrontControl, AnswersAReloadBeforeItsPartsFollow) {
  send(large_reload());
  EXPECT_TRUE(run_until([&] { return followed_ == 1; }));
  EXPECT_EQ(keys_, 700U);
  EXPECT_EQ(answer_, json({{"type", "reloaded"}, {"number", 3}}));
}

TEST_F(FrontControl, AnswersARefusedReloadWithTheReason) {
  refuse_ = true;
  send(large_reload());
  send(R"({"type":"reload","number":4,"config":{"surplus":1},"tls":{"certificate":"","key":"",)"
       R"("client_ca":"","client_required":false}})");
  std::vector<json> answers;
  EXPECT_TRUE(run_until([&] {
    if (json answer = next_answer(); !answer.is_null()) answers.push_back(std::move(answer));
    return answers.size() == 2;
  }));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0], json({{"type", "reload_refused"}, {"number", 3}, {"message", "no such tenant"}}));
  EXPECT_EQ(answers[1].value("type", ""), "reload_refused");
  EXPECT_EQ(answers[1].value("number", 0), 4);
  EXPECT_EQ(followed_, 0U);
}

TEST_F(FrontControl, TakesReloadsAndHostsWithoutAFreeDescriptor) {
  const auto socket = make_event();
  send(large_reload());
  send(host_up(1), {socket->get()});
  send(large_reload());
  send(host_up(2), {socket->get()});
  {
    const NoDescriptorIsFree limit;
    EXPECT_TRUE(run_until([&] { return hosts_.size() == 2; }));
  }
  EXPECT_EQ(followed_, 2U);
  EXPECT_FALSE(ended_);
}

TEST_F(FrontControl, EndsWhenARecordIsLost) {
  const auto socket = make_event();
  constexpr int kSent = 20;
  for (int i = 1; i <= kSent; ++i) send(host_up(i), {socket->get()});
  {
    const NoDescriptorIsFree limit;
    EXPECT_TRUE(run_until([&] { return ended_; }));
  }
  EXPECT_LT(hosts_.size(), size_t{kSent});
  const auto end = ipc::receive_bytes(supervisor_.get(), ipc::Wait::kDont);
  EXPECT_EQ(end.error().os_errno, ECONNRESET) << "the supervisor does not see its end";
}

TEST_F(FrontControl, CompletesItsReserveWhenDescriptorsAreFreeAgain) {
  const auto socket = make_event();
  constexpr size_t kRounds = 20;
  for (size_t i = 0; i < kRounds; ++i) {
    send(host_up(1), {socket->get()});
    {
      const NoDescriptorIsFree limit;
      ASSERT_TRUE(run_until([&] { return hosts_.size() == 1; })) << "in round " << i;
    }
    hosts_.clear();
    control_->keep_reserve();
  }
}

}  // namespace
}  // namespace isogate::front
