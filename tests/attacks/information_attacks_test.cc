#include <unistd.h>

#include <array>
#include <regex>

#include "tests/attacks/attack.h"
#include "tests/support/program.h"

// Group I.
namespace isogate::test {
namespace {

// Prints each readable file that contains one of the secrets. Each secret is given in two halves, so that
// this program does not contain it.
std::string search(const std::vector<std::string>& secrets, const std::string& places) {
  std::string code = "import glob\nsecrets=[";
  for (const std::string& each : secrets)
    code += "('" + each.substr(0, 5) + "'+'" + each.substr(5) + "').encode(),";
  return code +
         "]\n"
         "def look(p):\n"
         "  try: got=open(p,'rb',0).read(1<<20)\n"
         "  except OSError: return\n"
         "  if any(s in got for s in secrets): print(p)\n"
         "for top in " +
         places +
         ":\n"
         "  for p in glob.glob(top):\n"
         "    if os.path.isfile(p): look(p)\n"
         "    for d,_,names in os.walk(p):\n"
         "      for n in names:\n"
         "        if os.path.isfile(os.path.join(d,n)): look(os.path.join(d,n))\n";
}

TEST_F(InformationAttack, I90_TheGatewaysSecretsAreNowhere) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  std::string places =
      "['/proc/[0-9]*/environ','/proc/[0-9]*/cmdline','/proc/[0-9]*/maps','/proc/keys',"
      "'/proc/net/unix','/proc/cmdline','/proc/sysvipc'";
  if (isolates())
    places += ",'/etc','/run','/tmp','/var','/dev/shm','/mnt','/opt','/home','/workspace','/core*'";
  const std::string code = search({kGatewaysSecret, gateway().key()}, places + "]");
  EXPECT_EQ(said(x(), code, {{"timeout_sec", 60}}), "");
  // The control: the search does find it.
  const std::string planted =
      said(x(), code, {{"timeout_sec", 60}, {"env", {{"PLANTED", std::string("x") + kGatewaysSecret}}}});
  EXPECT_TRUE(std::regex_match(planted, std::regex("(/proc/[0-9]+/environ\n)+"))) << planted;
}

TEST_F(InformationAttack, I91_NeitherThisHostNorOtherAgentsAreToBeSeen) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  EXPECT_EQ(x().out("for f in /etc/hostname /proc/sys/kernel/hostname; do echo $(cat $f); done; uname -n"),
            "sandbox\nsandbox\nsandbox\n");
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  // podman copies its host's /etc/hosts unless its own configuration says otherwise.
  const std::string files =
      on_podman() ? "/etc/hostname /etc/mailname" : "/etc/hosts /etc/hostname /etc/mailname";
  EXPECT_EQ(x().out("grep -lw '" + std::string(host.data()) + "' " + files + " 2>/dev/null; true"), "");
  const std::string machine = read_whole("/etc/machine-id");
  EXPECT_TRUE(machine.size() < 32 || x().out("cat /etc/machine-id 2>/dev/null; true") != machine);
  const std::string links =
      x().out("sed -n 's/^ *\\([a-z0-9]*\\):.*/\\1/p' /proc/net/dev; ls /sys/class/net 2>/dev/null; true");
  EXPECT_TRUE(std::regex_match(links, std::regex(backend() == "k8s" ? "((lo|eth0)\n)+" : "(lo\n)+")))
      << links;
  // Its own processes, and what supervises them.
  ExecStream other(y(), {{"command", "sleep 60"}});
  ASSERT_EQ(other.next()->at("event"), "start");
  EXPECT_LE(std::stoi(x().out("ls -d /proc/[0-9]* | wc -l")), 6);
  EXPECT_EQ(x().out("grep -al 'sleep.6[0]' /proc/[0-9]*/cmdline; true"), "");
  const std::string all =
      x().out("cat /proc/self/mountinfo /proc/self/cgroup /proc/self/environ /etc/hosts | tr '\\0' '\\n'");
  bool seen = false;
  const Answer sandboxes = x().get("/sandboxes");
  for (const Json& row : sandboxes.body.at("sandboxes")) {
    if (row.at("agent_id") == x().agent()) continue;
    seen |= row.at("agent_id") == y().agent();
    EXPECT_EQ(all.find(row.at("sandbox_id").get<std::string>()), std::string::npos) << "another agent's";
    EXPECT_EQ(all.find(row.at("agent_id").get<std::string>()), std::string::npos) << "another agent's name";
  }
  EXPECT_TRUE(seen);
  for (const char* path :
       {"/root/.bashrc", "/root/.ssh", "/etc/shadow", "/etc/ssh/ssh_host_rsa_key", "/var/lib/isogate",
        "/var/lib/docker", "/var/lib/kubelet", "/var/run/secrets/kubernetes.io"})
    EXPECT_EQ(x().run("cat " + std::string(path) + "; ls -A " + path + "/").at("stdout"), "") << path;
}

