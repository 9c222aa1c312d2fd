#include "gateway/front/api/router.h"

#include <gtest/gtest.h>

#include "gateway/front/base/api_error.h"

namespace isogate::front {
namespace {

Code refusal_code(std::string_view method, std::string_view target) {
  try {
    const Routed routed = route_target(method, target);
    check_query(*routed.route, routed.query);
  } catch (const ApiError& error) {
    return error.code;
  }
  ADD_FAILURE() << method << " " << target << " was routed";
  return Code::kInternal;
}

TEST(Router, FindsEveryRouteOfTheTable) {
  for (const Route& row : routes()) {
    std::string target(row.path);
    if (const auto at = target.find("{agent_id}"); at != std::string::npos) target.replace(at, 10, "bob");
    if (const auto at = target.find("{path}"); at != std::string::npos) target.replace(at, 6, "a/b.txt");
    const std::string query = row.parameters.empty() ? "" : std::string(row.parameters.front()) + "=1";
    if (!query.empty()) target += "?" + query;
    const Routed routed = route_target(row.method, target);
    EXPECT_EQ(routed.route, &row) << target;
    EXPECT_EQ(routed.query, query);
  }
}

TEST(Router, DecodesParametersExactlyOnce) {
  const Routed routed = route_target("GET", "/workspace/files/bob/a%252fb/%2e%2e/c%20d");
  EXPECT_EQ(routed.agent, "bob");
  EXPECT_EQ(routed.path, "a%2fb/../c d");
}

TEST(Router, RefusesParametersThatMeanNothingOrTwoThings) {
  const auto refused = [](const char* query) {
    return refusal_code("DELETE", std::string("/sandboxes/bob?") + query) == Code::kInvalidRequest;
  };
  EXPECT_TRUE(refused("purg=true"));
  EXPECT_TRUE(refused("Purge=true"));
  EXPECT_TRUE(refused("purge=false&purge=true"));
  EXPECT_TRUE(refused("purge=true&x"));
  EXPECT_TRUE(refused("purge=%zz"));
  EXPECT_TRUE(refused("=true"));
  EXPECT_EQ(refusal_code("GET", "/sandboxes?purge=true"), Code::kInvalidRequest);
  EXPECT_EQ(refusal_code("PUT", "/workspace/files/bob/x?recursive=true"), Code::kInvalidRequest);
  check_query(*route_target("DELETE", "/sandboxes/bob").route, "purge=true&");
  check_query(*route_target("DELETE", "/sandboxes/bob").route, "");
  check_query(*route_target("GET", "/livez").route, "since=1&since=2");
}

TEST(Router, FindsAParameterOfTheQuery) {
  EXPECT_EQ(query_parameter("a=1&b=%2f&c", "b"), "/");
  EXPECT_EQ(query_parameter("a=1&b=%2f&c", "c"), "");
  EXPECT_EQ(query_parameter("a=1", "b"), std::nullopt);
  EXPECT_TRUE(query_flag("purge=true", "purge"));
  EXPECT_TRUE(query_flag("", "parents", true));
  EXPECT_FALSE(query_flag("parents=false", "parents", true));
  EXPECT_THROW(query_flag("purge=1", "purge"), ApiError);
}

TEST(Router, KeepsAnEscapedSlashInsideTheAgent) {
  EXPECT_EQ(route_target("DELETE", "/sandboxes/a%2fb").agent, "a/b");
}

TEST(Router, RefusesWhatIsNoPath) {
  EXPECT_EQ(refusal_code("GET", "http://evil/livez"), Code::kInvalidRequest);
  EXPECT_EQ(refusal_code("GET", "*"), Code::kInvalidRequest);
  EXPECT_EQ(refusal_code("GET", ""), Code::kInvalidRequest);
  EXPECT_EQ(refusal_code("GET", "/livez#x"), Code::kInvalidRequest);
  EXPECT_EQ(refusal_code("GET", "/workspace/files/bob/%zz"), Code::kInvalidRequest);
}

TEST(Router, TellsAnUnknownPathFromAWrongMethod) {
  EXPECT_EQ(refusal_code("GET", "/nothing"), Code::kNotFound);
  EXPECT_EQ(refusal_code("GET", "//livez"), Code::kNotFound);
  EXPECT_EQ(refusal_code("GET", "/livez/"), Code::kNotFound);
  EXPECT_EQ(refusal_code("GET", "/sandboxes/"), Code::kNotFound);
  EXPECT_EQ(refusal_code("GET", "/exec"), Code::kMethodNotAllowed);
  try {
    route_target("PATCH", "/workspace/files/bob/x");
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.header.first, "Allow");
    EXPECT_EQ(error.header.second, "GET, HEAD, PUT, DELETE");
  }
}

TEST(Router, RepeatsNoSecretOfAnUnknownPath) {
  try {
    route_target("GET", "/foo/isg_abcdefghijkl234567mnop");
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_NE(error.message.find("/foo/[redacted:isogate_key]"), std::string::npos) << error.message;
  }
}

}  // namespace
}  // namespace isogate::front
