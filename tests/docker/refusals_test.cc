// What an Engine refuses is no mistake of the gateway's caller.
#include <fcntl.h>

#include "plugins/docker/backend.h"
#include "plugins/docker/container/container.h"
#include "tests/docker/fake_engine.h"

namespace isogate::docker {
namespace {

class Refusals : public testing::Test {
 protected:
  Refusals() {
    host_.struct_size = sizeof host_;
    host_.log = [](void*, uint32_t, isogate_str) {};
    host_.instance = host_.backend_name = host_.shell = sdk::str("test");
    host_.sandboxes_dir = host_.uids_dir = sdk::str(directory_.path());
  }
  [[nodiscard]] Fd directory() const {
    return Fd(::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void refuse(const std::string& path) {
    fake_.say(path, FakeEngine::json(R"({"message": "not authorized"})", "", 403));
  }
  void expect_ours(const std::function<void(const sdk::Call&)>& work, const char* what) {
    const isogate_call abi{sizeof abi, -1, INT64_MAX, {}};
    const sdk::Call call(abi);
    try {
      work(call);
      ADD_FAILURE() << what << " is not refused";
    } catch (const sdk::Error& error) {
      EXPECT_EQ(error.status(), ISOGATE_UNAVAILABLE) << what;
      EXPECT_NE(std::string(error.what()).find("the Engine answered 403: not authorized"), std::string::npos)
          << what << ": " << error.what();
    }
  }

  test::TemporaryDirectory directory_;
  isogate_host host_{};
  FakeEngine fake_;
};

TEST_F(Refusals, WhateverIsDoneWithAContainer) {
  Services services(sdk::Host(host_), parse_config(R"({"image": "x"})"),
                    parse_address(fake_.address(), "the test"));
  Parts parts;
  parts.owner = {"test", "test", "isg"};
  parts.sandbox_id = "isg";
  Container container(services, parts, {}, directory(), directory());
  Record record;
  record.name = "isg.1";
  record.id = "box";
  write_record(directory().get(), record);
  refuse("/info");
  refuse("/containers/box/json");
  expect_ours([&](const sdk::Call& call) { container.open(call); }, "an open");
  expect_ours([&](const sdk::Call& call) { container.attach({}, call); }, "an open that closes");
  expect_ours([&](const sdk::Call& call) { container.re_attach(call); }, "a re-attachment");
  expect_ours([&](const sdk::Call& call) { container.end(call); }, "an end");
  refuse("/volumes");
  expect_ours([&](const sdk::Call& call) { container.purge(call); }, "a purge");
}

TEST_F(Refusals, ALookAtTheImage) {
  const Json config = {{"image", "x"}, {"host", fake_.address()}};
  Backend backend(sdk::Host(host_), config.dump());
  refuse("/images/x/json");
  isogate_sandbox_spec spec{};
  spec.struct_size = sizeof spec;
  spec.sandbox_id = sdk::str("isg-aaaaaaaaaaaaaaaaaaaaaaaaaa");
  spec.tenant = spec.agent_id = sdk::str("a");
  isogate_sandbox_info info{};
  info.struct_size = sizeof info;
  expect_ours([&](const sdk::Call& call) { (void)backend.open(call, spec, info); }, "an open");
}

}  // namespace
}  // namespace isogate::docker
