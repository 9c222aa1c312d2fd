#include "tests/contract/contract.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <stdexcept>

#include "tests/support/cluster.h"
#include "tests/support/engine.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

// Somebody's own plugin, if the table is to be run on that one alone: sdk/conformance/run.sh.
const char* const kTheirs = std::getenv("ISOGATE_TEST_PLUGIN");
const std::vector<std::string> kBackends =
    kTheirs == nullptr ? std::vector<std::string>{"local", "namespace", "docker", "k8s"}
                       : std::vector<std::string>{"theirs"};

// Theirs, under the one name that this table knows it by.
const std::string& plugin_dir() {
  static const TemporaryDirectory directory;
  static const std::string path = [] {
    if (kTheirs == nullptr) return std::string(ISOGATE_BUILD_DIR "/plugins");
    ::chmod(directory.path().c_str(), 0755);
    std::error_code problem;
    std::filesystem::copy_file(kTheirs, directory.path() + "/theirs.so", problem);
    if (problem) throw std::runtime_error("cannot copy " + std::string(kTheirs) + ": " + problem.message());
    return directory.path();
  }();
  return path;
}

struct Param {
  Starter starter;
  std::string backend;
  const Case* each;  // nullptr: only reports why this backend is left out
};

void PrintTo(const Param& param, std::ostream* to) { *to << param.backend; }

// With ISOGATE_TEST_CASES=sandbox only the cases that another kind of sandbox could break: what the gateway
// itself decides is left out. With `files` those that another kind of workspace could break, with `transport`
// those that another way to the same runner could break.
std::vector<const Case*> all_cases() {
  const char* given = std::getenv("ISOGATE_TEST_CASES");
  const std::string which = given == nullptr ? "" : given;
  std::vector<std::span<const Case>> groups = {sandbox_cases()};
  if (which != "transport")
    groups.insert(groups.begin(),
                  {file_cases(), file_path_cases(), raw_file_cases(), archive_cases(), watch_cases()});
  if (which != "files")
    groups.insert(groups.begin(), {exec_cases(), ending_cases(), output_cases(), stream_cases(),
                                   long_exec_cases(), port_cases(), port_proxy_cases()});
  if (which.empty())
    groups.insert(groups.end(), {limit_cases(), selection_cases(), agent_cases(), access_cases(),
                                 error_cases(), http_cases(), operation_cases()});
  std::vector<const Case*> all;
  for (const auto cases : groups)
    for (const Case& each : cases) all.push_back(&each);
  return all;
}

bool is_built(const std::string& backend) {
  return ::access((plugin_dir() + "/" + backend + ".so").c_str(), R_OK) == 0;
}

std::vector<Param> params() {
  std::vector<Param> all;
  for (const Starter starter : {Starter::kRoot, Starter::kUser})
    for (const std::string& backend : kBackends) {
      if (!is_built(backend)) all.push_back({starter, backend, nullptr});
      for (const Case* each : is_built(backend) ? all_cases() : std::vector<const Case*>{})
        all.push_back({starter, backend, each});
    }
  return all;
}

std::string name_of(const testing::TestParamInfo<Param>& info) {
  return std::string(info.param.starter == Starter::kRoot ? "root_" : "user_") + info.param.backend + "_" +
         (info.param.each == nullptr ? "is_absent" : info.param.each->name);
}

// One gateway per starter and backend, for all its cases.
struct Stage {
  std::unique_ptr<Gateway> gateway;
  std::string obstacle;  // why there is none
  bool broken = false;   // and that is no fault of this host
  Json row;              // of GET /backends
};

std::string starter_obstacle(Starter starter) {
  if (starter == Starter::kRoot) return root_gateway_obstacle();
  return {};
}

