#include "tests/contract/contract.h"
#include "tests_dirs.h"

// Promise 9: every refusal is one error object that says why. refused() looks at its whole shape.
namespace isogate::test {
namespace {

Answer raw(const World& w, const std::string& path, const std::string& body) {
  return w.me.call("POST", path, {{"Content-Type", "application/json"}}, body);
}

void an_unknown_field_is_an_error_that_names_it(World& w) {
  for (const auto& [path, body] :
       std::vector<std::pair<std::string, Json>>{{"/exec", {{"command", "touch ran"}}},
                                                 {"/exec-stream", {{"command", "touch ran"}}},
                                                 {"/workspace/read", {{"path", "x"}}},
                                                 {"/workspace/write", {{"path", "ran"}, {"content", ""}}},
                                                 {"/workspace/list", {{"path", "."}}},
                                                 {"/workspace/stat", {{"path", "."}}},
                                                 {"/workspace/mkdir", {{"path", "ran"}}},
                                                 {"/workspace/move", {{"path", "x"}, {"to", "ran"}}},
                                                 {"/workspace/remove", {{"path", "x"}}}}) {
    for (const char* field : {"comand", "timeout", "__proto__"}) {
      Json with = body;
      with[field] = "x";
      const Answer answer = w.me.post(path, with);
      EXPECT_TRUE(refused(answer, 400, "invalid_request")) << path;
      EXPECT_NE(answer.text.find(field), std::string::npos) << answer.text;
    }
  }
  EXPECT_TRUE(refused(w.me.post("/exec", {{"command", "true"}, {"lines", true}}), 400, "invalid_request"))
      << "of streams only";
  EXPECT_EQ(w.me.out("ls -A"), "");
}

// Attack 102.
void a_body_that_is_not_plain_json_is_refused(World& w) {
  const std::string agent = ",\"agent_id\":\"" + w.me.agent() + "\"}";
  for (const std::string& body :
       {std::string(),
        std::string("{"),
        std::string("null"),
        std::string("[]"),
        std::string("\"true\""),
        std::string("{}garbage"),
        "{\"command\":\"touch ran\"" + agent + " x",
        "{\"command\":\"touch ran\"" + agent + "{}",
        "{\"command\":\"true\",\"command\":\"touch ran\"" + agent,
        "{\"command\":\"touch ran\",\"env\":{\"A\":\"1\",\"A\":\"2\"}" + agent,
        "\xef\xbb\xbf{\"command\":\"touch ran\"" + agent,
        "{\"command\":\"touch ran\\u0000\"" + agent,
        "{\"command\":\"touch ran\\ud800\"" + agent,
        "{\"command\":\"touch ran\xff\"" + agent,
        "{\"command\":\"touch ran\",}" + agent,
        "{'command':'touch ran'" + agent,
        "{\"command\":\"touch ran\",\"timeout_sec\":1e999" + agent,
        "{\"command\":\"touch ran\",\"timeout_sec\":NaN" + agent,
        "/**/{\"command\":\"touch ran\"" + agent,
        std::string(10 << 20, '['),
        "{\"command\":\"touch ran\",\"env\":" + std::string(100000, '[') + std::string(100000, ']') + agent})
    EXPECT_TRUE(refused(raw(w, "/exec", body), 400, "invalid_request")) << body.substr(0, 80);
  EXPECT_EQ(w.me.out("ls -A"), "");
}

void values_of_a_wrong_type_are_refused(World& w) {
  for (const Json& body :
       {Json{{"command", 1}}, Json{{"command", Json::array({"touch", "ran"})}}, Json{{"argv", "touch ran"}},
        Json{{"argv", {"touch", 1}}}, Json{{"argv", Json::array()}}, Json{{"argv", {""}}},
        Json{{"command", ""}}, Json::object(), Json{{"command", "touch ran"}, {"argv", {"true"}}},
        Json{{"command", "touch ran"}, {"env", {"A=1"}}}, Json{{"command", "touch ran"}, {"env", {{"A", 1}}}},
        Json{{"command", "touch ran"}, {"env", {{"A=B", "1"}}}},
        Json{{"command", "touch ran"}, {"env", {{"", "1"}}}}, Json{{"command", "touch ran"}, {"cwd", 1}},
        Json{{"command", "touch ran"}, {"background", "no"}}, Json{{"command", "touch ran"}, {"agent_id", 7}},
        Json{{"command", "touch ran"}, {"max_output_bytes", -1}},
        Json{{"command", "touch ran"}, {"max_output_bytes", 1.5}}})
    EXPECT_TRUE(refused(w.me.post("/exec", body), 400, "invalid_request")) << body;
  EXPECT_EQ(w.me.out("ls -A"), "");
}

// Attack 99.
void a_timeout_has_to_make_sense(World& w) {
  for (const Json& timeout : {Json(-1), Json(0), Json(0.0), Json(1e18), Json("5"), Json(true), Json(86401)})
    EXPECT_TRUE(refused(w.me.exec("touch ran", {{"timeout_sec", timeout}}), 400, "invalid_request"))
        << timeout;
  EXPECT_EQ(w.me.run("sleep 5", {{"timeout_sec", 0.001}}).at("outcome"), "timed_out");
  EXPECT_EQ(w.me.run("echo in time", {{"timeout_sec", 86400}}).at("stdout"), "in time\n");
  EXPECT_EQ(w.me.out("ls -A"), "");
}

// Attacks 100 and 101.
void arguments_the_kernel_cannot_take_are_refused(World& w) {
  const std::string huge(140000, 'x');
  const Answer argument = w.me.exec("touch ran; : " + huge);
  EXPECT_TRUE(refused(argument, 400, "invalid_request"));
  EXPECT_NE(argument.text.find("stdin"), std::string::npos)
      << "it does not say what to do: " << argument.text.substr(0, 500);
  EXPECT_TRUE(refused(w.me.post("/exec", {{"argv", {"touch", "ran", huge}}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(w.me.exec("touch ran", {{"env", {{"BIG", std::string(1 << 20, 'x')}}}}), 400,
                      "invalid_request"));
  Json many = Json::object();
  for (int i = 0; i < 100000; ++i) many["V" + std::to_string(i)] = "x";
  EXPECT_TRUE(refused(w.me.exec("touch ran", {{"env", many}}), 400, "invalid_request"));
  std::vector<std::string> argv(40, std::string(100000, 'y'));
  argv[0] = "touch";
  EXPECT_TRUE(refused(w.me.post("/exec", {{"argv", argv}}), 400, "invalid_request"));
  EXPECT_EQ(w.me.out("ls -A"), "");
}

void a_body_that_is_too_large_is_413(World& w) {
  const Answer announced = w.me.call(
      "POST", "/exec", {{"Content-Type", "application/json"}, {"Content-Length", "100000000"}}, "{");
  EXPECT_TRUE(refused(announced, 413, "file_too_large")) << "before it is buffered";
  const std::string head = R"({"agent_id":")" + w.me.agent() + R"(","path":"x","content":")";
  EXPECT_TRUE(refused(w.me.call("POST", "/workspace/write", {{"Content-Type", "application/json"}},
                                head + std::string(110 << 20, 'x') + "\"}"),
                      413, "file_too_large"));
}

void a_body_has_to_be_declared_as_json(World& w) {
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                           "application/jsonp", "application/json-seq", ""}) {
    Headers headers;
    if (*type != '\0') headers.emplace_back("Content-Type", type);
    EXPECT_TRUE(refused(w.me.call("POST", "/exec", headers, R"({"command":"touch ran"})"), 415,
                        "unsupported_media_type"))
        << type;
    EXPECT_TRUE(refused(w.me.call("POST", "/workspace/write", headers, R"({"path":"ran","content":""})"), 415,
                        "unsupported_media_type"))
        << type;
  }
  for (const char* type : {"application/json", "Application/JSON", "application/json; charset=utf-8",
                           "application/json ;charset=utf-8"})
    EXPECT_TRUE(succeeded(w.me.call("POST", "/exec", {{"Content-Type", type}},
                                    Json{{"command", "true"}, {"agent_id", w.me.agent()}}.dump())))
        << type;
}

void an_unknown_path_is_404_and_an_unknown_method_405(World& w) {
  for (const char* path : {"/", "/exce", "/exec/", "/exec/x", "/EXEC", "/workspace", "/workspace/files",
                           "/workspace/files/a", "/sandboxes/a/b", "/%65xec", "//exec", "/healthz/.."})
    EXPECT_TRUE(refused(w.me.get(path), 404, "not_found")) << path;
  for (const auto& [method, path, allow] :
       std::vector<std::tuple<std::string, std::string, std::string>>{{"GET", "/exec", "POST"},
                                                                      {"PUT", "/workspace/read", "POST"},
                                                                      {"PUT", "/sandboxes", "GET, POST"},
                                                                      {"GET", "/sandboxes/a", "DELETE"},
                                                                      {"POST", "/healthz", "GET"},
                                                                      {"BREW", "/exec", "POST"}}) {
    const Answer answer = w.me.call(method, path);
    EXPECT_TRUE(refused(answer, 405, "method_not_allowed")) << method << " " << path;
    EXPECT_EQ(answer.header("Allow"), allow) << path;
  }
  const Answer raw_file = w.me.call("PATCH", w.me.file_url("x"));
  EXPECT_TRUE(refused(raw_file, 405, "method_not_allowed"));
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE"})
    EXPECT_NE(raw_file.header("Allow").find(method), std::string::npos) << raw_file.header("Allow");
}

// Attack 96.
void an_error_tells_nothing_of_the_host(World& w) {
  w.me.run("mkdir d; ln -s /etc/passwd link; mkfifo fifo");
  for (const Answer& answer :
       {w.me.read("absent/x"), w.me.read("d"), w.me.read("link"), w.me.read("fifo"), w.me.read("/etc/passwd"),
        w.me.exec("true", {{"cwd", "absent"}}), w.me.write("d", "x"),
        w.me.post("/workspace/move", {{"path", "absent"}, {"to", "y"}}),
        w.me.post("/workspace/remove", {{"path", "absent"}})}) {
    EXPECT_GE(answer.status, 400);
    for (const std::string& secret : {w.gateway.state_dir(), std::string("isg-"), std::string("/sandboxes/"),
                                      std::string(ISOGATE_SOURCE_DIR "/")})
      EXPECT_EQ(answer.text.find(secret), std::string::npos) << answer.text;
  }
  const Answer escaped = w.me.read("a\x1b[31m\r\nlevel=error");
  EXPECT_EQ(escaped.text.find('\x1b'), std::string::npos) << "an unescaped control character";
}

const Case kErrorCases[] = {
    {"an_unknown_field_is_an_error_that_names_it", 9, an_unknown_field_is_an_error_that_names_it},
    {"a_body_that_is_not_plain_json_is_refused", 9, a_body_that_is_not_plain_json_is_refused},
    {"values_of_a_wrong_type_are_refused", 9, values_of_a_wrong_type_are_refused},
    {"a_timeout_has_to_make_sense", 9, a_timeout_has_to_make_sense},
    {"arguments_the_kernel_cannot_take_are_refused", 9, arguments_the_kernel_cannot_take_are_refused},
    {"a_body_that_is_too_large_is_413", 9, a_body_that_is_too_large_is_413},
    {"a_body_has_to_be_declared_as_json", 9, a_body_has_to_be_declared_as_json},
    {"an_unknown_path_is_404_and_an_unknown_method_405", 9, an_unknown_path_is_404_and_an_unknown_method_405},
    {"an_error_tells_nothing_of_the_host", 9, an_error_tells_nothing_of_the_host},
};

}  // namespace

std::span<const Case> error_cases() { return kErrorCases; }

}  // namespace isogate::test
