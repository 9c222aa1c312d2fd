#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "isogate/orphans.h"
#include "tests/host/host_process.h"
#include "tests_dirs.h"

namespace isogate {
namespace {

using ipc::FileVerb;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class HostCalls : public testing::Test {
 protected:
  void SetUp() override {
    ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
    start(fixture_backend(plugin_));
  }

  void start(BackendConfig backend) {
    host_ = std::make_unique<HostProcess>(std::move(backend));
    ASSERT_NO_FATAL_FAILURE(host_->expect_ready());
    ASSERT_EQ(host_->open().status, ISOGATE_OK);
  }

  void expect_refused(const ipc::Reply& reply, isogate_status status, const std::string& message) {
    EXPECT_EQ(reply.status, status) << reply.message;
    EXPECT_THAT(reply.message, HasSubstr(message));
  }

  std::string plugin_ = "good";
  std::unique_ptr<HostProcess> host_;
};

TEST_F(HostCalls, RunAnExecToItsEnd) {
  ipc::Reply reply = host_->exec({"exit", "43"});
  ASSERT_EQ(reply.status, ISOGATE_OK) << reply.message;
  EXPECT_EQ(std::get<isogate_exec_result>(reply.value).exit_code, 43);
  reply = host_->exec({"signal", "15"});
  EXPECT_EQ(std::get<isogate_exec_result>(reply.value).term_signal, 15);
}

TEST_F(HostCalls, RunAtTheSameTime) {
  auto begin = Clock::now();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(host_->start_exec({"sleep", "500"}));
  for (uint64_t id : ids) EXPECT_EQ(host_->reply_to(id)->status, ISOGATE_OK);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(HostCalls, AreCancelledThroughTheirEvent) {
  auto event = make_event();
  uint64_t id = host_->start_exec({"sleep", "60000"}, event->get());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  signal_event(event->get());
  auto reply = host_->reply_to(id);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(std::get<isogate_exec_result>(reply->value).flags, ISOGATE_RESULT_KILLED);
}

TEST_F(HostCalls, CloseTheirDescriptorsBeforeTheyAnswer) {
  ipc::ExecCall exec = exec_call({"sleep", "100"});
  auto pipe = make_pipe();
  exec.std_out = std::move(pipe->write);
  ASSERT_EQ(host_->call(std::move(exec)).status, ISOGATE_OK);
  pollfd watch{pipe->read.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&watch, 1, 0), 1);
  EXPECT_NE(watch.revents & POLLHUP, 0);
}

// The program may have run: "nothing was started" is not believed of a plugin that contradicts itself.
TEST_F(HostCalls, ThatNobodyCancelledAreLostWhereThePluginSaysTheyWere) {
  const auto says_cancelled = [] { return exec_call({"fail", std::to_string(ISOGATE_CANCELLED)}); };
  expect_refused(host_->call(says_cancelled()), ISOGATE_LOST, "CANCELLED, though nobody cancelled it");
  ipc::ExecCall cancelled = says_cancelled();
  cancelled.call.cancel = std::move(*make_event());
  signal_event(cancelled.call.cancel.get());
  expect_refused(host_->call(std::move(cancelled)), ISOGATE_CANCELLED, "as asked");
  ipc::ExecCall late = says_cancelled();
  late.call.deadline_ns = 1;
  expect_refused(host_->call(std::move(late)), ISOGATE_CANCELLED, "as asked");
}

TEST_F(HostCalls, EndWithTheChannelWhenThePluginCrashes) {
  uint64_t sleeping = host_->start_exec({"sleep", "60000"});
  host_->start_exec({"crash"});
  EXPECT_FALSE(host_->reply_to(sleeping).has_value());
  EXPECT_EQ(host_->exit_code(), -SIGSEGV);
}

TEST_F(HostCalls, BringThePluginsMessageFitToRead) {
  expect_refused(host_->exec({"fail", "3"}), ISOGATE_ALREADY_EXISTS, "as asked");
  EXPECT_EQ(host_->exec({"fail", "3"}).os_errno, 5);
  expect_refused(host_->exec({"fail", "99"}), ISOGATE_LOST, "unknown status 99: as asked");
  expect_refused(host_->exec({"fail", "-4"}), ISOGATE_LOST, "unknown status -4");
  expect_refused(host_->exec({"silent"}), ISOGATE_IO, "the plugin gave no reason");
  ipc::Reply garbled = host_->exec({"garble"});
  EXPECT_EQ(garbled.status, ISOGATE_IO);
  EXPECT_LE(garbled.message.size(), 1023u);
  EXPECT_TRUE(garbled.message.starts_with("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD"));
}

TEST_F(HostCalls, RefuseEndsThatNoProgramCanHave) {
  expect_refused(host_->exec({"exit", "256"}), ISOGATE_LOST, "no program can have");
  expect_refused(host_->exec({"exit", "-1"}), ISOGATE_LOST, "no program can have");
  expect_refused(host_->exec({"signal", "65"}), ISOGATE_LOST, "no program can have");
  expect_refused(host_->exec({"not-started", "0"}), ISOGATE_LOST, "NOT_STARTED");
  EXPECT_EQ(host_->exec({"not-started", "127"}).status, ISOGATE_OK);
}

TEST_F(HostCalls, BringNoNumberThatCannotBe) {
  const ipc::Reply reply = host_->exec({"endless"});
  ASSERT_EQ(reply.status, ISOGATE_OK) << reply.message;
  const auto& end = std::get<isogate_exec_result>(reply.value);
  EXPECT_EQ(end.wall_ns, 0u);
  EXPECT_EQ(end.cpu_ns, 0u);
  EXPECT_EQ(end.max_rss_bytes, 0u);
}

TEST_F(HostCalls, RefuseAReadOfWhatIsNoFile) {
  expect_refused(host_->file(FileVerb::kRead, "as-directory"), ISOGATE_INTERNAL, "no regular file");
}

TEST_F(HostCalls, RefuseEntriesThatCannotBe) {
  expect_refused(host_->file(FileVerb::kStat, "generated"), ISOGATE_INTERNAL,
                 "stat() answered with a file of 18446744073709551615 bytes");
  expect_refused(host_->file(FileVerb::kRead, "vast"), ISOGATE_INTERNAL,
                 "read() answered with a file of 9223372036854775808 bytes");
  const ipc::Reply generated = host_->file(FileVerb::kRead, "generated");
  ASSERT_EQ(generated.status, ISOGATE_OK) << generated.message;
  EXPECT_EQ(std::get<ipc::Entry>(generated.value).size, ISOGATE_SIZE_UNKNOWN);
}

TEST_F(HostCalls, RefuseListingsThatCannotBe) {
  const auto list = [&](const std::string& path, uint32_t flags, std::string& stream) {
    auto pipe = make_pipe();
    ipc::FileCall call;
    call.verb = FileVerb::kList;
    call.sandbox_id = kBox;
    call.path = path;
    call.flags = flags;
    call.body = std::move(pipe->write);
    ipc::Reply reply = host_->call(std::move(call));
    stream = read_all(pipe->read.get());
    return reply;
  };
  std::string stream;
  expect_refused(list("nameless", 0, stream), ISOGATE_INTERNAL, "not inside the directory");
  expect_refused(list("nested", 0, stream), ISOGATE_INTERNAL,
                 "list() added what is not in the directory itself");
  EXPECT_EQ(list("nested", ISOGATE_FILE_RECURSIVE, stream).status, ISOGATE_OK);
  EXPECT_NE(stream, "");
}

TEST_F(HostCalls, ProbeWithinWhatTheDescriptorPromised) {
  ipc::Reply reply = host_->call(ipc::ProbeCall{});
  ASSERT_EQ(reply.status, ISOGATE_OK) << reply.message;
  const auto& probe = std::get<ipc::Probe>(reply.value);
  EXPECT_EQ(probe.verdict, ISOGATE_PROBE_AVAILABLE);
  EXPECT_EQ(probe.capabilities, ISOGATE_CAP_PTY | ISOGATE_CAP_EVIDENCE);
  EXPECT_EQ(probe.detail, "ready to run");
}

class Boastful : public HostCalls {
 protected:
  Boastful() { plugin_ = "boasts"; }
};

TEST_F(Boastful, ProbeIsADefect) {
  expect_refused(host_->call(ipc::ProbeCall{}), ISOGATE_INTERNAL, "descriptor does not: ports");
}

class Unsure : public HostCalls {
 protected:
  Unsure() { plugin_ = "unsure"; }
};

TEST_F(Unsure, ProbeIsADefectWithItsVerdict) {
  expect_refused(host_->call(ipc::ProbeCall{}), ISOGATE_INTERNAL, "the unknown verdict 7");
}

class KeepsNothing : public HostCalls {
 protected:
  KeepsNothing() { plugin_ = "keeps_nothing"; }
};

TEST_F(KeepsNothing, ProbeIsADefect) {
  expect_refused(host_->call(ipc::ProbeCall{}), ISOGATE_INTERNAL, "claims kept_execs, but");
}

class ProbesUnmeasured : public HostCalls {
 protected:
  ProbesUnmeasured() { plugin_ = "probes_unmeasured"; }
};

TEST_F(ProbesUnmeasured, ProbeIsADefect) {
  expect_refused(host_->call(ipc::ProbeCall{}), ISOGATE_INTERNAL,
                 "claims isolation `namespace` without evidence");
}

class Remoter : public HostCalls {
 protected:
  Remoter() { plugin_ = "remoter"; }
};

TEST_F(Remoter, ProbeIsADefect) {
  expect_refused(host_->call(ipc::ProbeCall{}), ISOGATE_INTERNAL, "remoter locality");
}

TEST_F(HostCalls, ReadWriteAndLookAtFiles) {
  std::string body;
  ipc::Reply reply = host_->file(FileVerb::kRead, "a/b", &body);
  EXPECT_EQ(body, "a/b");
  EXPECT_EQ(std::get<ipc::Entry>(reply.value).size, 3u);
  reply = host_->file(FileVerb::kStat, "dir");
  EXPECT_EQ(std::get<ipc::Entry>(reply.value).type, ISOGATE_ENTRY_DIRECTORY);
  reply = host_->file(FileVerb::kStat, "odd");
  EXPECT_EQ(std::get<ipc::Entry>(reply.value).type, ISOGATE_ENTRY_OTHER) << "a type of a later version";
  expect_refused(host_->file(FileVerb::kStat, "missing"), ISOGATE_NOT_FOUND, "cannot look at `missing`");
  auto pipe = make_pipe();
  auto complete = make_event();
  ipc::FileCall write;
  write.verb = FileVerb::kWrite;
  write.sandbox_id = kBox;
  write.path = "f";
  write.body = std::move(pipe->read);
  write.complete = Fd(::dup(complete->get()));
  uint64_t id = host_->send(std::move(write));
  ASSERT_EQ(::write(pipe->write.get(), "12345", 5), 5);
  signal_event(complete->get());
  pipe->write.reset();
  EXPECT_EQ(std::get<ipc::Written>(host_->reply_to(id)->value).bytes, 5u);
}

TEST_F(HostCalls, OfAWriteWhoseBodyIsCutOffAreCancelled) {
  auto pipe = make_pipe();
  auto event = make_event();
  ipc::FileCall write;
  write.call.cancel = Fd(::dup(event->get()));
  write.verb = FileVerb::kWrite;
  write.sandbox_id = kBox;
  write.path = "f";
  write.body = std::move(pipe->read);
  write.complete = std::move(*make_event());
  uint64_t id = host_->send(std::move(write));
  ASSERT_EQ(::write(pipe->write.get(), "123", 3), 3);
  signal_event(event->get());
  expect_refused(*host_->reply_to(id), ISOGATE_CANCELLED, "cut off");
}

TEST_F(HostCalls, SayWhatThePluginLeavesOut) {
  expect_refused(host_->file(FileVerb::kMkdir, "d"), ISOGATE_UNSUPPORTED,
                 "the backend cannot make directories");
  expect_refused(host_->file(FileVerb::kMove, "d"), ISOGATE_UNSUPPORTED, "move files");
  expect_refused(host_->file(FileVerb::kRemove, "d"), ISOGATE_UNSUPPORTED, "remove files");
  expect_refused(host_->file(FileVerb::kWatch, "d"), ISOGATE_UNSUPPORTED, "watch directories");
}

void expect_files(std::string_view stream, int count) {
  for (int i = 0; i < count; ++i) {
    auto entry = ipc::take_entry(stream);
    ASSERT_TRUE(entry.ok() && entry->has_value()) << i;
    ASSERT_EQ((*entry)->name, "file-" + std::to_string(i));
  }
  EXPECT_TRUE(stream.empty());
}

TEST_F(HostCalls, ListAnyNumberOfEntries) {
  std::string stream;
  ipc::Reply reply = host_->file(FileVerb::kList, "20000", &stream);
  ASSERT_EQ(reply.status, ISOGATE_OK) << reply.message;
  expect_files(stream, 20000);
}

TEST_F(HostCalls, ListAllThatAPathCanNameWhereSomeAreTooDeep) {
  for (const int count : {3, 20000}) {
    std::string stream;
    const ipc::Reply reply = host_->file(FileVerb::kList, std::to_string(count) + "+", &stream);
    expect_refused(reply, ISOGATE_RESOURCE_EXHAUSTED, "too deep");
    EXPECT_EQ(reply.os_errno, ENAMETOOLONG);
    expect_files(stream, count);
  }
}

TEST_F(HostCalls, RefuseNamesThatAreNotInsideTheDirectory) {
  std::string stream;
  expect_refused(host_->file(FileVerb::kList, "evil", &stream), ISOGATE_INTERNAL, "not inside the directory");
  EXPECT_EQ(stream, "");
}

TEST_F(HostCalls, OfAnUnreadListingAreCancelledOrEndWithTheReader) {
  auto event = make_event();
  auto list = [&](Fd out, const char* path = "1000000") {
    ipc::FileCall call;
    call.call.cancel = Fd(::dup(event->get()));
    call.verb = FileVerb::kList;
    call.sandbox_id = kBox;
    call.path = path;
    call.body = std::move(out);
    return host_->send(std::move(call));
  };
  for (const char* path : {"1000000", "3", "3+"}) {
    auto gone = make_pipe();
    gone->read.reset();
    expect_refused(*host_->reply_to(list(std::move(gone->write), path)), ISOGATE_IO,
                   "cannot write the listing");
  }
  auto pipe = make_pipe();
  uint64_t id = list(std::move(pipe->write));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  signal_event(event->get());
  expect_refused(*host_->reply_to(id), ISOGATE_CANCELLED, "cancelled");
}

TEST_F(HostCalls, EnumerateWhatThePluginFinds) {
  auto pipe = make_pipe();
  ipc::EnumerateCall enumerate;
  enumerate.out = std::move(pipe->write);
  ASSERT_EQ(host_->call(std::move(enumerate)).status, ISOGATE_OK);
  std::string stream = read_all(pipe->read.get());
  std::string_view rest(stream);
  for (int i = 0; i < 3; ++i) {
    const ipc::Found found = **ipc::take_found(rest);
    EXPECT_EQ(found.handle, "handle-" + std::to_string(i));
    EXPECT_EQ(found.flags, i == 1 ? ISOGATE_SANDBOX_RUNS : 0u) << "unknown flags are not passed on";
  }
  EXPECT_TRUE(rest.empty());
}

TEST_F(HostCalls, ListAndRemoveOrphans) {
  auto pipe = make_pipe();
  ipc::OrphansCall list;
  list.out = std::move(pipe->write);
  const ipc::Reply listed = host_->call(std::move(list));
  ASSERT_EQ(listed.status, ISOGATE_OK) << listed.message;
  const std::string stream = read_all(pipe->read.get());
  std::string_view rest(stream);
  const ipc::Found found = **ipc::take_found(rest);
  EXPECT_EQ(found.handle, "container 1");
  EXPECT_EQ(found.flags, ISOGATE_SANDBOX_RUNS);
  EXPECT_TRUE(rest.empty());
  ipc::OrphansCall still;
  still.sandbox_id = found.sandbox_id;
  expect_refused(host_->call(std::move(still)), ISOGATE_INVALID_ARGUMENT, "it runs");
  ipc::OrphansCall remove;
  remove.sandbox_id = found.sandbox_id;
  remove.flags = ISOGATE_ORPHANS_RUNNING;
  EXPECT_EQ(host_->call(std::move(remove)).status, ISOGATE_OK);
  ipc::OrphansCall none;
  none.sandbox_id = kBox;
  expect_refused(host_->call(std::move(none)), ISOGATE_NOT_FOUND, "nothing is left of it");
}

TEST_F(HostCalls, BringEvidence) {
  ipc::EvidenceCall evidence;
  evidence.sandbox_id = kBox;
  evidence.gateway_port = 9090;
  ipc::Reply reply = host_->call(std::move(evidence));
  ASSERT_EQ(reply.status, ISOGATE_OK) << reply.message;
  EXPECT_EQ(std::get<isogate_evidence>(reply.value).uid, 9090u);
  EXPECT_EQ(Limits::of(std::get<isogate_evidence>(reply.value)).get(ISOGATE_LIMIT_PIDS), 7u);
  EXPECT_STREQ(std::get<isogate_evidence>(reply.value).boot_id, "boot");
}

TEST_F(HostCalls, RefuseEvidenceWithMalformedLimits) {
  for (const uint32_t port : {1u, 2u}) {
    ipc::EvidenceCall evidence;
    evidence.sandbox_id = kBox;
    evidence.gateway_port = port;
    expect_refused(host_->call(std::move(evidence)), ISOGATE_INTERNAL, "evidence()");
  }
}

class OlderPlugin : public HostCalls {
 protected:
  OlderPlugin() { plugin_ = "shorter"; }
};

TEST_F(OlderPlugin, ServesWithWhatItKnows) {
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_OK);
  ipc::Reply reply = host_->open("other", kOtherBox);
  ASSERT_EQ(reply.status, ISOGATE_OK);
  EXPECT_EQ(std::get<ipc::Opened>(reply.value).handle, "");
  EXPECT_EQ(std::get<ipc::Opened>(reply.value).uid, 12345u);
  ipc::EvidenceCall evidence;
  evidence.sandbox_id = kBox;
  expect_refused(host_->call(std::move(evidence)), ISOGATE_UNSUPPORTED, "measure its isolation");
  ipc::OrphansCall orphans;
  orphans.sandbox_id = kBox;
  expect_refused(host_->call(std::move(orphans)), ISOGATE_UNSUPPORTED, "what lost sandboxes have left");
  auto pipe = make_pipe();
  ipc::OrphansCall list;
  list.out = std::move(pipe->write);
  EXPECT_EQ(host_->call(std::move(list)).status, ISOGATE_OK)
      << "a plugin that cannot list sandboxes leaves none";
}

class OlderExtension : public HostCalls {
 protected:
  OlderExtension() { plugin_ = "short_extension"; }
};

TEST_F(OlderExtension, ServesWithTheFunctionsThatItHas) {
  auto pipe = make_pipe();
  ipc::OrphansCall list;
  list.out = std::move(pipe->write);
  const ipc::Reply listed = host_->call(std::move(list));
  ASSERT_EQ(listed.status, ISOGATE_OK) << listed.message;
  EXPECT_FALSE(read_all(pipe->read.get()).empty());
  ipc::OrphansCall remove;
  remove.sandbox_id = kBox;
  expect_refused(host_->call(std::move(remove)), ISOGATE_INTERNAL, "lacks a function");
}

class NewerPlugin : public HostCalls {
 protected:
  NewerPlugin() { plugin_ = "longer"; }
};

TEST_F(NewerPlugin, ServesAsAnyOther) { EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_OK); }

