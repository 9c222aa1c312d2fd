#include "gateway/front/router.h"

#include <gtest/gtest.h>

#include "gateway/front/api_error.h"

namespace isogate::front {
namespace {

Code refusal(std::string_view method, std::string_view target) {
  try {
    const Routed routed = route_target(method, target);
    check_query(routed.route, routed.query);
  } catch (const ApiError& error) {
    return error.code;
  }
  ADD_FAILURE() << method << " " << target << " was routed";
  return Code::kInternal;
}

TEST(Router, FindsEveryRouteOfTheTable) {
  for (const RouteRow& row : kRoutes) {
    std::string target(row.path);
    if (const auto at = target.find("{agent_id}"); at != std::string::npos) target.replace(at, 10, "bob");
    if (const auto at = target.find("{path}"); at != std::string::npos) target.replace(at, 6, "a/b.txt");
    const std::string query = row.parameters.empty() ? "" : std::string(row.parameters.front()) + "=1";
    if (!query.empty()) target += "?" + query;
    const Routed routed = route_target(row.method, target);
    EXPECT_EQ(routed.route, row.route) << target;
    EXPECT_EQ(routed.query, query);
    EXPECT_EQ(&row_of(row.route), &row);
  }
}

TEST(Router, DecodesParametersExactlyOnce) {
  const Routed routed = route_target("GET", "/workspace/files/bob/a%252fb/%2e%2e/c%20d");
  EXPECT_EQ(routed.agent, "bob");
  EXPECT_EQ(routed.path, "a%2fb/../c d");
}

TEST(Router, RefusesParametersThatMeanNothingOrTwoThings) {
  const auto refused = [](const char* query) {
    return refusal("DELETE", std::string("/sandboxes/bob?") + query) == Code::kInvalidRequest;
  };
  EXPECT_TRUE(refused("purg=true"));
  EXPECT_TRUE(refused("Purge=true"));
  EXPECT_TRUE(refused("purge=false&purge=true"));
  EXPECT_TRUE(refused("purge=true&x"));
  EXPECT_TRUE(refused("purge=%zz"));
  EXPECT_TRUE(refused("=true"));
  EXPECT_EQ(refusal("GET", "/sandboxes?purge=true"), Code::kInvalidRequest);
  EXPECT_EQ(refusal("PUT", "/workspace/files/bob/x?recursive=true"), Code::kInvalidRequest);
  check_query(Route::kSandboxDelete, "purge=true&");
  check_query(Route::kSandboxDelete, "");
  check_query(Route::kLivez, "since=1&since=2");
}

TEST(Router, KeepsAnEscapedSlashInsideTheAgent) {
  EXPECT_EQ(route_target("DELETE", "/sandboxes/a%2fb").agent, "a/b");
}

TEST(Router, RefusesWhatIsNoPath) {
  EXPECT_EQ(refusal("GET", "http://evil/livez"), Code::kInvalidRequest);
  EXPECT_EQ(refusal("GET", "*"), Code::kInvalidRequest);
  EXPECT_EQ(refusal("GET", ""), Code::kInvalidRequest);
  EXPECT_EQ(refusal("GET", "/livez#x"), Code::kInvalidRequest);
  EXPECT_EQ(refusal("GET", "/workspace/files/bob/%zz"), Code::kInvalidRequest);
}

TEST(Router, TellsAnUnknownPathFromAWrongMethod) {
  EXPECT_EQ(refusal("GET", "/nothing"), Code::kNotFound);
  EXPECT_EQ(refusal("GET", "//livez"), Code::kNotFound);
  EXPECT_EQ(refusal("GET", "/livez/"), Code::kNotFound);
  EXPECT_EQ(refusal("GET", "/sandboxes/"), Code::kNotFound);
  EXPECT_EQ(refusal("GET", "/exec"), Code::kMethodNotAllowed);
  try {
    route_target("PATCH", "/workspace/files/bob/x");
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.allow, "GET, HEAD, PUT, DELETE");
  }
}

}  // namespace
}  // namespace isogate::front
