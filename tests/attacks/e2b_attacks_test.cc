#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <thread>

#include "tests/attacks/attack.h"

// What a caller may try at the listener for E2B's SDKs: with no key, another tenant's, another sandbox's
// token.
namespace isogate::test {
namespace {

std::string url_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += c;
    } else {
      std::array<char, 4> escape{};
      std::snprintf(escape.data(), escape.size(), "%%%02X",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape.data();
    }
  }
  return out;
}

std::string sha256_bytes(const std::string& text) {
  const std::string digits = sha256_hex(text);
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string envelope(const std::string& message, char flags = 0) {
  std::string text(1, flags);
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>((message.size() >> shift) & 0xFF);
  return text + message;
}

// The messages of a stream that has ended.
std::vector<Json> messages_in(const std::string& stream) {
  std::vector<Json> all;
  for (size_t at = 0; at + 5 <= stream.size();) {
    size_t size = 0;
    for (size_t i = 1; i < 5; ++i) size = size << 8 | static_cast<unsigned char>(stream[at + i]);
    all.push_back(Json::parse(stream.substr(at + 5, size)));
    at += 5 + size;
  }
  return all;
}

struct Box {
  std::string id, token, traffic;
  [[nodiscard]] Headers headers(const std::string& type = "application/json") const {
    return {{"E2b-Sandbox-Id", id}, {"X-Access-Token", token}, {"Content-Type", type}};
  }
};

class E2bAttack : public TenantsAttack {
 protected:
  void TearDown() override {
    if (!door()) return;
    for (const auto& [id, key] : made_) ask("DELETE", "/sandboxes/" + id, {{"X-API-Key", key}});
    expect_well(*door(), native(mine(), "well"));
  }

  static std::string url() {
    static const std::string address = door()->e2b_url();
    return address;
  }
  static Answer ask(const std::string& method, const std::string& target, const Headers& headers = {},
                    const std::string& body = {}) {
    return answer_of(http_call(url(), method, target, headers, body));
  }
  static Answer ask_control(const std::string& key, const std::string& method, const std::string& target,
                            const Json& body = nullptr) {
    Headers headers = {{"X-API-Key", key}};
    if (!body.is_null()) headers.emplace_back("Content-Type", "application/json");
    return ask(method, target, headers, body.is_null() ? "" : body.dump());
  }
  static Answer rpc(const Box& box, const std::string& path, const Json& message) {
    return ask("POST", path, box.headers(), message.dump());
  }
  Box make(const std::string& key, Json more = Json::object()) {
    more["templateID"] = "base";
    const Answer made = ask_control(key, "POST", "/sandboxes", more);
    EXPECT_EQ(made.status, 201) << made.text;
    made_.emplace_back(made.body.at("sandboxID"), key);
    return {made.body.at("sandboxID"), made.body.at("envdAccessToken"), made.body.at("trafficAccessToken")};
  }
  static Answer run(const Box& box, const std::string& command) {
    const Json message{{"process", {{"cmd", "/bin/sh"}, {"args", {"-c", command}}}}};
    return ask("POST", "/process.Process/Start", box.headers("application/connect+json"),
               envelope(message.dump()));
  }
  // A running process, and the stream that follows it.
  struct Started {
    std::unique_ptr<HttpConnection> connection;
    uint64_t pid = 0;
  };
  static Started start(const Box& box, const std::string& command) {
    const Json message{{"process", {{"cmd", "/bin/sh"}, {"args", {"-c", command}}}}, {"stdin", true}};
    Started started{std::make_unique<HttpConnection>(url())};
    const std::string body = envelope(message.dump());
    Headers headers = box.headers("application/connect+json");
    headers.emplace_back("Content-Length", std::to_string(body.size()));
    started.connection->send_request_head("POST", "/process.Process/Start", headers);
    started.connection->send(body);
    EXPECT_EQ(started.connection->read_head("POST").status, 200);
    const std::string first = started.connection->read_some();
    const Json event = Json::parse(first.substr(std::min<size_t>(first.size(), 5)));
    started.pid = event.at("event").at("start").at("pid");
    return started;
  }
  static std::string signature(const Box& box, const std::string& path, const std::string& operation,
                               const std::string& user = {}, const std::string& expiration = {}) {
    std::string text = path + ":" + operation + ":" + user + ":" + box.token;
    if (!expiration.empty()) text += ":" + expiration;
    std::string hash = base64(sha256_bytes(text));
    while (hash.ends_with('=')) hash.pop_back();
    return "&signature=" + url_text("v1_" + hash);
  }
  // A text with the id of a sandbox taken out.
  static std::string without(std::string text, const std::string& id) {
    for (size_t at = 0; (at = text.find(id)) != std::string::npos;) text.replace(at, id.size(), "ID");
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::string>> made_;
};

// Refused like a wrong key, or as one too many.
// 403 at the ports of sandboxes, 429 after some guesses.
bool is_barred(int status) { return status == 401 || status == 403 || status == 429; }
bool barred(const Answer& answer) { return is_barred(answer.status); }

constexpr const char* kList = "/process.Process/List";

TEST_F(E2bAttack, AnothersSandboxIsAnsweredLikeOneThatIsNotThere) {
  const Box x = make(mine()), y = make(theirs());
  const std::string none = "i" + std::string(20, 'a');
  const Headers wares[] = {{},
                           {{"X-Access-Token", "guessed"}},
                           {{"X-Access-Token", y.token}},
                           {{"X-Access-Token", x.traffic}},
                           {{"X-API-Key", theirs()}},
                           {{"Authorization", "Bearer " + theirs()}},
                           {{"Authorization", "Basic dXNlcjo="}}};
  for (const Headers& ware : wares) {
    Headers at_x = ware, at_none = ware;
    for (auto* each : {&at_x, &at_none}) each->emplace_back("Content-Type", "application/json");
    at_x.emplace_back("E2b-Sandbox-Id", x.id);
    at_none.emplace_back("E2b-Sandbox-Id", none);
    const Answer there = ask("POST", kList, at_x, "{}"), not_there = ask("POST", kList, at_none, "{}");
    const bool limited = there.status == 429 || not_there.status == 429;  // after too many guesses
    EXPECT_TRUE(there.status == 401 || there.status == 502 || limited) << there.text;
    EXPECT_TRUE(there.status != 502 || (!ware.empty() && ware[0].first != "X-Access-Token")) << there.text;
    if (limited) continue;
    EXPECT_EQ(there.status, not_there.status) << there.text << not_there.text;
    EXPECT_EQ(without(there.text, x.id), without(not_there.text, none));
  }
  for (const char* method : {"GET", "DELETE"}) {
    const Answer there = ask_control(theirs(), method, "/sandboxes/" + x.id),
                 not_there = ask_control(theirs(), method, "/sandboxes/" + none);
    EXPECT_EQ(there.status, 404);
    EXPECT_EQ(without(there.text, x.id), without(not_there.text, none));
  }
  for (const char* verb : {"timeout", "connect", "refreshes", "pause"})
    EXPECT_EQ(ask_control(theirs(), "POST", "/sandboxes/" + x.id + "/" + verb, {{"timeout", 0}}).status, 404);
  const Answer list = ask_control(theirs(), "GET", "/v2/sandboxes");
  EXPECT_EQ(list.text.find(x.id), std::string::npos);
  EXPECT_EQ(rpc(x, kList, Json::object()).status, 200) << "its own token opens it";
}

TEST_F(E2bAttack, ATokenOpensNothingButItsSandbox) {
  const Box x = make(mine()), y = make(mine());
  for (const Headers& ware : {Headers{{"X-API-Key", x.token}}, Headers{{"X-Access-Token", x.token}},
                              Headers{{"Authorization", "Bearer " + x.token}}}) {
    const int status = ask("GET", "/sandboxes", ware).status;
    EXPECT_TRUE(status == 401 || status == 429) << status;
    const int killed = ask("DELETE", "/sandboxes/" + x.id, ware).status;
    EXPECT_TRUE(killed == 401 || killed == 429) << killed;
  }
  for (const char* path : {"/sandboxes", "/metrics", "/execs"}) {
    const int status = native(x.token, x.id).get(path).status;
    EXPECT_TRUE(status == 401 || status == 429) << path << " " << status;
  }
  Headers crossed = x.headers();
  crossed[0].second = y.id;
  EXPECT_TRUE(barred(ask("POST", kList, crossed, "{}")));
  EXPECT_EQ(ask("GET", "/metrics", {{"X-API-Key", mine()}}).status, 404) << "this listener does not serve it";
}

TEST_F(E2bAttack, AWrongTokenIsAWrongKey) {
  const Box x = make(mine()), gone = make(mine());
  ASSERT_EQ(ask_control(mine(), "DELETE", "/sandboxes/" + gone.id).status, 204);
  const auto list = [&](const std::string& id, const std::string& token) {
    return ask("POST", kList, Box{id, token, ""}.headers(), "{}").status;
  };
  const auto port = [&](const std::string& id, const std::string& token) {
    return ask("GET", "/", {{"Host", "8123-" + id + ".sandbox.test"}, {"E2b-Traffic-Access-Token", token}})
        .status;
  };
  for (const Box& box : {x, gone}) {
    std::string wrong = box.token;
    wrong.back() = wrong.back() == 'a' ? 'b' : 'a';
    const std::function<int()> attempts[] = {
        [&] { return list(box.id, wrong); }, [&] { return list(box.id, box.traffic); },
        [&] { return port(box.id, wrong); }, [&] { return port(box.id, box.token); }};
    for (const auto& attempt : attempts) {
      const auto told = [&] {
        const int status = attempt();
        return is_barred(status) && status != 429;
      };
      EXPECT_TRUE(eventually(20, told));
      int status = 401;
      for (int tries = 0; tries < 30 && status != 429; ++tries) status = attempt();
      EXPECT_EQ(status, 429) << "after more guesses";
    }
    for (int calls = 0; calls < 15; ++calls)
      EXPECT_EQ(list(box.id, box.token), box.id == x.id ? 200 : 502) << "its own token is no wrong key";
  }
}

TEST_F(E2bAttack, ARefusalWithoutAKeyNamesTheHeaderOfThisListener) {
  const auto refusal = [](const std::string& method, const std::string& path, const Headers& headers) {
    Answer answer;
    eventually(20, [&] {
      answer = ask(method, path, headers, method == "POST" ? "{}" : "");
      return barred(answer) && answer.status != 429;
    });
    EXPECT_EQ(answer.text.find("Bearer"), std::string::npos) << answer.text;
    return answer.text;
  };
  const Headers wares[] = {{}, {{"X-API-Key", "e2b_0"}}, {{"Authorization", "Bearer e2b_0"}}};
  const std::string of_sandbox = "i" + std::string(20, 'a');
  for (Headers ware : wares) {
    EXPECT_NE(refusal("GET", "/sandboxes", ware).find("X-API-Key"), std::string::npos);
    if (!ware.empty() && ware[0].first == "X-API-Key") continue;
    ware.emplace_back("Content-Type", "application/json");
    ware.emplace_back("E2b-Sandbox-Id", of_sandbox);
    EXPECT_NE(refusal("POST", kList, ware).find("X-Access-Token"), std::string::npos);
  }
}

TEST_F(E2bAttack, ProcessesAndWatchersAreOfTheirSandbox) {
  const Box x = make(mine()), y = make(mine()), z = make(theirs());
  const Started sleeps = start(x, "sleep 60");
  const Json process{{"pid", sleeps.pid}};
  for (const Box& other : {y, z}) {
    for (const Json& message :
         {Json{{"process", process}, {"signal", "SIGNAL_SIGKILL"}}, Json{{"process", process}}})
      EXPECT_EQ(rpc(other, "/process.Process/SendSignal", message).status, 404);
    EXPECT_EQ(rpc(other, "/process.Process/CloseStdin", {{"process", process}}).status, 404);
    EXPECT_EQ(rpc(other, kList, Json::object()).body.value("processes", Json::array()).size(), 0U);
  }
  const Answer mine_all = native(mine(), x.id).get("/execs?agent_id=" + x.id);
  const std::string exec = mine_all.body.at("execs").at(0).at("exec_id");
  EXPECT_EQ(native(mine(), x.id).get("/execs/" + exec).status, 200)
      << "the native API shows it to its tenant";
  EXPECT_TRUE(refused(native(theirs(), x.id).get("/execs/" + exec), 404, "exec_not_found"));
  EXPECT_TRUE(refused(native(theirs(), x.id).call("DELETE", "/execs/" + exec), 404, "exec_not_found"));
  EXPECT_EQ(
      rpc(x, "/process.Process/SendSignal", {{"process", process}, {"signal", "SIGNAL_SIGKILL"}}).status,
      200);
  const Answer watcher = rpc(x, "/filesystem.Filesystem/CreateWatcher", {{"path", "."}});
  if (watcher.status == 501) return;
  ASSERT_EQ(watcher.status, 200) << watcher.text;
  for (const Box& other : {y, z})
    for (const char* verb : {"GetWatcherEvents", "RemoveWatcher"})
      EXPECT_EQ(rpc(other, std::string("/filesystem.Filesystem/") + verb, watcher.body).status, 404);
  EXPECT_EQ(rpc(x, "/filesystem.Filesystem/GetWatcherEvents", watcher.body).status, 200);
}

TEST_F(E2bAttack, ASignatureOpensOnlyWhatItWasMadeFor) {
  const Box x = make(mine()), y = make(mine());
  const Headers named{{"E2b-Sandbox-Id", x.id}};
  for (const Box& box : {x, y})
    ASSERT_EQ(ask("POST", "/files?path=f", box.headers("application/octet-stream"), "secret").status, 200);
  const std::string good = "/files?path=f" + signature(x, "f", "read");
  EXPECT_EQ(ask("GET", good, named).text, "secret");
  EXPECT_EQ(ask("GET", good).text, "secret");
  std::string changed = good;
  changed[changed.size() - 3] = changed[changed.size() - 3] == 'A' ? 'B' : 'A';
  EXPECT_TRUE(barred(ask("GET", changed, named)));
  EXPECT_TRUE(barred(ask("POST", good, {{"E2b-Sandbox-Id", x.id}, {"Content-Type", "text/plain"}}, "x")));
  EXPECT_TRUE(barred(ask("GET", "/files?path=g" + signature(x, "f", "read"), named)));
  EXPECT_TRUE(barred(ask("GET", "/files?path=f" + signature(y, "f", "read"), named)));
  EXPECT_TRUE(barred(ask("GET", "/files?path=f&username=root" + signature(x, "f", "read"), named)));
  EXPECT_TRUE(
      barred(ask("GET", "/files?path=f&signature_expiration=9999999999" + signature(x, "f", "read"))));
  EXPECT_TRUE(
      barred(ask("GET", "/files?path=f&signature_expiration=1" + signature(x, "f", "read", "", "1"), named)));
  EXPECT_TRUE(barred(ask("POST", kList + good.substr(good.find('?')),
                         {{"E2b-Sandbox-Id", x.id}, {"Content-Type", "application/json"}}, "{}")));
  const Answer as_other = ask("POST", "/files?path=as" + signature(x, "as", "write"),
                              {{"E2b-Sandbox-Id", x.id},
                               {"Content-Type", "application/octet-stream"},
                               {"Authorization", "Basic " + base64("other:")}},
                              "x");
  EXPECT_EQ(as_other.status, 200) << "its owner is the signed one, none: " << as_other.text;
  EXPECT_EQ(ask("GET", "/files?path=as", x.headers()).text, "x");
  // One text, two meanings: a file named like an operation, and a user named like one.
  const Answer shifted =
      ask("POST", "/files?path=x&username=" + url_text("e:read:u") + signature(x, "x:write:e", "read", "u"),
          {{"E2b-Sandbox-Id", x.id}, {"Content-Type", "text/plain"}}, "x");
  EXPECT_TRUE(barred(shifted)) << shifted.text;
}

TEST_F(E2bAttack, ThePortsOfASandboxAcceptOnlyItsTrafficToken) {
  const Box x = make(mine()), y = make(theirs());
  const auto at = [](const std::string& host, const std::string& token, Headers more = {}) {
    more.emplace_back("Host", host + ".sandbox.test");
    if (!token.empty()) more.emplace_back("E2b-Traffic-Access-Token", token);
    return ask("GET", "/", more);
  };
  EXPECT_NE(x.token, x.traffic);
  EXPECT_TRUE(barred(at("8123-" + x.id, y.traffic)));
  EXPECT_TRUE(barred(at("8123-" + x.id, x.token))) << "the right to see a page is not the sandbox's token";
  EXPECT_TRUE(barred(at("8123-" + x.id, "")));
  for (const char* port : {"0-", "99999-", "08123-", "x-", "8123-x."})
    EXPECT_EQ(at(port + x.id, x.traffic).status, 400) << port;
  Headers traffic = x.headers();
  traffic[1].second = x.traffic;
  EXPECT_TRUE(barred(ask("POST", kList, traffic, "{}"))) << "and the token of the ports opens nothing else";
  const Answer closed = at("8123-" + x.id, x.traffic);
  EXPECT_GE(closed.status, 500) << closed.text;
  if (!isolates()) return;
  const Started server =
      start(x,
            "exec python3 -c \"import socket as s; l=s.socket(); l.setsockopt(1,2,1); l.bind(('',8123)); "
            "l.listen()\n"
            "while 1:\n  c,_=l.accept(); r=c.recv(65536)\n"
            "  c.sendall(b'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n'+r); c.close()\"");
  Answer echo;
  EXPECT_TRUE(eventually(20, [&] {
    echo = at("8123-" + x.id, x.traffic,
              {{"X-API-Key", mine()},
               {"E2b-Sandbox-Id", x.id},
               {"X-Access-Token", x.token},
               {"Authorization", "Bearer " + x.token},
               {"X-Forwarded-Access-Token", y.token},
               {"X-Own", "kept"}});
    return echo.status == 200;
  })) << echo.text;
  EXPECT_NE(echo.text.find("kept"), std::string::npos) << echo.text;
  EXPECT_EQ(echo.text.find(x.token), std::string::npos) << "a program gets no token: " << echo.text;
  EXPECT_EQ(echo.text.find(y.token), std::string::npos) << "nor that of another sandbox: " << echo.text;
  EXPECT_EQ(echo.text.find(x.traffic), std::string::npos) << echo.text;
  EXPECT_EQ(echo.text.find(mine()), std::string::npos) << "and no key: " << echo.text;
  const Answer own = at("8123-" + x.id, x.traffic,
                        {{"X-Access-Token", "the program's"}, {"Authorization", "Bearer the-program-s"}});
  EXPECT_NE(own.text.find("the program's"), std::string::npos) << own.text;
  EXPECT_NE(own.text.find("the-program-s"), std::string::npos) << own.text;
}

TEST_F(E2bAttack, ASandboxThatIsBeingEndedIsNotRecreated) {
  const Box x = make(mine());
  // A client that does not read delays its end by a second.
  const std::string body = Json{{"command", "yes"}, {"agent_id", x.id}}.dump();
  HttpConnection slow(door()->url());
  const int small = 4096;
  ASSERT_EQ(::setsockopt(slow.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  slow.send_request_head("POST", "/exec-stream",
                         {{"Authorization", "Bearer " + mine()},
                          {"Content-Type", "application/json"},
                          {"Content-Length", std::to_string(body.size())}});
  slow.send(body);
  ASSERT_EQ(slow.read_head("POST").status, 200);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // then all buffers are full
  std::jthread kill([&] { EXPECT_EQ(ask_control(mine(), "DELETE", "/sandboxes/" + x.id).status, 204); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  (void)run(x, "echo undead");
  kill.join();
  EXPECT_EQ(native(mine(), x.id).get("/sandboxes").text.find(x.id), std::string::npos)
      << "it would stay forever: it has no timeout";
  EXPECT_EQ(rpc(x, kList, Json::object()).status, 502);
}

TEST_F(E2bAttack, AClientThatVanishesGivesStdinBack) {
  const Box x = make(mine());
  const Started deaf = start(x, "exec sleep 60");
  const Json process{{"pid", deaf.pid}};
  {
    HttpConnection gone(url());
    const std::string body =
        Json{{"process", process}, {"input", {{"stdin", base64(std::string(1 << 20, 'x'))}}}}.dump();
    Headers headers = x.headers();
    headers.emplace_back("Content-Length", std::to_string(body.size()));
    gone.send_request_head("POST", "/process.Process/SendInput", headers);
    gone.send(body);
    pollfd answered{gone.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&answered, 1, 500), 0) << "the program has no room for it";
  }
  EXPECT_EQ(rpc(x, "/process.Process/CloseStdin", {{"process", process}}).status, 200);
  const Answer list = rpc(x, kList, Json::object());
  EXPECT_EQ(list.body.at("processes").size(), 1U) << "the process continues: " << list.text;
}

TEST_F(E2bAttack, ALargeMessageDelaysNobody) {
  const Box x = make(mine());
  Json many = Json::array();
  for (int i = 0; i < 190000; ++i) many.push_back("aaaa");
  const std::string body = Json{{"unknown", many}, {"more", std::string(16 << 20, 'x')}}.dump();
  Headers headers = x.headers();
  headers.emplace_back("Content-Length", std::to_string(body.size()));
  bool meanwhile = false;
  for (int tries = 0; tries < 5 && !meanwhile; ++tries) {
    HttpConnection large(url());
    large.send_request_head("POST", kList, headers);
    large.send(body);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(http_call(door()->url(), "GET", "/livez").status, 200);
    pollfd answered{large.fd(), POLLIN, 0};
    meanwhile = ::poll(&answered, 1, 0) == 0;
    EXPECT_EQ(large.read_response("POST").status, 200);
  }
  EXPECT_TRUE(meanwhile);
}

TEST_F(E2bAttack, WhatIsKeptOfASandboxIsBounded) {
  Json many = Json::object();
  for (int i = 0; i < 257; ++i) many["k" + std::to_string(i)] = "";
  const auto refuses = [](const Json& body) {
    return ask_control(mine(), "POST", "/sandboxes", body).status == 400;
  };
  for (const char* field : {"metadata", "envVars"}) {
    EXPECT_TRUE(refuses({{field, {{"A", std::string(40000, 'x')}}}})) << field;
    EXPECT_TRUE(refuses({{field, many}})) << field;
    EXPECT_TRUE(refuses({{field, {{"A", 5}}}})) << field;
    EXPECT_TRUE(refuses({{field, {{"A", std::string("\0", 1)}}}})) << field;
    EXPECT_TRUE(refuses({{field, Json::array()}})) << field;
    EXPECT_TRUE(refuses({{field, {{"A", std::string(30000, '\x01')}}}})) << field << " is 180 kB as JSON";
  }
  EXPECT_TRUE(refuses({{"envVars", {{"A=B", "x"}}}}));
  EXPECT_TRUE(refuses({{"envVars", {{"", "x"}}}}));
  for (const char* timeout : {"-1", "1e300", "1e400", "NaN", "\"5\"", "86401", "true"})
    EXPECT_EQ(ask("POST", "/sandboxes", {{"X-API-Key", mine()}, {"Content-Type", "application/json"}},
                  std::string("{\"timeout\":") + timeout + "}")
                  .status,
              400)
        << timeout;
  const Box x = make(mine(), {{"metadata", {{"a\n\x1b[31m", "\x7f\t"}}}});
  const Json tag{{"process", {{"cmd", "true"}}}, {"tag", std::string(1001, 'x')}};
  const Answer long_tag =
      ask("POST", "/process.Process/Start", x.headers("application/connect+json"), envelope(tag.dump()));
  EXPECT_EQ(messages_in(long_tag.text).at(0).at("error").at("code"), "invalid_argument");
}

TEST_F(E2bAttack, MalformedStreamsAreRefused) {
  const Box x = make(mine());
  const std::string one = envelope(Json{{"process", {{"cmd", "true"}}}}.dump());
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  const std::pair<std::string, const char*> streams[] = {
      {"", "invalid_argument"},
      {std::string(3, '\0'), "invalid_argument"},
      {std::string("\0\xff\xff\xff\xff{}", 7), "out_of_range"},
      {std::string("\0\0\0\0\x09{}", 7), "invalid_argument"},
      {envelope("{}", 1), "unimplemented"},
      {envelope("{}", 2), "invalid_argument"},
      {envelope("{}", static_cast<char>(0x80)), "invalid_argument"},
      {one + one, "invalid_argument"},
      {one + "x", "invalid_argument"},
      {envelope(deep), "invalid_argument"},
      {envelope(std::string(1 << 20, '[')), "invalid_argument"},
      {envelope("5"), "invalid_argument"},
      {envelope("{\"process\":{\"cmd\":\"a\\u0000b\"}}"), "invalid_argument"},
      {envelope("{\"process\":{\"cmd\":\"true\",\"args\":[5]}}"), "invalid_argument"},
      {envelope("{\"process\":{\"cmd\":\"true\",\"envs\":{\"A=B\":\"x\"}}}"), "invalid_argument"}};
  for (const auto& [stream, code] : streams) {
    const Answer answer =
        ask("POST", "/process.Process/Start", x.headers("application/connect+json"), stream);
    ASSERT_EQ(answer.status, 200) << answer.text;
    const auto messages = messages_in(answer.text);
    ASSERT_EQ(messages.size(), 1U) << answer.text;
    EXPECT_EQ(messages[0].at("error").at("code"), code) << answer.text << " for " << stream.substr(0, 60);
  }
  EXPECT_EQ(rpc(x, kList, Json::object()).body.at("processes").size(), 0U) << "nothing ran";
}

// As JSON of protocol buffers has it.
TEST_F(E2bAttack, ATerminalThatIsNullIsNone) {
  const Box x = make(mine());
  const Json process{{"cmd", "/bin/sh"}, {"args", {"-c", "test -t 1 || echo none"}}};
  const Answer ran = ask("POST", "/process.Process/Start", x.headers("application/connect+json"),
                         envelope(Json{{"process", process}, {"pty", nullptr}}.dump()));
  EXPECT_NE(ran.text.find("\"stdout\":\"" + base64("none\n") + "\""), std::string::npos) << ran.text;
}

TEST_F(E2bAttack, UploadsThatAreHostileLeaveNothing) {
  const Box x = make(mine());
  const auto upload = [&](const std::string& body) {
    return ask("POST", "/files", x.headers("multipart/form-data; boundary=b"), body);
  };
  const auto part = [](const std::string& name, const std::string& data) {
    return "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\n\r\n" + data +
           "\r\n";
  };
  const auto there = [&](const std::string& path) {
    return ask("GET", "/files?path=" + path, x.headers()).status == 200;
  };
  EXPECT_EQ(upload(part("cut", "x")).status, 400);
  EXPECT_FALSE(there("cut")) << "of a body that ends in the middle";
  EXPECT_EQ(upload(part(std::string(9000, 'n'), "x") + "--b--\r\n").status, 400);
  EXPECT_EQ(upload(part("a", "x") + part("./a", "y") + "--b--\r\n").status, 400) << "one file twice";
  std::string many;
  for (int i = 0; i < 10001; ++i) many += "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n\r\n";
  EXPECT_EQ(upload(many + "--b--\r\n").status, 400);
  const std::string other =
      "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n" + std::string(2 << 20, 'x') + "\r\n";
  EXPECT_EQ(upload(other + part("behind", "x") + "--b--\r\n").status, 400);
  EXPECT_FALSE(there("behind"));
  for (const char* name : {"../../../../etc/isogate-planted", "/etc/isogate-planted"}) {
    const Answer planted = upload(part(name, "x") + "--b--\r\n");
    EXPECT_TRUE(isolates() || planted.status >= 400) << planted.text;
    EXPECT_NE(::access("/etc/isogate-planted", F_OK), 0) << "it is this host's";
  }
  Headers packed = x.headers("application/octet-stream");
  packed.emplace_back("Content-Encoding", "gzip");
  EXPECT_EQ(ask("POST", "/files?path=packed", packed, std::string("\x1f\x8b\x08", 3)).status, 400);
  EXPECT_FALSE(there("packed"));
  packed.back().second = "br";
  EXPECT_EQ(ask("POST", "/files?path=packed", packed, "x").status, 415);
  packed.back() = {"Content-Range", "bytes 5-8/9"};
  EXPECT_EQ(ask("POST", "/files?path=packed", packed, "tail").status, 400) << "it is not all of the file";
}

// Otherwise a caller could make the gateway unpack the rest of a refused upload for as long as it likes.
TEST_F(E2bAttack, AnUploadThatIsRefusedIsNotReadToItsEnd) {
  const Box x = make(mine());
  ASSERT_EQ(rpc(x, "/filesystem.Filesystem/MakeDir", {{"path", "directory"}}).status, 200);
  HttpConnection endless(url(), 20);
  Headers headers = x.headers("application/octet-stream");
  headers.emplace_back("Transfer-Encoding", "chunked");
  endless.send_request_head("POST", "/files?path=directory", headers);
  const std::string chunk = "10000\r\n" + std::string(65536, 'x') + "\r\n";
  pollfd answered{endless.fd(), POLLIN, 0};
  bool refused_early = false;
  for (int i = 0; i < 250 && !refused_early; ++i) {
    endless.send(chunk);
    refused_early = ::poll(&answered, 1, 20) == 1;
  }
  ASSERT_TRUE(refused_early);
  EXPECT_GE(endless.read_head("POST").status, 400);
}

TEST_F(E2bAttack, EventsThatAreNotPolledAreBounded) {
  const Box x = make(mine());
  const Answer watcher = rpc(x, "/filesystem.Filesystem/CreateWatcher", {{"path", "."}});
  if (watcher.status == 501) GTEST_SKIP() << "this backend has no watches";
  ASSERT_EQ(watcher.status, 200) << watcher.text;
  const std::string command =
      "p=$(printf %0246d 0); i=0; while [ $i -lt 2500 ]; do : > $i$p; i=$((i+1)); done";
  const auto lost = [&](int tries) {
    (void)run(x, command);
    std::this_thread::sleep_for(std::chrono::milliseconds(100) * tries);  // the watch may be behind
    const Answer events = rpc(x, "/filesystem.Filesystem/GetWatcherEvents", watcher.body);
    return events.body.value("code", "") == "data_loss";
  };
  bool seen = false;
  for (int tries = 0; tries < 10 && !seen; ++tries) seen = lost(tries);
  EXPECT_TRUE(seen) << "2500 names of 250 bytes are more than is kept";
  EXPECT_EQ(rpc(x, "/filesystem.Filesystem/RemoveWatcher", watcher.body).status, 200);
  // 16 at a time. The removed one may hold its place for a while: then an earlier one than the last is
  // refused.
  int made = 0, refused = 0;
  for (int i = 0; i < 17; ++i) {
    const auto status = rpc(x, "/filesystem.Filesystem/CreateWatcher", {{"path", "."}}).status;
    made += status == 200 ? 1 : 0;
    refused += status == 429 ? 1 : 0;
  }
  EXPECT_EQ(made + refused, 17);
  EXPECT_TRUE(made == 15 || made == 16) << made;
}

// Its directory is gone, but not what happened there; and another watcher does not drop it.
TEST_F(E2bAttack, EventsOfAWatchThatIsOverAreKept) {
  const Box x = make(mine());
  const std::string filesystem = "/filesystem.Filesystem/";
  ASSERT_EQ(rpc(x, filesystem + "MakeDir", {{"path", "dir"}}).status, 200);
  const Answer watcher = rpc(x, filesystem + "CreateWatcher", {{"path", "dir"}});
  if (watcher.status == 501) GTEST_SKIP() << "this backend has no watches";
  ASSERT_EQ(watcher.status, 200) << watcher.text;
  (void)run(x, ": > dir/seen; sleep 1; rm -r dir");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const Answer other = rpc(x, filesystem + "CreateWatcher", {{"path", "."}});
  ASSERT_EQ(other.status, 200) << other.text;
  const Answer events = rpc(x, filesystem + "GetWatcherEvents", watcher.body);
  EXPECT_EQ(events.status, 200);
  EXPECT_NE(events.text.find("\"seen\""), std::string::npos) << events.text;
}

TEST_F(E2bAttack, UsersThatTheOperatorDoesNotNameAreRefused) {
  const Box x = make(mine());
  for (const char* user : {"root", "0", "-1", "4294967295", "nobody"}) {
    Headers headers = x.headers();
    headers.emplace_back("Authorization", "Basic " + base64(std::string(user) + ":"));
    const Answer listed = ask("POST", "/filesystem.Filesystem/ListDir", headers, Json{{"path", "/"}}.dump());
    EXPECT_GE(listed.status, 400) << user << listed.text;
    headers[2].second = "application/connect+json";
    const Answer ran =
        ask("POST", "/process.Process/Start", headers, envelope(Json{{"process", {{"cmd", "id"}}}}.dump()));
    const auto messages = messages_in(ran.text);
    ASSERT_FALSE(messages.empty()) << ran.text;
    EXPECT_TRUE(messages.back().contains("error")) << user << ran.text;
    EXPECT_GE(ask("GET", "/files?path=f&username=" + std::string(user), x.headers()).status, 400);
  }
}

TEST_F(E2bAttack, NoSecretIsInTheLog) {
  const Box x = make(mine());
  const std::string wrong = "e2b_" + sha256_hex("wrong");
  (void)ask_control(wrong, "GET", "/sandboxes");
  (void)run(x, "true");
  ASSERT_EQ(ask("POST", "/files?path=f", x.headers("application/octet-stream"), "x").status, 200);
  const std::string sign = signature(x, "f", "read");
  EXPECT_EQ(ask("GET", "/files?path=f" + sign).status, 200);
  (void)ask("GET", "/files?path=g" + sign);
  (void)ask("GET", "/nowhere?path=g" + sign, {{"X-API-Key", mine()}, {"X-Access-Token", x.token}});
  const Answer unknown = ask("GET", "/nowhere/" + x.token, {{"X-API-Key", mine()}});
  EXPECT_NE(unknown.text.find("no such call"), std::string::npos) << unknown.text;
  EXPECT_EQ(unknown.text.find(x.token), std::string::npos);
  const std::string log = door()->log();
  EXPECT_NE(log.find("e2bDownload"), std::string::npos);
  for (const std::string& secret :
       {mine(), theirs(), wrong, x.token, x.traffic, sign.substr(11), sha256_hex(mine())})
    EXPECT_EQ(log.find(secret), std::string::npos) << secret.substr(0, 8);
}

TEST_F(E2bAttack, ItsListenerIsGuardedLikeTheOthers) {
  if (isolates()) GTEST_SKIP() << "shown with the backend `local`";
  try {
    const auto open = another("", "e2b: {listen: [\"0.0.0.0:0\"]}\n");
    ADD_FAILURE() << "it listens beyond this machine without keys";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("can be reached from other machines"), std::string::npos)
        << error.what();
  }
  const auto anonymous = another("", "anonymous: loopback\ne2b: {listen: [\"127.0.0.1:0\"]}\n");
  const std::string at = anonymous->e2b_url();
  const auto status = [&](const std::string& path, const Headers& headers) {
    return http_call(at, "GET", path, headers).status;
  };
  EXPECT_EQ(status("/sandboxes", {}), 200);
  EXPECT_EQ(status("/sandboxes", {{"Host", "evil.example"}}), 421);
  EXPECT_EQ(status("/sandboxes", {{"Origin", "http://evil.example"}}), 403);
  EXPECT_EQ(status("/sandboxes", {{"X-Forwarded-For", "10.0.0.1"}}), 401);
  EXPECT_EQ(status("/sandboxes", {{"X-API-Key", "e2b_wrong"}}), 401);
  EXPECT_EQ(status("/health", {{"E2b-Sandbox-Id", "i" + std::string(20, 'a')}}), 401);
}

}  // namespace
}  // namespace isogate::test