class Echo : public HostCalls {
 protected:
  void SetUp() override {
    ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
    BackendConfig backend;
    backend.name = "example";
    backend.plugin = std::string(ISOGATE_BUILD_DIR) + "/examples/" + example_ + ".so";
    backend.run_as = "nobody";
    start(backend);
  }
  std::string example_ = "echo";
};

class Minimal : public Echo {
 protected:
  Minimal() { example_ = "minimal"; }
};

// An end of an agent that never had a sandbox attaches to one first.
void expect_nothing_to_attach_to(HostProcess& host) {
  ipc::OpenCall attach;
  attach.flags = ISOGATE_OPEN_ATTACH_ONLY;
  attach.sandbox_id = kOtherBox;
  attach.tenant = "tenant";
  attach.agent_id = "other";
  const ipc::Reply reply = host.call(std::move(attach));
  EXPECT_EQ(reply.status, ISOGATE_NO_SANDBOX) << reply.message;
}

TEST_F(Minimal, AttachesToNothing) { expect_nothing_to_attach_to(*host_); }
TEST_F(Echo, AttachesToNothing) { expect_nothing_to_attach_to(*host_); }

TEST_F(Minimal, ServesInPlainC) {
  EXPECT_EQ(std::get<isogate_exec_result>(host_->exec({"true"}).value).exit_code, 0);
  EXPECT_EQ(std::get<isogate_exec_result>(host_->exec({"false"}).value).exit_code, 1);
  EXPECT_EQ(std::get<isogate_exec_result>(host_->exec({"other"}).value).flags, ISOGATE_RESULT_NOT_STARTED);
  expect_refused(host_->file(FileVerb::kStat, "x"), ISOGATE_UNSUPPORTED, "has no files");
  EXPECT_EQ(host_->close().status, ISOGATE_OK);
}

