// A real gateway's responses, each compared with the document's schema for that call and status.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gateway/base/openapi.h"
#include "gateway/config/schema.h"
#include "lib/tar/tar_writer.h"
#include "tests/eventually.h"
#include "tests/support/local_gateway.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

const Json& document() {
  static const Json json = Json::parse(openapi_json());
  return json;
}

Json followed(Json value) {
  while (value.is_object() && value.contains("$ref"))
    value = document().at(Json::json_pointer(value.at("$ref").get<std::string>().substr(1)));
  return value;
}

std::string fits(const Json& schema, const std::string& text) {
  Json whole = {{"components", document().at("components")}, {"allOf", Json::array({schema})}};
  auto valid = validate_json(whole.dump(), text, "the answer");
  return valid.ok() ? "" : valid.error().message;
}

class Answers : public OnLocalGateway {
 protected:
  // Checks a response against the operation; returns its body.
  static Json check(const std::string& method, const std::string& path, const HttpResponse& answer,
                    int status) {
    std::string where =
        method + " " + path + " → " + std::to_string(answer.status) + " " + answer.body.substr(0, 500);
    EXPECT_EQ(answer.status, status) << where;
    EXPECT_NE(answer.header("X-Request-Id"), "") << where;
    const Json& responses = document().at("paths").at(path).at(method).at("responses");
    if (!responses.contains(std::to_string(answer.status))) {
      ADD_FAILURE() << "not in the document: " << where;
      return {};
    }
    Json response = followed(responses.at(std::to_string(answer.status)));
    std::string type = answer.header("Content-Type");
    type = type.substr(0, type.find(';'));
    if (!response.contains("content")) return {};
    if (!response.at("content").contains(type)) {
      ADD_FAILURE() << "the media type `" << type << "` is not in the document: " << where;
      return {};
    }
    const Json media = response.at("content").at(type);
    if (type != "application/json") return {};
    EXPECT_EQ(fits(media.at("schema"), answer.body), "") << where;
    return Json::parse(answer.body, nullptr, false);
  }

  static Json post(const std::string& path, const std::string& body, int status = 200) {
    return check("post", path, gateway_->post(path, body), status);
  }
  static Json get(const std::string& path, int status = 200) {
    return check("get", path, gateway_->get(path), status);
  }
  static void refused(const std::string& path, const std::string& body, int status, const std::string& code) {
    Json answer = post(path, body, status);
    ASSERT_TRUE(answer.is_object() && answer.contains("error")) << path << " " << body;
    EXPECT_EQ(answer.at("error").at("code"), code) << path << " " << body;
  }
};

const std::string kFile = "/workspace/files/{agent_id}/{path}";

TEST_F(Answers, Exec) {
  post("/exec", R"({"command":"echo hi; exit 3"})");
  post("/exec",
       R"({"argv":["printf","\\377"],"agent_id":"a","timeout_sec":5,"env":{"A":"b"},"max_output_bytes":10})");
  post("/exec", R"({"command":"sleep 9","timeout_sec":0.2})");
  post("/exec", R"({"command":"kill -9 $$"})");
  post("/exec", R"({"command":"mkdir -p out; echo x > out/report.txt","artifact_dir":"out"})");
}

TEST_F(Answers, ExecRefusals) {
  refused("/exec", "{}", 400, "invalid_request");
  refused("/exec", R"({"command":"true","unknown":1})", 400, "invalid_request");
  refused("/exec", R"({"command":"true","timeout_sec":-1})", 400, "invalid_request");
  refused("/exec", R"({"command":"true","stdin_open":true})", 400, "invalid_request");
  refused("/exec", R"({"command":"true","background":true,"pty":{"cols":0}})", 400, "invalid_request");
  refused("/exec-stream", R"({"command":"true","background":true})", 400, "invalid_request");
  refused("/exec", R"({"command":"true","min_isolation":"vm","agent_id":"v"})", 501, "unsupported");
  check("post", "/exec", gateway_->call("POST", "/exec", {{"Content-Type", "text/plain"}}, "{}"), 415);
  check("post", "/exec",
        http_call(gateway_->url(), "POST", "/exec", {{"Content-Type", "application/json"}}, "{}"), 401);
}

TEST_F(Answers, EveryFieldOfTheDocumentIsTaken) {
  Json body = {
      {"argv", {"true"}},        {"agent_id", "f"},  {"timeout_sec", 5},    {"max_output_bytes", 1},
      {"env", Json::object()},   {"cwd", "."},       {"stdin", "eA=="},     {"stdin_encoding", "base64"},
      {"min_isolation", "none"}, {"backend", "dev"}, {"merge_stderr", true}};
  EXPECT_EQ(gateway_->post("/exec-stream", body.dump()).status, 200);
  body["background"] = false;
  EXPECT_EQ(gateway_->post("/exec", body.dump()).status, 200);
  body.erase("background");
  body["wait_sec"] = 60;
  body["stdin_open"] = true;
  body["pty"] = {{"cols", 80}, {"rows", 24}};
  EXPECT_EQ(gateway_->post("/exec", body.dump()).status, 200);
}

