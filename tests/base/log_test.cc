#include "lib/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "lib/fd.h"

namespace isogate {
namespace {

using Json = nlohmann::json;

class Log : public ::testing::Test {
 protected:
  Log() {
    std::string pattern = (std::filesystem::temp_directory_path() / "isogate-log-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    file_ = directory_ + "/log";
  }
  ~Log() override {
    static_cast<void>(log::start("test", "info", std::string()));
    std::filesystem::remove_all(directory_);
  }

  void start(const std::string& level = "debug") {
    auto started = log::start("test", level, file_);
    ASSERT_TRUE(started) << started.error().message;
  }
  [[nodiscard]] std::vector<Json> lines() const {
    std::vector<Json> list;
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) list.push_back(Json::parse(line));
    return list;
  }

  std::string directory_, file_;
};

Json one(std::string_view event, log::Fields fields = {}) {
  return Json::parse(log::format(log::Level::kInfo, event, fields));
}

TEST_F(Log, WritesWhatIsNotKnownAsNull) {
  const Json line = one("ended", {{"exit_code", std::optional<int>()}, {"signal", std::optional<int>(9)}});
  EXPECT_EQ(line.at("exit_code"), nullptr);
  EXPECT_EQ(line.at("signal"), 9);
}

TEST_F(Log, WritesOneObjectPerLine) {
  start();
  log::info("sandbox opened",
            {{"backend", "local"}, {"uid", 10001}, {"took_ms", 1.5}, {"fresh", true}, {"n", -3}});
  log::error("bad");
  auto all = lines();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["event"], "sandbox opened");
  EXPECT_EQ(all[0]["level"], "info");
  EXPECT_EQ(all[0]["process"], "test");
  EXPECT_EQ(all[0]["pid"], ::getpid());
  EXPECT_EQ(all[0]["backend"], "local");
  EXPECT_EQ(all[0]["uid"], 10001);
  EXPECT_EQ(all[0]["n"], -3);
  EXPECT_EQ(all[0]["took_ms"], 1.5);
  EXPECT_EQ(all[0]["fresh"], true);
  EXPECT_EQ(all[1]["level"], "error");
  std::string ts = all[0]["ts"];
  EXPECT_EQ(ts.size(), 24u) << ts;
  EXPECT_EQ(ts[10], 'T');
  EXPECT_EQ(ts[19], '.');
  EXPECT_EQ(ts[23], 'Z');
}

TEST_F(Log, KeepsToItsLevel) {
  start("warn");
  EXPECT_FALSE(log::enabled(log::Level::kInfo));
  log::debug("a");
  log::info("b");
  log::warn("c");
  log::error("d");
  auto all = lines();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["event"], "c");
  EXPECT_EQ(all[1]["event"], "d");
}

TEST_F(Log, RefusesAnInvalidLevelOrFile) {
  EXPECT_FALSE(log::start("test", "loud", ""));
  EXPECT_FALSE(log::start("test", "info", directory_));
  EXPECT_FALSE(log::start("test", "info", directory_ + "/absent/log"));
  ASSERT_EQ(::symlink(file_.c_str(), (directory_ + "/link").c_str()), 0);
  auto link = log::start("test", "info", directory_ + "/link");
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().os_errno, ELOOP);
}

TEST_F(Log, MakesItsFileForItsOwnerAndGroup) {
  mode_t mask = ::umask(0);
  start();
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(Log, EscapesWhatSteersATerminalOrForgesALine) {
  std::string text = "a\r\nb\x1b[31m\x7f\xC2\x9B\xE2\x80\xAE\xE2\x80\xA8\"\\\xF3\xA0\x81\x81 é";
  std::string line = log::format(log::Level::kInfo, "x", {{"text", text}});
  for (unsigned char c : line) EXPECT_TRUE(c >= 0x20 && c != 0x7F) << line;
  for (const char* hidden : {"\xC2\x9B", "\xE2\x80\xAE", "\xE2\x80\xA8", "\xF3\xA0\x81\x81"})
    EXPECT_EQ(line.find(hidden), std::string::npos);
  EXPECT_NE(line.find("é"), std::string::npos);
  EXPECT_EQ(Json::parse(line)["text"], text) << "nothing is lost";
}

TEST_F(Log, IsJsonWhateverComesIn) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 5000, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (i % 2 == 0 ? 256 : 32));
    std::string_view key(bytes.data(), std::min<size_t>(bytes.size(), 40));
    std::string line = log::format(log::Level::kWarn, bytes, {{key, bytes}, {"again", bytes}, {"n", i}});
    EXPECT_LT(line.size(), 4096u);
    EXPECT_TRUE(Json::accept(line)) << line;
  }
  EXPECT_EQ(one("x", {{"bytes", "\xff\xfe"}})["bytes"], "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_F(Log, WritesNumbersThatJsonHas) {
  Json line = one("x", {{"nan", std::nan("")},
                        {"inf", std::numeric_limits<double>::infinity()},
                        {"big", UINT64_MAX},
                        {"low", INT64_MIN},
                        {"small", uint8_t{7}}});
  EXPECT_TRUE(line["nan"].is_null());
  EXPECT_TRUE(line["inf"].is_null());
  EXPECT_EQ(line["big"], UINT64_MAX);
  EXPECT_EQ(line["low"], INT64_MIN);
  EXPECT_EQ(line["small"], 7);
}

