#include "plugins/common/plugin_open.h"

#include <gtest/gtest.h>

namespace isogate {
namespace {

TEST(PluginOpen, NamesWhatItDoesNotKnowOfASpecification) {
  isogate_sandbox_spec spec{};
  spec.flags = ISOGATE_OPEN_KNOWN;
  EXPECT_TRUE(check_known(spec, ISOGATE_OPEN_KNOWN).ok());
  spec.flags |= 1U << 30;
  const auto flags = check_known(spec, ISOGATE_OPEN_KNOWN);
  ASSERT_FALSE(flags.ok());
  EXPECT_EQ(flags.error().status, ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(flags.error().message,
            "the sandbox's specification has unknown flags 0x40000000: the gateway is probably newer than "
            "this backend's plugin or runner");
  spec.flags = 0;
  spec.reserved = 18;
  const auto fields = check_known(spec, ISOGATE_OPEN_KNOWN);
  ASSERT_FALSE(fields.ok());
  EXPECT_EQ(fields.error().message.find("the sandbox's specification has unknown fields 0x12: "), 0u);
}

}  // namespace
}  // namespace isogate
