#include "gateway/supervisor/control.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "gateway/config/load.h"
#include "gateway/ipc/channel.h"

namespace isogate::supervisor {
namespace {

using Json = nlohmann::json;

Config sample() {
  Config config;
  config.listen = {"0.0.0.0:9090"};
  config.state_dir = "/var/lib/isogate";
  config.plugin_dir = "/usr/lib/isogate";
  config.keys = {{"ci", "acme", std::string(64, 'a')}};
  config.log.file = "/var/log/isogate.log";
  for (const char* name : {"one", "two"}) {
    BackendConfig backend;
    backend.name = name;
    backend.plugin = "docker";
    backend.config_json = std::string(R"({"token":"secret-of-)") + name + "\"}";
    config.backends.push_back(backend);
  }
  return config;
}

TEST(Documents, the_front_learns_no_secret_of_a_backend) {
  const std::string document = front_document(sample());
  EXPECT_EQ(document.find("secret-of"), std::string::npos);
  auto config = config_from_json(document);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->keys.size(), 1u);
  EXPECT_EQ(config->backends.size(), 2u);
  EXPECT_EQ(config->log.file, "");
}

TEST(Documents, a_host_learns_no_key_and_no_other_backend) {
  const Config whole = sample();
  const std::string document = host_document(whole, whole.backends[1]);
  EXPECT_EQ(document.find("secret-of-one"), std::string::npos);
  EXPECT_EQ(document.find(std::string(64, 'a')), std::string::npos);
  auto config = config_from_json(document);
  ASSERT_TRUE(config.ok()) << config.error().message;
  ASSERT_EQ(config->backends.size(), 1u);
  EXPECT_EQ(Json::parse(config->backends[0].config_json)["token"], "secret-of-two");
}

TEST(Control, only_known_messages_are_taken) {
  EXPECT_EQ(parse_from_child(R"({"type":"ready"})")->type, "ready");
  EXPECT_EQ(parse_from_child(R"({"type":"failed","message":"why"})")->message, "why");
  const auto stuck = parse_from_child(R"({"type":"stuck","message":"one","generation":7,"reason":"why"})");
  EXPECT_EQ(stuck->message, "one");
  EXPECT_EQ(stuck->generation, 7u);
  EXPECT_EQ(stuck->reason, "why");
  EXPECT_FALSE(stuck->probed);
  EXPECT_TRUE(parse_from_child(R"({"type":"stuck","message":"one","probed":true})")->probed);
  EXPECT_FALSE(parse_from_child(R"({"type":"stuck","message":"one","probed":"true"})")->probed);
  EXPECT_EQ(parse_from_child(R"({"type":"stuck","message":"one","generation":-7})")->generation, 0u);
  const auto refused = parse_from_child(R"({"type":"reload_refused","number":3,"message":"why"})");
  EXPECT_EQ(refused->number, 3u);
  EXPECT_EQ(refused->message, "why");
  EXPECT_EQ(parse_from_child(R"({"type":"reloaded","number":3})")->type, "reloaded");
  for (const char* bad :
       {"", "ready", "[]", "{}", R"({"type":7})", R"({"type":"start"})", "{\"type\":\"ready\""})
    EXPECT_FALSE(parse_from_child(bad).ok()) << bad;
}

TEST(Control, a_reason_in_no_encoding_still_makes_a_message) {
  const std::string message = backend_down_message({"one", 3, "bytes \xff\xfe", false, true});
  EXPECT_EQ(Json::parse(message)["generation"], 3);
  EXPECT_EQ(Json::parse(message)["restarting"], true);
}

TEST(ControlChannel, a_child_that_does_not_read_is_not_waited_for) {
  auto pair = ipc::make_socket_pair();
  ASSERT_TRUE(pair.ok());
  ControlChannel channel(std::move(pair->own));
  const std::string record(30000, 'x');
  for (int i = 0; i < 100; ++i) channel.send(record);
  EXPECT_TRUE(channel.wants_to_write());
  for (int i = 0; i < 100; ++i) {
    auto received = ipc::receive_record(pair->theirs.get(), ipc::Wait::kDont);
    ASSERT_TRUE(received.ok()) << i << " " << received.error().message;
    EXPECT_EQ(received->bytes.size(), record.size());
    channel.flush();
  }
  EXPECT_FALSE(channel.wants_to_write());
}

TEST(ControlChannel, a_record_waits_while_descriptors_are_short) {
  auto pair = ipc::make_socket_pair();
  ASSERT_TRUE(pair.ok());
  ControlChannel channel(std::move(pair->own));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  channel.send(std::string(ipc::kMaxInlineBytes + 1, 'x'));  // in a memfd
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(channel.wants_to_write());
  channel.flush();
  EXPECT_FALSE(channel.wants_to_write());
  auto received = ipc::receive_record(pair->theirs.get(), ipc::Wait::kDont);
  ASSERT_TRUE(received.ok()) << received.error().message;
  EXPECT_EQ(received->bytes.size(), ipc::kMaxInlineBytes + 1);
}

TEST(ControlChannel, descriptors_are_delivered_and_not_kept) {
  auto pair = ipc::make_socket_pair();
  auto pipe = make_pipe();
  ASSERT_TRUE(pair.ok() && pipe.ok());
  ControlChannel channel(std::move(pair->own));
  std::vector<Fd> owned;
  owned.push_back(std::move(pipe->write));
  channel.send("x", {}, std::move(owned));
  {
    auto received = ipc::receive_record(pair->theirs.get(), ipc::Wait::kDont);
    ASSERT_TRUE(received.ok());
    ASSERT_EQ(received->fds.size(), 1u);
  }
  char byte = 0;
  EXPECT_EQ(::read(pipe->read.get(), &byte, 1), 0) << "the write end is still open";
}

TEST(ControlChannel, sees_the_end_and_nonsense) {
  auto pair = ipc::make_socket_pair();
  ASSERT_TRUE(pair.ok());
  ControlChannel channel(std::move(pair->own));
  EXPECT_FALSE(channel.hung_up());
  EXPECT_FALSE(channel.receive()->has_value());
  ASSERT_TRUE(ipc::send_record(pair->theirs.get(), "nonsense", {}, ipc::Wait::kBlock).ok());
  EXPECT_FALSE(channel.receive().ok());
  EXPECT_EQ(channel.fd(), -1);
  EXPECT_TRUE(channel.hung_up());
}

TEST(ControlChannel, records_too_many_too_large_or_with_descriptors_end_it) {
  const std::string ready = R"({"type":"ready"})";
  const auto ends = [](const std::string& record, const std::vector<int>& fds, int count) {
    auto pair = ipc::make_socket_pair();
    ControlChannel channel(std::move(pair->own));
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(ipc::send_record(pair->theirs.get(), record, fds, ipc::Wait::kBlock).ok());
      if (!channel.receive().ok()) return true;
    }
    return false;
  };
  EXPECT_FALSE(ends(ready, {}, ControlChannel::kBurst));
  EXPECT_TRUE(ends(ready, {}, 1000));
  EXPECT_TRUE(ends(ready, {0, 1}, 1));
  EXPECT_TRUE(ends(R"({"type":"failed","message":")" + std::string(1 << 20, 'x') + "\"}", {}, 1));
}

}  // namespace
}  // namespace isogate::supervisor