TEST_F(Echo, EchoesThroughTheWrapper) {
  std::string output;
  ipc::Reply reply = host_->exec({"echo", "a", "b c"}, &output);
  ASSERT_EQ(reply.status, ISOGATE_OK) << reply.message;
  EXPECT_EQ(output, "a b c\n");
  reply = host_->exec({"ls"});
  EXPECT_EQ(std::get<isogate_exec_result>(reply.value).exit_code, 127);
  EXPECT_EQ(std::get<isogate_exec_result>(reply.value).flags, ISOGATE_RESULT_NOT_STARTED);
}

TEST_F(Echo, AnswersWhatItDoesNotOverrideAsUnsupported) {
  expect_refused(host_->file(FileVerb::kStat, "x"), ISOGATE_UNSUPPORTED, "this backend cannot look at files");
  expect_refused(host_->file(FileVerb::kMkdir, "x"), ISOGATE_UNSUPPORTED, "make directories");
}

TEST_F(Echo, IsKilledWhileItsReaderIsBehind) {
  auto event = make_event();
  ipc::ExecCall exec = exec_call({"echo", std::string(1 << 20, 'x')});
  auto pipe = make_pipe();
  exec.std_out = std::move(pipe->write);
  exec.call.cancel = Fd(::dup(event->get()));
  uint64_t id = host_->send(std::move(exec));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  signal_event(event->get());
  EXPECT_EQ(std::get<isogate_exec_result>(host_->reply_to(id)->value).flags, ISOGATE_RESULT_KILLED);
}

}  // namespace
}  // namespace isogate