TEST_F(InformationAttack, I92_ScratchIsOnesOwn) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  x().run(
      "for d in /tmp /var/tmp /dev/shm; do echo x > $d/secret; chmod 666 $d/secret; done; chmod 777 /tmp; "
      "ipcmk -M 4096");
  EXPECT_EQ(x().out("cat /tmp/secret"), "x\n");
  EXPECT_EQ(y().out("cat /tmp/secret /var/tmp/secret /dev/shm/secret 2>/dev/null; ls -A /tmp /dev/shm | grep "
                    "secret; true"),
            "");
  EXPECT_EQ(y().out("grep -c 4096 /proc/sysvipc/shm; true"), "0\n") << "it is another ipc namespace";
}

TEST_F(InformationAttack, I94_LocksOnSharedFilesAreAnAcceptedRisk) {
  GTEST_SKIP() << "git and sqlite need locks, on read-only inodes that agents share, too: SECURITY.md";
}

TEST_F(InformationAttack, I95_WhatCountsAndMeasuresTheMachineIsMasked) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  std::string files =
      "glob.glob('/sys/class/powercap/*/energy_uj')+glob.glob('/sys/devices/virtual/powercap/*/*/energy_uj')";
  if (backend() != "k8s")  // in a pod only the container runtime decides
    files +=
        "+glob.glob('/sys/devices/system/cpu/cpu*/thermal_throttle/*')+glob.glob('/sys/class/thermal/*/temp')"
        "+['/proc/interrupts','/proc/softirqs','/proc/schedstat']+glob.glob('/proc/irq/*/*')";
  EXPECT_EQ(said(x(), "import glob\nfor p in " + files +
                          ":\n"
                          "  try:\n"
                          "    if open(p,'rb',0).read(64): print(p)\n"
                          "  except OSError: pass\n"),
            "");
}

TEST_F(InformationAttack, I96_ErrorsAndLogsCarryNothingElse) {
  const std::string forged = "\n{\"level\":\"error\",\"message\":\"forged\"}\r\x1b[31mforged";
  x().run("true");
  y().run("true");
  std::vector<Answer> errors = {
      x().read("absent" + forged),
      x().write("a/../../" + forged, "x"),
      x().exec("true", {{"cwd", "absent" + forged}}),
      x().exec("true", {{"backend", "none" + forged}}),
      x().exec("true", {{"agent_id", "b" + forged}}),
      x().exec("true", {{"user", "u" + forged}}),
      x().exec("true", {{"env", {{"A=" + forged, "x"}}}}),
      x().post("/workspace/move", {{"path", "absent"}, {"to", forged}}),
      x().call("GET", x().file_url("absent%0A%1B%5B31mforged")),
      x().call("GET", "/sandboxes/" + forged.substr(forged.size() - 6) + "%0Aforged"),
      x().post("/exec", Json::object()),
      x().get("/absent")};
  x().run_argv({"/nonexistent" + forged});
  x().run("printf '%s' \"$FORGED\"; printf '%s' \"$FORGED\" >&2; kill -SEGV $$",
          {{"env", {{"FORGED", forged}}}});
  for (const Answer& each : errors) {
    EXPECT_GE(each.status, 400) << each.text;
    EXPECT_NE(each.status, 500) << each.text;
    for (const std::string& secret :
         {std::string("/sandboxes/isg-"), gateway().state_dir(), y().agent(), std::string("isg-"),
          std::string(".cc:"), std::string("what():"), std::string("\x1b")})
      EXPECT_EQ(each.text.find(secret), std::string::npos) << each.text;
    const std::string message = each.body.at("error").at("message");  // without the escapes of JSON
    EXPECT_EQ(message.find_first_of("\x1b\r\n"), std::string::npos) << each.text;
  }
  const std::string log = gateway().log();
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
  EXPECT_EQ(log.find('\r'), std::string::npos);
  EXPECT_EQ(log.find("\n{\"level\":\"error\",\"message\":\"forged\""), std::string::npos);
  EXPECT_EQ(log.find("forged"), std::string::npos) << "the log has what a caller wrote";
}

