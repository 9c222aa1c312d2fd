#include "plugins/docker/client/engine.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/net/operator_file.h"
#include "lib/text.h"

namespace isogate::docker {
namespace {

constexpr size_t kAnswerMost = size_t{16} << 20;
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

// A name or id as it may stand in a path; throws ISOGATE_INVALID_ARGUMENT for what no Engine gives out.
std::string in_path(const std::string& name) {
  if (!is_name(name, "_.-", 255))
    throw NetError(ISOGATE_INVALID_ARGUMENT, "`" + one_line(name, 80) + "` is no name that an Engine has");
  return name;
}

// "container `name`", for messages.
std::string quoted(const std::string& what, const std::string& name) {
  return what + " `" + one_line(name, 80) + "`";
}

// An image may be named registry:port/name:tag or name@sha256:…; its slashes belong to the path.
std::string image_in_path(const std::string& name) {
  const bool whole = !name.empty() && name[0] != '/' && name.find("..") == std::string::npos;
  if (!whole || name.size() > 512)
    throw NetError(ISOGATE_INVALID_ARGUMENT, quoted("cannot look for image", name) + ": no such name");
  return percent_encode(name, "/:@");
}

// As JSON; throws ISOGATE_INVALID_ARGUMENT when its texts are no UTF-8.
std::string dump(const Json& body, const std::string& attempt) try {
  return body.dump();
} catch (const Json::exception&) {
  throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot " + attempt + ": the Engine takes no text but UTF-8");
}

// {"label": …} as a query has it.
std::string label_filters(const std::vector<LabelFilter>& labels) {
  Json wanted = Json::array();
  for (const auto& label : labels)
    wanted.push_back(label.value.empty() ? label.name : label.name + "=" + label.value);
  return percent_encode(dump(Json{{"label", wanted}}, "look for labels"));
}

std::string id_in(const Json& answer, const std::string& attempt) {
  std::string id = text_at(answer, "Id");
  if (id.empty())
    throw NetError(ISOGATE_UNAVAILABLE, "cannot " + attempt + ": the Engine names no id", 0, true);
  return in_path(id);
}

NetError unusable(const EngineAddress& address, const std::string& why) {
  return {ISOGATE_UNSUPPORTED, "cannot use the Engine at " + address.text() + ": " + why};
}

const std::string& our_versions() {
  static const std::string versions = std::string(Engine::kOldestApi) + " to " + Engine::kNewestApi;
  return versions;
}

bool about_versions(int status, const std::string& body) {
  return status == 400 &&
         (body.find("client version") != std::string::npos || body.find("API version") != std::string::npos);
}

}  // namespace

const char* name_of(ObjectKind kind) { return words_of(kind).noun; }

void Engine::ping(const Budget& budget) {
  Request request{"reach the Engine", "GET", "/_ping", {200}};
  request.versioned = false;
  text(request, budget);
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
  const std::string api_version = negotiate(budget);
  std::unique_lock lock(mutex_);
  const bool podman = podman_;
  lock.unlock();
  EngineInfo info = info_of(json({"ask the Engine about itself", "GET", "/info", {200}}, budget));
  info.api_version = api_version;
  info.podman = podman;
  return info;
}

std::string Engine::create_container(const std::string& name, const Json& body, const Budget& budget,
                                     const std::string& platform) {
  const std::string attempt = "create " + quoted("container", name);
  const std::string of_platform = platform.empty() ? "" : "&platform=" + percent_encode(platform);
  Request request{
      attempt, "POST", "/containers/create?name=" + in_path(name) + of_platform, {201}, dump(body, attempt)};
  return id_in(json(request, budget), attempt);
}

void Engine::start(const std::string& id, const Budget& budget) {
  text({"start " + quoted("container", id), "POST", "/containers/" + in_path(id) + "/start", {204, 304}},
       budget);
}

void Engine::kill(const std::string& id, const std::string& signal, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/kill?signal=" + percent_encode(signal);
  text({"kill " + quoted("container", id), "POST", path, {204}}, budget);
}

void Engine::remove(const std::string& id, const Budget& budget, ObjectKind kind) {
  const KindWords& its = words_of(kind);
  text({"remove " + quoted(its.noun, id), "DELETE", its.path + in_path(id) + its.remove, {200, 204}}, budget);
}

Json Engine::inspect(const std::string& id, const Budget& budget, ObjectKind kind) {
  const KindWords& its = words_of(kind);
  const Request request{
      "inspect " + quoted(its.noun, id), "GET", its.path + in_path(id) + its.inspect, {200}};
  try {
    return json(request, budget);
  } catch (const NetError& error) {
    // podman's 500 for a container that is removed during inspect: asks once more.
    if (error.http_status() != 500 ||
        std::string_view(error.what()).find("no such container") == std::string_view::npos)
      throw;
  }
  return json(request, budget);
}

std::optional<Json> Engine::find(const std::string& id, const Budget& budget) {
  std::optional<Json> found;
  net::unless_gone([&] { found = inspect(id, budget); });
  return found;
}

void Engine::rename(const std::string& id, const std::string& name, const Budget& budget) {
  const std::string path = "/containers/" + in_path(id) + "/rename?name=" + in_path(name);
  text({"rename " + quoted("container", id), "POST", path, {204}}, budget);
}

std::vector<Json> Engine::list(const std::vector<LabelFilter>& labels, const Budget& budget,
                               ObjectKind kind) {
  const KindWords& its = words_of(kind);
  const std::string attempt = "list " + std::string(its.noun) + "s";
  Json rows = json({attempt, "GET", its.list + label_filters(labels), {200}}, budget);
  if (kind == ObjectKind::kVolume) rows = Json(member(rows, "Volumes"));
  return carrying(std::move(rows), labels);
}

int64_t Engine::wait(const std::string& id, const Budget& budget) {
  const Json answer = json(
      {"wait for " + quoted("container", id), "POST", "/containers/" + in_path(id) + "/wait", {200}}, budget);
  const Json& code = member(answer, "StatusCode");
  if (!code.is_number_integer())
    throw NetError(ISOGATE_UNAVAILABLE,
                   "cannot wait for " + quoted("container", id) + ": the Engine names no exit code", 0, true);
  return code.get<int64_t>();
}

std::string Engine::exec_create(const std::string& id, const Json& body, const Budget& budget) {
  const std::string attempt = "prepare an exec in " + quoted("container", id);
  Request request{attempt, "POST", "/containers/" + in_path(id) + "/exec", {201}, dump(body, attempt)};
  return id_in(json(request, budget), attempt);
}

std::unique_ptr<EngineStream> Engine::exec_start(const std::string& exec_id, const Budget& budget) {
  Request request{"start " + quoted("exec", exec_id),
                  "POST",
                  "/exec/" + in_path(exec_id) + "/start",
                  {101, 200},
                  Json{{"Detach", false}, {"Tty", false}}.dump()};
  request.upgrade = true;
  const Reply reply = open(request, budget);
  const bool ordinary =
      !reply.head.header("content-length").empty() || !reply.head.header("transfer-encoding").empty();
  if (reply.head.status == 200 && ordinary)
    throw NetError(ISOGATE_UNAVAILABLE,
                   "cannot " + request.attempt + ": the Engine did not hand over the connection", 0, true);
  std::string early;
  auto transport = reply.connection->detach(early);
  return std::make_unique<EngineStream>(std::move(transport), std::move(early));
}

void Engine::put_archive(const std::string& id, const std::string& path, const ArchiveProducer& produce,
                         const Budget& budget) {
  Request request{"copy files into " + quoted("container", id),
                  "PUT",
                  "/containers/" + in_path(id) + "/archive?path=" + percent_encode(path),
                  {200}};
  request.produce = produce;
  text(request, budget);
}

void Engine::get_archive(const std::string& id, const std::string& path, const ByteSink& sink,
                         const Budget& budget) {
  const std::string target = "/containers/" + in_path(id) + "/archive?path=" + percent_encode(path);
  const Request request{"copy files out of " + quoted("container", id), "GET", target, {200}};
  Reply reply = open(request, budget);
  std::array<char, 65536> buffer{};
  const auto next = [&] {
    try {
      return reply.connection->read_body(buffer.data(), buffer.size(), budget);
    } catch (const NetError& error) {
      throw error.during(request.attempt);
    }
  };
  while (const size_t got = next()) sink({buffer.data(), got});
  give(std::move(reply.connection));
}

void Engine::create_volume(const std::string& name, const Json& body, const Budget& budget) {
  Json named = body;
  named["Name"] = in_path(name);
  json({"create " + quoted("volume", name),
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
  const Json answer = json({"create " + quoted("network", name),
                            "POST",
                            "/networks/create",
                            {200, 201},
                            dump(named, "create " + quoted("network", name))},
                           budget);
  return in_path(text_at(answer, "Id"));
}

Json Engine::inspect_image(const std::string& name, const Budget& budget) {
  return json({"look for " + quoted("image", name), "GET", "/images/" + image_in_path(name) + "/json", {200}},
              budget);
}

std::unique_ptr<EngineEvents> Engine::events(const Json& filters, const std::string& since,
                                             const Budget& budget) {
  std::string path = "/events?filters=" + percent_encode(dump(filters, kFollowEvents));
  if (!since.empty()) path += "&since=" + percent_encode(since);
  Reply reply = open({kFollowEvents, "GET", path, {200}}, budget);
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

net::HttpRequest Engine::written(const Request& request, const std::string& version) {
  net::HttpRequest out{request.method, version + request.path, request.body, {}, request.produce};
  if (request.upgrade) out.headers = {{"Connection", "Upgrade"}, {"Upgrade", "tcp"}};
  if (request.produce)
    out.headers.emplace_back("Content-Type", "application/x-tar");
  else if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    out.headers.emplace_back("Content-Type", "application/json");
  return out;
}

std::unique_ptr<HttpConnection> Engine::take(const Budget& budget, bool& reused) {
  {
    const std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      if (connection->reusable()) {
        reused = true;
        return connection;
      }
      api_.clear();  // it was closed: perhaps for another Engine
    }
  }
  reused = false;
  const std::string host = address_.unix_path.empty() ? address_.text().substr(6) : "docker";
  return std::make_unique<HttpConnection>(net::Transport::connect(target_of(address_), budget), host,
                                          "the Engine");
}

void Engine::give(std::unique_ptr<HttpConnection> connection) {
  constexpr size_t kIdleMost = 8;
  if (!connection->reusable()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMost) idle_.push_back(std::move(connection));
}

void Engine::forget() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
  api_.clear();
}

std::string Engine::negotiated(const Budget& budget) {
  {
    const std::lock_guard lock(mutex_);
    if (!api_.empty()) return api_;
  }
  return negotiate(budget);
}

std::string Engine::negotiate(const Budget& budget) {
  Request ping{"ask the Engine for its version", "GET", "/_ping", {200}};
  ping.versioned = false;
  Reply reply = open(ping, budget);
  reply.connection->read_body(kAnswerMost, budget);
  give(std::move(reply.connection));
  const std::string newest = reply.head.header("api-version");
  if (newest.empty()) throw unusable(address_, "it names no version of the Engine API, so it is none");
  if (parse_api_version(newest) < parse_api_version(kOldestApi))
    throw unusable(address_, "it speaks versions of the API up to " + one_line(newest, 40) +
                                 ", isogate speaks " + our_versions());
  const std::string api = parse_api_version(newest) < parse_api_version(kNewestApi) ? newest : kNewestApi;

  const bool podman = !reply.head.header("libpod-api-version").empty();
  std::string oldest;
  if (!podman) {  // whose /version waits for its containers, and which supports all versions from the oldest
                  // on
    Request version{"ask the Engine for its version", "GET", "/version", {200}};
    version.versioned = false;
    oldest = text_at(json(version, budget), "MinAPIVersion");
  }
  if (oldest.empty()) oldest = kOldestApi;
  if (parse_api_version(api) < parse_api_version(oldest))
    throw unusable(address_, "it speaks versions of the API from " + one_line(oldest, 40) +
                                 " on, isogate speaks " + our_versions());
  const std::lock_guard lock(mutex_);
  podman_ = podman;
  return api_ = api;
}

Engine::Reply Engine::attempt(const Request& request, const Budget& budget) {
  const bool repeatable = request.method == "GET";
  for (int attempts = 1;; ++attempts) {
    const std::string version = request.versioned ? "/v" + negotiated(budget) : "";
    bool reused = false;
    auto connection = take(budget, reused);
    try {
      HttpHead head = connection->exchange(written(request, version), budget);
      return {std::move(connection), std::move(head)};
    } catch (const NetError& error) {
      if (error.status() == ISOGATE_UNAVAILABLE) forget();
      if (attempts > 1 || !repeatable || !reused || connection->answered() || !connection->broken_off())
        throw;
    }
  }
}

Engine::Reply Engine::open(const Request& request, const Budget& budget) try {
  Reply reply = attempt(request, budget);
  const auto& good = request.good;
  if (std::find(good.begin(), good.end(), reply.head.status) == good.end()) refuse(request, reply, budget);
  return reply;
} catch (const NetError& error) {
  if (error.http_status() != 0) throw;
  throw error.during(request.attempt);
}

void Engine::refuse(const Request& request, Reply& reply, const Budget& budget) {
  constexpr size_t kReasonMost = 65536;
  const int status = reply.head.status;
  if (status < 400) {
    throw NetError(ISOGATE_UNAVAILABLE,
                   "the Engine answered " + std::to_string(status) + ", which was not expected", 0, true);
  }
  const std::string body = reply.connection->read_reason(kReasonMost, budget);
  give(std::move(reply.connection));
  if (!about_versions(status, body)) throw refusal(request.attempt, status, body);
  forget();
  throw NetError(ISOGATE_UNAVAILABLE, "it is another Engine now: " + one_line(body));
}

std::string Engine::text(const Request& request, const Budget& budget) {
  Reply reply = open(request, budget);
  try {
    std::string body = reply.connection->read_body(kAnswerMost, budget);
    give(std::move(reply.connection));
    return body;
  } catch (const NetError& error) {
    forget();
    throw error.during(request.attempt);
  }
}

Json Engine::json(const Request& request, const Budget& budget) {
  return parse_answer(text(request, budget), request.attempt);
}

Json parse_answer(std::string_view text, const std::string& attempt) {
  Json answer = parse_shallow(text);
  if (!answer.is_object() && !answer.is_array())
    throw NetError(ISOGATE_UNAVAILABLE, "cannot " + attempt + ": the Engine's answer is no JSON", 0, true);
  return answer;
}

std::vector<Json> carrying(Json rows, const std::vector<LabelFilter>& labels) {
  const auto carries = [&labels](const Json& row) {
    const Json& its = member(row, "Labels");
    return std::all_of(labels.begin(), labels.end(), [&its](const LabelFilter& label) {
      const Json& value = member(its, label.name.c_str());
      return value.is_string() && (label.value.empty() || value == Json(label.value));
    });
  };
  std::vector<Json> all;
  if (!rows.is_array()) return all;
  for (Json& row : rows)
    if (carries(row)) all.push_back(std::move(row));
  return all;
}

std::pair<int, int> parse_api_version(const std::string& text) {
  const std::string_view all(text);
  const size_t dot = std::min(all.find('.'), all.size());
  const auto major = number_in<int>(all.substr(0, dot));
  const auto minor = dot < all.size() ? number_in<int>(all.substr(dot + 1)) : std::nullopt;
  if (major && minor) return {*major, *minor};
  throw NetError(ISOGATE_UNAVAILABLE, "`" + one_line(text, 40) + "` is no version of the Engine API");
}

net::Target target_of(const EngineAddress& address) {
  net::Target target{.name = "the Engine",
                     .address = address.text(),
                     .unix_path = address.unix_path,
                     .host = address.host,
                     .port = address.port};
  if (!address.tls) return target;
  const auto read = [&](const std::string& path) -> std::string {
    if (path.empty()) return "";
    std::string why = "there is no such file, or it is empty";
    try {
      if (auto text = net::read_operator_file(path); text && !text->empty()) return std::move(*text);
    } catch (const sdk::Error& error) {
      why = error.what();
    }
    throw NetError(ISOGATE_INVALID_ARGUMENT,
                   "cannot speak TLS with " + target.text() + ": cannot use `" + path + "`: " + why);
  };
  const TlsFiles& files = *address.tls;
  target.tls = net::Tls{.certificate = read(files.certificate), .key = read(files.key)};
  if (!files.ca.empty()) target.tls->authority = read(files.ca);
  return target;
}

}  // namespace isogate::docker
