// The native API as a test calls it: JSON in, JSON out, for one agent of one tenant. If a request cannot be
// sent or its response cannot be read, it throws std::runtime_error; a refusal is a response like any other.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/eventually.h"
#include "tests/support/gateway.h"

namespace isogate::test {

using Json = nlohmann::json;

struct Answer {
  int status = 0;
  Headers headers;
  std::string text;
  Json body;  // null when the text is not JSON
  [[nodiscard]] std::string header(std::string_view name) const;
};
Answer answer_of(HttpResponse response);

// The complete error object of docs/openapi.yaml: these fields and no others, the request's id in body and
// header, the code's own status.
testing::AssertionResult refused(const Answer& answer, int status, const std::string& code);
testing::AssertionResult succeeded(const Answer& answer);

class Caller {
 public:
  // With an empty agent none is named, with an empty key none is sent.
  Caller(std::string url, std::string key, std::string agent);
  Caller(const Gateway& gateway, std::string agent)
      : Caller(gateway.url(), gateway.key(), std::move(agent)) {}

  // Any call; a JSON call without an agent_id gets it.
  Answer call(const std::string& method, const std::string& target, Headers headers = {},
              const std::string& body = {}) const;
  Answer post(const std::string& path, Json body) const;
  Answer get(const std::string& path) const { return call("GET", path); }

  // POST /exec with `command` and what `more` adds.
  Answer exec(const std::string& command, Json more = Json::object()) const;
  // The same, but anything except 200 fails the test: the result.
  Json run(const std::string& command, Json more = Json::object()) const;
  Json run_argv(const std::vector<std::string>& argv, Json more = Json::object()) const;
  // Its stdout, as bytes.
  std::string out(const std::string& command) const;

  Answer write(const std::string& path, const std::string& content, Json more = Json::object()) const;
  Answer read(const std::string& path, Json more = Json::object()) const;
  // The content; anything except 200 fails the test.
  std::string content(const std::string& path) const;
  [[nodiscard]] std::string file_url(const std::string& path) const {
    return "/workspace/files/" + agent_ + "/" + path;
  }

  [[nodiscard]] const std::string& agent() const { return agent_; }
  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] Headers headers() const;  // the key, JSON as the type
  [[nodiscard]] Caller as(std::string agent) const { return {url_, key_, std::move(agent)}; }

 private:
  Json with_agent(Json body) const;
  friend class ExecStream;
  std::string url_, key_, agent_;
};

// A response of events, one JSON object a line, read one by one.
class EventStream {
 public:
  EventStream(const Caller& caller, const std::string& method, const std::string& target,
              const std::string& body, double timeout_sec);
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;
  ~EventStream() { connection.close(); }
  [[nodiscard]] int status() const { return head.status; }
  std::optional<Json> next();  // nullopt: the response is complete
  std::vector<Json> rest();

  HttpConnection connection;
  HttpResponse head;  // with the body, if the status is not 200
};

// POST /exec-stream.
class ExecStream : public EventStream {
 public:
  // The default is the time to open a sandbox on a busy machine.
  ExecStream(const Caller& caller, Json request, double timeout_sec = 300);
};

// The bytes that a result or an event has as text or base64.
std::string bytes_of(const Json& holder, const std::string& field);
// All data of one stream of these events.
std::string data_of(const std::vector<Json>& events, const std::string& stream);

// Lines of yaml: a tenant for each letter, which is its name, and tenant_key() is its key.
std::string keys_yaml(std::string_view tenants);
std::string tenant_key(char tenant);

std::string base64(std::string_view bytes);
std::string from_base64(const std::string& text);
std::string sha256_hex(const std::string& bytes);
// Bytes that look random, the same for the same seed.
std::string noise(size_t size, unsigned seed);

// Within 90 s, because a busy engine may be late to answer: a backend can be chosen, or none can and only an
// operator can change that.
bool decided(const Gateway& gateway);
double seconds_of(const std::function<void()>& work);
// After a case: /healthz responds within a second, in one of several attempts, because others load this
// machine; and a later exec of the same agent works.
void expect_well(const Gateway& gateway, const Caller& agent);
bool slow_tests();  // ISOGATE_SLOW_TESTS is set

}  // namespace isogate::test
