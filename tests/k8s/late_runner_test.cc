// A runner that does not answer when its exec must end.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace isogate::k8s
