#include "gateway/front/api/router.h"
#include "tests/contract/contract.h"

namespace isogate::test {
namespace {

void health_needs_nothing(World& w) {
  for (const char* path : {"/healthz", "/livez", "/readyz"}) {
    const Answer answer = answer_of(http_call(w.gateway.url(), "GET", path));
    EXPECT_TRUE(succeeded(answer)) << path;
    EXPECT_EQ(answer.body.at("status"), "ok") << path;
  }
  EXPECT_TRUE(answer_of(http_call(w.gateway.url(), "GET", "/healthz")).body.at("version").is_string());
}

void every_answer_has_its_own_request_id(World& w) {
  std::set<std::string> ids;
  for (int i = 0; i < 10; ++i) ids.insert(w.me.get("/livez").header("X-Request-Id"));
  EXPECT_EQ(ids.size(), 10u);
}

void metrics_count_what_was_done(World& w) {
  w.me.run("true");
  const Answer answer = w.me.get("/metrics");
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.header("Content-Type").rfind("text/plain", 0), 0u);
  EXPECT_NE(answer.text.find("# TYPE isogate_"), std::string::npos) << answer.text.substr(0, 500);
  EXPECT_NE(answer.text.find("outcome=\"exited\""), std::string::npos) << answer.text.substr(0, 2000);
}

void the_document_describes_every_call(World& w) {
  const Answer answer = w.me.get("/openapi.json");
  ASSERT_TRUE(succeeded(answer));
  const Json& document = answer.body;
  EXPECT_EQ(document.at("openapi").get<std::string>().rfind("3.1", 0), 0u);
  size_t operations = 0;
  for (const auto& [path, item] : document.at("paths").items())
    for (const auto& [method, operation] : item.items())
      operations += operation.is_object() && operation.contains("operationId") ? 1 : 0;
  EXPECT_EQ(operations, front::routes().size());
  for (const front::Route& row : front::routes()) {
    std::string method(row.method);
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    const Json& item = document.at("paths").at(std::string(row.path));
    ASSERT_TRUE(item.contains(method)) << row.path;
    EXPECT_EQ(item.at(method).at("operationId"), std::string(row.operation_id));
  }
}

const Case kOperationCases[] = {
    {"health_needs_nothing", 0, health_needs_nothing},
    {"every_answer_has_its_own_request_id", 9, every_answer_has_its_own_request_id},
    {"metrics_count_what_was_done", 0, metrics_count_what_was_done},
    {"the_document_describes_every_call", 0, the_document_describes_every_call},
};

}  // namespace

std::span<const Case> operation_cases() { return kOperationCases; }

}  // namespace isogate::test
