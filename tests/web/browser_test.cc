#include "tests/web/browser.h"
#include <memory>
#include <regex>

#include "tests/support/processes.h"

// Attacks 114, 115 and 119, by a real browser on the machine of the gateway.
namespace isogate::test {
namespace {

// Runs `steps` (each a name and an expression that is awaited) and shows the result of each.
std::string page(const std::string& gateway, const std::string& key, const std::string& steps) {
  return "<!doctype html><title>page</title><p id=out>not yet</p><img src=/wait><iframe "
         "name=frame></iframe><script>\n"
         "const gateway = '" +
         gateway + "', key = '" + key +
         "', run = agent => JSON.stringify({command: 'touch ran', agent_id: agent});\n"
         "const said = [];\n"
         "async function step(name, work) { try { said.push(name + '=' + await work()); } catch (e) { "
         "said.push(name + '=' + e.name); } }\n"
         "(async () => {\n" +
         steps +
         "\n"
         "document.getElementById('out').textContent = 'seen ' + said.join(' ') + ' end'; await "
         "fetch('/done'); })();\n</script>\n";
}

constexpr const char* kAttacks = R"(
await step('text', async () => (await fetch(gateway + '/exec', {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}, body: run('text')})).type);
await step('blob', async () => (await fetch(gateway + '/exec', {method: 'POST', mode: 'no-cors', body: new Blob([run('blob')])})).type);
await step('multipart', async () => { const form = new FormData(); form.append('command', 'touch ran'); return (await fetch(gateway + '/exec', {method: 'POST', mode: 'no-cors', body: form})).type; });
await step('json', async () => (await fetch(gateway + '/exec', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: run('json')})).status);
await step('put', async () => (await fetch(gateway + '/workspace/files/put/ran', {method: 'PUT', body: 'x'})).status);
await step('read', async () => (await fetch(gateway + '/backends')).status);
await step('form', async () => { const form = document.createElement('form'); form.action = gateway + '/exec'; form.method = 'post'; form.enctype = 'text/plain'; form.target = 'frame';
  const input = document.createElement('input'); input.name = '{"command":"touch ran","agent_id":"form","env":{"A":"'; input.value = '"}}'; form.append(input); document.body.append(form); form.submit();
  await new Promise(done => setTimeout(done, 500)); return 'sent'; });
await step('socket', () => new Promise(done => { const socket = new WebSocket(gateway.replace('http', 'ws') + '/execs/0/attach'); socket.onopen = () => done('open'); socket.onerror = () => done('error'); }));
)";

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    if (!browser_obstacle().empty()) GTEST_SKIP() << browser_obstacle();
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  }
  static std::string yaml(const std::string& more) {
    return "allow_unisolated: true\nbackends: [{name: local}]\nlog: {level: debug}\n" + more;
  }
  static void expect_nothing_ran(const Gateway& gateway) {
    const Caller me(gateway, "");
    EXPECT_EQ(me.get("/sandboxes").body.at("sandboxes"), Json::array()) << "something was run or written";
  }
};

// The worst case: no key is needed.
TEST_F(Browser, APageOfAnotherOriginRunsNothingWithoutAKey) {
  Gateway gateway(yaml("anonymous: loopback\n"));
  const PageServer others;
  for (const char* host : {"127.0.0.1", "localhost"}) {
    others.put("p.html", page(std::string("http://") + host + ":" + gateway.port(), "", kAttacks));
    const std::string seen = browse(others.origin() + "/p.html");
    ASSERT_NE(seen.find("out\">seen "), std::string::npos) << seen;
    EXPECT_NE(seen.find("json=TypeError put=TypeError read=TypeError form=sent socket=error end"),
              std::string::npos)
        << seen;
  }
  expect_nothing_ran(gateway);
  EXPECT_NE(gateway.log().find("\"status\":403"), std::string::npos) << "the browser did not even ask";
}

