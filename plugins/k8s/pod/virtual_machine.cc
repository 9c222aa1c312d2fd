#include "plugins/k8s/pod/virtual_machine.h"

#include <nlohmann/json.hpp>

#include "lib/text.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

constexpr size_t kBootId = 36;

bool is_boot_id(const std::string& text) {
  return text.size() == kBootId && text.find_first_not_of("0123456789abcdef-") == std::string::npos;
}

// On x86 the line `flags` of the first processor; elsewhere there is none.
bool has_hypervisor(const std::string& cpuinfo) {
  const size_t begin = cpuinfo.find("\nflags");
  if (begin == std::string::npos) return true;
  const size_t end = cpuinfo.find('\n', begin + 1);
  if (end == std::string::npos) return false;
  return (cpuinfo.substr(begin, end - begin) + " ").find(" hypervisor ") != std::string::npos;
}

}  // namespace

std::string why_no_machine(const Json& node, std::string boot_id, const std::string& cpuinfo) {
  const std::string of_node(trimmed(text_at(member(member(node, "status"), "nodeInfo"), "bootID"), " \n"));
  boot_id = std::string(trimmed(boot_id, " \n"));
  if (!is_boot_id(of_node)) return "its node does not name the boot of its kernel";
  if (!is_boot_id(boot_id)) return "its kernel does not name its boot";
  if (boot_id == of_node) return "it runs on the kernel of its node";
  if (!has_hypervisor(cpuinfo)) return "its processor knows of no hypervisor";
  return "";
}

void prove_machine(Services& services, sdk::RunnerLink& link, const PodState& pod, const sdk::Call& call) {
  if (!services.config.vm) return;
  std::string why;
  if (pod.node.empty()) unavailable("the node of the sandbox's pod is not known");
  try {
    const Json node = services.api.get({"v1", "", "nodes", pod.node}, call);
    why = why_no_machine(node, sdk::read_text(link, call, "/proc/sys/kernel/random/boot_id"),
                         sdk::read_text(link, call, "/proc/cpuinfo"));
  } catch (const NetError& error) {
    if (error.http_status() != 403) throw;
    why =
        "that is known by its node's boot, and these credentials may not get nodes: "
        "deploy/k8s/rbac-nodes.yaml";
  } catch (const sdk::Error& error) {
    const isogate_status status = error.status();
    if (status == ISOGATE_CANCELLED || status == ISOGATE_UNAVAILABLE || status == ISOGATE_RESOURCE_EXHAUSTED)
      throw;
    why = std::string("what tells it cannot be read: ") + error.what();
  }
  if (!why.empty())
    unavailable("a pod of the runtime class `" + services.config.runtime_class +
                "` is no virtual machine, as isolation: vm says: " + why);
}

}  // namespace isogate::k8s
