// The log's line per request.
#include <map>
#include <sstream>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

class AccessLog : public Framing {
 protected:
  // The log line of this request; null: none was written.
  static Json line_of(const std::string& id) {
    Json found;
    eventually(3, [&] {
      std::istringstream lines(gateway().log());
      for (std::string line; std::getline(lines, line);) {
        if (line.find("\"event\":\"request\"") == std::string::npos || line.find(id) == std::string::npos)
          continue;
        Json whole = Json::parse(line, nullptr, false);  // the last one may be half written
        if (whole.is_object()) found = std::move(whole);
      }
      return !found.is_null();
    });
    return found;
  }
};

TEST_F(AccessLog, SaysWhatWasAskedAnsweredAndHowLongItTook) {
  const Answer answer = me().exec("echo hello; sleep 0.1");
  const Json line = line_of(answer.header("X-Request-Id"));
  ASSERT_FALSE(line.is_null());
  EXPECT_EQ(line.at("operation"), "exec");
  EXPECT_EQ(line.at("status"), 200);
  EXPECT_EQ(line.at("complete"), true);
  EXPECT_EQ(line.at("peer"), "127.0.0.1");
  EXPECT_EQ(line.at("key"), "local.key");
  EXPECT_EQ(line.at("tenant"), "local");
  EXPECT_EQ(line.at("agent_id"), agent());
  EXPECT_EQ(line.at("code"), "");
  EXPECT_EQ(line.at("bytes_out"), answer.text.size());
  EXPECT_GT(line.at("bytes_in"), 20);
  EXPECT_GE(line.at("work_ms"), 100);
  EXPECT_EQ(line.dump().find("hello"), std::string::npos) << "the command is in the log";
  EXPECT_EQ(line.dump().find(gateway().key()), std::string::npos);
}

TEST_F(AccessLog, NamesNoOperationWithoutOne) {
  const Json line = line_of(me().call("GET", "/nothing").header("X-Request-Id"));
  ASSERT_FALSE(line.is_null());
  EXPECT_EQ(line.at("operation"), "none");
  EXPECT_EQ(line.at("status"), 404);
  EXPECT_EQ(line.at("code"), "not_found");
}

TEST_F(AccessLog, HasStatus0OfAClientThatLeftFirst) {
  const std::string mark = new_mark();
  HttpConnection connection(gateway().url());
  const std::string body = Json{{"agent_id", "left-first"}, {"command", "sleep " + mark}}.dump();
  connection.send("POST /exec HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer " + gateway().key() +
                  "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                  "\r\n\r\n" + body);
  ASSERT_TRUE(there_within(10, mark));
  connection.close();
  const Json line = line_of("\"agent_id\":\"left-first\"");
  ASSERT_FALSE(line.is_null());
  EXPECT_EQ(line.at("operation"), "exec");
  EXPECT_EQ(line.at("status"), 0);
  EXPECT_EQ(line.at("complete"), false);
}

TEST_F(AccessLog, SaysWhyBytesWereNoRequest) {
  const std::string said = say(gateway().url(), "GET / HTTP/1.1\n\n", true).bytes;
  const size_t at = said.find("X-Request-Id: ");
  ASSERT_NE(at, std::string::npos) << said;
  const Json line = line_of(said.substr(at + 14, 16));
  ASSERT_FALSE(line.is_null());
  EXPECT_EQ(line.at("status"), 400);
  EXPECT_EQ(line.at("code"), "invalid_request");
  EXPECT_NE(line.at("refused").get<std::string>().find("carriage return"), std::string::npos);
}

TEST_F(AccessLog, KeepsEveryLineOfManyRequestsInASecond) {
  HttpConnection connection(gateway().url());
  std::vector<std::string> ids;
  const Headers key = {{"Authorization", "Bearer " + gateway().key()}};
  for (int i = 0; i < 500; ++i)
    ids.push_back(connection.request("GET", "/sandboxes", key).header("X-Request-Id"));
  ASSERT_FALSE(line_of(ids.back()).is_null());
  const std::string log = gateway().log();
  for (const std::string& id : ids) EXPECT_NE(log.find(id), std::string::npos);
}

// One line for each would be megabytes a second from a peer that has no key.
TEST_F(AccessLog, DoesNotGrowWithWhatIsSentWithoutAKey) {
  Gateway loud("allow_unisolated: true\nbackends: [{name: local}]\n");
  HttpConnection connection(loud.url());
  const size_t before = loud.log().size();
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(connection.request("GET", "/backends").status, 401);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(say(loud.url(), "GET / HTTP/1.1\n\n", true).status(), 400);
    const int wrong = http_call(loud.url(), "GET", "/backends", {{"Authorization", "Bearer wrong"}}).status;
    EXPECT_TRUE(wrong == 401 || wrong == 429) << wrong;
  }
  loud.stop();
  const std::string log = loud.log().substr(before);
  EXPECT_LT(log.size(), 32768U);
  EXPECT_NE(log.find("\"event\":\"peer_lines_counted\",\"peer\":\"127.0.0.1\""), std::string::npos) << log;
  std::map<std::string, long> of;  // by kind, in the lines that count and in those of one each
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const Json each = Json::parse(line, nullptr, false);
    if (!each.is_object()) continue;
    if (each.value("event", "") == "request") ++of[std::to_string(each.value("status", 0))];
    if (each.value("event", "") != "peer_lines_counted") continue;
    std::istringstream counts(each.at("of").get<std::string>());
    long count = 0;
    for (std::string kind; counts >> kind >> count; counts.ignore()) of[kind] += count;
  }
  EXPECT_EQ(of["400"] + of["400:"], 500) << log;
  EXPECT_GT(of["429:"], 0) << log;
  EXPECT_GT(of["key_refused:"], 0) << log;
}

TEST_F(AccessLog, DoesNotGrowWithARefusalsRate) {
  Gateway loud("allow_unisolated: true\nbackends: [{name: local}]\n");
  HttpConnection connection(loud.url());
  const size_t before = loud.log().size();
  const Headers key = {{"Authorization", "Bearer " + loud.key()}, {"Content-Type", "application/json"}};
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(connection.request("POST", "/exec", key, "{}").status, 400);
  loud.stop();
  EXPECT_LT(loud.log().size() - before, 32768U);
}

TEST_F(AccessLog, CanBeTurnedOff) {
  const Gateway quiet("allow_unisolated: true\nbackends: [{name: local}]\nlog: {access: false}\n");
  EXPECT_EQ(http_call(quiet.url(), "GET", "/livez").status, 200);
  EXPECT_FALSE(quiet.logs("\"event\":\"request\"", 1));
}

}  // namespace
}  // namespace isogate::test
