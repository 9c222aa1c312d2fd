#include "gateway/ipc/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/ipc/samples.h"

namespace isogate::ipc {
namespace {

ino_t inode_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

TEST(Codec, BringsEveryCallBackAsItWas) {
  for (const Call& call : sample_calls()) {
    Encoded encoded = encode(call);
    ASSERT_FALSE(encoded.bytes.empty());
    auto back = decode_call(encoded.bytes, duplicates(encoded.fds));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->index(), call.index());
    Encoded again = encode(*back);
    EXPECT_EQ(again.bytes, encoded.bytes);
    ASSERT_EQ(again.fds.size(), encoded.fds.size());
    for (size_t i = 0; i < again.fds.size(); ++i) EXPECT_EQ(inode_of(again.fds[i]), inode_of(encoded.fds[i]));
  }
}

TEST(Calls, NameTheFunctionThatTheyAreFor) {
  std::vector<std::string_view> names;
  for (const Call& call : sample_calls()) names.push_back(function_of(call));
  const std::vector<std::string_view> all = {
      "probe", "ping", "open",  "close", "enumerate", "orphans",  "orphans", "exec",     "read",   "write",
      "list",  "stat", "mkdir", "move",  "remove",    "disk_use", "watch",   "evidence", "connect"};
  EXPECT_EQ(names, all);
}

TEST(Codec, BringsTheFieldsOfAnExecToTheirPlaces) {
  std::vector<Call> calls = sample_calls();
  const auto& call = *std::find_if(calls.begin(), calls.end(),
                                   [](const Call& each) { return std::holds_alternative<ExecCall>(each); });
  const auto& sent = std::get<ExecCall>(call);
  Encoded encoded = encode(call);
  auto back = decode_call(encoded.bytes, duplicates(encoded.fds));
  ASSERT_TRUE(back.ok());
  const auto& exec = std::get<ExecCall>(*back);
  EXPECT_EQ(exec.call.id, sent.call.id);
  EXPECT_EQ(exec.call.deadline_ns, -5);
  EXPECT_EQ(exec.call.request_id, "req-1");
  EXPECT_EQ(exec.argv, sent.argv);
  EXPECT_EQ(exec.env, sent.env);
  EXPECT_EQ(exec.cwd, sent.cwd);
  EXPECT_EQ(exec.user, "root");
  EXPECT_EQ(exec.rows, 25);
  EXPECT_EQ(exec.cols, 65535);
  EXPECT_EQ(exec.limits.get(ISOGATE_LIMIT_MEMORY_BYTES), 1ull << 63);
  EXPECT_EQ(exec.limits.get(ISOGATE_LIMIT_DISK_BYTES), 7u);
  EXPECT_TRUE(exec.call.cancel && exec.std_in && exec.std_err);
  EXPECT_FALSE(exec.std_out || exec.control);
}

TEST(Codec, BringsEveryReplyAndHelloBackAsItWas) {
  for (const Reply& reply : sample_replies()) {
    Encoded encoded = encode(reply);
    auto back = decode_from_host(encoded.bytes);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(encode(std::get<Reply>(*back)).bytes, encoded.bytes);
    EXPECT_EQ(std::get<Reply>(*back).value.index(), reply.value.index());
    if (const auto* evidence = std::get_if<isogate_evidence>(&reply.value)) {
      EXPECT_STREQ(std::get<isogate_evidence>(std::get<Reply>(*back).value).boot_id, evidence->boot_id);
    }
  }
  Hello hello{"local", "1.2.3", "runs here", 10, 2, 1ull << 63};
  auto back = decode_from_host(encode(hello).bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<Hello>(*back).plugin_version, "1.2.3");
  EXPECT_EQ(std::get<Hello>(*back).capabilities, 1ull << 63);
}

TEST(Codec, RefusesEveryTruncationAndClosesItsDescriptors) {
  std::vector<Call> calls = sample_calls();
  int before = open_descriptors();
  for (const Call& call : calls) {
    Encoded encoded = encode(call);
    for (size_t length = 0; length < encoded.bytes.size(); ++length) {
      auto back = decode_call(std::string_view(encoded.bytes).substr(0, length), duplicates(encoded.fds));
      ASSERT_FALSE(back.ok()) << "type " << call.index() << " cut to " << length;
      EXPECT_EQ(back.error().status, ISOGATE_INVALID_ARGUMENT);
    }
  }
  EXPECT_EQ(open_descriptors(), before);
  for (const Reply& reply : sample_replies()) {
    std::string bytes = encode(reply).bytes;
    for (size_t length = 0; length < bytes.size(); ++length)
      ASSERT_FALSE(decode_from_host(std::string_view(bytes).substr(0, length)).ok());
  }
}

TEST(Codec, RefusesBytesAfterTheEnd) {
  for (const Call& call : sample_calls()) {
    Encoded encoded = encode(call);
    EXPECT_FALSE(decode_call(encoded.bytes + '\0', duplicates(encoded.fds)).ok());
  }
  for (const Reply& reply : sample_replies()) EXPECT_FALSE(decode_from_host(encode(reply).bytes + '\0').ok());
}

TEST(Codec, RefusesUnknownVersionsAndTypes) {
  Encoded probe = encode(Call(ProbeCall{}));
  std::string version = probe.bytes;
  version[0] = 2;
  EXPECT_FALSE(decode_call(version, {}).ok());
  std::string type = probe.bytes;
  for (int value : {0, 9, 64, 65, 255}) {
    type[1] = static_cast<char>(value);
    EXPECT_FALSE(decode_call(type, {}).ok()) << value;
  }
  EXPECT_FALSE(decode_from_host(probe.bytes).ok());
  EXPECT_FALSE(decode_call(encode(sample_replies()[0]).bytes, {}).ok());
}

TEST(Codec, RefusesDescriptorsThatTheRecordDoesNotSayAndTheReverse) {
  Encoded probe = encode(Call(ProbeCall{}));
  std::vector<Fd> one;
  one.push_back(event());
  EXPECT_FALSE(decode_call(probe.bytes, std::move(one)).ok());
  Encoded with = encode(Call(ProbeCall{sample_header()}));
  EXPECT_FALSE(decode_call(with.bytes, {}).ok());
  std::string second = probe.bytes;
  second[2] = 2;  // the slot of a body, which a probe does not have
  std::vector<Fd> body;
  body.push_back(event());
  EXPECT_FALSE(decode_call(second, std::move(body)).ok());
}

TEST(Codec, RefusesACountThatNoBytesStandBehind) {
  ExecCall exec;
  Encoded encoded = encode(Call(std::move(exec)));
  // It ends with the counts of arguments, variables and limits, whether it is kept, and the grace.
  for (const size_t back : {20, 16, 12}) {
    const size_t place = encoded.bytes.size() - back;
    ASSERT_EQ(encoded.bytes.substr(place, 4), std::string(4, '\0')) << back;
    for (uint32_t count : {1u, 1000u, uint32_t{kMaxItems}, uint32_t{kMaxItems} + 1, UINT32_MAX}) {
      std::string bytes = encoded.bytes;
      for (int i = 0; i < 4; ++i) bytes[place + i] = static_cast<char>(count >> (8 * i));
      EXPECT_FALSE(decode_call(bytes, {}).ok()) << back << ": " << count;
    }
  }
}

TEST(Codec, RefusesImplausibleReplies) {
  EXPECT_FALSE(decode_from_host(encode(Reply{1, 16, 0, "x", {}}).bytes).ok());
  EXPECT_FALSE(decode_from_host(encode(Reply{1, -1, 0, "x", {}}).bytes).ok());
  EXPECT_FALSE(decode_from_host(encode(Reply{1, ISOGATE_OK, 0, "x", {}}).bytes).ok());
  EXPECT_FALSE(decode_from_host(encode(Reply{1, ISOGATE_IO, 0, "x", isogate_exec_result{}}).bytes).ok());
  EXPECT_FALSE(decode_from_host(encode(Reply{1, ISOGATE_OK, 0, "", Probe{4, 0, 0, 0, ""}}).bytes).ok());
  EXPECT_FALSE(decode_from_host(encode(Reply{1, ISOGATE_OK, 0, "", Entry{}}).bytes).ok());
}

TEST(Codec, RefusesEndsThatNoProgramCanHave) {
  const auto takes = [](const isogate_exec_result& end) {
    return decode_from_host(encode(Reply{1, ISOGATE_OK, 0, "", end}).bytes).ok();
  };
  constexpr uint64_t kTooMuch = uint64_t{INT64_MAX} + 1;
  EXPECT_TRUE(takes({.exit_code = 255, .wall_ns = INT64_MAX}));
  EXPECT_TRUE(takes({.exit_code = -1, .term_signal = 64})) << "a signal has no exit code";
  EXPECT_FALSE(takes({.exit_code = 256}));
  EXPECT_FALSE(takes({.exit_code = -1}));
  EXPECT_FALSE(takes({.term_signal = 65}));
  EXPECT_FALSE(takes({.term_signal = -1}));
  EXPECT_FALSE(takes({.wall_ns = kTooMuch}));
  EXPECT_FALSE(takes({.cpu_ns = kTooMuch}));
  EXPECT_FALSE(takes({.max_rss_bytes = kTooMuch}));
}

TEST(Codec, EncodesNothingThatIsOverACap) {
  ExecCall exec;
  exec.argv.assign(kMaxItems + 1, "");
  EXPECT_TRUE(encode(Call(std::move(exec))).bytes.empty());
  ExecCall large;
  large.argv.assign(9, std::string(1u << 20, 'x'));
  EXPECT_TRUE(encode(Call(std::move(large))).bytes.empty());
  FileCall file;
  file.path.assign(kMaxPathBytes + 1, 'x');
  EXPECT_TRUE(encode(Call(std::move(file))).bytes.empty());
}

TEST(Codec, TakesALargeExecWhole) {
  ExecCall exec;
  exec.argv.assign(70000, "argument");
  exec.env.assign(20000, {"NAME", "value"});
  Encoded encoded = encode(Call(std::move(exec)));
  auto back = decode_call(encoded.bytes, {});
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<ExecCall>(*back).argv.size(), 70000u);
}