TEST_F(Answers, ExecStream) {
  HttpResponse answer =
      gateway_->post("/exec-stream", R"({"command":"echo hi; echo oops >&2; printf '\\377'","lines":true})");
  check("post", "/exec-stream", answer, 200);
  std::istringstream lines(answer.body);
  std::vector<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(fits({{"$ref", "#/components/schemas/StreamEvent"}}, line), "") << line;
    events.push_back(Json::parse(line).at("event").get<std::string>());
  }
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.front(), "start");
  EXPECT_EQ(events.back(), "exit");
}

// Checks the response of /exec to a long-lived exec; returns its exec_id.
std::string started(Gateway& gateway, const std::string& body) {
  const HttpResponse answer = gateway.post("/exec", body);
  EXPECT_EQ(answer.status, 202) << answer.body;
  return Json::parse(answer.body, nullptr, false).value("exec_id", "");
}

const std::string kExec = "/execs/{exec_id}";

TEST_F(Answers, LongLivedExecs) {
  const Json state = post("/exec", R"({"command":"cat; exit 3","background":true,"stdin_open":true})", 202);
  const std::string path = "/execs/" + state.value("exec_id", "");
  EXPECT_GE(get("/execs").at("execs").size(), 1u);
  check("get", kExec, gateway_->get(path + "?wait_sec=0.1"), 200);
  const Headers bytes{{"Content-Type", "application/octet-stream"}};
  check("post", kExec + "/stdin", gateway_->call("POST", path + "/stdin?close=true", bytes, "hi\n"), 200);
  EXPECT_EQ(check("get", kExec, gateway_->get(path + "?wait_sec=60"), 200).at("exit_code"), 3);
  check("delete", kExec, gateway_->call("DELETE", path), 200);
  EXPECT_GE(get("/execs").at("execs").size(), 1u);
}

TEST_F(Answers, LongLivedExecsOutput) {
  const std::string path =
      "/execs/" + started(*gateway_, R"({"command":"echo hi; printf '\\377' >&2","background":true})");
  const HttpResponse answer = gateway_->get(path + "/output?follow=true");
  check("get", kExec + "/output", answer, 200);
  std::istringstream lines(answer.body);
  std::set<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(fits({{"$ref", "#/components/schemas/ExecEvent"}}, line), "") << line;
    events.insert(Json::parse(line).at("event").get<std::string>());
  }
  for (const char* event : {"stdout", "stderr", "exit"}) EXPECT_EQ(events.count(event), 1u) << event;
}

TEST_F(Answers, LongLivedExecsControl) {
  const std::string path =
      "/execs/" +
      started(*gateway_, R"({"command":"sleep 100","background":true,"pty":{"cols":100,"rows":30}})");
  const Headers json{{"Content-Type", "application/json"}};
  check("post", kExec + "/resize",
        gateway_->call("POST", path + "/resize", json, R"({"cols":120,"rows":40})"), 200);
  check("post", kExec + "/signal", gateway_->call("POST", path + "/signal", json, R"({"signal":"WINCH"})"),
        200);
  check("post", kExec + "/signal", gateway_->call("POST", path + "/signal", json, R"({"signal":"MUCH"})"),
        400);
  check("get", kExec + "/attach", gateway_->get(path + "/attach"), 400);
  EXPECT_EQ(check("delete", kExec, gateway_->call("DELETE", path), 200).at("outcome"), "killed");
}

TEST_F(Answers, LongLivedExecsRefusals) {
  const std::string none = "/execs/" + std::string(32, '0');
  const Headers json{{"Content-Type", "application/json"}};
  check("get", kExec, gateway_->get(none), 404);
  check("delete", kExec, gateway_->call("DELETE", none), 404);
  check("get", kExec + "/output", gateway_->get(none + "/output"), 404);
  check("post", kExec + "/stdin", gateway_->call("POST", none + "/stdin"), 404);
  check("post", kExec + "/signal", gateway_->call("POST", none + "/signal", json, R"({"signal":"TERM"})"),
        404);
  check("post", kExec + "/resize", gateway_->call("POST", none + "/resize", json, R"({"cols":9,"rows":9})"),
        404);

  Gateway own("allow_unisolated: true\nbackends: [{name: dev, plugin: local}]\nexec: {spool_bytes: 0}\n");
  const std::string path = "/execs/" + started(own, R"({"command":"seq 1000","background":true,
                                                        "max_output_bytes":100})");
  check("get", kExec, own.get(path + "?wait_sec=60"), 200);
  check("get", kExec + "/output", own.get(path + "/output?stdout_offset=0"), 410);
  check("post", kExec + "/stdin", own.call("POST", path + "/stdin"), 409);
  check("post", kExec + "/signal", own.call("POST", path + "/signal", json, R"({"signal":"TERM"})"), 409);

  const std::string lost =
      "/execs/" + started(*gateway_, R"({"command":"true","background":true,"cwd":"absent"})");
  const Json end = check("get", kExec, gateway_->get(lost + "?wait_sec=60"), 200);
  EXPECT_EQ(end.value("outcome", ""), "not_started");
  refused("/exec", R"({"command":"true","wait_sec":60,"cwd":"absent"})", 400, "invalid_request");
}

