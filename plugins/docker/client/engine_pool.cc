#include "plugins/docker/client/engine_pool.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/net/operator_file.h"
#include "lib/text.h"

namespace isogate::docker {
namespace {

NetError unusable(const EngineAddress& address, const std::string& why) {
  return {ISOGATE_UNSUPPORTED, "cannot use the Engine at " + address.text() + ": " + why};
}

const std::string& our_versions() {
  static const std::string versions = std::string(Engine::kOldestApi) + " to " + Engine::kNewestApi;
  return versions;
}

net::HttpRequest written(const EngineRequest& request, const std::string& version) {
  net::HttpRequest out{request.method, version + request.path, request.body, {}, request.produce};
  if (request.upgrade) out.headers = {{"Connection", "Upgrade"}, {"Upgrade", "tcp"}};
  if (request.produce)
    out.headers.emplace_back("Content-Type", "application/x-tar");
  else if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    out.headers.emplace_back("Content-Type", "application/json");
  return out;
}

bool about_versions(int status, const std::string& body) {
  return status == 400 &&
         (body.find("client version") != std::string::npos || body.find("API version") != std::string::npos);
}

}  // namespace

std::unique_ptr<HttpConnection> Engine::Pool::take(const Budget& budget, bool& reused) {
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
  const std::string host = address.unix_path.empty() ? address.text().substr(6) : "docker";
  return std::make_unique<HttpConnection>(net::Transport::connect(target_of(address), budget), host,
                                          "the Engine");
}

void Engine::Pool::give(std::unique_ptr<HttpConnection> connection) {
  constexpr size_t kIdleMost = 8;
  if (!connection->reusable()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMost) idle_.push_back(std::move(connection));
}

void Engine::Pool::forget() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
  api_.clear();
}

bool Engine::Pool::podman() {
  const std::lock_guard lock(mutex_);
  return podman_;
}

std::string Engine::Pool::negotiated(const Budget& budget) {
  {
    const std::lock_guard lock(mutex_);
    if (!api_.empty()) return api_;
  }
  return negotiate(budget);
}

std::string Engine::Pool::negotiate(const Budget& budget) {
  EngineRequest ping{"ask the Engine for its version", "GET", "/_ping", {200}};
  ping.versioned = false;
  EngineReply reply = open(ping, budget);
  reply.connection->read_body(kAnswerMost, budget);
  give(std::move(reply.connection));
  const std::string newest = reply.head.header("api-version");
  if (newest.empty()) throw unusable(address, "it names no version of the Engine API, so it is none");
  if (parse_api_version(newest) < parse_api_version(kOldestApi))
    throw unusable(address, "it speaks versions of the API up to " + one_line(newest, 40) +
                                ", isogate speaks " + our_versions());
  const std::string api = parse_api_version(newest) < parse_api_version(kNewestApi) ? newest : kNewestApi;

  const bool podman = !reply.head.header("libpod-api-version").empty();
  std::string oldest;
  if (!podman) {  // whose /version waits for its containers, and which supports all versions from the oldest
                  // on
    EngineRequest version{"ask the Engine for its version", "GET", "/version", {200}};
    version.versioned = false;
    oldest = text_at(json(version, budget), "MinAPIVersion");
  }
  if (oldest.empty()) oldest = kOldestApi;
  if (parse_api_version(api) < parse_api_version(oldest))
    throw unusable(address, "it speaks versions of the API from " + one_line(oldest, 40) +
                                " on, isogate speaks " + our_versions());
  const std::lock_guard lock(mutex_);
  podman_ = podman;
  return api_ = api;
}

EngineReply Engine::Pool::attempt(const EngineRequest& request, const Budget& budget) {
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

EngineReply Engine::Pool::open(const EngineRequest& request, const Budget& budget) try {
  EngineReply reply = attempt(request, budget);
  const auto& good = request.good;
  if (std::find(good.begin(), good.end(), reply.head.status) == good.end()) refuse(request, reply, budget);
  return reply;
} catch (const NetError& error) {
  if (error.http_status() != 0) throw;
  throw error.during(request.attempt);
}

void Engine::Pool::refuse(const EngineRequest& request, EngineReply& reply, const Budget& budget) {
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

std::string Engine::Pool::text(const EngineRequest& request, const Budget& budget) {
  EngineReply reply = open(request, budget);
  try {
    std::string body = reply.connection->read_body(kAnswerMost, budget);
    give(std::move(reply.connection));
    return body;
  } catch (const NetError& error) {
    forget();
    throw error.during(request.attempt);
  }
}

void Engine::Pool::body(EngineReply reply, const std::string& attempt, const ByteSink& sink,
                        const Budget& budget) {
  std::array<char, 65536> buffer{};
  const auto next = [&] {
    try {
      return reply.connection->read_body(buffer.data(), buffer.size(), budget);
    } catch (const NetError& error) {
      throw error.during(attempt);
    }
  };
  while (const size_t got = next()) sink({buffer.data(), got});
  give(std::move(reply.connection));
}

Json Engine::Pool::json(const EngineRequest& request, const Budget& budget) {
  return parse_answer(text(request, budget), request.attempt);
}

EngineReply Engine::Pool::hijack(EngineRequest request, const Budget& budget) {
  request.upgrade = true;
  request.good = {101, 200};
  EngineReply reply = open(request, budget);
  const bool ordinary =
      !reply.head.header("content-length").empty() || !reply.head.header("transfer-encoding").empty();
  if (reply.head.status == 200 && ordinary)
    throw NetError(ISOGATE_UNAVAILABLE,
                   "cannot " + request.attempt + ": the Engine did not hand over the connection", 0, true);
  return reply;
}

Json parse_answer(std::string_view text, const std::string& attempt) {
  Json answer = parse_shallow(text);
  if (!answer.is_object() && !answer.is_array())
    throw NetError(ISOGATE_UNAVAILABLE, "cannot " + attempt + ": the Engine's answer is no JSON", 0, true);
  return answer;
}

std::string dump(const Json& body, const std::string& attempt) try {
  return body.dump();
} catch (const Json::exception&) {
  throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot " + attempt + ": the Engine takes no text but UTF-8");
}

std::string quoted(const std::string& what, const std::string& name) {
  return what + " `" + one_line(name, 80) + "`";
}

std::string label_filters(const std::vector<LabelFilter>& labels) {
  Json wanted = Json::array();
  for (const auto& label : labels)
    wanted.push_back(label.value.empty() ? label.name : label.name + "=" + label.value);
  return percent_encode(dump(Json{{"label", wanted}}, "look for labels"));
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

std::string in_path(const std::string& name) {
  if (!is_name(name, "_.-", 255))
    throw NetError(ISOGATE_INVALID_ARGUMENT, "`" + one_line(name, 80) + "` is no name that an Engine has");
  return name;
}

}  // namespace isogate::docker
