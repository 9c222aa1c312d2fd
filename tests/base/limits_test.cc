// A set of limits against its table.
#include "lib/limits.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "lib/capabilities.h"

namespace isogate {
namespace {

Result<Limits> take(const std::vector<isogate_limit>& list, UnknownLimit unknown = UnknownLimit::kRefuse) {
  return Limits::take(list.data(), list.size(), unknown);
}

TEST(Limits, EveryKindHasNamesAndCapabilitiesOfItsOwn) {
  std::set<uint32_t> ids;
  std::set<std::string> words, names, settings;
  uint64_t capabilities = 0;
  for (const LimitKind& kind : kLimitKinds) {
    EXPECT_TRUE(ids.insert(kind.id).second && words.insert(kind.word).second) << kind.name;
    EXPECT_TRUE(names.insert(kind.name).second && settings.insert(kind.setting).second) << kind.name;
    EXPECT_EQ(capabilities & (kind.exec | kind.sampled | kind.sandbox), 0u) << kind.name;
    capabilities |= kind.exec | kind.sampled | kind.sandbox;
    ASSERT_EQ(capability_names(kind.sandbox).size(), 1u);
    EXPECT_EQ(capability_names(kind.sandbox)[0], std::string("sandbox_limit_") + kind.word);
    EXPECT_EQ(capability_names(kind.exec).size(), kind.most_of_exec != 0 ? 1u : 0u) << kind.name;
    EXPECT_EQ(capability_names(kind.sampled).size(), kind.sampled != 0 ? 1u : 0u);
  }
}

TEST(Limits, CrossTheAbiUnchanged) {
  EXPECT_TRUE(take({})->empty());
  EXPECT_TRUE(Limits::take(nullptr, 0)->empty());
  Limits limits;
  for (const LimitKind& kind : kLimitKinds) limits.set(kind.id, kind.scale * kind.id);
  const LimitList list = limits.list();
  EXPECT_EQ(list.count, kLimitKindCount);
  EXPECT_EQ(*Limits::take(list.items.data(), list.count), limits);
  isogate_evidence evidence{};
  limits.put(evidence);
  EXPECT_EQ(Limits::of(evidence), limits);
}

TEST(Limits, WhatIsUnknownTwiceOrMalformedIsRefused) {
  EXPECT_EQ(take({{99, 0, 1}}).error().status, ISOGATE_UNSUPPORTED);
  EXPECT_EQ(take({{0, 0, 1}}).error().status, ISOGATE_UNSUPPORTED);
  EXPECT_EQ(take({{ISOGATE_LIMIT_PIDS, 0, 0}}).error().status, ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(take({{ISOGATE_LIMIT_PIDS, 1, 5}}).error().status, ISOGATE_INVALID_ARGUMENT);
  const std::vector<isogate_limit> twice{{ISOGATE_LIMIT_PIDS, 0, 5}, {ISOGATE_LIMIT_PIDS, 0, 5}};
  EXPECT_EQ(take(twice).error().status, ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(take(std::vector<isogate_limit>(257, {99, 0, 1})).error().status, ISOGATE_INVALID_ARGUMENT);
}

TEST(Limits, OnlyUnknownIdsAreSkipped) {
  const auto limits = take({{99, 0, 1}, {ISOGATE_LIMIT_PIDS, 0, 5}}, UnknownLimit::kSkip);
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(*limits, (Limits{{ISOGATE_LIMIT_PIDS, 5}}));
  EXPECT_FALSE(take({{99, 0, 1}, {99, 0, 1}}, UnknownLimit::kSkip).ok());
}

TEST(Limits, EvidenceWithAnImpossibleCountIsReadToItsEnd) {
  isogate_evidence evidence{};
  evidence.limit_count = UINT32_MAX;
  evidence.limits[ISOGATE_EVIDENCE_LIMITS_MAX - 1] = {ISOGATE_LIMIT_PIDS, 0, 5};
  EXPECT_EQ(Limits::of(evidence).get(ISOGATE_LIMIT_PIDS), 5u);
}

TEST(Limits, TheStricterOfTwoHolds) {
  const Limits a{{ISOGATE_LIMIT_PIDS, 5}, {ISOGATE_LIMIT_CPU_MILLIS, 100}};
  const Limits b{{ISOGATE_LIMIT_PIDS, 9}, {ISOGATE_LIMIT_MEMORY_BYTES, 7}};
  const Limits both{
      {ISOGATE_LIMIT_PIDS, 5}, {ISOGATE_LIMIT_CPU_MILLIS, 100}, {ISOGATE_LIMIT_MEMORY_BYTES, 7}};
  EXPECT_EQ(Limits::stricter(a, b), both);
  EXPECT_EQ(Limits::stricter(b, a), both);
}

TEST(Limits, AreOverriddenOneByOne) {
  const Limits own{{ISOGATE_LIMIT_PIDS, 5}, {ISOGATE_LIMIT_CPU_MILLIS, 100}};
  const Limits others{{ISOGATE_LIMIT_PIDS, 9}, {ISOGATE_LIMIT_MEMORY_BYTES, 7}};
  const Limits both{
      {ISOGATE_LIMIT_PIDS, 9}, {ISOGATE_LIMIT_CPU_MILLIS, 100}, {ISOGATE_LIMIT_MEMORY_BYTES, 7}};
  EXPECT_EQ(own.overridden_by(others), both);
}

TEST(Limits, AreWithinOthersThatAreNoStricter) {
  const Limits few{{ISOGATE_LIMIT_PIDS, 5}};
  const Limits more{{ISOGATE_LIMIT_PIDS, 5}, {ISOGATE_LIMIT_CPU_MILLIS, 100}};
  EXPECT_TRUE(few.within(few) && more.within(few) && few.within({}));
  EXPECT_FALSE(few.within(more));
  EXPECT_FALSE(few.within(Limits{{ISOGATE_LIMIT_PIDS, 4}}));
  EXPECT_EQ(more.only(std::vector<uint32_t>{ISOGATE_LIMIT_PIDS}), few);
}

TEST(Limits, HaveTheClaimsOfTheirKinds) {
  const std::vector<uint32_t> ids{ISOGATE_LIMIT_PIDS, ISOGATE_LIMIT_DISK_BYTES};
  EXPECT_EQ(sandbox_limits(ids), ISOGATE_CAP_SANDBOX_LIMIT_PIDS | ISOGATE_CAP_SANDBOX_LIMIT_DISK);
  EXPECT_EQ(exec_limits(ids), ISOGATE_CAP_LIMIT_PIDS) << "the disk is no limit of an exec";
  EXPECT_EQ(sandbox_limits_like(ISOGATE_CAP_LIMIT_CPU | ISOGATE_CAP_PTY), ISOGATE_CAP_SANDBOX_LIMIT_CPU);
}

TEST(Limits, OfASandboxAreNoneOrEnoughToRunIn) {
  constexpr uint64_t kMib = 1 << 20;
  EXPECT_EQ(Limits().too_low(), "");
  EXPECT_EQ((Limits{{ISOGATE_LIMIT_MEMORY_BYTES, 32 * kMib},
                    {ISOGATE_LIMIT_CPU_MILLIS, 10},
                    {ISOGATE_LIMIT_PIDS, 32},
                    {ISOGATE_LIMIT_DISK_BYTES, 8 * kMib}})
                .too_low(),
            "");
  EXPECT_EQ(Limits({{ISOGATE_LIMIT_MEMORY_BYTES, 32 * kMib - 1}}).too_low(),
            "memory_mb must be 0 or at least 32: nothing runs in less");
  EXPECT_EQ(Limits({{ISOGATE_LIMIT_CPU_MILLIS, 9}}).too_low(),
            "cpu_percent must be 0 or at least 1: nothing runs in less");
  EXPECT_EQ(Limits({{ISOGATE_LIMIT_PIDS, 31}}).too_low(),
            "max_pids must be 0 or at least 32: nothing runs in less");
  EXPECT_EQ(Limits({{ISOGATE_LIMIT_DISK_BYTES, 1}}).too_low(),
            "disk_mb must be 0 or at least 8: nothing runs in less");
}

TEST(Limits, OthersAreNamedByTheirSettings) {
  const Limits limits{{ISOGATE_LIMIT_PIDS, 5}, {ISOGATE_LIMIT_DISK_BYTES, 7}, {ISOGATE_LIMIT_CPU_MILLIS, 1}};
  EXPECT_EQ(limits.settings_beside(std::vector<uint32_t>{ISOGATE_LIMIT_CPU_MILLIS}), "max_pids, disk_mb");
}

}  // namespace
}  // namespace isogate
