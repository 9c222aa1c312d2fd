#include "plugins/docker/client/engine.h"

#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/text.h"
#include "plugins/docker/client/engine_pool.h"

namespace isogate::docker {
namespace {

constexpr const char* kFollowEvents = "follow the Engine's events";

// `inspect` and `remove` end a path.
struct KindWords {
  const char *noun, *list, *path, *inspect, *remove;
};

constexpr KindWords kKinds[] = {
    {"container", "/containers/json?all=1&filters=", "/containers/", "/json", "?force=1&v=1"},
    {"network", "/networks?filters=", "/networks/", "", ""},
    {"volume", "/volumes?filters=", "/volumes/", "", ""},
};

const KindWords& words_of(ObjectKind kind) { return kKinds[static_cast<size_t>(kind)]; }

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
    throw NetError(ISOGATE_UNAVAILABLE, "cannot " + attempt + ": the Engine names no id", 0, true);
  return in_path(id);
}

}  // namespace

const char* name_of(ObjectKind kind) { return words_of(kind).noun; }

Engine::Engine(EngineAddress address) : pool_(std::make_shared<Pool>(std::move(address))) {}
Engine::~Engine() = default;
const EngineAddress& Engine::address() const { return pool_->address; }

void Engine::ping(const Budget& budget) {
  EngineRequest request{"reach the Engine", "GET", "/_ping", {200}};
  request.versioned = false;
  pool_->text(request, budget);
}

