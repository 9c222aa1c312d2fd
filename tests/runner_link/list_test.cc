// Listings of a hostile runner.
#include <gtest/gtest.h>

#include <algorithm>

#include "calls.h"
#include "peer.h"

namespace isogate::testing {
namespace {

struct Kept {
  std::vector<std::string> names;
  uint64_t count = 0;
  uint64_t refuse_at = UINT64_MAX;
  isogate_entry last{};
  std::future<void> hold;
  static isogate_status add(void* self, const isogate_entry* entry) {
    auto& kept = *static_cast<Kept*>(self);
    if (kept.hold.valid()) kept.hold.get();
    if (++kept.count >= kept.refuse_at) return ISOGATE_RESOURCE_EXHAUSTED;
    kept.last = *entry;
    if (kept.names.size() < 100) kept.names.emplace_back(sdk::view(entry->name));
    return ISOGATE_OK;
  }
};

struct Listing {
  std::future<Outcome> start(uint64_t limit = 0) {
    auto done = later([this, limit](Outcome&) {
      auto request = file_request("d");
      request.limit = limit;
      link->list(ask.call, request, sdk::EntrySink(sink));
    });
    peer.expect(ISOGATE_RUNNER_FILE);
    return done;
  }
  void say(std::string_view entries) { peer.send(frame(ISOGATE_RUNNER_ENTRIES, 1, entries)); }