TEST(Codec, SurvivesRandomMutations) {
  std::mt19937 random(1);
  std::vector<Call> calls = sample_calls();
  std::vector<Reply> replies = sample_replies();
  int before = open_descriptors();
  for (int round = 0; round < 20000; ++round) {
    Encoded encoded = encode(calls[random() % calls.size()]);
    std::string reply = encode(replies[random() % replies.size()]).bytes;
    for (std::string* bytes : {&encoded.bytes, &reply})
      for (unsigned n = random() % 4 + 1; n > 0; --n)
        (*bytes)[random() % bytes->size()] = static_cast<char>(random());
    auto call = decode_call(encoded.bytes, duplicates(encoded.fds));
    EXPECT_TRUE(!call.ok() || encode(*call).bytes == encoded.bytes);
    auto back = decode_from_host(reply);
    bool is_reply = back.ok() && std::holds_alternative<Reply>(*back);
    EXPECT_TRUE(!is_reply || encode(std::get<Reply>(*back)).bytes == reply);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Items, AreTakenOffOneByOneHoweverTheyArrive) {
  std::string stream;
  for (int i = 0; i < 100; ++i)
    stream += encode_item(Entry{ISOGATE_ENTRY_REGULAR, 0600, uint64_t(i), i, std::string(i + 1, 'n')});
  std::string arrived;
  int taken = 0;
  for (char byte : stream) {
    arrived += byte;
    std::string_view rest(arrived);
    auto entry = take_entry(rest);
    ASSERT_TRUE(entry.ok());
    if (!entry->has_value()) continue;
    EXPECT_EQ((*entry)->size, uint64_t(taken++));
    arrived.erase(0, arrived.size() - rest.size());
  }
  EXPECT_EQ(taken, 100);
  EXPECT_TRUE(arrived.empty());
}

TEST(Items, OfSandboxesComeBack) {
  std::string stream =
      encode_item(Found{"isg-a", "h"}) + encode_item(Found{"isg-a", "", 7}) + encode_item(Found{"isg-b", ""});
  std::string_view rest(stream);
  EXPECT_EQ((**take_found(rest)).handle, "h");
  EXPECT_EQ((**take_found(rest)).flags, 7u);
  EXPECT_EQ((**take_found(rest)).sandbox_id, "isg-b");
  EXPECT_FALSE(take_found(rest)->has_value());
}

TEST(Items, ThatAreMalformedAreErrors) {
  std::string huge("\xff\xff\xff\x7f", 4);
  std::string_view rest(huge);
  EXPECT_FALSE(take_entry(rest).ok());
  std::string empty(4, '\0');
  rest = empty;
  EXPECT_FALSE(take_entry(rest).ok());
  std::string other = encode_item(Found{"a", "b"});
  rest = other;
  EXPECT_FALSE(take_entry(rest).ok());
  std::string type = encode_item(Entry{9, 0, 0, 0, "x"});
  rest = type;
  EXPECT_FALSE(take_entry(rest).ok());
}

TEST(Items, OfAListingAreInsideTheDirectory) {
  const auto takes = [](const std::string& name) {
    const std::string bytes = encode_item(Entry{ISOGATE_ENTRY_REGULAR, 0, 0, 0, name});
    std::string_view rest(bytes);
    return take_entry(rest).ok();
  };
  EXPECT_TRUE(takes("a/b"));
  EXPECT_TRUE(takes("...\n\xff"));
  for (const char* name : {"", "..", "a/../b", "/etc", "a//b", "a/", "."}) EXPECT_FALSE(takes(name)) << name;
  EXPECT_FALSE(takes(std::string("a\0b", 3)));
}

}  // namespace
}  // namespace isogate::ipc