Stage make_stage(Starter starter, const std::string& backend) {
  Stage stage;
  stage.obstacle = starter_obstacle(starter);
  if (stage.obstacle.empty() && backend == "docker") stage.obstacle = engine_obstacle();
  if (stage.obstacle.empty() && backend == "k8s") stage.obstacle = cluster_obstacle();
  if (!stage.obstacle.empty()) return stage;
  GatewayOptions options = options_for(backend, starter, "instance: contract-" + new_mark());
  options.wait_ready = false;
  auto gateway = std::make_unique<Gateway>(options);
  Caller caller(*gateway, "");
  // An engine that other suites keep busy may be late to answer a probe.
  const auto is_late = [&stage] {
    return stage.row.value("reason", "").find("did not answer") != std::string::npos;
  };
  eventually(120, [&] {
    const Answer answer = caller.get("/backends");
    if (answer.status == 200) stage.row = answer.body.at("backends").at(0);
    return stage.row.is_object() && stage.row.at("verdict") != "starting" && !is_late();
  });
  if (stage.row.is_object() && stage.row.at("eligible") == true)
    stage.gateway = std::move(gateway);
  else
    stage.obstacle =
        "backend `" + backend + "` cannot serve here: " +
        (stage.row.is_object() ? stage.row.value("reason", stage.row.dump()) : "the gateway does not answer");
  stage.broken = stage.gateway == nullptr &&
                 (backend == "local" || kTheirs != nullptr || !stage.row.is_object() || is_late());
  return stage;
}

std::map<std::pair<Starter, std::string>, Stage>& stages() {
  static std::map<std::pair<Starter, std::string>, Stage> all;
  return all;
}

class Contract : public testing::TestWithParam<Param> {
 protected:
  static void TearDownTestSuite() { stages().clear(); }
  static Stage& stage() {
    const auto key = std::make_pair(GetParam().starter, GetParam().backend);
    const auto found = stages().find(key);
    if (found != stages().end()) return found->second;
    return stages().emplace(key, make_stage(key.first, key.second)).first->second;
  }
};

// Cases that end or replace their sandbox cannot share it.
bool wants_its_own(const Case* each) {
  for (const auto cases : {sandbox_cases(), agent_cases(), selection_cases(), operation_cases()})
    if (each >= cases.data() && each < cases.data() + cases.size()) return true;
  return false;
}

// The next case would find what an earlier one left running: a port that is taken, a file that comes back.
void end_long_execs(const Caller& shared) {
  const Answer list = shared.get("/execs?agent_id=" + shared.agent());
  if (list.status != 200) return;
  for (const Json& exec : list.body.at("execs"))
    if (exec.at("state") != "ended") shared.call("DELETE", "/execs/" + exec.at("exec_id").get<std::string>());
}

// A pod takes seconds to start and to end: most cases there share one agent, and each finds its workspace
// empty.
std::string agent_of(Stage& stage, const Param& param) {
  if (stage.row.at("locality") != "cluster" || wants_its_own(param.each)) return param.each->name;
  const Caller shared(*stage.gateway, "shared");
  end_long_execs(shared);
  shared.run("chmod -R u+rwx . 2>/dev/null; find . -mindepth 1 -delete; find /tmp -mindepth 1 -delete");
  return shared.agent();
}

World world_of(Stage& stage, const Param& param) {
  std::string agent = agent_of(stage, param);
  World world{
      *stage.gateway, Caller(*stage.gateway, agent.substr(0, 50)), param.backend, param.starter, {}, {}, {}};
  for (const Json& name : stage.row.at("capabilities")) world.capabilities.insert(name);
  world.isolation = stage.row.at("isolation");
  world.locality = stage.row.at("locality");
  return world;
}

