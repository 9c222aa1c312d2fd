#include "tests/docker/engines.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "tests/support/processes.h"
#include "tests_dirs.h"

namespace isogate::docker {
namespace {

const char kScript[] = ISOGATE_SOURCE_DIR "/tests/engines/docker.sh";

Json description(const Json& more) {
  Json body{{"Image", "isogate-test:small"},
            {"Cmd", {"sleep", "600"}},
            {"Labels", {{"isogate.test", "1"}}},
            {"HostConfig", {{"NetworkMode", "none"}, {"Init", false}}}};
  body.merge_patch(more);
  return body;
}

}  // namespace

Failure failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const NetError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return {error.status(), error.http_status(), error.maybe_done(), error.what()};
  }
  return {};
}

std::string new_name() { return "isogate-" + test::new_mark(); }

void SharedEngine::SetUp() {
  const char* address = std::getenv(variable_);
  if (address == nullptr || *address == '\0')
    GTEST_SKIP() << variable_ << " is not set: tests/engines/" << script_ << " up prints its value";
  engine_ = std::make_unique<Engine>(parse_address(address, variable_));
}

void SharedEngine::TearDown() {
  for (const auto& id : made_) failure_of([&] { engine_->remove(id, usual()); });
}

std::string SharedEngine::create(const Json& more) {
  made_.push_back(engine_->create_container(new_name(), description(more), usual()));
  return made_.back();
}

std::string SharedEngine::run(const Json& more) {
  const std::string id = create(more);
  engine_->start(id, usual());
  return id;
}

std::string SharedEngine::exec(const std::string& id, const std::vector<std::string>& argv,
                               const std::string& input) {
  const Json body{{"Cmd", argv}, {"AttachStdin", true}, {"AttachStdout", true}, {"AttachStderr", true}};
  const auto stream = engine_->exec_start(engine_->exec_create(id, body, usual()), usual());
  std::thread writer([&] { write_all(*stream, input); });
  std::string out = read_all(*stream);
  writer.join();
  return out;
}

std::string read_all(EngineStream& stream, milliseconds most) {
  const Budget budget(most);
  std::string all;
  std::array<char, 10000> buffer{};
  for (;;) {
    const ssize_t n = stream.read_some(buffer.data(), buffer.size());
    if (n == 0) return all;
    if (n > 0) {
      all.append(buffer.data(), static_cast<size_t>(n));
    } else if (errno != EAGAIN) {
      ADD_FAILURE() << "the stream broke off: " << std::generic_category().message(errno);
      return all;
    } else if (budget.wait(stream.fd(), POLLIN) != Budget::Outcome::kReady) {
      ADD_FAILURE() << "the stream does not end";
      return all;
    }
  }
}

void write_all(EngineStream& stream, std::string_view bytes) {
  const Budget budget(seconds(60));
  while (!bytes.empty()) {
    const ssize_t n = stream.write_some(bytes.data(), bytes.size());
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    if (n < 0 && errno != EAGAIN) return;
    if (n < 0 && budget.wait(stream.fd(), POLLOUT) != Budget::Outcome::kReady) return;
  }
}

PrivateEngine::PrivateEngine(std::vector<std::string> options)
    : directory_("/var/tmp/isogate-" + test::new_mark()), options_(std::move(options)) {
  // Their firewall rules do not touch those of another Engine either.
  options_.insert(options_.end(), {"--iptables=false", "--ip-masq=false"});
  start_with("start");
}

PrivateEngine::~PrivateEngine() {
  const auto ended = script("down", {});
  if (ended.exit_code != 0) ADD_FAILURE() << directory_ << " of an Engine is left: " << ended.err;
}

test::ProgramResult PrivateEngine::script(const std::string& verb, const std::vector<std::string>& options) {
  std::vector<std::string> argv{kScript, verb, directory_};
  argv.insert(argv.end(), options.begin(), options.end());
  test::ProgramOptions patient;
  patient.timeout_sec = 100;
  return test::run_program(argv, patient);
}

void PrivateEngine::start_with(const std::string& verb) {
  const auto started = script(verb, options_);
  if (started.exit_code != 0) obstacle_ = started.err.empty() ? "docker.sh failed" : started.err;
}

pid_t PrivateEngine::pid() const {
  const pid_t pid = std::atoi(test::read_whole(directory_ + "/docker.pid").c_str());
  if (pid <= 1) throw std::runtime_error("the Engine of the test does not run");
  return pid;
}

void PrivateEngine::signal(int number) const {
  ASSERT_EQ(::kill(pid(), number), 0);
  while (number == SIGSTOP && !test::stands_still(pid())) std::this_thread::sleep_for(milliseconds(5));
}

void PrivateEngine::kill() const {
  const pid_t victim = pid();
  signal(SIGKILL);
  while (test::alive(victim)) std::this_thread::sleep_for(milliseconds(5));
}

void PrivateEngine::stop() const {
  const pid_t victim = pid();
  signal(SIGTERM);
  while (test::alive(victim)) std::this_thread::sleep_for(milliseconds(5));
}

void PrivateEngine::start_again() {
  start_with("again");
  ASSERT_EQ(obstacle_, "");
}

}  // namespace isogate::docker
