#include "tests/k8s/fake_api.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "lib/hash.h"
#include "lib/net/websocket.h"
#include "plugins/k8s/pod/profile.h"
#include "tests_dirs.h"

namespace isogate::k8s {
namespace {

constexpr const char* kProgram = ISOGATE_BUILD_DIR "/bin/isogate-runner";

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 2 >= text.size()) {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
    i += 2;
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

pid_t run(const std::vector<std::string>& argv, int in, int out) {
  std::vector<char*> raw;
  for (const std::string& each : argv) raw.push_back(const_cast<char*>(each.c_str()));
  raw.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int null_device = ::open("/dev/null", O_RDWR);
  ::dup2(in < 0 ? null_device : in, 0);
  ::dup2(out < 0 ? null_device : out, 1);
  ::execv(raw[0], raw.data());
  ::_exit(127);
}

bool has_labels(const Json& object, const std::string& selector) {
  if (selector.empty()) return true;
  const Json labels = object.at("metadata").value("labels", Json::object());
  for (const std::string& each : split(selector, ',')) {
    const size_t equals = each.find('=');
    const bool is_not = equals > 0 && each[equals - 1] == '!';
    const std::string key = each.substr(0, equals - (is_not ? 1 : 0));
    if ((labels.value(key, "") == each.substr(equals + 1)) == is_not) return false;
  }
  return true;
}

std::string conflict(const std::string& why) {
  return FakeCluster::json(
      R"({"kind":"Status","status":"Failure","reason":")" + why + R"(","message":"it says )" + why + "\"}",
      409);
}

}  // namespace

// One container's first process.
struct FakeApi::Runner {
  pid_t pid = -1;
  std::string door, workspace;
  ~Runner() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
};

FakeApi::FakeApi() : hanging_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  cluster_ =
      std::make_unique<FakeCluster>([this](Peer& peer, const Heard& heard) { return answer(peer, heard); });
}

FakeApi::~FakeApi() {
  if (later_.joinable()) later_.join();
  cut_streams();
  cluster_.reset();
}

std::string FakeApi::kubeconfig() const {
  const std::string text =
      "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: "
      "'http://127.0.0.1:" +
      std::to_string(cluster_->port()) +
      "'}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u, namespace: "
      "box}}]\n";
  return files_.file("kubeconfig", text, 0644);
}

std::vector<Json> FakeApi::all(const std::string& plural) const {
  const std::lock_guard lock(mutex_);
  std::vector<Json> found;
  for (const auto& [key, object] : objects_)
    if (key.plural == plural &&
        !object.at("metadata").value("labels", Json::object()).contains(kLabelGateway))
      found.push_back(object);
  return found;
}

Json FakeApi::one(const std::string& plural) const {
  const auto found = all(plural);
  return found.size() == 1 ? found[0] : Json();
}

void FakeApi::edit(const std::string& plural, const std::string& name,
                   const std::function<void(Json&)>& change) {
  const std::lock_guard lock(mutex_);
  Json& object = objects_.at({plural, name});
  change(object);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
}

void FakeApi::put(const std::string& plural, Json object) {
  const std::lock_guard lock(mutex_);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  if (!object["metadata"].contains("uid")) object["metadata"]["uid"] = "uid-" + random_hex(8);
  objects_[{plural, object.at("metadata").at("name")}] = object;
}

void FakeApi::restart_container(const std::string& pod, const std::string& image) {
  const std::lock_guard lock(mutex_);
  Json& object = objects_.at({"pods", pod});
  runners_.at(pod)->end();
  object["spec"]["containers"][0]["image"] = image;
  const int before = object["status"]["containerStatuses"][0]["restartCount"];
  start(object, image);
  object["status"]["containerStatuses"][0]["restartCount"] = before + 1;
}

bool FakeApi::runs(const std::string& pod) const {
  const std::lock_guard lock(mutex_);
  return runners_.contains(pod) && runners_.at(pod)->pid > 0;
}

std::string FakeApi::workspace_of(const std::string& pod) const {
  const std::lock_guard lock(mutex_);
  return runners_.at(pod)->workspace;
}

void FakeApi::freeze(const std::string& pod, bool frozen) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = runners_.find(pod); found != runners_.end())
    ::kill(found->second->pid, frozen ? SIGSTOP : SIGCONT);
}