TEST_F(Log, CutsLongValuesAndSaysSo) {
  std::string cut = one("x", {{"text", std::string(10000, 'a')}})["text"];
  EXPECT_LT(cut.size(), 2100u);
  EXPECT_NE(cut.find("…[10000 bytes]"), std::string::npos);
  std::string many(2000, '\x01');
  Json line = one("x", {{"a", many}, {"b", many}, {"c", 1}});
  EXPECT_TRUE(line.contains("cut") || line.contains("c"));
  Json full =
      one("x", {{"a", std::string(2000, 'a')}, {"b", std::string(2000, 'b')}, {"c", std::string(2000, 'c')}});
  EXPECT_EQ(full["cut"], true);
}

TEST_F(Log, HoldsNoSecret) {
  std::string key = std::string("sk") + "-abc123DEF456ghi789jkl";
  Json line = one("with " + key,
                  {{"text", "x " + key}, {"password", "hunter2"}, {"x_token", "abc"}, {"token_count", 3}});
  EXPECT_EQ(line.dump().find(key), std::string::npos);
  EXPECT_EQ(line["text"], "x [redacted:model_api_key]");
  EXPECT_EQ(line["password"], "[redacted:name]");
  EXPECT_EQ(line["x_token"], "[redacted:name]");
  EXPECT_EQ(line["token_count"], 3);
}

TEST_F(Log, HoldsNoHalfOfASecretWhereItCuts) {
  std::string key = std::string("sk") + "-" + std::string(40, '1');
  for (size_t pad : {2000u, 2030u, 2047u, 65510u, 65530u, 65535u}) {
    std::string line = log::format(log::Level::kInfo, "x", {{"text", std::string(pad, '.') + " " + key}});
    EXPECT_EQ(line.find("sk-1"), std::string::npos) << pad;
  }
}

TEST_F(Log, KeepsItsOwnNames) {
  Json line = one("x", {{"pid", "forged"}, {"level", "forged"}, {"event", "forged"}});
  EXPECT_EQ(line["pid"], ::getpid());
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["event"], "x");
  EXPECT_EQ(line["pid_"], "forged");
}

TEST_F(Log, SumsUpFloods) {
  start();
  auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 5000; ++i) log::info("flood", {{"i", i}});
  auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - before).count();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  log::info("calm");
  log::flush();
  uint64_t written = 0, suppressed = 0;
  for (const Json& line : lines()) {
    if (line["event"] == "flood") ++written;
    if (line["event"] != "log_lines_suppressed") continue;
    EXPECT_EQ(line["of"], "flood");
    suppressed += line["lines"].get<uint64_t>();
  }
  EXPECT_EQ(written + suppressed, 5000u);
  EXPECT_GE(written, 100u);
  EXPECT_LE(written, 100u * static_cast<uint64_t>(seconds + 1)) << "a hundred in each second";
  EXPECT_EQ(lines().back()["event"], "calm");
}

// By the hash of GCC's library the first two would share a slot.
TEST_F(Log, AFloodHidesNoOtherEvent) {
  start();
  for (int i = 0; i < 1000; ++i) log::info("exec_ended", {{"i", i}});
  log::error("backend_record_refused");
  for (int i = 0; i < 200; ++i) log::info("event_" + std::to_string(i));
  log::flush();
  uint64_t others = 0, refused = 0;
  for (const Json& line : lines()) {
    refused += line["event"] == "backend_record_refused" ? 1 : 0;
    others += line["event"].get<std::string>().starts_with("event_") ? 1 : 0;
  }
  EXPECT_EQ(refused, 1u);
  EXPECT_EQ(others, 200u);
}

TEST_F(Log, DropsAndCountsWhileNobodyReads) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  int read_end = pipe->read.get();
  ASSERT_TRUE(log::start("test", "info", std::move(pipe->write)));
  for (int i = 0; i < 90; ++i) log::info("fill", {{"text", std::string(2000, 'x')}});
  // The writer got here, so it did not wait for a reader.
  std::string got(1 << 20, '\0');
  size_t have = static_cast<size_t>(::read(read_end, got.data(), got.size()));
  log::info("after");
  have += static_cast<size_t>(::read(read_end, got.data() + have, got.size() - have));
  std::istringstream text(got.substr(0, have));
  Json last;
  for (std::string line; std::getline(text, line);) last = Json::parse(line);
  EXPECT_EQ(last["event"], "after");
  EXPECT_GT(last["dropped_before"], 0);
}

TEST_F(Log, SurvivesABrokenDescriptor) {
  ASSERT_TRUE(log::start("test", "info", Fd(::open("/dev/full", O_WRONLY | O_CLOEXEC))));
  log::info("to a full disk");
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  auto old = std::signal(SIGPIPE, SIG_IGN);
  pipe->read.reset();
  ASSERT_TRUE(log::start("test", "info", std::move(pipe->write)));
  log::info("to nobody");
  std::signal(SIGPIPE, old);
}

TEST_F(Log, KeepsLinesWholeFromManyThreads) {
  start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i)
        log::info("thread " + std::to_string(t), {{"text", std::string(1500, 'x')}});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines().size(), 400u);
}

TEST_F(Log, NeverThrows) {
  static_assert(noexcept(log::info("x"))&& noexcept(log::Field("a", 1)));
  static_assert(noexcept(log::flush()));
}

}  // namespace
}  // namespace isogate
