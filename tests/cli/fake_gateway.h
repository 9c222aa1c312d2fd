// A listener that answers as a test says, byte for byte, even what no real gateway would ever send.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/program.h"

namespace isogate::test {

// The gateway's end of an exec's WebSocket. The thread of FakeGateway::attached.
class FakeAttachment {
 public:
  explicit FakeAttachment(int connection) : connection_(connection) {}

  void output(char stream, uint64_t offset, const std::string& bytes);  // 1 stdout, 2 stderr
  void text(const std::string& json) { send(1, json); }
  void exit(int code);
  void close(uint16_t code, const std::string& reason);

  struct Message {
    int opcode = 0;  // 1 text, 2 binary, 8 close
    std::string bytes;
  };
  std::optional<Message> next();          // nullopt: the client has disconnected, or sent nothing for 20 s
  bool receives(const std::string& all);  // text messages and stdin as they come, up to these bytes

 private:
  void send(int opcode, const std::string& payload);
  bool take(char* to, size_t size);
  int connection_;
  std::string received_;
};

class FakeGateway {
 public:
  // Gets one whole request (head and body) and returns the bytes to send; then the connection is closed.
  using Answer = std::function<std::string(const std::string& request)>;

  explicit FakeGateway(Answer answer, std::string unix_path = "");  // empty: TCP on 127.0.0.1
  ~FakeGateway();

  [[nodiscard]] std::string url() const { return url_; }
  [[nodiscard]] std::vector<std::string> requests();
  // Keeps connections open after the answer until the client closes; then counts them.
  std::atomic<bool> hold{false};
  std::atomic<int> closed_by_client{0};
  // What a WebSocket gets after its handshake, in a thread of its own. Set before the first call.
  std::function<void(FakeAttachment&)> attached;

 private:
  void serve();
  void handle(Fd connection);
  void attach(Fd connection, const std::string& head);
  Answer answer_;
  std::string url_, unix_path_;
  Fd listener_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
  std::vector<std::thread> attachments_;
};

nlohmann::json body_of(const std::string& request);  // which is JSON
std::string json_answer(int status, const std::string& body, const std::string& headers = "");
std::string refusal(int status, const std::string& code, const std::string& message);

// `isogate` against that url, with a key, and with no state directory to find anything in.
ProgramResult run_client(const std::string& url, std::vector<std::string> arguments,
                         ProgramOptions options = {});

}  // namespace isogate::test
