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

std::vector<std::string> python(const std::string& code) {
  return {"/usr/bin/python3", "-c",
          "import ctypes,os,sys,errno,socket,struct\n"
          "libc=ctypes.CDLL(None,use_errno=True)\n"
          "def call(*a):\n"
          "  r=libc.syscall(*[ctypes.c_long(x) if isinstance(x,int) else x for x in a])\n"
          "  return r if r!=-1 else -ctypes.get_errno()\n" +
              code};
}

}  // namespace isogate::test
