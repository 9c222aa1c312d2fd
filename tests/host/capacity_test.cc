#include "gateway/host/capacity.h"

#include <gtest/gtest.h>
#include <isogate/backend.h>

#include "gateway/base/privileges.h"

namespace isogate {
namespace {

TEST(Capacity, OfTheFewestOpenFilesIsASandboxOfEachOfTwoTenants) {
  for (const uint32_t isolation : {ISOGATE_ISOLATION_NONE, ISOGATE_ISOLATION_NAMESPACE}) {
    const Capacity most = capacity_of({}, isolation, kLeastFiles);
    EXPECT_GE(most.sandboxes, 2U) << isolation;
    EXPECT_EQ(most.calls, 2 * kReserve) << isolation;
  }
}

TEST(Capacity, IsNeverMoreThanItsOpenFiles) {
  for (uint64_t files = kLeastFiles; files <= kMostFiles; files += files / 8) {
    const Capacity most = capacity_of({}, ISOGATE_ISOLATION_NAMESPACE, files);
    EXPECT_LE(most.calls * 16 + most.sandboxes * 24, files) << files;
  }
}

TEST(Capacity, OfManyOpenFilesIsWhatTheConfigurationAdmits) {
  LimitsConfig limits;
  limits.max_sandboxes = 20;
  const Capacity most = capacity_of(limits, ISOGATE_ISOLATION_NAMESPACE, kMostFiles);
  EXPECT_EQ(most.sandboxes, 20U);
  EXPECT_EQ(most.calls, wanted_capacity(limits).calls);
}

}  // namespace
}  // namespace isogate
