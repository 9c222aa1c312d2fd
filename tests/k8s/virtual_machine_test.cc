// A pod that claims to be a virtual machine is measured.
#include "plugins/k8s/pod/virtual_machine.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/k8s/on_fake.h"

namespace isogate::k8s {
namespace {

using testing::HasSubstr;

const std::string kThis = "4e2b6a52-9a51-4f39-8c8b-0d6a5d2c7f10",
                  kOther = "0a6d1f3c-5a27-4b1e-9a44-7d1f2b3c4d5e";

Json node_of(const Json& boot_id) { return {{"status", {{"nodeInfo", {{"bootID", boot_id}}}}}}; }

std::string slurp(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(K8sVirtualMachine, IsAnotherBootOfAKernelUnderAHypervisor) {
  const std::string guest = "processor\t: 0\nflags\t\t: fpu hypervisor sse\nbugs\t:\n",
                    metal = "processor\t: 0\nflags\t\t: fpu sse\nbugs\t:\n",
                    arm = "processor\t: 0\nFeatures\t: fp\n";
  EXPECT_EQ(why_no_machine(node_of(kThis), kOther + "\n", guest), "");
  EXPECT_EQ(why_no_machine(node_of(kThis), kOther, arm), "");
  EXPECT_EQ(why_no_machine(node_of(kThis), kOther, "flags_of_old\nflags\t: a hypervisor\n"), "");
  EXPECT_THAT(why_no_machine(node_of(kThis), kThis + "\n", guest), HasSubstr("kernel of its node"));
  EXPECT_THAT(why_no_machine(node_of(kThis), kOther, metal), HasSubstr("no hypervisor"));
  EXPECT_THAT(why_no_machine(node_of(kThis), kOther, "x\nflags\t: cut off hypervisor"),
              HasSubstr("no hypervisor"));
}

TEST(K8sVirtualMachine, AnUnknownKernelIsNoMachine) {
  const std::string guest = "\nflags\t: hypervisor \n";
  for (const Json& boot_id : {Json(""), Json(nullptr), Json(7), Json("not-a-boot")})
    EXPECT_THAT(why_no_machine(node_of(boot_id), kOther, guest), HasSubstr("node does not name")) << boot_id;
  EXPECT_THAT(why_no_machine(Json::object(), kOther, guest), HasSubstr("node does not name"));
  EXPECT_THAT(why_no_machine(Json(), kOther, guest), HasSubstr("node does not name"));
  for (const char* boot_id : {"", "\n", "unknown"})
    EXPECT_THAT(why_no_machine(node_of(kThis), boot_id, guest), HasSubstr("kernel does not name")) << boot_id;
}

// The pods of this API server run on this machine's kernel.
class K8sMachines : public OnFake {
 protected:
  void answer_nodes(const std::string& boot_id, int status = 200) {
    api_.answer_if([](const Heard& heard) { return heard.target.find("/nodes/") != std::string::npos; },
                   FakeCluster::json(node_of(boot_id).dump(), status));
  }
  static constexpr const char* kVm = R"("isolation": "vm", "runtime_class": "kata")";
};

TEST_F(K8sMachines, APodOnTheKernelOfItsNodeIsRefusedAndLeavesNothing) {
  answer_nodes(slurp("/proc/sys/kernel/random/boot_id"));
  FakeGateway gateway(api_, "/state", kVm);
  std::string why;
  EXPECT_EQ(status_of([&] { gateway.open(); }, &why), ISOGATE_UNAVAILABLE);
  EXPECT_THAT(why, HasSubstr("it runs on the kernel of its node"));
  EXPECT_TRUE(api_.all("pods").empty());
  EXPECT_TRUE(api_.all("leases").empty());
}

TEST_F(K8sMachines, WithoutARightToItsNodeNothingIsClaimed) {
  answer_nodes(kOther, 403);
  FakeGateway gateway(api_, "/state", kVm);
  std::string why;
  EXPECT_EQ(status_of([&] { gateway.open(); }, &why), ISOGATE_UNAVAILABLE);
  EXPECT_THAT(why, HasSubstr("rbac-nodes.yaml"));
}

TEST_F(K8sMachines, APodOnAKernelOfItsOwnServes) {
  if (slurp("/proc/cpuinfo").find(" hypervisor ") == std::string::npos)
    GTEST_SKIP() << "this machine is no guest";
  answer_nodes(kOther);
  FakeGateway gateway(api_, "/state", kVm);
  auto box = gateway.ready();
  EXPECT_EQ(gateway.run(box, "echo served"), "served\n");
}

// A pod that was measured as less does not serve as one.
TEST_F(K8sMachines, APodThatWasNoMachineIsRecreatedAsOne) {
  FakeGateway before(api_, "/state", R"("runtime_class": "kata")");
  auto box = before.ready();
  const std::string handle = box.handle;
  before.close(box, ISOGATE_CLOSE_DETACH);
  answer_nodes(slurp("/proc/sys/kernel/random/boot_id"));
  FakeGateway after(api_, "/state", kVm);
  std::string why;
  EXPECT_EQ(status_of([&] { after.open(ISOGATE_OPEN_KNOWN, handle); }, &why), ISOGATE_UNAVAILABLE);
  EXPECT_THAT(why, HasSubstr("it runs on the kernel of its node"));
}

}  // namespace
}  // namespace isogate::k8s
