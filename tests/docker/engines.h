// Engines for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plugins/docker/client/engine.h"
#include "tests/support/program.h"

namespace isogate::docker {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline Budget usual() { return Budget(seconds(60)); }

// The status, message and more of what `work` throws.
struct Failure {
  isogate_status status = ISOGATE_OK;
  int http_status = 0;
  bool maybe_done = false;
  std::string message;
};
Failure failure_of(const std::function<void()>& work);

// The Engine that scripts/test.sh started for all tests, whose address is in ISOGATE_TEST_DOCKER. Containers
// made through it are removed with it.
class SharedEngine : public testing::Test {
 protected:
  explicit SharedEngine(const char* variable = "ISOGATE_TEST_DOCKER", const char* script = "docker.sh")
      : variable_(variable), script_(script) {}
  void SetUp() override;
  void TearDown() override;
  // A running one of isogate-test:small that sleeps; `more` is merged into its description.
  std::string run(const Json& more = Json::object());
  std::string create(const Json& more = Json::object());
  // Runs it to its end, through exec: its stdout. `input` does not end.
  std::string exec(const std::string& id, const std::vector<std::string>& argv,
                   const std::string& input = {});

  const char* const variable_;
  const char* const script_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::string> made_;
};

// Everything until the stream's end.
std::string read_all(EngineStream& stream, milliseconds most = seconds(60));
void write_all(EngineStream& stream, std::string_view bytes);
std::string new_name();

// An Engine of only this test, which may be stopped and killed. Absent where none can run.
class PrivateEngine {
 public:
  explicit PrivateEngine(std::vector<std::string> options = {});
  PrivateEngine(const PrivateEngine&) = delete;
  PrivateEngine& operator=(const PrivateEngine&) = delete;
  ~PrivateEngine();
  [[nodiscard]] const std::string& obstacle() const { return obstacle_; }  // empty: it runs
  [[nodiscard]] std::string address() const { return "unix://" + directory_ + "/docker.sock"; }
  void signal(int number) const;
  void kill() const;   // SIGKILL, and waits until it is gone
  void stop() const;   // SIGTERM, and waits until it is gone
  void start_again();  // after either, on the same data

 private:
  [[nodiscard]] pid_t pid() const;
  test::ProgramResult script(const std::string& verb, const std::vector<std::string>& options);
  void start_with(const std::string& verb);
  std::string directory_, obstacle_;
  std::vector<std::string> options_;
};

}  // namespace isogate::docker
