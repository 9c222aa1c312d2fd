#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "runner/uid/uid_registry.h"
#include "tests/attacks/attack.h"
#include "tests_dirs.h"

// Groups A, B, O and T, as far as they reach a gateway with the backend `local`.
namespace isogate::test {
namespace {

Answer raw(const Caller& me, const std::string& body) {
  return me.call("POST", "/exec", {{"Content-Type", "application/json"}}, body);
}

TEST_F(InputAttack, A99_InvalidTimeouts) {
  for (const char* value : {"-1", "0", "1e18", "1e400", "NaN", "\"5\"", "[]", "1e-400", "-0"}) {
    const Answer answer = raw(x(), std::string(R"({"command":"touch ran","timeout_sec":)") + value + "}");
    EXPECT_TRUE(refused(answer, 400, "invalid_request")) << value;
  }
  const Answer null = raw(x(), R"({"command":"echo default","timeout_sec":null})");
  EXPECT_TRUE(null.status == 200 || null.status == 400) << null.text;
  EXPECT_EQ(x().run("sleep 5", {{"timeout_sec", 0.001}}).at("outcome"), "timed_out");
}

TEST_F(InputAttack, A100_EnvironmentsReachOnlyTheTenant) {
  EXPECT_TRUE(
      refused(x().exec("true", {{"env", {{"BIG", std::string(1 << 20, 'x')}}}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(x().exec("true", {{"env", {{"A=B", "x"}}}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(x().exec("true", {{"env", {{"", "x"}}}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(raw(x(), R"({"command":"true","env":{"A":"x\u0000y"}})"), 400, "invalid_request"));
  EXPECT_TRUE(refused(raw(x(), R"({"command":"true","env":{"A\u0000":"x"}})"), 400, "invalid_request"));
  // The gateway runs nothing with a tenant's environment before it is the tenant.
  const TemporaryDirectory trap;
  ASSERT_EQ(::chmod(trap.path().c_str(), 0777), 0);
  const std::string script = trap.file("env.sh", "id -u >> " + trap.path() + "/ran-as\n");
  const Json env{{"LD_PRELOAD", trap.path() + "/none.so"},
                 {"LD_LIBRARY_PATH", trap.path()},
                 {"BASH_ENV", script},
                 {"ENV", script},
                 {"PATH", trap.path() + ":/usr/bin:/bin"},
                 {"GCONV_PATH", trap.path()},
                 {"GLIBC_TUNABLES", "x=y"}};
  const Json result = x().run("id -u", {{"env", env}});
  EXPECT_EQ(result.at("exit_code"), 0);
  const std::string uid = result.at("stdout");
  std::ifstream ran(trap.path() + "/ran-as");
  for (std::string line; std::getline(ran, line);)
    EXPECT_EQ(line + "\n", uid) << "somebody else obeyed the tenant's environment";
  if (!separates_agents()) return;
  EXPECT_NE(uid, "0\n");
}

TEST_F(InputAttack, A101_ArgumentsThatCannotBe) {
  EXPECT_TRUE(refused(raw(x(), R"({"argv":["echo","a\u0000b"]})"), 400, "invalid_request"));
  EXPECT_TRUE(refused(raw(x(), R"({"command":"echo \u0000"})"), 400, "invalid_request"));
  EXPECT_TRUE(refused(x().exec(": " + std::string(200000, 'x')), 400, "invalid_request"));
  const pid_t front = front_of(gateway());
  const long before = resident_kib(front);
  const Answer huge =
      x().call("POST", "/exec", {{"Content-Type", "application/json"}, {"Content-Length", "104857600"}},
               "{\"command\":\"");
  EXPECT_TRUE(refused(huge, 413, "file_too_large"));
  EXPECT_LT(resident_kib(front) - before, kib_bound(8192)) << "it was buffered";
}

TEST_F(InputAttack, A102_MalformedJson) {
  for (const std::string& body :
       {std::string(100000, '{'), "{\"command\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
        std::string(10 << 20, '['), std::string("{\"a\":{\"a\":") + std::string(100000, '1') + "}}",
        std::string(R"({"command":"true","command":"true"})"),
        std::string(R"({"command":"true","comm\u0061nd":"true"})"), std::string(R"({"command":"true"} true)"),
        std::string("\xef\xbb\xbf{\"command\":\"true\"}"), std::string(R"({"command":"\ud800"})"),
        std::string(R"({"command":"true","timeout_sec":1e999})"),
        std::string(R"({"__proto__":{"command":"true"}})"),
        std::string(R"({"command":"true","constructor":1})")})
    EXPECT_TRUE(refused(raw(x(), body), 400, "invalid_request")) << body.substr(0, 60);
}

TEST_F(InputAttack, A107_AgentNamesOutsideTheGrammar) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("a/b"),
        std::string("a%2fb"), std::string(10000, 'a'), std::string("\xd0\x90"), std::string("a\0b", 3),
        std::string("-x"), std::string("a b")}) {
    EXPECT_TRUE(refused(x().exec("true", {{"agent_id", name}}), 400, "invalid_request"))
        << name.substr(0, 20);
    EXPECT_TRUE(refused(x().post("/workspace/write", {{"agent_id", name}, {"path", "x"}, {"content", ""}}),
                        400, "invalid_request"))
        << name.substr(0, 20);
  }
  for (const char* target : {"/workspace/files/../x", "/workspace/files/%2e%2e/x", "/workspace/files/a%2fb/x",
                             "/sandboxes/..", "/sandboxes/%00", "/workspace/files//x"})
    EXPECT_TRUE(x().call("DELETE", target).status == 400 || x().call("DELETE", target).status == 404)
        << target;
  ASSERT_TRUE(succeeded(x().as("Bob").write("who", "Bob")));
  EXPECT_TRUE(refused(x().as("bob").read("who"), 404, "file_not_found"));
}

TEST_F(InputAttack, A108_WorkingDirectoriesOutside) {
  x().run("touch file; ln -s / out; ln -s /tmp tmp; mkdir fine");
  for (const char* cwd : {"..", "../..", "fine/../..", "absent", "file", "out", "tmp", "out/tmp"})
    EXPECT_TRUE(refused(x().exec("touch ran", {{"cwd", cwd}}), 400, "invalid_request")) << cwd;
  for (const char* cwd : {"/", "/tmp", "/etc"}) {
    if (isolates())
      EXPECT_EQ(x().run("pwd", {{"cwd", cwd}}).at("stdout"), std::string(cwd) + "\n") << "in its own view";
    else
      EXPECT_TRUE(kept_in(x().exec("touch ran", {{"cwd", cwd}}))) << cwd;
  }
  for (const char* cwd : {"/absent", "/etc/passwd", "/workspace/out", "/workspace/../etc"})
    EXPECT_TRUE(refused(x().exec("touch ran", {{"cwd", cwd}}), 400, "invalid_request")) << cwd;
  EXPECT_TRUE(refused(x().read("ran"), 404, "file_not_found"));
}

TEST_F(InputAttack, A109_UsersThatAreNotAdmitted) {
  for (const char* user : {"0", "-1", "4294967295", "4294967296", "root", "65534", "nobody", "0x0", " 0",
                           "+0", "00", "isogate", "../0", "root:root"}) {
    const Answer answer = x().exec("id -u", {{"user", user}});
    EXPECT_TRUE(answer.status == 403 || answer.status == 501) << user << " " << answer.text;
    EXPECT_NE(x().read("x", {{"user", user}}).status, 200) << user;
  }
}

// A plugin that somebody else could have written is not loaded.
TEST_F(InputAttack, A112_APluginOthersMayWriteIsNotLoaded) {
  const std::string plugin = read_whole(ISOGATE_BUILD_DIR "/plugins/local.so");
  ASSERT_FALSE(plugin.empty());
  const TemporaryDirectory
      place;  // below /tmp, where anybody may write: sticky, so that is no obstacle by itself
  const std::string writable = place.file("writable.so", plugin, 0666);
  ASSERT_EQ(::symlink(ISOGATE_BUILD_DIR "/plugins/local.so", (place.path() + "/link.so").c_str()), 0);
  ASSERT_EQ(::mkdir((place.path() + "/open").c_str(), 0777), 0);
  ASSERT_EQ(::chmod((place.path() + "/open").c_str(), 0777), 0);
  std::ofstream(place.path() + "/open/in.so", std::ios::binary) << plugin;
  std::vector<std::string> unfit = {"plugin: " + writable, "plugin: " + place.path() + "/link.so",
                                    "plugin: " + place.path() + "/open/in.so",
                                    "plugin: local, sha256: " + std::string(64, 'a')};
  if (is_root()) {
    const std::string foreign = place.file("foreign.so", plugin);
    ASSERT_EQ(::chown(foreign.c_str(), 65534, 65534), 0);
    unfit.push_back("plugin: " + foreign);
  }
  for (const std::string& each : unfit) {
    GatewayOptions options;
    options.wait_ready = false;
    options.yaml = "allow_unisolated: true\nbackends:\n  - {name: local}\n  - {name: bad, " + each + "}\n";
    try {
      Gateway own(options);
      ADD_FAILURE() << "it started with " << each;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("`backends[1].plugin`: "), std::string::npos) << error.what();
    }
  }
}

// 116: whoever else is on this machine.
TEST_F(InputAttack, B116_AnotherUserOfThisHostIsRefused) {
  if (!is_root()) GTEST_SKIP() << "only root can become another user";
  as_user(65534, [&] {
    EXPECT_TRUE(refused(Caller(gateway().url(), "", "a").exec("id"), 401, "unauthenticated"));
    EXPECT_TRUE(read_whole(gateway().state_dir() + "/local.key").empty()) << "the key is readable";
    EXPECT_ANY_THROW(Caller(gateway().unix_url(), "", "a").exec("id")) << "the socket is open to all";
  });
  // Nor a tenant's program.
  const std::string port = gateway().url().substr(gateway().url().rfind(':') + 1);
  const std::string call =
      "curl -s -o /dev/null -w '%{http_code}' -H 'Content-Type: application/json' -d '{\"command\":\"id\"}' ";
  EXPECT_EQ(x().run(call + "http://127.0.0.1:" + port + "/exec").at("stdout"), isolates() ? "000" : "401");
  EXPECT_NE(
      x().run(call + "--unix-socket " + gateway().state_dir() + "/isogate.sock http://x/exec").at("stdout"),
      "200");
}

TEST_F(InputAttack, B117_BeyondLoopbackKeysAreAskedFor) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    GatewayOptions options;
    options.yaml =
        std::string("allow_unisolated: true\nbackends: [{name: local}]\nlisten: [\"") + address + "\"]";
    try {
      Gateway own(options);
      ADD_FAILURE() << "it started on " << address << " without keys";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("exit code 1"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("keys"), std::string::npos)
          << "it does not say what to add: " << error.what();
    }
  }
}

TEST_F(InputAttack, B118_AKeyShowsNowhere) {
  const std::string key = gateway().key();
  EXPECT_TRUE(
      refused(answer_of(http_call(gateway().url(), "GET", "/backends?key=" + key + "&access_token=" + key)),
              401, "unauthenticated"));
  const Answer error = x().call("GET", "/no/such/path?key=" + key);
  EXPECT_EQ(error.text.find(key), std::string::npos) << error.text;
  x().run("echo " + key);
  EXPECT_EQ(gateway().log().find(key), std::string::npos) << "in the log";
  for (const pid_t pid : {gateway().pid(), front_of(gateway()), host_of(gateway(), backend())})
    EXPECT_EQ(command_line(pid).find(key), std::string::npos) << "in ps";
}

TEST_F(InputAttack, B118_WrongKeysInALoopAreSlowedDown) {
  GatewayOptions options;
  options.yaml = "allow_unisolated: true\nbackends: [{name: local}]";
  Gateway own(options);
  std::set<int> seen;
  std::set<std::string> bodies;
  for (int i = 0; i < 300; ++i) {
    const Answer answer = answer_of(
        http_call(own.url(), "GET", "/backends", {{"Authorization", "Bearer wrong" + std::to_string(i)}}));
    seen.insert(answer.status);
    if (answer.status == 429) {
      EXPECT_TRUE(refused(answer, 429, "rate_limited"));
      EXPECT_GE(std::atoi(answer.header("Retry-After").c_str()), 1);
      break;
    }
    bodies.insert(answer.body.at("error").at("message"));
  }
  EXPECT_EQ(seen, (std::set<int>{401, 429}));
  EXPECT_EQ(bodies.size(), 1u) << "the answers differ";
  EXPECT_EQ(Caller(own, "").get("/backends").status, 200) << "wrong keys of others shut out the right one";
}

TEST_F(InputAttack, T122_NamesThatLookAlikeShareNothing) {
  const auto key = [](char c) { return "isg_" + std::string(43, c); };
  GatewayOptions options;
  options.yaml = "allow_unisolated: true\nbackends: [" + entry() +
                 "]\nkeys:\n  - {name: one, tenant: a, sha256: " + sha256_hex(key('A')) +
                 "}\n  - {name: two, tenant: a-b, sha256: " + sha256_hex(key('B')) + "}\n";
  if (backend() == "k8s") options.yaml += "instance: attacks-" + new_mark() + "\n";
  options.env = engines();
  Gateway own(options);
  const Caller a(own.url(), key('A'), ""), ab(own.url(), key('B'), "");
  const std::vector<Caller> all = {a.as("Bob"), a.as("bob"), a.as("a_b"),  a.as("a-b"),
                                   a.as("b-c"), ab.as("c"),  ab.as("b-c"), ab.as("Bob")};
  std::set<std::string> uids, places;
  for (const Caller& each : all) {
    uids.insert(each.out("id -u"));
    places.insert(each.out("pwd -P"));
    EXPECT_EQ(each.out("ls -A; echo x > taken"), "");
  }
  EXPECT_EQ(places.size(), isolates() ? 1 : all.size()) << "each sees its own /workspace";
  if (!gives_uids()) GTEST_SKIP() << "all agents of an ordinary user's gateway, and all pods, share a uid";
  EXPECT_EQ(uids.size(), all.size());
  // Were the hash without a key, tenant `a` could choose names with the hash of the other tenant's `bob`, and
  // the next uids would show that his is taken.
  const auto hash = [](const std::string& seed) {
    uint32_t sum = 2166136261U;
    for (const char c : seed) sum = (sum ^ static_cast<unsigned char>(c)) * 16777619U;
    return sum % 60000;
  };
  const long bob = std::stol(ab.as("bob").out("id -u"));
  int chosen = 0, beside = 0;
  for (int i = 0; chosen < 3; ++i) {
    const std::string name = "n" + std::to_string(i);
    if (hash("1:a" + name) != hash("3:a-bbob")) continue;
    ++chosen;
    const long uid = std::stol(a.as(name).out("id -u"));
    beside += uid > bob && uid <= bob + 3 ? 1 : 0;
  }
  EXPECT_LT(beside, 3) << bob << " says that another tenant has a `bob`";
}

// An agent whose name has that uid by the gateway's own hash.
std::string name_for_uid(const Gateway& gateway, uint32_t uid) {
  const std::string key = read_whole(gateway.state_dir() + "/uids/key");
  const SipKey halves{std::stoull(key.substr(0, 16), nullptr, 16), std::stoull(key.substr(16), nullptr, 16)};
  for (int i = 0;; ++i)
    if (std::string name = "a" + std::to_string(i); UidRegistry::preferred(halves, name) == uid) return name;
}

TEST_F(InputAttack, T123_NoAgentGetsAUidThatMeansSomething) {
  if (!gives_uids()) GTEST_SKIP() << "all agents of an ordinary user's gateway, and all pods, share a uid";
  const std::string front = status_field(front_of(gateway()), "Uid"),
                    host = status_field(host_of(gateway(), backend()), "Uid");
  x().run("true");  // there is a key then
  for (const std::string& agent : {name_for_uid(gateway(), 65534), name_for_uid(gateway(), 65535),
                                   std::string("root"), std::string("nobody")}) {
    const std::string uid = x().as(agent).out("id -u");
    const long number = std::stol(uid);
    EXPECT_NE(number, 0);
    EXPECT_NE(number, 65534);
    EXPECT_NE(number, 65535);
    EXPECT_NE(number, std::stol(front));
    EXPECT_EQ(run_program({"getent", "passwd", std::to_string(number)}).exit_code, 2)
        << "uid " << number << " is somebody's";
  }
}

// A request that is too large to send is no failure of the backend.
TEST_F(InputAttack, OversizedNamesDoNotEndTheBackend) {
  x().run("true");
  const std::string path(70000, 'p');
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(refused(x().read(path), 400, "invalid_request"));
    EXPECT_TRUE(refused(x().exec("true", {{"cwd", path}}), 400, "invalid_request"));
    EXPECT_TRUE(refused(x().exec("true", {{"user", std::string(5000, 'u')}}), 400, "invalid_request"));
    const std::vector<std::string> many(140000, "");
    EXPECT_TRUE(refused(x().post("/exec", {{"argv", many}}), 400, "invalid_request"));
  }
  EXPECT_EQ(y().run("echo served").at("stdout"), "served\n");
  EXPECT_EQ(x().get("/readyz").status, 200);
}

}  // namespace
}  // namespace isogate::test