TEST_P(Contract, Holds) {
  Stage& here = stage();
  ASSERT_FALSE(here.broken) << here.obstacle;
  if (!here.obstacle.empty()) GTEST_SKIP() << here.obstacle;
  ASSERT_NE(GetParam().each, nullptr) << "there is no plugin of that name in the build, yet it serves";
  SCOPED_TRACE("promise " + std::to_string(GetParam().each->promise));
  // An engine that other suites keep busy may be late to answer a probe.
  ASSERT_TRUE(eventually(60, [&] { return http_call(here.gateway->url(), "GET", "/readyz").status == 200; }));
  try {
    World world = world_of(here, GetParam());
    GetParam().each->run(world);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_EQ(http_call(here.gateway->url(), "GET", "/healthz").status, 200) << "the gateway suffered";
}

// The `config` of all backends in this yaml: what k8s needs to find the cluster, and for a run of the table
// on another way of the same backend what ISOGATE_TEST_CONFIG says, members in YAML's flow style. Where the
// cluster enforces policies egress is denied.
// An ordinary user's gateway has no cgroups in most places, and `namespace` then no limits to begin with.
std::string with_config(const std::string& backend, Starter starter, const std::string& yaml) {
  const char* variant = std::getenv("ISOGATE_TEST_CONFIG");
  std::string members =
      backend == "k8s"
          ? cluster_config() +
                ", ready_timeout_sec: 240, shared: [{prefix: shared, claim: isogate-test-shared}]"
          : "";
  if (backend == "namespace" && starter == Starter::kUser) members = "memory_mb: 0, cpus: 0, pids: 0";
  if (variant != nullptr) members += (members.empty() ? "" : ", ") + std::string(variant);
  if (members.empty()) return yaml;
  const bool denies =
      backend == "k8s" && cluster_enforces_policies() && yaml.find("egress:") == std::string::npos;
  static const std::regex name("\n  - name: [^\n]+");
  return std::regex_replace(yaml, name,
                            "$&\n    config: {" + members + "}" + (denies ? "\n    egress: deny" : ""));
}

INSTANTIATE_TEST_SUITE_P(Every, Contract, testing::ValuesIn(params()), name_of);

}  // namespace

bool is_ours() { return kTheirs == nullptr; }

const std::string& shared_directory() {
  static const TemporaryDirectory directory;
  static const std::string path = [] {
    ::chmod(directory.path().c_str(), 0755);
    directory.file("hello", "shared hello\n");
    return directory.path();
  }();
  return path;
}

std::string directory_of(const Gateway& gateway, const std::string& sandbox_id, const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code none;
  fs::recursive_directory_iterator each(gateway.state_dir() + "/sandboxes/" + sandbox_id,
                                        fs::directory_options::skip_permission_denied, none);
  for (; !none && each != fs::recursive_directory_iterator(); each.increment(none))
    if (each->path().filename() == file) return each->path().parent_path();
  return {};
}

GatewayOptions options_for(const std::string& backend, Starter starter, const std::string& more) {
  GatewayOptions options;
  options.yaml = more;
  if (more.find("allow_unisolated:") == std::string::npos) options.yaml += "\nallow_unisolated: true";
  if (more.find("backends:") == std::string::npos) options.yaml += "\nbackends:\n  - name: " + backend;
  options.yaml = with_config(backend, starter, options.yaml) + "\nplugin_dir: " + plugin_dir();
  if (more.find("shared_dirs:") == std::string::npos)
    options.yaml += "\nshared_dirs:\n  - prefix: shared\n    path: " + shared_directory();
  options.env = {{"GATEWAY_TOKEN", "the-gateway-s-own-secret"}};
  if (const std::string engine = engine_address(); !engine.empty())
    options.env.emplace_back("DOCKER_HOST", engine);
  options.run_as = starter == Starter::kUser ? kOrdinaryUser : 0;
  return options;
}

std::unique_ptr<Gateway> World::another(const std::string& more, const std::string& state_dir) const {
  // Each of the gateways that share an engine has its own name, and keeps it over a restart.
  static std::map<std::string, std::string> names;
  const auto known = names.find(state_dir);
  const std::string name = known != names.end() ? known->second : "another-" + new_mark();
  const bool named = more.find("instance:") != std::string::npos;
  GatewayOptions options = options_for(backend, starter, named ? more : more + "\ninstance: " + name);
  options.state_dir = state_dir;
  options.wait_ready = false;
  auto other = std::make_unique<Gateway>(options);
  names[other->state_dir()] = name;
  EXPECT_TRUE(decided(*other)) << Caller(*other, "").get("/readyz").text;
  return other;
}

}  // namespace isogate::test
