// One table of cases that every backend must pass, whatever it isolates. A case gets a world: a running
// gateway with only that backend, and its own agent. What only some backends can do is read from the world's
// capabilities, as a client would read GET /backends; a case never asks for a backend's name.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/processes.h"

namespace isogate::test {

// Who started the gateway.
enum class Starter { kRoot, kUser };
inline constexpr uid_t kOrdinaryUser = 65534;

struct World {
  Gateway& gateway;
  Caller me;  // the agent of this case
  std::string backend;
  Starter starter;
  std::set<std::string> capabilities;
  std::string isolation, locality;

  [[nodiscard]] bool can(const std::string& capability) const { return capabilities.count(capability) > 0; }
  // Programs run where this test can see them in /proc.
  [[nodiscard]] bool shares_processes() const {
    return locality == "process" || (locality == "host" && isolation != "vm");
  }
  // Another gateway with this backend and starter. `more`: lines of yaml for it.
  [[nodiscard]] std::unique_ptr<Gateway> another(const std::string& more = {},
                                                 const std::string& state_dir = {}) const;
  [[nodiscard]] Caller stranger() const { return me.as("other-" + me.agent()); }
};

// Another gateway of the case, with its agent there.
struct Own {
  explicit Own(const World& w, const std::string& more = {}, const std::string& state_dir = {})
      : gateway(w.another(more, state_dir)), me(*gateway, w.me.agent()) {}
  std::unique_ptr<Gateway> gateway;
  Caller me;
};

struct Case {
  const char* name;
  int promise;  // of the nine in docs/http-api.md; 0: the API itself
  void (*run)(World&);
};

std::span<const Case> exec_cases();
std::span<const Case> ending_cases();
std::span<const Case> output_cases();
std::span<const Case> stream_cases();
std::span<const Case> long_exec_cases();
std::span<const Case> port_cases();
std::span<const Case> port_proxy_cases();
std::span<const Case> limit_cases();
std::span<const Case> file_cases();
std::span<const Case> file_path_cases();
std::span<const Case> raw_file_cases();
std::span<const Case> archive_cases();
std::span<const Case> watch_cases();
std::span<const Case> sandbox_cases();
std::span<const Case> selection_cases();
std::span<const Case> agent_cases();
std::span<const Case> access_cases();
std::span<const Case> error_cases();
std::span<const Case> http_cases();
std::span<const Case> operation_cases();

// What a gateway is started with so that this backend may serve; `more` is appended.
GatewayOptions options_for(const std::string& backend, Starter starter, const std::string& more = {});
// Lines of yaml: two tenants, alpha with key_of('A') and beta with key_of('B').
std::string two_keys();
std::string key_of(char c);
// What shared_dirs of every world names: prefix `shared`, with `hello` ("shared hello\n") in it.
const std::string& shared_directory();

// The directory that has `file`, below what a gateway's backend keeps for this sandbox on this host. Empty:
// there is none.
std::string directory_of(const Gateway& gateway, const std::string& sandbox_id, const std::string& file);

// No process has the mark any more: on this host or, if programs run elsewhere, in the sandbox as its next
// exec sees it.
bool nothing_left(World& w, const std::string& mark);
// For cases that need ports, which a backend without them refuses.
#define SKIP_WITHOUT_PORTS(w) \
  if (!w.can("ports")) GTEST_SKIP() << "its sandboxes have no ports"

// A backend of this tree, not somebody's own plugin: what it does not claim it has lost.
bool is_ours();

// For cases that find files again after their sandbox was stopped.
#define SKIP_WITHOUT_PERSISTENCE(w) \
  if (!w.can("persistent") && !is_ours()) GTEST_SKIP() << "its workspaces end with its sandboxes"

// Runs port_server.c there until the sandbox ends. Returns the path of its output; throws std::runtime_error
// if it does not listen.
std::string start_port_server(const Caller& me, const std::string& kind, int port = 8080);
// Its row of GET /sandboxes; null: the agent has no sandbox.
Json row_of(const Caller& me);

}  // namespace isogate::test