void FakeApi::cut_streams() {
  const std::lock_guard lock(mutex_);
  for (Peer* each : streams_) each->hang_up();
}

void FakeApi::count_from_now() {
  const std::lock_guard lock(mutex_);
  requests_.clear();
  faults_.clear();
  uint64_t count = 0;
  (void)!::read(hanging_.get(), &count, sizeof count);
}

size_t FakeApi::counted() const {
  const std::lock_guard lock(mutex_);
  return requests_.size();
}

std::string FakeApi::request(size_t number) const {
  const std::lock_guard lock(mutex_);
  return number == 0 || number > requests_.size() ? "none" : requests_[number - 1];
}

void FakeApi::fail(size_t number, Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_[number] = fault;
}

void FakeApi::fail_if(std::function<bool(const Heard&)> which, Fault fault) {
  const std::lock_guard lock(mutex_);
  fails_if_ = std::move(which);
  fails_as_ = fault;
}

void FakeApi::answer_if(std::function<bool(const Heard&)> which, std::string answer) {
  const std::lock_guard lock(mutex_);
  answers_if_ = std::move(which);
  answers_ = std::move(answer);
}

void FakeApi::signal_hanging_in(std::chrono::milliseconds time) {
  if (later_.joinable()) later_.join();
  later_ = std::thread([this, time] {
    std::this_thread::sleep_for(time);
    const uint64_t one = 1;
    (void)!::write(hanging_.get(), &one, sizeof one);
  });
}

void FakeApi::await_signal() {
  if (later_.joinable()) later_.join();
}

void FakeApi::drop(const std::string& plural, const std::string& name) {
  const std::lock_guard lock(mutex_);
  forget({plural, name});
}

void FakeApi::put_off_pods(bool put_off) {
  const std::lock_guard lock(mutex_);
  pods_are_put_off_ = put_off;
  for (auto& [key, object] : objects_) {
    if (put_off || key.plural != "pods" || runners_.contains(key.name)) continue;
    start(object, object.at("spec").at("containers").at(0).at("image"));
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
  }
}

void FakeApi::keep_pods(bool kept) {
  const std::lock_guard lock(mutex_);
  pods_stay_ = kept;
}

void FakeApi::collect_garbage(bool collects) {
  const std::lock_guard lock(mutex_);
  collects_ = collects;
}

// /api/v1/namespaces/box/pods/NAME/exec?…
FakeApi::Target FakeApi::target_of(const std::string& text) {
  Target target;
  const size_t query = std::min(text.find('?'), text.size());
  const auto parts = split(std::string_view(text).substr(0, query), '/');
  const auto space = std::find(parts.begin(), parts.end(), "namespaces");
  const size_t at = static_cast<size_t>(space - parts.begin()) + 2;
  if (at < parts.size()) target.plural = parts[at];
  if (at + 1 < parts.size()) target.name = parts[at + 1];
  if (at + 2 < parts.size()) target.subresource = parts[at + 2];
  if (query < text.size())
    for (const std::string& each : split(std::string_view(text).substr(query + 1), '&')) {
      const size_t equals = std::min(each.find('='), each.size());
      target.query.emplace_back(each.substr(0, equals),
                                equals < each.size() ? decoded(each.substr(equals + 1)) : "");
    }
  return target;
}

std::string FakeApi::not_found(const Target& target) {
  const Json status = {{"kind", "Status"},
                       {"status", "Failure"},
                       {"reason", "NotFound"},
                       {"message", target.plural + " \"" + target.name + "\" not found"},
                       {"details", {{"name", target.name}, {"kind", target.plural}}},
                       {"code", 404}};
  return FakeCluster::json(status.dump(), 404);
}

void FakeApi::hold(Peer& peer) {
  {
    const std::lock_guard lock(mutex_);
    streams_.push_back(&peer);
  }
  while (!peer.read_some().empty()) {
  }
  const std::lock_guard lock(mutex_);
  std::erase(streams_, &peer);
}