// An exec of which only the journal is left.
TEST_F(Answers, LongLivedExecsOfTheJournal) {
  Gateway own(
      "allow_unisolated: true\nbackends: [{name: dev, plugin: local}]\nexec: {keep_ended_sec: 0.1}\n");
  const std::string path =
      "/execs/" + started(own, R"({"command":"exit 3","background":true,"agent_id":"a"})");
  HttpResponse answer;
  ASSERT_TRUE(eventually(30, [&] {
    answer = own.get(path);
    return !Json::parse(answer.body, nullptr, false).contains("stdout");
  })) << answer.body;
  const Json left = check("get", kExec, answer, 200);
  EXPECT_EQ(left.value("outcome", ""), "exited");
  EXPECT_EQ(left.value("exit_code", 0), 3);
}

TEST_F(Answers, Files) {
  post("/workspace/write", R"({"path":"d/f","content":"hello","mode":"0755","durable":true})");
  post("/workspace/write", R"({"path":"b","content":"//4A","encoding":"base64","exclusive":true})");
  post("/workspace/read", R"({"path":"d/f"})");
  post("/workspace/read", R"({"path":"b","offset":1,"limit":1})");
  post("/workspace/stat", R"({"path":"d"})");
  post("/workspace/mkdir", R"({"path":"x/y/z","mode":"0700"})");
  post("/workspace/list", R"({"path":".","recursive":true})");
  post("/workspace/list", "{}");
  post("/workspace/move", R"({"path":"b","to":"c/b"})");
  post("/workspace/remove", R"({"path":"x","recursive":true})");
}

TEST_F(Answers, FileRefusals) {
  refused("/workspace/read", R"({"path":"missing"})", 404, "file_not_found");
  refused("/workspace/read", "{}", 400, "invalid_request");
  refused("/workspace/read", R"({"path":"../x"})", 400, "invalid_request");
  post("/exec", R"({"command":"ln -s /etc/hosts link"})");
  refused("/workspace/read", R"({"path":"link"})", 403, "permission_denied");
  post("/workspace/mkdir", R"({"path":"dir"})");
  refused("/workspace/read", R"({"path":"dir"})", 409, "is_directory");
  refused("/workspace/mkdir", R"({"path":"dir","exclusive":true})", 409, "already_exists");
}

TEST_F(Answers, RawFiles) {
  check("put", kFile, gateway_->call("PUT", "/workspace/files/raw/a%20b", {}, "0123456789"), 200);
  HttpResponse whole = gateway_->get("/workspace/files/raw/a%20b");
  check("get", kFile, whole, 200);
  EXPECT_EQ(whole.body, "0123456789");
  HttpResponse part = gateway_->call("GET", "/workspace/files/raw/a%20b", {{"Range", "bytes=2-4"}});
  check("get", kFile, part, 206);
  EXPECT_EQ(part.body, "234");
  EXPECT_EQ(part.header("Content-Range"), "bytes 2-4/10");
  check("get", kFile, gateway_->call("GET", "/workspace/files/raw/a%20b", {{"Range", "bytes=50-"}}), 416);
  HttpResponse head = gateway_->call("HEAD", "/workspace/files/raw/a%20b");
  check("head", kFile, head, 200);
  EXPECT_EQ(head.header("Content-Length"), "10");
  check("head", kFile, gateway_->call("HEAD", "/workspace/files/raw/none"), 404);
  check("delete", kFile, gateway_->call("DELETE", "/workspace/files/raw/a%20b"), 200);
  check("get", kFile, gateway_->get("/workspace/files/raw/a%20b"), 404);
}

TEST_F(Answers, Archives) {
  const std::string path = "/workspace/archive", url = path + "?agent_id=tar&path=d";
  std::string tar;
  TarWriter writer([&tar](std::string_view piece) { tar += piece; });
  writer.file({"f"}, "content");
  writer.symlink({"\xff"}, "f");
  writer.finish();
  const Json written = check("put", path, gateway_->call("PUT", url, {}, tar), 200);
  EXPECT_EQ(written.at("skipped").at(0),
            (Json{{"path", "/w=="}, {"path_encoding", "base64"}, {"reason", "symlink"}}));
  check("put", path, gateway_->call("PUT", url, {}, tar.substr(0, 600)), 400);
  check("put", path, gateway_->call("PUT", url + "/f", {}, tar), 404);
  check("get", path, gateway_->get(url), 200);
  check("get", path, gateway_->get(url + "/none"), 404);
  check("get", path, gateway_->get(url + "&agent_id=tar"), 400);
}

// Its events are read before it ends with its sandbox.
TEST_F(Answers, Watch) {
  constexpr const char* kWatch = "/workspace/watch";
  HttpConnection connection(gateway_->url());
  connection.send_request_head("GET", std::string(kWatch) + "?agent_id=watched&recursive=true",
                               {{"Authorization", "Bearer " + gateway_->key()}});
  HttpResponse answer = connection.read_head();
  check("get", kWatch, answer, 200);
  while (answer.body.find("event: ready") == std::string::npos) answer.body += connection.read_some();
  post("/workspace/write", R"({"agent_id":"watched","path":"a/b","content":"text"})");
  post("/workspace/move", R"({"agent_id":"watched","path":"a","to":"c"})");
  while (answer.body.find("renamed") == std::string::npos) answer.body += connection.read_some();
  check("delete", "/sandboxes/{agent_id}", gateway_->call("DELETE", "/sandboxes/watched"), 200);
  for (std::string more = "more"; !more.empty(); answer.body += more) more = connection.read_some();
  std::set<std::string> names;
  std::istringstream lines(answer.body);
  for (std::string event, data, blank; std::getline(lines, event);) {
    if (event.empty() || event.starts_with(":") || !std::getline(lines, data) || !std::getline(lines, blank))
      continue;
    const std::string name = event.substr(std::string("event: ").size());
    const std::string text =
        R"({"event":")" + name + R"(","data":)" + data.substr(std::string("data: ").size()) + "}";
    EXPECT_EQ(fits({{"$ref", "#/components/schemas/WatchEvent"}}, text), "") << text;
    names.insert(name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"ready", "change", "end"}));
  check("get", kWatch, gateway_->get(std::string(kWatch) + "?path=missing"), 404);
  check("get", kWatch, gateway_->get(std::string(kWatch) + "?recursive=perhaps"), 400);
}

