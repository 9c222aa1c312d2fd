// A listener that answers as a test says, byte for byte: what no real gateway would ever do to a client.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/program.h"

namespace isogate::test {

class FakeGateway {
 public:
  // Gets one whole request (head and body) and answers the bytes to send; then the connection is closed.
  using Answer = std::function<std::string(const std::string& request)>;

  explicit FakeGateway(Answer answer, std::string unix_path = "");  // empty: TCP on 127.0.0.1
  ~FakeGateway();

  [[nodiscard]] std::string url() const { return url_; }
  [[nodiscard]] std::vector<std::string> requests();
  // Keeps connections open after the answer until the client closes; then counts them.
  std::atomic<bool> hold{false};
  std::atomic<int> closed_by_client{0};

 private:
  void serve();
  void handle(int connection);
  Answer answer_;
  std::string url_, unix_path_;
  Fd listener_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

std::string json_answer(int status, const std::string& body, const std::string& headers = "");
std::string refusal(int status, const std::string& code, const std::string& message);

// `isogate` against that url, with a key, and with no state directory to find anything in.
ProgramResult run_client(const std::string& url, std::vector<std::string> arguments,
                         ProgramOptions options = {});

}  // namespace isogate::test