// Each call, with an agent that exists and one that does not.
TEST_F(InformationAttack, I97_AgentsAreNotListedWithoutAKey) {
  x().run("echo here > f");
  struct Call {
    const char *method, *target, *body;
  };
  const Call calls[] = {{"POST", "/exec", R"({"command":"true","agent_id":"AGENT"})"},
                        {"POST", "/exec-stream", R"({"command":"true","agent_id":"AGENT"})"},
                        {"POST", "/workspace/read", R"({"path":"f","agent_id":"AGENT"})"},
                        {"POST", "/workspace/write", R"({"path":"f","content":"","agent_id":"AGENT"})"},
                        {"POST", "/workspace/list", R"({"path":".","agent_id":"AGENT"})"},
                        {"POST", "/workspace/stat", R"({"path":"f","agent_id":"AGENT"})"},
                        {"GET", "/workspace/files/AGENT/f", ""},
                        {"HEAD", "/workspace/files/AGENT/f", ""},
                        {"PUT", "/workspace/files/AGENT/f", "x"},
                        {"DELETE", "/workspace/files/AGENT/f", ""},
                        {"DELETE", "/sandboxes/AGENT", ""},
                        {"DELETE", "/sandboxes/AGENT?purge=true", ""},
                        {"GET", "/sandboxes", ""}};
  const std::string absent = "Z" + x().agent().substr(1);  // as long
  // Status, headers and body, without what differs in every response.
  const auto answer = [&](const Call& call, const std::string& agent, const Headers& more) {
    std::string target = call.target, body = call.body;
    for (std::string* text : {&target, &body})
      if (const size_t at = text->find("AGENT"); at != std::string::npos) text->replace(at, 5, agent);
    Headers headers = more;
    headers.emplace_back("Content-Type", "application/json");
    headers.emplace_back("X-Agent-Id", agent);
    const Answer got = answer_of(http_call(gateway().url(), call.method, target, headers, body));
    std::string all = std::to_string(got.status) + "\n";
    for (const auto& [name, value] : got.headers) all += name + ": " + value + "\n";
    all += got.text;
    for (const std::string& own : {got.header("X-Request-Id"), got.header("Date")})
      for (size_t at; !own.empty() && (at = all.find(own)) != std::string::npos;) all.erase(at, own.size());
    return all;
  };
  const Headers wrong = {{"Authorization", "Bearer isg_" + std::string(43, 'w')}};
  for (const Call& call : calls) {
    // Only a few with a wrong key: many would get 429.
    for (const Headers& more :
         call.target == std::string("/exec") ? std::vector<Headers>{{}, wrong} : std::vector<Headers>{{}}) {
      const std::string of_absent = answer(call, absent, more), of_present = answer(call, x().agent(), more);
      EXPECT_EQ(of_absent.substr(0, 4), "401\n") << call.method << " " << call.target << " " << of_absent;
      EXPECT_EQ(of_absent, of_present) << call.method << " " << call.target;
    }
  }
  EXPECT_EQ(x().content("f"), "here\n");
}

}  // namespace
}  // namespace isogate::test