bool FakeApi::answer(Peer& peer, const Heard& heard) {
  const Target target = target_of(heard.target);
  const bool watches = heard.target.find("watch=true") != std::string::npos ||
                       heard.target.find("watch=1") != std::string::npos;
  if (watches) {
    peer.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    hold(peer);
    return false;
  }
  std::optional<Fault> fault;
  std::string said;
  {
    const std::lock_guard lock(mutex_);
    const std::string what = target.plural + (target.subresource.empty() ? "" : "/" + target.subresource);
    const bool background = target.plural == "leases" && (target.name.starts_with("isogate-gateway-") ||
                                                          (heard.method == "GET" && target.name.empty()));
    const bool presence = heard.body.find(kLabelGateway) != std::string::npos;
    if (!background && !presence) requests_.push_back(heard.method + " " + what);
    const auto found = background || presence ? faults_.end() : faults_.find(requests_.size());
    if (found != faults_.end()) fault = found->second;
    if (!fault && fails_if_ && fails_if_(heard)) fault = fails_as_;
    if (answers_if_ && answers_if_(heard)) said = answers_;
  }
  if (!said.empty()) {
    peer.write(said);
    return true;
  }
  if (fault == Fault::kError) {
    peer.write(FakeCluster::status(500, "InternalError"));
    return true;
  }
  if (fault == Fault::kReset) return false;
  if (fault == Fault::kHang) {
    const uint64_t one = 1;
    (void)!::write(hanging_.get(), &one, sizeof one);
    hold(peer);
    return false;
  }
  if (target.subresource == "exec") {
    if (fault == Fault::kLostAnswer) return false;
    exec(peer, heard, target);
    return false;
  }
  said = serve(heard, target);
  if (fault == Fault::kLostAnswer) return false;
  peer.write(said);
  return true;
}

std::string FakeApi::serve(const Heard& heard, const Target& target) {
  const std::lock_guard lock(mutex_);
  if (heard.method == "POST") return create(target, heard.body);
  if (target.name.empty()) return list(target);
  const Key key{target.plural, target.name};
  if (!objects_.contains(key)) return not_found(target);
  if (heard.method == "PUT") return replace(target, heard.body);
  if (heard.method == "DELETE") return remove(target, heard.body);
  return FakeCluster::json(objects_.at(key).dump());
}

std::string FakeApi::create(const Target& target, const std::string& body) {
  Json object = Json::parse(body);
  const Key key{target.plural, object.at("metadata").at("name")};
  if (objects_.contains(key)) return conflict("AlreadyExists");
  object["metadata"]["uid"] = "uid-" + random_hex(8);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  if (key.plural == "pods" && !pods_are_put_off_)
    start(object, object.at("spec").at("containers").at(0).at("image"));
  if (key.plural == "persistentvolumeclaims") object["status"]["phase"] = "Bound";
  objects_[key] = object;
  return FakeCluster::json(object.dump(), 201);
}

std::string FakeApi::list(const Target& target) {
  std::string selector;
  for (const auto& [name, value] : target.query)
    if (name == "labelSelector") selector = value;
  Json items = Json::array();
  for (const auto& [key, object] : objects_)
    if (key.plural == target.plural && has_labels(object, selector)) items.push_back(object);
  return FakeCluster::json(
      Json{{"metadata", {{"resourceVersion", std::to_string(version_)}}}, {"items", items}}.dump());
}

std::string FakeApi::replace(const Target& target, const std::string& body) {
  Json object = Json::parse(body);
  Json& there = objects_.at({target.plural, target.name});
  const auto same = [&](const char* field) {
    return !object.at("metadata").contains(field) ||
           object.at("metadata").at(field) == there.at("metadata").at(field);
  };
  if (!same("resourceVersion") || !same("uid")) return conflict("Conflict");
  object["metadata"]["uid"] = there.at("metadata").at("uid");
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  there = object;
  return FakeCluster::json(object.dump());
}

std::string FakeApi::remove(const Target& target, const std::string& body) {
  const Key key{target.plural, target.name};
  Json& object = objects_.at(key);
  const Json options = body.empty() ? Json::object() : Json::parse(body);
  const Json conditions = options.value("preconditions", Json::object());
  for (const auto& [field, value] : conditions.items())
    if (object.at("metadata").at(field) != value) return conflict("Conflict");
  if (pods_stay_ && key.plural == "pods")
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  else
    forget(key);
  return FakeCluster::json(R"({"kind":"Status","status":"Success"})");
}