  Ask ask;
  Peer peer;
  std::shared_ptr<sdk::RunnerLink> link = peer.link();
  Kept kept;
  const isogate_entry_sink sink{&kept, &Kept::add};
};

TEST(RunnerLinkList, EntriesArriveUnchanged) {
  Listing listing;
  auto done = listing.start();
  listing.say(entry("a") + entry("d", ISOGATE_ENTRY_DIRECTORY, 0));
  listing.say(entry("d/\xff\n.x", ISOGATE_ENTRY_SYMLINK) + entry("...", ISOGATE_ENTRY_OTHER, INT64_MAX));
  listing.peer.send(result_frame(1, success()));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
  EXPECT_EQ(listing.kept.names, (std::vector<std::string>{"a", "d", "d/\xff\n.x", "..."}));
  EXPECT_EQ(listing.kept.last.size, static_cast<uint64_t>(INT64_MAX));
}

TEST(RunnerLinkList, NamesThatLeadElsewhereEndTheConnection) {
  for (const std::string& name :
       {std::string("../../x"), std::string("/etc/passwd"), std::string("a/../b"), std::string("."),
        std::string(".."), std::string("a//b"), std::string("a/"), std::string(""), std::string("a\0b", 3),
        std::string("a/."), std::string("./a")}) {
    SCOPED_TRACE(name);
    Listing listing;
    auto done = listing.start();
    listing.say(entry("good") + entry(name) + entry("after"));
    const Outcome outcome = done.get();
    EXPECT_EQ(outcome.status, ISOGATE_IO) << outcome.message;
    EXPECT_FALSE(listing.link->alive());
    EXPECT_EQ(listing.kept.count, 1u);
  }
}

TEST(RunnerLinkList, TypesAndSizesThatDoNotExistEndTheConnection) {
  for (const std::string& bad : {entry("a", 0), entry("a", 5), entry("a", 1, 1ull << 63)}) {
    Listing listing;
    auto done = listing.start();
    listing.say(bad);
    EXPECT_EQ(done.get().status, ISOGATE_IO);
    EXPECT_EQ(listing.kept.count, 0u);
  }
}

TEST(RunnerLinkList, EntriesThatAreNotWholeEndTheConnection) {
  for (const std::string& bad : {entry("abc").substr(0, 34), entry("a") + "x", entry(std::string(4096, 'n')),
                                 channel_frame(1, 1, 1, 0, "x").substr(0, 4)}) {
    Listing listing;
    auto done = listing.start();
    listing.say(bad);
    EXPECT_NE(done.get().status, ISOGATE_OK);
    EXPECT_FALSE(listing.link->alive());
    EXPECT_EQ(listing.kept.count, 0u);
  }
}

TEST(RunnerLinkList, MoreThanWasAskedForEndsTheConnection) {
  Listing listing;
  auto done = listing.start(2);
  listing.say(entry("a") + entry("b") + entry("c"));
  EXPECT_EQ(done.get().status, ISOGATE_IO);
  EXPECT_EQ(listing.kept.count, 2u);
}

// Repeated into the same sink, the first entries would come twice.
TEST(RunnerLinkList, AListingIsRepeatableUntilAnEntryHasCome) {
  for (const bool came : {false, true}) {
    Listing listing;
    auto done = listing.start();
    if (came) listing.say(entry("a"));
    listing.peer.close();
    const Outcome outcome = done.get();
    EXPECT_EQ(outcome.status, ISOGATE_UNAVAILABLE) << outcome.message;
    EXPECT_EQ(outcome.broke_off, came) << outcome.message;
    EXPECT_EQ(listing.kept.count, came ? 1u : 0u);
  }
}

TEST(RunnerLinkList, AHostThatTakesNoMoreCancelsIt) {
  Listing listing;
  listing.kept.refuse_at = 2;
  auto done = listing.start();
  listing.say(entry("a") + entry("b") + entry("c"));
  listing.peer.expect(ISOGATE_RUNNER_CANCEL);
  listing.say(entry("d"));
  auto said = success();
  said.status = ISOGATE_CANCELLED;
  listing.peer.send(result_frame(1, said));
  EXPECT_EQ(done.get().status, ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(listing.kept.count, 2u);
  EXPECT_TRUE(listing.link->alive());
}

TEST(RunnerLinkList, AMillionEntriesTakeNoMemory) {
  Listing listing;
  auto done = listing.start();
  const size_t before = resident_bytes();
  size_t most = before, credit = ISOGATE_RUNNER_WINDOW;
  std::string some;
  for (int i = 0; i < 1000; ++i) some += entry("directory/file-" + std::to_string(i));
  for (int i = 0; i < 1000; ++i) {
    while (credit < some.size())
      credit += listing.peer.expect(ISOGATE_RUNNER_CREDIT).as<isogate_runner_channel>().bytes;
    credit -= some.size();
    listing.say(some);
    if (i % 32 == 0) most = std::max(most, resident_bytes());
  }
  listing.peer.send(result_frame(1, success()));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
  EXPECT_EQ(listing.kept.count, 1'000'000u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(most - before, 4u << 20);
#endif
}

// While the host processes one entry, another call reads: the listing's credit bounds its entries.
TEST(RunnerLinkList, EntriesBeyondTheCreditEndTheConnection) {
  Listing listing;
  std::promise<void> release;
  listing.kept.hold = release.get_future();
  auto done = listing.start();
  listing.say(entry("first"));
  const Exec exec({"true"});
  auto beside = exec.start(*listing.link);
  listing.peer.expect(ISOGATE_RUNNER_EXEC);
  std::string some;
  for (int i = 0; i < 1000; ++i) some += entry("directory/file-" + std::to_string(i));
  for (int i = 0; i < 10; ++i)
    if (!listing.peer.try_send(frame(ISOGATE_RUNNER_ENTRIES, 1, some))) break;
  EXPECT_EQ(beside.get().status, ISOGATE_LOST);
  EXPECT_NE(listing.link->why().find("credit"), std::string::npos) << listing.link->why();
  release.set_value();
  EXPECT_TRUE(done.get().broke_off);
}

TEST(RunnerLinkList, EvidenceIsTakenAsMeasured) {
  Listing listing;
  isogate_evidence evidence{};
  auto done = later([&](Outcome&) {
    isogate_evidence_request request{};
    request.gateway_port = 8080;
    request.gateway_address = sdk::str("10.0.0.1");
    request.gateway_listeners = sdk::str("[::]:");
    listing.link->evidence(listing.ask.call, request, evidence);
  });
  const Heard heard = listing.peer.expect(ISOGATE_RUNNER_EVIDENCE);
  EXPECT_EQ(heard.as<isogate_runner_measure>().gateway_port, 8080u);
  EXPECT_EQ(heard.payload.substr(12), "10.0.0.1" + raw(uint32_t{5}) + "[::]:");
  auto said = success();
  said.evidence_flags = 0xffffffff;
  said.uid = 1000, said.cap_effective = 5, said.ns_cgroup = 9;
  listing.peer.send(result_frame(1, said, raw(isogate_runner_limit{ISOGATE_LIMIT_PIDS, 0, 64})));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
  EXPECT_EQ(evidence.flags, 15u);
  EXPECT_EQ(evidence.uid, 1000u);
  EXPECT_EQ(evidence.cap_effective, 5u);
  EXPECT_EQ(evidence.ns_cgroup, 9u);
  EXPECT_EQ(sdk::limit_of({evidence.limits, evidence.limit_count}, ISOGATE_LIMIT_PIDS), 64u);
}

}  // namespace
}  // namespace isogate::testing
