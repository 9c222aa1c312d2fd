#include "plugins/docker/engine.h"

#include <nlohmann/json.hpp>

#include "plugins/docker/engine_pool.h"

namespace isogate::docker {
namespace {

bool flag_at(const Json& object, const char* name) { return member(object, name) == Json(true); }

std::vector<std::string> texts_of(const Json& array) {
  std::vector<std::string> texts;
  for (const Json& one : array)
    if (one.is_string()) texts.push_back(one.get<std::string>());
  return texts;
}

std::string id_in(const Json& answer, const std::string& attempt) {
  std::string id = text_at(answer, "Id");
  if (id.empty())
    throw EngineError(ISOGATE_UNAVAILABLE, "cannot " + attempt + ": the Engine names no id", 0, true);
  return in_path(id);
}

}  // namespace

Engine::Engine(EngineAddress address) : pool_(std::make_shared<Pool>(std::move(address))) {}
Engine::~Engine() = default;
const EngineAddress& Engine::address() const { return pool_->address; }

void Engine::ping(const Budget& budget) {
  EngineRequest request{"reach the Engine", "GET", "/_ping", {200}};
  request.versioned = false;
  pool_->text(request, budget);
}

EngineInfo Engine::info(const Budget& budget) {
  EngineInfo info;
  info.api_version = pool_->negotiate(budget);
  info.podman = pool_->podman();
  const Json answer = pool_->json({"ask the Engine about itself", "GET", "/info", {200}}, budget);
  info.version = text_at(answer, "ServerVersion");
  info.os = text_at(answer, "OSType");
  info.architecture = text_at(answer, "Architecture");
  info.kernel = text_at(answer, "KernelVersion");
  info.id = text_at(answer, "ID");
  info.cgroup_version = text_at(answer, "CgroupVersion");
  info.cgroup_driver = text_at(answer, "CgroupDriver");
  info.data_root = text_at(answer, "DockerRootDir");
  info.default_runtime = text_at(answer, "DefaultRuntime");
  info.memory_limit = flag_at(answer, "MemoryLimit");
  info.swap_limit = flag_at(answer, "SwapLimit");
  info.cpu_quota = flag_at(answer, "CpuCfsQuota");
  info.pids_limit = flag_at(answer, "PidsLimit");
  if (const Json& count = member(answer, "NCPU"); count.is_number_integer()) info.processors = count;
  info.security_options = texts_of(member(answer, "SecurityOptions"));
  const Json& runtimes = member(answer, "Runtimes");
  for (auto one = runtimes.begin(); runtimes.is_object() && one != runtimes.end(); ++one)
    info.runtimes.push_back(one.key());
  for (const auto& option : info.security_options)
    if (option == "name=rootless" || option == "rootless") info.rootless = true;
  if (flag_at(answer, "Rootless")) info.rootless = true;  // podman
  return info;
}

std::string Engine::create_container(const std::string& name, const Json& body, const Budget& budget,
                                     const std::string& platform) {
  const std::string attempt = "create " + quoted("container", name);
  const std::string of_platform = platform.empty() ? "" : "&platform=" + encode(platform);
  EngineRequest request{attempt,
                        "POST",
                        "/containers/create?name=" + in_path(name) + of_platform,
                        {201},
                        dump(body, attempt),
                        ISOGATE_ALREADY_EXISTS};
  return id_in(pool_->json(request, budget), attempt);
}

void Engine::start(const std::string& id, const Budget& budget) {
  pool_->text(
      {"start " + quoted("container", id), "POST", "/containers/" + in_path(id) + "/start", {204, 304}},
      budget);
}

void Engine::stop(const std::string& id, std::chrono::seconds grace, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/stop?t=" + std::to_string(grace.count());
  pool_->text({"stop " + quoted("container", id), "POST", path, {204, 304}}, budget);
}

void Engine::kill(const std::string& id, const std::string& signal, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/kill?signal=" + encode(signal);
  pool_->text({"kill " + quoted("container", id), "POST", path, {204}}, budget);
}

void Engine::remove(const std::string& id, bool force, bool volumes, const Budget& budget) {
  const std::string path =
      "/containers/" + in_path(id) + "?force=" + (force ? "1" : "0") + "&v=" + (volumes ? "1" : "0");
  pool_->text({"remove " + quoted("container", id), "DELETE", path, {200, 204}}, budget);
}

Json Engine::inspect(const std::string& id, const Budget& budget) {
  return pool_->json(
      {"inspect " + quoted("container", id), "GET", "/containers/" + in_path(id) + "/json", {200}}, budget);
}

void Engine::rename(const std::string& id, const std::string& name, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/rename?name=" + in_path(name);
  pool_->text({"rename " + quoted("container", id), "POST", path, {204}, "", ISOGATE_ALREADY_EXISTS}, budget);
}

std::vector<Json> Engine::list(const std::vector<LabelFilter>& labels, const Budget& budget) {
  const std::string path = "/containers/json?all=1&filters=" + label_filters(labels);
  return carrying(pool_->json({"list containers", "GET", path, {200}}, budget), labels);
}

int64_t Engine::wait(const std::string& id, const Budget& budget) {
  const Json answer = pool_->json(
      {"wait for " + quoted("container", id), "POST", "/containers/" + in_path(id) + "/wait", {200}}, budget);
  const Json& code = member(answer, "StatusCode");
  if (!code.is_number_integer())
    throw EngineError(ISOGATE_UNAVAILABLE,
                      "cannot wait for " + quoted("container", id) + ": the Engine names no exit code", 0,
                      true);
  return code.get<int64_t>();
}

std::string Engine::exec_create(const std::string& id, const Json& body, const Budget& budget) {
  const std::string attempt = "prepare an exec in " + quoted("container", id);
  EngineRequest request{attempt, "POST", "/containers/" + in_path(id) + "/exec", {201}, dump(body, attempt)};
  return id_in(pool_->json(request, budget), attempt);
}

std::unique_ptr<EngineStream> Engine::exec_start(const std::string& exec_id, bool tty, const Budget& budget) {
  EngineReply reply = pool_->hijack({"start " + quoted("exec", exec_id),
                                     "POST",
                                     "/exec/" + in_path(exec_id) + "/start",
                                     {},
                                     Json{{"Detach", false}, {"Tty", tty}}.dump()},
                                    budget);
  std::string early;
  auto transport = reply.connection->detach(early);
  return std::make_unique<EngineStream>(std::move(transport), std::move(early), !tty);
}

Json Engine::exec_inspect(const std::string& exec_id, const Budget& budget) {
  return pool_->json(
      {"inspect " + quoted("exec", exec_id), "GET", "/exec/" + in_path(exec_id) + "/json", {200}}, budget);
}

std::unique_ptr<EngineStream> Engine::attach(const std::string& id, bool tty, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/attach?stream=1&stdin=1&stdout=1&stderr=1";
  EngineReply reply = pool_->hijack({"attach to " + quoted("container", id), "POST", path, {}}, budget);
  std::string early;
  auto transport = reply.connection->detach(early);
  return std::make_unique<EngineStream>(std::move(transport), std::move(early), !tty);
}

}  // namespace isogate::docker