void FakeApi::forget(const Key& key) {
  const std::string uid = objects_.at(key).at("metadata").at("uid");
  objects_.erase(key);
  if (const auto found = runners_.find(key.name); key.plural == "pods" && found != runners_.end()) {
    found->second->end();  // a stream may still use it
    runners_.erase(found);
  }
  if (!collects_) return;
  std::vector<Key> owned;
  for (const auto& [other, object] : objects_)
    if (belongs_to(object, uid)) owned.push_back(other);
  for (const Key& each : owned)
    if (objects_.contains(each)) forget(each);
}

void FakeApi::start(Json& pod, const std::string& image) {
  const std::string name = pod.at("metadata").at("name");
  std::string volume = pod.at("metadata").at("uid");
  for (const Json& each : pod.at("spec").at("volumes"))
    if (each.contains("persistentVolumeClaim") && each.at("name") == "workspace")
      volume = each.at("persistentVolumeClaim").at("claimName");
  auto runner = std::make_shared<Runner>();
  runner->door = "isogate-test-" + random_hex(8);
  runner->workspace = files_.path() + "/" + volume;
  ::mkdir(runner->workspace.c_str(), 0777);
  runner->pid =
      run({kProgram, "serve", "--workspace", runner->workspace, "--listener", runner->door}, -1, -1);
  runners_[name] = runner;
  const std::string id = "fake://" + random_hex(16);
  pod["spec"]["nodeName"] = "node";
  pod["status"] = {
      {"phase", "Running"},
      {"hostIP", "127.0.0.1"},
      {"conditions", {{{"type", "Ready"}, {"status", "True"}}}},
      {"initContainerStatuses",
       {{{"name", "runner"},
         {"image", pod.at("spec").at("initContainers").at(0).at("image")},
         {"imageID", "sha256:runner"},
         {"containerID", "fake://init"},
         {"restartCount", 0},
         {"state", {{"terminated", {{"exitCode", 0}}}}}}}},
      {"containerStatuses",
       {{{"name", kContainer},
         {"image", image},
         {"imageID", "sha256:of " + image},
         {"containerID", id},
         {"restartCount", 0},
         {"state", {{"running", Json::object()}}}}}},
  };
}

// The API server's WebSocket, connected to the runner's `attach` or `stdio`.
void FakeApi::exec(Peer& peer, const Heard& heard, const Target& target) {
  std::shared_ptr<Runner> runner;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = runners_.find(target.name); found != runners_.end()) runner = found->second;
    if (runner && runner->pid > 0) streams_.push_back(&peer);
  }
  if (!runner || runner->pid <= 0) return peer.write(not_found(target));
  std::vector<std::string> command;
  for (const auto& [name, value] : target.query)
    if (name == "command") command.push_back(value);
  command.at(0) = kProgram;
  if (command.at(1) == "attach")
    command.insert(command.end(), {"--listener", runner->door, "--server", std::to_string(runner->pid)});
  else
    command.insert(command.end(), {"--workspace", runner->workspace});
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return;
  const pid_t pid = run(command, in[0], out[1]);
  ::close(in[0]);
  ::close(out[1]);
  peer.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: " +
      net::websocket_accept(heard.header("Sec-WebSocket-Key")) +
      "\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n");
  std::thread downward([&] {
    std::string buffer(65536, '\0');
    for (;;) {
      const ssize_t n = ::read(out[0], buffer.data(), buffer.size());
      if (n <= 0) break;
      peer.write(frame("\x01" + buffer.substr(0, static_cast<size_t>(n))));
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    peer.write(frame("\x03"
                     R"({"metadata":{},"status":"Success"})") +
               std::string("\x88\x02\x03\xe8", 4));
    peer.hang_up();
  });
  int opcode = 0;
  for (std::string payload; read_frame(peer, opcode, payload);) {
    if (opcode == 8) break;
    if (opcode == 9) {
      peer.write(std::string("\x8a", 1) + static_cast<char>(payload.size()) + payload);
      continue;
    }
    if (payload.empty() || payload[0] != 0) continue;
    for (size_t at = 1; at < payload.size();) {
      const ssize_t n = ::write(in[1], payload.data() + at, payload.size() - at);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase(streams_, &peer);
  }
  ::close(in[1]);
  ::kill(pid, SIGKILL);
  downward.join();
  ::close(out[0]);
}

}  // namespace isogate::k8s
