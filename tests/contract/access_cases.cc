#include <sys/stat.h>

#include "gateway/front/api/router.h"
#include "tests/contract/contract.h"

// Who is let in.
namespace isogate::test {
namespace {

struct Call {
  const char *method, *path, *body;
};
const Call kGuarded[] = {{"POST", "/exec", R"({"command":"touch ran"})"},
                         {"POST", "/exec-stream", R"({"command":"touch ran"})"},
                         {"POST", "/exec", R"({"command":"touch ran","background":true})"},
                         {"GET", "/execs", ""},
                         {"GET", "/execs/a", ""},
                         {"DELETE", "/execs/a", ""},
                         {"GET", "/execs/a/output", ""},
                         {"POST", "/execs/a/stdin", "x"},
                         {"POST", "/execs/a/signal", R"({"signal":"TERM"})"},
                         {"POST", "/execs/a/resize", R"({"cols":80,"rows":24})"},
                         {"GET", "/execs/a/attach", ""},
                         {"POST", "/workspace/read", R"({"path":"x"})"},
                         {"POST", "/workspace/write", R"({"path":"ran","content":""})"},
                         {"POST", "/workspace/list", R"({"path":"."})"},
                         {"POST", "/workspace/stat", R"({"path":"."})"},
                         {"POST", "/workspace/mkdir", R"({"path":"ran"})"},
                         {"POST", "/workspace/move", R"({"path":"x","to":"ran"})"},
                         {"POST", "/workspace/remove", R"({"path":"x"})"},
                         {"GET", "/workspace/files/a/x", ""},
                         {"PUT", "/workspace/files/a/ran", "x"},
                         {"DELETE", "/workspace/files/a/x", ""},
                         {"GET", "/sandboxes", ""},
                         {"DELETE", "/sandboxes/a", ""},
                         {"GET", "/backends", ""},
                         {"GET", "/metrics", ""},
                         {"GET", "/openapi.json", ""}};

void every_call_but_health_needs_a_key(World& w) {
  const Caller keyless(w.gateway.url(), "", "");
  for (const Call& call : kGuarded)
    EXPECT_TRUE(
        refused(keyless.call(call.method, call.path, {{"Content-Type", "application/json"}}, call.body), 401,
                "unauthenticated"))
        << call.path;
  for (const front::Route& row : front::routes()) {
    if (row.needs == front::Needs::kNothing) continue;
    std::string path(row.path);
    for (size_t open; (open = path.find('{')) != std::string::npos;)
      path.replace(open, path.find('}') + 1 - open, path.compare(open, 6, "{port}") == 0 ? "1" : "a");
    const Answer answer = keyless.call(std::string(row.method), path);
    EXPECT_EQ(answer.status, 401) << row.method << " " << path;
    if (row.method == "HEAD") continue;  // no body
    EXPECT_TRUE(refused(answer, 401, "unauthenticated")) << row.method << " " << path;
  }
  for (const char* path : {"/healthz", "/livez", "/readyz"}) {
    const Answer answer = keyless.get(path);
    EXPECT_TRUE(succeeded(answer)) << path;
    EXPECT_EQ(answer.body.at("status"), "ok");
  }
}

void a_wrong_key_is_refused_the_same_way_everywhere(World& w) {
  const auto own = w.another();
  const std::string right = own->key();
  ASSERT_GT(right.size(), 20u);
  const Headers types{{"Content-Type", "application/json"}};
  for (const std::string& header :
       std::vector<std::string>{"Bearer wrong", "Bearer ", "Bearer", "Basic " + base64("isogate:" + right),
                                right, "Bearer " + right + "x", "Bearer " + right.substr(0, right.size() - 1),
                                "Bearer " + right + " " + right}) {
    const Answer answer =
        answer_of(http_call(own->url(), "POST", "/exec", {{"Authorization", header}, types[0]},
                            R"({"command":"true","agent_id":"a"})"));
    EXPECT_TRUE(refused(answer, 401, "unauthenticated")) << header.substr(0, 12);
    EXPECT_EQ(answer.text.find(right), std::string::npos) << "a key in an answer";
  }
  EXPECT_TRUE(
      refused(answer_of(http_call(own->url(), "GET", "/backends?key=" + right)), 401, "unauthenticated"));
  EXPECT_EQ(
      answer_of(http_call(own->url(), "GET", "/backends", {{"Authorization", "bearer " + right}})).status,
      200)
      << "the scheme is case-insensitive";
  EXPECT_EQ(own->log().find(right), std::string::npos) << "a key in the log";
}

void the_local_key_is_for_its_owner_alone(World& w) {
  struct stat info {};
  ASSERT_EQ(::stat((w.gateway.state_dir() + "/local.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(w.gateway.key().rfind("isg_", 0), 0u);
}

void the_unix_socket_knows_its_peer(World& w) {
  const Caller local(w.gateway.unix_url(), "", w.me.agent());
  ASSERT_TRUE(succeeded(local.write("file", "over the socket")));
  EXPECT_EQ(w.me.content("file"), "over the socket") << "it is the same tenant as the local key's";
  EXPECT_EQ(local.run("cat file").at("stdout"), "over the socket");
  const Answer wrong =
      answer_of(http_call(w.gateway.unix_url(), "GET", "/backends", {{"Authorization", "Bearer wrong"}}));
  EXPECT_TRUE(refused(wrong, 401, "unauthenticated")) << "the peer's uid does not compensate for a wrong key";
}

// Attack 116: another user of this machine, over the socket and over loopback.
void another_user_is_not_let_in(World& w) {
  if (!is_root()) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kOther = 54321;
  as_user(kOther, [&] {
    EXPECT_TRUE(refused(Caller(w.gateway.url(), "", "a").exec("true"), 401, "unauthenticated"));
    try {
      EXPECT_TRUE(refused(Caller(w.gateway.unix_url(), "", "a").exec("true"), 401, "unauthenticated"));
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("Permission denied"), std::string::npos) << error.what();
    }
  });
  if (w.starter == Starter::kUser)
    as_user(kOrdinaryUser, [&] {
      EXPECT_TRUE(succeeded(Caller(w.gateway.unix_url(), "", "a").exec("true"))) << "its own user is let in";
    });
}

void a_socket_open_to_all_still_looks_at_its_peer(World& w) {
  if (!is_root()) GTEST_SKIP() << "only root can become another user";
  const TemporaryDirectory place;
  ASSERT_EQ(::chmod(place.path().c_str(), 0777), 0);
  const std::string socket = place.path() + "/open.sock";
  const auto own = w.another("listen: [\"127.0.0.1:0\", \"unix:" + socket + "\"]");
  ASSERT_EQ(::chmod(socket.c_str(), 0666), 0);
  as_user(54321, [&] {
    EXPECT_TRUE(refused(Caller("unix:" + socket, "", "a").exec("true"), 401, "unauthenticated"));
  });
  EXPECT_TRUE(succeeded(Caller("unix:" + socket, "", "a").exec("true")));
}

const Case kAccessCases[] = {
    {"every_call_but_health_needs_a_key", 9, every_call_but_health_needs_a_key},
    {"a_wrong_key_is_refused_the_same_way_everywhere", 9, a_wrong_key_is_refused_the_same_way_everywhere},
    {"the_local_key_is_for_its_owner_alone", 0, the_local_key_is_for_its_owner_alone},
    {"the_unix_socket_knows_its_peer", 0, the_unix_socket_knows_its_peer},
    {"another_user_is_not_let_in", 0, another_user_is_not_let_in},
    {"a_socket_open_to_all_still_looks_at_its_peer", 0, a_socket_open_to_all_still_looks_at_its_peer},
};

}  // namespace

std::span<const Case> access_cases() { return kAccessCases; }

}  // namespace isogate::test
