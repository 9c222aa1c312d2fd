// A server that sends what a test tells it to, for responses that no real Engine gives.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/fd.h"
#include "tests/support/program.h"

namespace isogate::docker {

// Answers each request by its path (without the version and query) with these bytes, verbatim; with "200 {}"
// if there are none for it. A response with `cut` is the connection's last; otherwise connections stay open.
class FakeEngine {
 public:
  explicit FakeEngine(bool tcp = false);  // else a Unix socket
  FakeEngine(const FakeEngine&) = delete;
  FakeEngine& operator=(const FakeEngine&) = delete;
  ~FakeEngine();
  void say(const std::string& path, const std::string& bytes, bool cut = false);
  // Versions as an Engine names them.
  void be(const std::string& newest, const std::string& oldest);
  void hang_up();  // ends the connections that are open
  [[nodiscard]] std::string address() const { return address_; }
  [[nodiscard]] std::vector<std::string> requests() const;  // their first lines

  static std::string json(const std::string& body, const std::string& headers = {}, int status = 200);

 private:
  struct Answer {
    std::string bytes;
    bool cut = false;
  };
  void serve();
  void talk(int socket);
  bool answer(int socket, std::string& pending);

  test::TemporaryDirectory directory_;
  std::string address_ = "unix://" + directory_.path() + "/s";
  Fd listener_;
  mutable std::mutex mutex_;
  std::map<std::string, Answer> answers_;
  std::vector<std::string> requests_;
  std::vector<int> open_;
  std::vector<std::thread> talks_;
  std::thread server_;
};

}  // namespace isogate::docker
