// A runner that does not answer when its exec must end, or that ends before its call.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tests/eventually.h"
#include "tests/k8s/on_fake.h"

namespace isogate::k8s {
namespace {

class K8sLateRunner : public OnFake {
 protected:
  [[nodiscard]] std::string pod() const {
    return api_.all("pods").empty() ? "" : api_.all("pods")[0].at("metadata").at("name").get<std::string>();
  }
};

// What still runs there is not known: the pod is not left until the next call.
TEST_F(K8sLateRunner, CostsItsPodAtOnce) {
  FakeGateway gateway(api_, "/state", R"("liveness_interval_sec": 0)");
  auto box = gateway.used();
  const std::string name = pod();
  ASSERT_FALSE(name.empty());
  const std::shared_ptr<void> thaw(nullptr, [&](void*) { api_.freeze(name, false); });
  std::thread freezer([&] {
    const std::string mark = api_.workspace_of(name) + "/up";
    EXPECT_TRUE(test::eventually(20, [&] { return std::filesystem::exists(mark); }));
    api_.freeze(name, true);
    api_.signal_hanging_in(std::chrono::milliseconds(500));
  });
  EXPECT_EQ(status_of([&] { gateway.run(box, "touch up; sleep 100"); }), ISOGATE_LOST);
  freezer.join();
  EXPECT_EQ(pod(), "") << gateway.log();
  EXPECT_FALSE(api_.runs(name));
  api_.await_signal();
  api_.count_from_now();
  EXPECT_EQ(gateway.run(box, "echo again"), "again\n");
}

// From the next pod it would come behind the first part.
TEST_F(K8sLateRunner, AReadThatItBreaksOffIsNotRepeated) {
  constexpr size_t kSize = 32'000'000;
  FakeGateway gateway(api_, "/state", R"("liveness_interval_sec": 0)");
  auto box = gateway.used("head -c " + std::to_string(kSize) + " /dev/zero > large");
  const std::string name = pod();
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  size_t came = 0;
  std::thread reader([&] {
    char piece[4096];
    for (ssize_t size = 0; (size = ::read(pipe->read.get(), piece, sizeof piece)) > 0;) {
      if (came == 0) api_.drop("pods", name);
      came += static_cast<size_t>(size);
    }
  });
  const isogate_call call{sizeof call, api_.hanging(), INT64_MAX, {}};
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.path = sdk::str("large");
  request.limit = UINT64_MAX;
  request.fd = pipe->write.get();
  request.complete_fd = -1;
  isogate_entry entry{};
  entry.struct_size = sizeof entry;
  EXPECT_EQ(status_of([&] { box.sandbox->read(sdk::Call(call), request, entry); }), ISOGATE_UNAVAILABLE);
  pipe->write.reset();
  reader.join();
  EXPECT_LT(came, kSize);
}

}  // namespace
}  // namespace isogate::k8s