TEST_F(Answers, SandboxesAndBackends) {
  post("/exec", R"({"command":"true","agent_id":"ends"})");
  EXPECT_GE(get("/sandboxes").at("sandboxes").size(), 1u);
  get("/backends");
  check("delete", "/sandboxes/{agent_id}", gateway_->call("DELETE", "/sandboxes/ends?purge=true"), 200);
  check("delete", "/sandboxes/{agent_id}", gateway_->call("DELETE", "/sandboxes/ends"), 404);
}

TEST_F(Answers, Operations) {
  for (const char* path : {"/healthz", "/livez", "/readyz", "/metrics", "/openapi.json"}) get(path);
  HttpResponse wrong = gateway_->get("/exec");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("Allow"), "POST");
  EXPECT_EQ(fits({{"$ref", "#/components/schemas/Error"}}, wrong.body), "");
  HttpResponse nothing = gateway_->get("/nothing");
  EXPECT_EQ(nothing.status, 404);
  EXPECT_EQ(fits({{"$ref", "#/components/schemas/Error"}}, nothing.body), "");
}

TEST(AnswersUnready, ReadyzSaysWhy) {
  GatewayOptions options;
  options.yaml = "require_remote: true\nbackends: [{name: dev, plugin: local}]\n";
  options.wait_ready = false;
  Gateway gateway(options);
  HttpResponse answer = gateway.get("/readyz");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(fits({{"$ref", "#/components/schemas/Error"}}, answer.body), "");
  EXPECT_EQ(fits({{"$ref", "#/components/schemas/BackendList"}}, gateway.get("/backends").body), "");
}

TEST(AnswersFit, TheCheckSeesWhatDoesNotFit) {
  EXPECT_NE(fits({{"$ref", "#/components/schemas/Health"}}, R"({"status":"ok"})"), "");
  EXPECT_NE(fits({{"$ref", "#/components/schemas/Error"}},
                 R"({"error":{"code":"new","message":"","retryable":false,"details":{}},"request_id":""})"),
            "");
  EXPECT_NE(fits({{"$ref", "#/components/schemas/WriteResult"}}, R"({"bytes_written":1,"more":2})"), "");
  EXPECT_EQ(fits({{"$ref", "#/components/schemas/WriteResult"}}, R"({"bytes_written":1})"), "");
}

}  // namespace
}  // namespace isogate::test
