#include "tests/web/browser.h"

#include <unistd.h>

#include <csignal>
#include <stdexcept>

namespace isogate::test {
namespace {

constexpr const char* kBrowser = "/usr/bin/chromium";

constexpr const char* kServer = R"(
import functools, http.server, sys, threading
done = threading.Event()
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path not in ("/wait", "/done"): return super().do_GET()
        if self.path == "/done": done.set()
        elif done.wait(60): done.clear()
        self.send_response(204)
        self.end_headers()
handler = functools.partial(Handler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print("port", server.server_port, ".", flush=True)
server.serve_forever()
)";

std::vector<std::string> browser(const std::string& profile) {
  // --no-sandbox: as root, and in containers, Chromium's own sandbox does not start.
  return {kBrowser,
          "--headless=new",
          "--no-sandbox",
          "--disable-gpu",
          "--disable-dev-shm-usage",
          "--no-first-run",
          "--disable-background-networking",
          "--user-data-dir=" + profile + "/profile"};
}

ProgramOptions at_home(const std::string& profile) {
  ProgramOptions options;
  options.env = {{"HOME", profile}};
  options.cwd = profile;
  options.timeout_sec = 120;
  return options;
}

}  // namespace

std::string browser_obstacle() {
  if (::access(kBrowser, X_OK) == 0) return {};
  return std::string("there is no ") + kBrowser + ": run scripts/install-deps.sh --tests";
}

std::string browse(const std::string& address, const std::vector<std::string>& more) {
  const TemporaryDirectory profile;
  std::vector<std::string> argv = browser(profile.path());
  argv.emplace_back("--dump-dom");
  argv.insert(argv.end(), more.begin(), more.end());
  argv.push_back(address);
  return run_program(argv, at_home(profile.path())).out;
}

BrowserWindow::BrowserWindow(const std::string& address)
    : program_(
          [&] {
            std::vector<std::string> argv = browser(profile_.path());
            argv.emplace_back("--remote-debugging-port=0");  // without a task it would exit at once
            argv.push_back(address);
            return argv;
          }(),
          at_home(profile_.path())) {}

// Its helpers end with it, before the profile is removed.
BrowserWindow::~BrowserWindow() {
  program_.signal(SIGTERM);
  program_.wait(20);
}

PageServer::PageServer() {
  const std::string script = directory_.file("server.py", kServer);
  program_ = std::make_unique<Program>(std::vector<std::string>{"python3", script, directory_.path()},
                                       ProgramOptions{});
  if (!program_->wait_for_output(" .", 30))
    throw std::runtime_error("no page server: " + program_->result.err);
  const std::string& said = program_->result.out;
  port_ = said.substr(5, said.find(' ', 5) - 5);
}

}  // namespace isogate::test