EngineInfo info_of(const Json& answer) {
  EngineInfo info;
  info.version = text_at(answer, "ServerVersion");
  info.cgroup_version = text_at(answer, "CgroupVersion");
  info.cgroup_driver = text_at(answer, "CgroupDriver");
  info.data_root = text_at(answer, "DockerRootDir");
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

EngineInfo Engine::info(const Budget& budget) {
  const std::string api_version = pool_->negotiate(budget);
  const bool podman = pool_->podman();
  EngineInfo info = info_of(pool_->json({"ask the Engine about itself", "GET", "/info", {200}}, budget));
  info.api_version = api_version;
  info.podman = podman;
  return info;
}

std::string Engine::create_container(const std::string& name, const Json& body, const Budget& budget,
                                     const std::string& platform) {
  const std::string attempt = "create " + quoted("container", name);
  const std::string of_platform = platform.empty() ? "" : "&platform=" + percent_encode(platform);
  EngineRequest request{
      attempt, "POST", "/containers/create?name=" + in_path(name) + of_platform, {201}, dump(body, attempt)};
  return id_in(pool_->json(request, budget), attempt);
}

void Engine::start(const std::string& id, const Budget& budget) {
  pool_->text(
      {"start " + quoted("container", id), "POST", "/containers/" + in_path(id) + "/start", {204, 304}},
      budget);
}

void Engine::kill(const std::string& id, const std::string& signal, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/kill?signal=" + percent_encode(signal);
  pool_->text({"kill " + quoted("container", id), "POST", path, {204}}, budget);
}

void Engine::remove(const std::string& id, const Budget& budget, ObjectKind kind) {
  const KindWords& its = words_of(kind);
  pool_->text({"remove " + quoted(its.noun, id), "DELETE", its.path + in_path(id) + its.remove, {200, 204}},
              budget);
}

Json Engine::inspect(const std::string& id, const Budget& budget, ObjectKind kind) {
  const KindWords& its = words_of(kind);
  const EngineRequest request{
      "inspect " + quoted(its.noun, id), "GET", its.path + in_path(id) + its.inspect, {200}};
  try {
    return pool_->json(request, budget);
  } catch (const NetError& error) {
    // podman's 500 for a container that is removed during inspect: asks once more.
    if (error.http_status() != 500 ||
        std::string_view(error.what()).find("no such container") == std::string_view::npos)
      throw;
  }
  return pool_->json(request, budget);
}

std::optional<Json> Engine::find(const std::string& id, const Budget& budget) {
  std::optional<Json> found;
  net::unless_gone([&] { found = inspect(id, budget); });
  return found;
}

void Engine::rename(const std::string& id, const std::string& name, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/rename?name=" + in_path(name);
  pool_->text({"rename " + quoted("container", id), "POST", path, {204}}, budget);
}

std::vector<Json> Engine::list(const std::vector<LabelFilter>& labels, const Budget& budget,
                               ObjectKind kind) {
  const KindWords& its = words_of(kind);
  const std::string attempt = "list " + std::string(its.noun) + "s";
  Json rows = pool_->json({attempt, "GET", its.list + label_filters(labels), {200}}, budget);
  if (kind == ObjectKind::kVolume) rows = Json(member(rows, "Volumes"));
  return carrying(std::move(rows), labels);
}

int64_t Engine::wait(const std::string& id, const Budget& budget) {
  const Json answer = pool_->json(
      {"wait for " + quoted("container", id), "POST", "/containers/" + in_path(id) + "/wait", {200}}, budget);
  const Json& code = member(answer, "StatusCode");
  if (!code.is_number_integer())
    throw NetError(ISOGATE_UNAVAILABLE,
                   "cannot wait for " + quoted("container", id) + ": the Engine names no exit code", 0, true);
  return code.get<int64_t>();
}

std::string Engine::exec_create(const std::string& id, const Json& body, const Budget& budget) {
  const std::string attempt = "prepare an exec in " + quoted("container", id);
  EngineRequest request{attempt, "POST", "/containers/" + in_path(id) + "/exec", {201}, dump(body, attempt)};
  return id_in(pool_->json(request, budget), attempt);
}

std::unique_ptr<EngineStream> Engine::exec_start(const std::string& exec_id, const Budget& budget) {
  EngineReply reply = pool_->hijack({"start " + quoted("exec", exec_id),
                                     "POST",
                                     "/exec/" + in_path(exec_id) + "/start",
                                     {},
                                     Json{{"Detach", false}, {"Tty", false}}.dump()},
                                    budget);
  std::string early;
  auto transport = reply.connection->detach(early);
  return std::make_unique<EngineStream>(std::move(transport), std::move(early));
}

namespace {

// An image may be named registry:port/name:tag or name@sha256:…; its slashes belong to the path.
std::string image_in_path(const std::string& name) {
  const bool whole = !name.empty() && name[0] != '/' && name.find("..") == std::string::npos;
  if (!whole || name.size() > 512)
    throw NetError(ISOGATE_INVALID_ARGUMENT, quoted("cannot look for image", name) + ": no such name");
  return percent_encode(name, "/:@");
}

}  // namespace

void Engine::put_archive(const std::string& id, const std::string& path, const ArchiveProducer& produce,
                         const Budget& budget) {
  EngineRequest request{"copy files into " + quoted("container", id),
                        "PUT",
                        "/containers/" + in_path(id) + "/archive?path=" + percent_encode(path),
                        {200}};
  request.produce = produce;
  pool_->text(request, budget);
}

void Engine::get_archive(const std::string& id, const std::string& path, const ByteSink& sink,
                         const Budget& budget) {
  const std::string target = "/containers/" + in_path(id) + "/archive?path=" + percent_encode(path);
  const EngineRequest request{"copy files out of " + quoted("container", id), "GET", target, {200}};
  EngineReply reply = pool_->open(request, budget);
  pool_->body(std::move(reply), request.attempt, sink, budget);
}

void Engine::create_volume(const std::string& name, const Json& body, const Budget& budget) {
  Json named = body;
  named["Name"] = in_path(name);
  pool_->json({"create " + quoted("volume", name),
               "POST",
               "/volumes/create",
               {200, 201},
               dump(named, "create " + quoted("volume", name))},
              budget);
}

std::string Engine::create_network(const std::string& name, const Json& body, const Budget& budget) {
  Json named = body;
  named["Name"] = in_path(name);
  named["CheckDuplicate"] = true;
  const Json answer = pool_->json({"create " + quoted("network", name),
                                   "POST",
                                   "/networks/create",
                                   {200, 201},
                                   dump(named, "create " + quoted("network", name))},
                                  budget);
  return in_path(text_at(answer, "Id"));
}

Json Engine::inspect_image(const std::string& name, const Budget& budget) {
  return pool_->json(
      {"look for " + quoted("image", name), "GET", "/images/" + image_in_path(name) + "/json", {200}},
      budget);
}

std::unique_ptr<EngineEvents> Engine::events(const Json& filters, const std::string& since,
                                             const Budget& budget) {
  std::string path = "/events?filters=" + percent_encode(dump(filters, kFollowEvents));
  if (!since.empty()) path += "&since=" + percent_encode(since);
  EngineReply reply = pool_->open({kFollowEvents, "GET", path, {200}}, budget);
  return std::make_unique<EngineEvents>(std::move(reply.connection));
}

EngineEvents::EngineEvents(std::unique_ptr<HttpConnection> connection)
    : lines_(std::move(connection), size_t{1} << 20, "one of them has more than 1 MiB") {}

Json EngineEvents::next(const Budget& budget) try {
  for (;;) {
    const auto line = lines_.next(budget);
    if (!line) throw NetError(ISOGATE_UNAVAILABLE, "the Engine ended them");
    if (line->find_first_not_of(" \r") == std::string::npos) continue;
    Json event = parse_shallow(*line);
    if (!event.is_object()) throw NetError(ISOGATE_UNAVAILABLE, "one of them is no JSON object");
    return event;
  }
} catch (const NetError& error) {
  if (error.status() == ISOGATE_CANCELLED) throw;
  throw error.during(kFollowEvents);
}

}  // namespace isogate::docker