TEST_F(Browser, APageOfAnotherOriginGetsNowhereWithAStolenKeyEither) {
  Gateway gateway(yaml(""));
  const PageServer others;
  others.put("p.html", page(gateway.url(), gateway.key(), R"(
await step('keyed', async () => (await fetch(gateway + '/exec', {method: 'POST', headers: {'Content-Type': 'application/json', Authorization: 'Bearer ' + key}, body: run('keyed')})).status);
)"));
  const std::string seen = browse(others.origin() + "/p.html");
  EXPECT_NE(seen.find("seen keyed=TypeError end"), std::string::npos) << seen;
  expect_nothing_ran(gateway);
}

TEST_F(Browser, APageOfAListedOriginWorksWithItsKey) {
  const PageServer ours;
  Gateway gateway(yaml("cors: {origins: ['" + ours.origin() + "']}\n"));
  ours.put("p.html", page(gateway.url(), gateway.key(), R"(
const json = {'Content-Type': 'application/json'}, keyed = {...json, Authorization: 'Bearer ' + key};
await step('keyed', async () => { const answer = await fetch(gateway + '/exec', {method: 'POST', headers: keyed, body: run('keyed')}); return answer.status + ',' + (await answer.json()).outcome + ',' + (answer.headers.get('X-Request-Id') !== null); });
await step('keyless', async () => (await fetch(gateway + '/exec', {method: 'POST', headers: json, body: run('keyless')})).status);
await step('put', async () => (await fetch(gateway + '/workspace/files/keyed/file', {method: 'PUT', headers: {Authorization: keyed.Authorization}, body: 'x'})).status);
)"));
  const std::string seen = browse(ours.origin() + "/p.html");
  EXPECT_NE(seen.find("seen keyed=200,exited,true keyless=401 put=200 end"), std::string::npos) << seen;
}

// DNS rebinding: the page's own name has become 127.0.0.1.
TEST_F(Browser, ANameThatPointsHereIsMisdirected) {
  Gateway gateway(yaml("anonymous: loopback\nhosts: [friend.example]\n"));
  const std::vector<std::string> names = {
      "--host-resolver-rules=MAP evil.example 127.0.0.1,MAP friend.example 127.0.0.1"};
  const std::string path = ":" + gateway.port() + "/backends";
  EXPECT_NE(browse("http://evil.example" + path, names).find("misdirected_request"), std::string::npos);
  for (const char* good : {"friend.example", "localhost", "127.0.0.1"})
    EXPECT_NE(browse("http://" + (good + path), names).find("\"backends\":"), std::string::npos) << good;
  expect_nothing_ran(gateway);
}

// Stored by a tenant. Any page that shows it, or links to it, is on another site.
class StoredPage : public Browser {
 protected:
  void SetUp() override {
    Browser::SetUp();
    if (IsSkipped()) return;
    gateway_ = std::make_unique<Gateway>(yaml("anonymous: loopback\n"));
    const std::string script =
        "fetch('/exec', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: "
        "'{\"command\":\"touch ran\",\"agent_id\":\"y\"}'}); document.title = 'scripted'";
    const Caller x(*gateway_, "x");
    x.write("page.html", "<!doctype html><title>t</title><body><script>" + script + "</script>");
    x.write("image.svg", "<svg xmlns='http://www.w3.org/2000/svg'><script>" + script + "</script></svg>");
  }
  void TearDown() override {
    if (!gateway_) return;
    const Json all = Caller(*gateway_, "").get("/sandboxes").body.at("sandboxes");
    ASSERT_EQ(all.size(), 1u) << all.dump();
    EXPECT_EQ(all[0].at("agent_id"), "x") << "a script ran an exec as y";
  }
  [[nodiscard]] std::string address(const std::string& name) const {
    return gateway_->url() + Caller(*gateway_, "x").file_url(name);
  }
  // How many requests for a file got this status.
  [[nodiscard]] int downloads(int status) const {
    const std::string metrics = gateway_->get("/metrics").body;
    const std::regex line("operation=\"downloadFile\",status=\"" + std::to_string(status) + "\"\\} ([0-9]+)");
    std::smatch found;
    return std::regex_search(metrics, found, line) ? std::stoi(found[1]) : 0;
  }
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(StoredPage, IsRefusedToPagesOfOtherSites) {
  const PageServer others;
  for (const char* name : {"page.html", "image.svg"}) {
    others.put("p.html",
               page(address(name), "",
                    "for (const tag of ['iframe', 'object', 'img', 'script']) { const element = "
                    "document.createElement(tag); element[tag === 'object' ? 'data' : 'src'] = gateway; "
                    "document.body.append(element); }\nlocation.href = gateway;"));
    EXPECT_EQ(browse(others.origin() + "/p.html").find("scripted"), std::string::npos) << name;
  }
  EXPECT_GT(downloads(403), 0) << "the browser did not even ask";
  EXPECT_EQ(downloads(200), 0);
}

// Typed by its user. A download shows no document: the browser just runs for a while.
TEST_F(StoredPage, IsADownload) {
  int asked = 0;
  for (const char* name : {"page.html", "image.svg"}) {
    const BrowserWindow window(address(name));
    EXPECT_TRUE(eventually(60, [&] { return downloads(200) > asked; })) << name;
    asked = downloads(200);
    EXPECT_FALSE(eventually(2, [&] {
      return Caller(*gateway_, "").get("/sandboxes").body.at("sandboxes").size() > 1;
    })) << name;
  }
}

}  // namespace
}  // namespace isogate::test
