// The calls of engine.h about other things than containers.
#include <array>
#include <nlohmann/json.hpp>

#include "plugins/docker/engine.h"
#include "plugins/docker/engine_pool.h"

namespace isogate::docker {
namespace {

// An image may be named registry:port/name:tag or name@sha256:…; its slashes belong into the path.
std::string image_in_path(const std::string& name) {
  const bool whole = !name.empty() && name[0] != '/' && name.find("..") == std::string::npos;
  if (!whole || name.size() > 512)
    throw EngineError(ISOGATE_INVALID_ARGUMENT, quoted("cannot look for image", name) + ": no such name");
  return encode(name, "/:@");
}

class Events : public EngineEvents {
 public:
  Events(std::unique_ptr<HttpConnection> connection, const char* attempt)
      : connection_(std::move(connection)), attempt_(attempt) {}

  Json next(const Budget& budget) override {
    constexpr size_t kLineMost = 1 << 20;
    for (;;) {
      const size_t end = pending_.find('\n', searched_);
      if (end != std::string::npos) {
        const std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        searched_ = 0;
        if (line.find_first_not_of(" \r") == std::string::npos) continue;
        Json event = Json::parse(line, nullptr, false);
        if (!event.is_object()) fail("the Engine tells of something that is no JSON");
        return event;
      }
      searched_ = pending_.size();
      if (searched_ > kLineMost) fail("one of them has more than 1 MiB");
      read_more(budget);
    }
  }

 private:
  void read_more(const Budget& budget) {
    std::array<char, 16384> buffer{};
    size_t got = 0;
    try {
      got = connection_->read_body(buffer.data(), buffer.size(), budget);
    } catch (const EngineError& error) {
      if (error.status() == ISOGATE_CANCELLED) throw;
      fail(error.what());
    }
    if (got == 0) fail("the Engine ended them");
    pending_.append(buffer.data(), got);
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw EngineError(ISOGATE_UNAVAILABLE, "cannot " + std::string(attempt_) + ": " + why);
  }

  std::unique_ptr<HttpConnection> connection_;
  const char* attempt_;
  std::string pending_;
  size_t searched_ = 0;
};

}  // namespace

void Engine::put_archive(const std::string& id, const std::string& path, const ArchiveProducer& produce,
                         const Budget& budget) {
  EngineRequest request{"copy files into " + quoted("container", id),
                        "PUT",
                        "/containers/" + in_path(id) + "/archive?path=" + encode(path),
                        {200}};
  request.produce = produce;
  pool_->text(request, budget);
}

void Engine::get_archive(const std::string& id, const std::string& path, const ByteSink& sink,
                         const Budget& budget) {
  const std::string target = "/containers/" + in_path(id) + "/archive?path=" + encode(path);
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

Json Engine::inspect_volume(const std::string& name, const Budget& budget) {
  return pool_->json({"inspect " + quoted("volume", name), "GET", "/volumes/" + in_path(name), {200}},
                     budget);
}

void Engine::remove_volume(const std::string& name, bool force, const Budget& budget) {
  const std::string path = "/volumes/" + in_path(name) + "?force=" + (force ? "1" : "0");
  pool_->text({"remove " + quoted("volume", name), "DELETE", path, {204}}, budget);
}

std::vector<Json> Engine::list_volumes(const std::vector<LabelFilter>& labels, const Budget& budget) {
  const std::string path = "/volumes?filters=" + label_filters(labels);
  return carrying(member(pool_->json({"list volumes", "GET", path, {200}}, budget), "Volumes"), labels);
}

std::string Engine::create_network(const std::string& name, const Json& body, const Budget& budget) {
  Json named = body;
  named["Name"] = in_path(name);
  named["CheckDuplicate"] = true;
  const Json answer = pool_->json({"create " + quoted("network", name),
                                   "POST",
                                   "/networks/create",
                                   {200, 201},
                                   dump(named, "create " + quoted("network", name)),
                                   ISOGATE_ALREADY_EXISTS},
                                  budget);
  return in_path(text_at(answer, "Id"));
}

Json Engine::inspect_network(const std::string& name, const Budget& budget) {
  return pool_->json({"inspect " + quoted("network", name), "GET", "/networks/" + in_path(name), {200}},
                     budget);
}

void Engine::remove_network(const std::string& name, const Budget& budget) {
  pool_->text({"remove " + quoted("network", name), "DELETE", "/networks/" + in_path(name), {200, 204}},
              budget);
}

void Engine::connect_network(const std::string& network, const std::string& container, const Budget& budget) {
  pool_->text({"connect " + quoted("container", container) + " to " + quoted("network", network),
               "POST",
               "/networks/" + in_path(network) + "/connect",
               {200},
               Json{{"Container", container}}.dump()},
              budget);
}

Json Engine::inspect_image(const std::string& name, const Budget& budget) {
  return pool_->json(
      {"look for " + quoted("image", name), "GET", "/images/" + image_in_path(name) + "/json", {200}},
      budget);
}

std::unique_ptr<EngineEvents> Engine::events(const Json& filters, const std::string& since,
                                             const Budget& budget) {
  constexpr const char* kAttempt = "follow the Engine's events";
  std::string path = "/events?filters=" + encode(dump(filters, kAttempt));
  if (!since.empty()) path += "&since=" + encode(since);
  EngineReply reply = pool_->open({kAttempt, "GET", path, {200}}, budget);
  return std::make_unique<Events>(std::move(reply.connection), kAttempt);
}

}  // namespace isogate::docker
