#include "tests/namespace/boxes.h"

namespace isogate::test {

std::unique_ptr<Gateway> Boxes::gateway_;

std::unique_ptr<Gateway> Boxes::another(const std::string& backend_yaml) {
  GatewayOptions options;
  options.yaml = "backends:\n  - name: namespace\n" + backend_yaml + "\nexec: {max_timeout_sec: 200}";
  options.env = {{"GATEWAY_TOKEN", "the-gateway-s-own-secret"}};
  options.wait_ready = false;
  auto made = std::make_unique<Gateway>(options);
  EXPECT_TRUE(decided(*made)) << Caller(*made, "").get("/readyz").text;
  return made;
}

void Boxes::SetUp() {
  static const std::string obstacle = namespace_obstacle();
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  if (!gateway_) gateway_ = another("");
}

void Boxes::TearDown() {
  if (gateway_) expect_well(gateway(), x());
}

}  // namespace isogate::test
